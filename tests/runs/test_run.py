"""Complete runs in this process: determinism, pairing, resuming, rejection, divergence, forks."""

import concurrent.futures
import dataclasses
import json
import shutil

import jax
import jax.numpy as jnp
import numpy as np
import pytest
from flax import linen as nn

import fedwin
from fedwin import ALGORITHMS, data, jax_config, models
from fedwin.runs import prepare
from fedwin.runs.metrics_log import read_lines
from tests.refusals import refused
from tests.runs.conftest import RUN
from tests.runs.disturbance import assert_same_outcome, interrupted
from tests.small_runs import finished_run, leaves, lines, placed, run_in, small

SMALL = dataclasses.replace(
    RUN, wrap=[], observe=["wima:window=3", "ema"], seeds=[0], checkpoint_every=5, keep_checkpoints=3
)
# What compiles fastest, for tests of what has nothing to do with the method or the read-outs.
PLAIN = dict(algorithm="fedavg", observe=[])
finished = finished_run(dataclasses.replace(SMALL, keep_checkpoints=10))


def test_a_run_leaves_what_it_should(finished):
    directory, summary = finished
    names = "config.json metrics.jsonl summary.json SHA256SUMS tensorboard checkpoints .lock"
    assert {path.name for path in directory.iterdir()} == set(names.split())
    assert [line["round"] for line in lines(directory)] == [0, 4, 8, 11, 12]
    last = lines(directory)[-1]
    assert set(last) == {"seed", "round", "model", "wima3", "ema", "train_loss", "bytes_down", "bytes_up"}
    parameters = sum(v.size for k, v in leaves(directory, 12).items() if k.startswith("params."))
    # SCAFFOLD sends two models each way to 4 clients in 12 rounds.
    assert last["bytes_down"] == last["bytes_up"] == 12 * 4 * 2 * 4 * parameters and summary["traces"] == 1
    assert summary["seeds"][0]["final_round"] == 12 and summary["seeds"][0]["diverged_at"] is None
    mean = np.mean([line["wima3"]["accuracy"] for line in lines(directory)[-2:]])
    assert summary["over_seeds"]["wima3"]["accuracy"]["mean"] == pytest.approx(mean)
    assert json.loads((directory / "summary.json").read_text())["fingerprint"] == summary["fingerprint"]
    known = json.loads((directory / "config.json").read_text())
    assert known["strategy"] == "chunked:k=1" and known["versions"]["jax"]


@pytest.mark.parametrize("keep", [0, 5])
def test_resume_equals_the_uninterrupted_run(finished, tmp_path, capsys, keep):
    """Everything after the checkpoint of round `keep` is lost, but some lines after it were written."""
    directory, _ = finished
    copy = interrupted(shutil.copytree(directory, tmp_path / "copy"), keep)
    with open(copy / "metrics.jsonl", "a") as file:
        file.write('{"seed": 0, "rou')
    (copy / ".config.json.1234").write_text("{")
    fedwin.run(placed(SMALL, copy, checkpoint_every=7, keep_rounds=[3, 5]))  # cadence may change
    assert ("seed 0: --keep_rounds is too late for round 3: it" in capsys.readouterr().out) == (keep > 3)
    assert_same_outcome(copy, directory)


def test_the_same_flags_give_the_same_numbers_and_another_seed_others(finished, tmp_path):
    directory, _ = finished
    run_in(SMALL, tmp_path / "seeds", seeds=["1", "0"])
    mine = lines(tmp_path / "seeds")
    assert [x for x in mine if x["seed"] == 0] == lines(directory)  # the same seed, and several seeds = solo runs
    assert [x["model"] for x in mine if x["seed"] == 1] != [x["model"] for x in lines(directory)]


def test_methods_with_one_seed_are_paired(tmp_path):
    one = prepare.prepare(placed(SMALL, tmp_path, algorithm="fedavg", seeds=["0", "1"]))
    two = prepare.prepare(placed(SMALL, tmp_path, algorithm="fedprox:mu=0.1", num_rounds=30))
    order = lambda prepared, seed: prepared.federations[seed].partition.order
    np.testing.assert_array_equal(order(one, 0), order(two, 0))
    assert not np.array_equal(order(one, 0), order(one, 1))
    fixed = prepare.prepare(placed(SMALL, tmp_path, partition_seed=7, seeds=["0", "1"]))
    np.testing.assert_array_equal(order(fixed, 0), order(fixed, 1))


