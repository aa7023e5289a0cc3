"""Vmapped seeds (--seeds_at_once): each equals its single-seed run, even if others diverge."""

import dataclasses

import jax
import jax.numpy as jnp
import numpy as np
import pytest

import fedwin
from fedwin import core, multi_process, tree
from fedwin.algorithms import ALGORITHMS
from fedwin.engine.strategy import Strategy
from fedwin.runs.checkpoint import Checkpoints, seed_checkpoints
from fedwin.runs.machine import Memory
from fedwin.runs.plan import make_plan
from fedwin.runs.prepare import prepare
from tests.refusals import refused
from tests.runs.disturbance import assert_same_to_rounding
from tests.small_runs import lines, placed, run_in, small

SEEDS = [1, 0, 2]
SHORT = dict(num_clients=10, num_rounds=12, clients_per_round=3, eval_every=4, final_evals=2, checkpoint_every=4)
SMALL = small(
    **SHORT,
    partition="dirichlet:alpha=0.5",
    algorithm="fused",
    observe=["wima:window=3"],
    seeds=SEEDS,
    seeds_at_once=3,
)


@pytest.fixture(scope="module", autouse=True)
def fused():
    """FedAvg whose server draws a number and blows up where that is large, and whose clients draw one and count."""

    def build(setting, solve):
        def client(params, c):
            y = solve(params, c)
            return y.update({"delta": core.mean_step(tree.sub(y.params, params), c.size)}, state=c.state + 1)

        def server(params, fuse, total, round):
            scale = jnp.where((fuse > 0.8) & (round == 5), jnp.inf, 1.0)
            return tree.axpy(scale, total["delta"].value, params), fuse

        draw = lambda params, key: jax.random.uniform(key)
        row = lambda params, id, key: jax.random.uniform(jax.random.fold_in(key, id))
        return core.algorithm(client, server, init=draw, client_init=row)

    ALGORITHMS.register("fused", build)
    yield
    ALGORITHMS.pop("fused")


def assert_same_bits(one, other, seeds=SEEDS):
    for seed in seeds:
        assert lines(one, seed) == lines(other, seed)
        assert seed_checkpoints(one, seed).rounds()[-1] == seed_checkpoints(other, seed).rounds()[-1]
    for group in (path.name for path in (one / "checkpoints").iterdir()):
        mine, theirs = (Checkpoints(run / "checkpoints" / group).latest()[0] for run in (one, other))
        jax.tree.map(np.testing.assert_array_equal, mine, theirs)


def both(tmp_path, config):
    """Runs the seeds at once and one after the other; returns both summaries."""
    alone = run_in(config, tmp_path / "alone", seeds_at_once=1)
    return run_in(config, tmp_path / "together"), alone


@pytest.fixture(scope="module")
def runs(tmp_path_factory):
    """The directory of both runs, and their summaries."""
    where = tmp_path_factory.mktemp("runs")
    return where, *both(where, SMALL)


def test_each_seed_has_the_numbers_that_it_has_alone(runs):
    """One of them diverges in round 7; the others continue."""
    where, together, alone = runs
    ends = {seed: found["diverged_at"] for seed, found in alone["seeds"].items()}
    assert sorted(ends.values(), key=str) == [7, None, None]
    assert {seed: found["diverged_at"] for seed, found in together["seeds"].items()} == ends
    for seed in SEEDS:
        assert_same_to_rounding(where / "together", where / "alone", seed, rtol=1e-3, accuracy=0.01)
    assert together["traces"] == 1 and together["fingerprint"] != alone["fingerprint"]
    # The first line is of a seed's initial state, before the vmapped program ran.
    assert [lines(where / "together", s)[0] for s in SEEDS] == [lines(where / "alone", s)[0] for s in SEEDS]
    assert len({lines(where / "together", s)[-1]["model"]["loss"] for s in SEEDS}) == 3
    assert set(together["seeds"][0]) == set(alone["seeds"][0])


def test_a_seed_is_loaded_and_forked_from_the_checkpoint_of_its_group(runs, tmp_path):
    where, *_ = runs
    assert [path.name for path in (where / "together" / "checkpoints").iterdir()] == ["seeds_1,0,2"]
    ended = next(seed for seed, found in runs[1]["seeds"].items() if found["diverged_at"])
    one = next(seed for seed in SEEDS if seed != ended)
    mine, alone = (fedwin.load(where / name, seed=one) for name in ("together", "alone"))
    assert mine.round == alone.round == 12
    jax.tree.map(lambda a, b: np.testing.assert_allclose(a, b, atol=1e-4), mine.variables, alone.variables)
    assert jax.tree.map(jnp.shape, mine.run) == jax.tree.map(jnp.shape, alone.run)
    assert fedwin.load(where / "together", seed=ended).round == fedwin.load(where / "alone", seed=ended).round == 4
    refused("no checkpoint of round 8; available: 0, 4", fedwin.load, where / "together", seed=ended, round=8)
    run_in(SMALL, tmp_path / "f", fork_from=f"{where / 'together'}@4", seeds=[one])
    assert lines(tmp_path / "f", one)[-1]["model"]["loss"] == pytest.approx(
        lines(where / "together", one)[-1]["model"]["loss"], rel=1e-3
    )


