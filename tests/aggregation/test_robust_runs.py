"""Runs with --aggregate and --attack: resuming, seeds, recording, memory, and what is refused before a run."""

import dataclasses
import json
import shutil

import jax
import numpy as np
import pytest

import fedwin
from fedwin.engine.strategy import Strategy
from fedwin.runs.config import Config
from fedwin.runs.directory import set_fields
from fedwin.runs.machine import Memory
from fedwin.runs.plan import make_plan
from fedwin.runs.prepare import prepare
from tests.refusals import refused
from tests.runs.disturbance import assert_same_outcome, interrupted
from tests.small_runs import leaves, lines, run_in, small

SMALL = small(
    num_clients=12,
    clients_per_round=5,
    aggregate="median",
    attack="sign_flip:clients=0.25,scale=3",
    observe=["wima:window=3"],
)


@pytest.mark.slow
@pytest.mark.parametrize("attack", [SMALL.attack, "backdoor:clients=0.25,boost=2"])
def test_a_run_records_its_attackers_and_resumes_to_the_same_bits(tmp_path, attack):
    whole, copy, config = tmp_path / "whole", tmp_path / "copy", dataclasses.replace(SMALL, attack=attack)
    run_in(config, whole)
    recorded = json.loads((whole / "config.json").read_text())["attackers"]
    assert recorded == {"0": np.flatnonzero(fedwin.aggregation.attackers(0, 3, 12)).tolist()}
    interrupted(shutil.copytree(whole, copy), 2)
    run_in(config, copy)
    assert_same_outcome(copy, whole)
    # The stream of examples and other placements give the same numbers.
    other = tmp_path / "other"
    run_in(config, other, examples="stream", rounds_per_dispatch=2)
    assert [line["model"] for line in lines(other)] == [line["model"] for line in lines(whole)]


@pytest.mark.slow
@pytest.mark.parametrize("partition_seed", [-1, 0])
def test_vmapped_seeds_have_their_own_attackers(tmp_path, partition_seed):
    config = dataclasses.replace(SMALL, seeds=[0, 1], partition_seed=partition_seed, attack="label_flip:clients=3")
    alone, together = tmp_path / "alone", tmp_path / "together"
    run_in(config, alone)
    run_in(config, together, seeds_at_once=2)
    for seed in (0, 1):
        for name, value in leaves(alone, 6, seed).items():
            np.testing.assert_allclose(value, leaves(together, 6, seed)[name], rtol=1e-4, atol=1e-5)
    recorded = json.loads((alone / "config.json").read_text())["attackers"]
    assert recorded["0"] != recorded["1"]


def test_runs_without_the_flags_keep_their_identity():
    assert not {"aggregate", "attack"} & set(set_fields(Config().decisive()))
    plain = prepare(dataclasses.replace(SMALL, aggregate="mean", attack="none"))
    assert "attacker" not in plain.federations[0].info and not plain.attackers
    assert [phase.aggregate for phase in plain.algorithm.phases] == [None]
    assert make_plan(plain, Strategy(1)).requirements.device["messages"] == 0


def test_stacked_messages_are_counted_and_refused_where_they_do_not_fit():
    prepared = prepare(SMALL)
    found = make_plan(prepared, Strategy(2)).requirements
    step = sum(leaf.size * 4 for leaf in jax.tree.leaves(jax.eval_shape(prepared.model.init, jax.random.key(0)).params))
    # Five clients are padded to three chunks of two; a message is a step and its weight.
    assert found.device["messages"] == 3 * 6 * (step + 4)
    large = dataclasses.replace(found, device=found.device | {"messages": 1 << 40})
    words = "messages: 1,099,511.6 of .*; lower --clients_per_round, set --aggregate=mean"
    refused(words, large.check_memory, Memory(1 << 34))


@pytest.mark.parametrize(
    "changes, words",
    [
        ({"attack": "none"}, "aggregate=median: --wrap=dp accounts for a sum of the clients' steps"),
        ({"aggregate": "mean"}, "attack=sign_flip: attackers send steps of any size, which --wrap=dp cannot account"),
        ({"aggregate": "mean", "attack": "label_flip"}, None),
    ],
)
def test_private_sums_are_left_alone(changes, words):
    private = ["dp:clip=1,noise=1,neighbors=replace_one"]
    config = dataclasses.replace(SMALL, wrap=private, weighting="uniform", **changes)
    if words is None:
        pytest.importorskip("dp_accounting")
        fedwin.check(config)
    else:
        refused(words, fedwin.check, config)


def test_label_flips_of_sequences_are_refused():
    config = Config(dataset="shakespeare_synthetic", model="shakespeare_lstm", attack="label_flip", clients_per_round=2)
    refused("label_flip needs one class per example, not a sequence", fedwin.check, config)
