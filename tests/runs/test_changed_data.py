"""Runs on shifted, drifting and long-tailed data: strategies, streams, vmapped seeds, resuming, identity, refusals."""

import dataclasses

import numpy as np
import pytest

import fedwin
from experiments.figures import probing
from fedwin.runs.config import Config
from fedwin.runs.directory import data_hashes, set_fields
from fedwin.runs.prepare import prepare
from fedwin.testing import federations
from tests.refusals import refused
from tests.runs.disturbance import assert_same_to_rounding
from tests.small_runs import finished_run, lines, run_in, small

PLAIN = small(
    partition="dirichlet:alpha=10",
    num_clients=8,
    partition_seed=3,
    val_fraction=0.2,
    model="digits_mlp:hidden=64",
    client_lr=0.2,
    clients_per_round=4,
    local_steps=12,
    eval_every=1,
    final_evals=2,
    eval_val=True,
    eval_clients="all",
    eval_clients_every=3,
    seeds=[0, 1],
)
CHANGED = dict(client_shift="noise:std=0.3,levels=rising", drift="swap:round=3,classes=9", imbalance=4.0)
SMALL = dataclasses.replace(PLAIN, **CHANGED)
whole = finished_run(SMALL)


def test_vmapped_seeds_have_the_same_numbers(whole, tmp_path):
    run_in(SMALL, tmp_path / "run", strategy="vmapped", seeds_at_once=2)
    for seed in (0, 1):
        assert_same_to_rounding(tmp_path / "run", whole[0], seed, rtol=1e-3, accuracy=1e-4)


def test_drift_and_tail_are_visible(whole):
    """The evaluation after the first round of a drift is of the new task."""
    losses = {line["round"]: line["model"] for line in lines(whole[0], seed=0)}
    for metric in ("loss", "val_loss"):
        assert losses[4][metric] > losses[3][metric] + 0.3 and losses[3][metric] < losses[1][metric]
    assert losses[3]["client_loss_weighted"] < losses[3]["val_loss"] + 0.3
    # The pool of held-out examples is as stored; each client's own part of them has its noise.
    assert losses[6]["client_loss_weighted"] > losses[6]["val_loss"] + 0.01
    final = whole[1]["over_seeds"]["model"]
    classes = [final[f"accuracy_class{c}"]["mean"] for c in range(10)]
    assert final["accuracy_head"]["mean"] == pytest.approx(np.mean(classes[:4]), abs=1e-6)
    assert final["accuracy_tail"]["mean"] == pytest.approx(np.mean(classes[7:]), abs=1e-6)
    assert "middle (%)" in repr(whole[1])


def test_figures_are_of_the_changed_data(whole):
    logged = {line["round"]: line["model"] for line in lines(whole[0], seed=0)}
    trained = fedwin.load(whole[0], round=6)
    right = lambda examples: np.argmax(trained.logits(examples["x"]), -1) == examples["y"]
    assert right(probing.examples(trained)).mean() == pytest.approx(logged[6]["accuracy"])
    own = probing.of_clients(trained, range(8), later=-1, held_out=True)
    assert right(own).mean() == pytest.approx(logged[6]["client_accuracy_weighted"])
    # The same examples in the order of their rows, whatever their number.
    rows = np.sort(trained.prepared.federations[0].partition.order)
    few, every = (probing.examples(trained, "train", count) for count in (20, 0))
    assert len(few["y"]) == 20 and len(every["y"]) == len(rows)
    assert all((every["x"] == image).all((1, 2, 3)).any() for image in few["x"])


def test_changed_data_are_other_data_and_plain_runs_keep_their_identity():
    assert not CHANGED.keys() & set(set_fields(Config().decisive()))
    hashed = lambda **changes: data_hashes(prepare(dataclasses.replace(PLAIN, seeds=[0], **changes)).federations)["0"]
    changes = [{name: value} for name, value in CHANGED.items()]
    hashes = [hashed(**each) for each in ({}, *changes, {"client_shift": "blur:radius=0.3,levels=rising"})]
    assert len(set(hashes)) == len(hashes)


@pytest.mark.parametrize(
    "dataset, changes, words",
    [
        ("toy", dict(client_shift="rotation"), r"client_shift=rotation needs images .*'toy'"),
        ("toy", dict(drift="rotate:round=2"), "drift=rotate:round=2 needs images"),
        ("shakespeare_synthetic", dict(client_shift="noise"), "client_shift=noise changes numbers: .* has int32"),
        ("shakespeare_synthetic", dict(drift="swap:round=2"), "drift=swap:round=2 exchanges classes"),
        ("shakespeare_synthetic", dict(imbalance=9.0), "imbalance=9 needs a classification"),
        ("digits", dict(drift="swap:round=6"), "drift=swap:round=6 begins after the last of 6 rounds"),
        ("digits", dict(drift="swap:round=2,classes=11"), "classes=11, and the data set has 10"),
    ],
)
def test_what_makes_no_sense_is_refused_in_one_line(dataset, changes, words):
    model = {"shakespeare_synthetic": "shakespeare_lstm", "toy": "logistic", "digits": "digits_mlp"}[dataset]
    toy = federations.dataset() if dataset == "toy" else None
    refused(words, fedwin.check, Config(dataset=dataset, model=model, num_rounds=6, **changes), dataset=toy)