@pytest.mark.parametrize("first, attack", [("inf", "none"), (2.306, "none"), (2.3, "none"), (2.3, "sign_flip")])
def test_a_loss_that_rose_is_noted(first, attack, tmp_path, capsys, monkeypatch):
    losses = lambda line: {"model": {"loss": 2.31 if line["round"] else first, "accuracy": 0.1}}
    altered = lambda path: [line | losses(line) for line in read_lines(path)]
    monkeypatch.setattr("fedwin.runs.run.read_lines", altered)
    stopping = "patience:rounds=1,metric=loss"
    fedwin.run(placed(SMALL, tmp_path, num_rounds=1, attack=attack, early_stopping=stopping, **PLAIN))
    said, remedy = capsys.readouterr().out, "a smaller --client_lr" if attack == "none" else "a robust --aggregate"
    assert f"early_stopping={stopping}: no seed ends before the last round" in said
    assert ("loss rose from" in said) == (f"rose from 2.3 to 2.31; {remedy} may help" in said) == (first == 2.3)


@pytest.mark.parametrize("stop", [True, pytest.param(False, marks=pytest.mark.slow)])
def test_divergence_is_a_result(tmp_path, stop):
    mine = placed(SMALL, tmp_path / "nan", client_lr=1e30, stop_on_divergence=stop, **PLAIN)
    summary = fedwin.run(mine, quiet=True)
    seed = summary["seeds"][0]
    assert seed["diverged_at"] is not None
    assert (seed["final_round"] == 12) is not stop
    again = fedwin.run(mine, quiet=True)["seeds"][0]  # which does not train it again
    assert (again["diverged_at"], again["wall_seconds"]) == (seed["diverged_at"], seed["wall_seconds"])
    json.loads((tmp_path / "nan" / "summary.json").read_text(), parse_constant=lambda c: 1 / 0)


def test_a_fork_continues_anothers_prefix(finished, copied, tmp_path):
    directory, fork = copied, lambda: run_in(SMALL, tmp_path / "fork", fork_from=f"{copied}@10")
    fork()
    bare = [{k: v for k, v in line.items() if k != "train_loss"} for line in lines(tmp_path / "fork")]
    assert bare[0]["round"] == 10  # where the fork begins, as the other run left it
    assert bare[1:] == [{k: v for k, v in x.items() if k != "train_loss"} for x in lines(directory) if x["round"] > 10]
    shutil.rmtree(tmp_path / "fork" / "checkpoints" / "seed_0" / "12")
    fork()
    assert [line["round"] for line in lines(tmp_path / "fork")] == [10, 11, 12]
    for round, changes, words in (
        (3, {}, "no checkpoint of round 3"),
        (5, PLAIN, "does not match"),
        (5, dict(algorithm="fedvarp"), "does not match .* --algorithm=scaffold"),  # has a state of the same names
        (10, dict(num_rounds=10), "leaves nothing to train"),
    ):
        refused(words, run_in, SMALL, tmp_path / "none", fork_from=f"{directory}@{round}", **changes)
    (directory / "SHA256SUMS").unlink()
    about = directory / "config.json"
    about.write_text(about.read_text().replace(finished[1]["fingerprint"], "0123"))
    refused("continues another run than is in fork_from=", fork)
    shutil.rmtree(directory)
    fork()


@pytest.mark.slow
def test_a_fork_that_observes_something_else_starts_its_windows_empty(finished, tmp_path, capsys):
    """Windows of 3 and of 2 have states of other shapes, those of {2, 3} and {3, 2} have not: neither is taken over."""
    directory, _ = finished
    fedwin.run(placed(SMALL, tmp_path / "fork", fork_from=f"{directory}@10", observe=["wima:window=2", "ema"]))
    assert "the observers start at round 10" in capsys.readouterr().out
    mine = lines(tmp_path / "fork")
    # One model was pushed by round 11: the window of two holds just that.
    assert mine[1]["round"] == 11 and mine[1]["wima2"] == mine[1]["model"] != mine[1].get("wima3")


@pytest.mark.slow
def test_a_fork_before_an_average_begins_is_the_whole_run(finished, tmp_path):
    """The fork is made so many rounds before the start that the window is full by then."""
    (directory, _), wrap = finished, "ima:window=2,start=8"
    run_in(SMALL, tmp_path / "fork", fork_from=f"{directory}@5", wrap=[wrap])
    run_in(SMALL, tmp_path / "whole", wrap=[wrap])
    own, whole, other = (
        {line["round"]: line["model"] for line in lines(run) if line["round"] > 5}
        for run in (tmp_path / "fork", tmp_path / "whole", directory)
    )
    assert own == whole and own[8] == other[8] and own[12] != other[12]