@pytest.mark.parametrize("killed, resumed", [(12, 8), (8, 4)])
def test_a_killed_group_resumes_to_the_same_bits_and_a_stopped_seed_stays_stopped(
    runs, tmp_path, monkeypatch, capfd, killed, resumed
):
    """Seed 2 is stopped in round 8; the group is killed before its checkpoint of that round, or goes on to its last."""
    stop = lambda round, seed, read_outs: fedwin.STOP if (round, seed) == (8, 2) else None
    write = Checkpoints.save

    def save(self, round, *args):
        if round == killed and self.path.name == "seeds_1,0,2":
            raise SystemExit
        write(self, round, *args)

    config = placed(SMALL, tmp_path / "killed")
    with monkeypatch.context() as patch, pytest.raises(SystemExit):
        patch.setattr(Checkpoints, "save", save)
        fedwin.run(config, quiet=True, on_eval=stop)
    summary = fedwin.run(dataclasses.replace(config, keep_rounds=[2, 4]), on_eval=stop)
    assert_same_bits(runs[0] / "together", tmp_path / "killed", seeds=[1, 0])
    assert summary["seeds"][2]["stopped_at"] == 8 == fedwin.load(tmp_path / "killed", seed=2).round
    assert seed_checkpoints(tmp_path / "killed", 2).rounds() == [0, 4, 8]
    assert fedwin.load(tmp_path / "killed", seed=2, round=4).round == 4  # the group's
    said = capfd.readouterr()
    assert f"seeds 1,0,2: resuming after round {resumed}" in said.out
    assert "note: seeds 1,0,2: --keep_rounds is too late for round 2: it has no checkpoint." in said.out
    assert "seeds 1,0,2: round 12/12" in said.err and summary["traces"] == 1


@pytest.mark.parametrize("last", [4, 12])
def test_a_group_that_has_ended_does_not_resume(tmp_path, capfd, last):
    config, stop = placed(SMALL, tmp_path / "run"), lambda round, *_: fedwin.STOP if round == last else None
    ends = [fedwin.run(config, on_eval=stop)["seeds"][1].get("stopped_at", 12) for _ in range(2)]
    assert ends == [last, last] and "resuming" not in capfd.readouterr().out


@pytest.mark.parametrize(
    "changes, words",
    [
        ({"strategy": "auto"}, "strategy=auto.*--strategy=vmapped"),
        ({"strategy": "sharded:devices=2"}, "one device.*--strategy=vmapped"),
        ({"examples": "stream"}, "--examples=device"),
        ({"table": "file"}, "--table=device"),
        ({"window": "host"}, "--window=device"),
    ],
)
def test_what_does_not_go_together_is_refused_in_one_line(tmp_path, changes, words):
    assert "--seeds_at_once=1" in refused(words, fedwin.check, placed(SMALL, tmp_path / "run", **changes))


def test_another_number_and_several_processes_are_refused(runs, monkeypatch):
    refused("--seeds_at_once=3, not 1", fedwin.check, placed(SMALL, runs[0] / "together", seeds_at_once=1))
    plan = make_plan(prepare(SMALL), Strategy(1))
    monkeypatch.setattr(multi_process, "count", lambda: 2)
    refused("one process, and there are 2", plan.check, Memory(1 << 60))


def test_the_requirements_count_every_vmapped_seed():
    strategy, alone = Strategy(1), dataclasses.replace(SMALL, seeds_at_once=1)
    mine, one = (make_plan(prepare(config), strategy).requirements.device for config in (SMALL, alone))
    assert mine["clients in training"] == 3 * one["clients in training"]
    assert mine["observers"] == 4 * one["observers"]  # and the one that is being saved
    assert one["examples"] < mine["examples"] < 1.2 * one["examples"]


@pytest.mark.slow
@pytest.mark.parametrize(
    "changes",
    [
        {"algorithm": "fedavg", "partition": "iid", "model": "digits_cnn"},
        {"algorithm": "scaffold", "partition_seed": 3, "strategy": "vmapped", "seeds": [4, 0, 2], "seeds_at_once": 2},
        {"algorithm": "fedhbm:first=random", "wrap": ["ima:window=2,start=0.5"]},
        {"algorithm": "fedavg", "observe": ["swa:start=0.5,cycle=2", "ema"], "val_fraction": 0.2, "eval_val": True},
        {"algorithm": "fedprox:mu=0.1", "observe": ["wima:window=3", "wima:window=4,weights=cosine"]},
    ],
    ids=lambda changes: changes["algorithm"],
)
def test_other_methods_models_and_deals(tmp_path, changes):
    config = dataclasses.replace(SMALL, **changes)
    together, alone = both(tmp_path, config)
    for seed in config.seeds:
        assert_same_to_rounding(tmp_path / "together", tmp_path / "alone", seed, rtol=1e-3, accuracy=0.02)
    assert together["traces"] <= max(alone["traces"], 3)
    run_in(config, tmp_path / "again")
    assert_same_bits(tmp_path / "together", tmp_path / "again", config.seeds)