def test_objects_take_the_place_of_names(tmp_path):
    generator = np.random.default_rng(0)
    x, y = generator.standard_normal((60, 5)).astype(np.float32), np.arange(60) % 3
    dataset = data.from_arrays(x, y, x, y, name="mine")
    scaled = lambda by: jax.jit(lambda x: x * np.full(4, by, np.float32))
    model = lambda act: models.from_flax(nn.Sequential([nn.Dense(4), act, nn.Dense(3)]), (5,), name="line")
    mine = placed(SMALL, tmp_path / "mine", partition="iid", num_clients=6, num_rounds=4, observe=[])
    prints = [fedwin.run(mine, quiet=True, dataset=dataset, model=model(scaled(2)))["fingerprint"] for _ in range(2)]
    known = json.loads((tmp_path / "mine" / "config.json").read_text())
    assert known["config"]["dataset"] == "mine" and known["config"]["model"] == "line" == known["model"]
    assert lines(tmp_path / "mine")[-1]["round"] == 4 and prints == [known["fingerprint"]] * 2
    for other in (model(scaled(3)), model(nn.tanh)):
        refused("had another object as model=line; use", fedwin.run, mine, quiet=True, dataset=dataset, model=other)
        with pytest.warns(UserWarning, match="had another object as model=line, or"):
            fedwin.load(mine.out_dir, dataset=dataset, model=other)
    fedwin.load(mine.out_dir, dataset=dataset, model=model(scaled(2)))


@pytest.mark.slow
def test_cuts_of_larger_images_reach_the_network_in_training_and_evaluation(tmp_path):
    run_in(SMALL, tmp_path / "cut", augment="crop_flip:size=6", num_rounds=2, **PLAIN)
    kernels = [v.shape for k, v in leaves(tmp_path / "cut", 2).items() if k.startswith("params.") and v.ndim == 2]
    assert 6 * 6 in {shape[0] for shape in kernels}


@pytest.mark.slow
def test_auto_times_the_strategies_and_resume_keeps_the_one_it_chose(tmp_path, capsys):
    plain = dict(strategy="auto", num_rounds=1, sampling="poisson", **PLAIN)
    fedwin.run(placed(SMALL, tmp_path / "auto", **plain))
    said = capsys.readouterr().out
    assert said.count("ms per round") == 2 * len(jax.devices()) and "memory: examples" in said
    chosen = json.loads((tmp_path / "auto" / "config.json").read_text())["strategy"]
    shutil.rmtree(tmp_path / "auto" / "checkpoints")
    fedwin.run(placed(SMALL, tmp_path / "auto", **plain))
    said = capsys.readouterr().out
    assert "ms per round" not in said and f"strategy {chosen}" in said


@pytest.mark.slow
def test_bfloat16_keeps_float32_parameters(tmp_path):
    run_in(SMALL, tmp_path / "p", precision="bfloat16", num_rounds=3, model="digits_cnn")
    assert {str(v.dtype) for k, v in leaves(tmp_path / "p", 3).items() if k.startswith("params")} == {"float32"}
    assert np.isfinite(lines(tmp_path / "p")[-1]["model"]["loss"])


def test_a_run_leaves_jax_as_it_was_configured(tmp_path):
    """A float64 run is trained, beside a run in another thread, and loaded in a program that computes with float32."""
    names = ("enable_x64", "default_matmul_precision", "threefry_partitionable", "default_prng_impl", "debug_nans")
    before = [getattr(jax.config, f"jax_{name}") for name in names]
    mine = placed(SMALL, tmp_path / "wide", precision="float64", model="logistic", num_rounds=1, **PLAIN)
    with concurrent.futures.ThreadPoolExecutor(1) as thread:
        thread.submit((beside := jax_config.settings("float64")).__enter__).result()
        assert [getattr(jax.config, f"jax_{name}") for name in names] == before
        with jax.debug_nans(True), jax.numpy_rank_promotion("raise"), jax.numpy_dtype_promotion("strict"):
            fedwin.run(mine, quiet=True)
        thread.submit(beside.__exit__, None, None, None).result()
    trained = fedwin.load(tmp_path / "wide")
    assert {leaf.dtype for leaf in jax.tree.leaves(trained.variables.params)} == {np.dtype(np.float64)}
    assert trained.logits(np.zeros((2, *trained.prepared.dataset.train["x"].shape[1:]))).dtype == np.float64
    refused("nosuch", fedwin.check, dataclasses.replace(mine, algorithm="nosuch"))
    assert [getattr(jax.config, f"jax_{name}") for name in names] == before
    assert jnp.ones(()).dtype == np.float32


def test_states_of_prng_keys_are_forked_and_stay_on_the_device(tmp_path):
    keys = dict(init=lambda params, key: key, client_init=lambda params, id, key: key)
    builder = lambda setting, solve: ALGORITHMS.build("fedavg", setting, solve)._replace(**keys)
    ALGORITHMS.register("with_keys", builder)
    config = small(algorithm="with_keys")
    run_in(config, tmp_path / "whole")
    run_in(config, tmp_path / "fork", fork_from=f"{tmp_path}/whole@4")
    assert lines(tmp_path / "fork")[-1] == lines(tmp_path / "whole")[-1]
    refused("table=host: clients keep PRNG keys; .*--table=device", run_in, config, tmp_path / "host", table="host")
