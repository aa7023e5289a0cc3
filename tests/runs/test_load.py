"""Loading trained models from run directories, and clients' models of one more round."""

import dataclasses
import json

import jax
import numpy as np
import pytest

from fedwin import data, sampling, tree
from fedwin.core import Variables
from fedwin.runs.load import client_models, load, prepared_run
from fedwin.runs.metrics_log import read_lines
from fedwin.runs.run import run
from tests.refusals import refused
from tests.small_runs import placed, run_in, small

SMALL = small(
    num_clients=12, model="digits_mlp:hidden=8", num_rounds=2, clients_per_round=3, batch_size=16, checkpoint_every=1
)


@pytest.fixture(scope="module")
def own_data(tmp_path_factory):
    """A finished run of Ditto, whose server model is FedAvg's, on data that an object holds."""
    directory = tmp_path_factory.mktemp("own") / "run"
    run(placed(SMALL, directory, algorithm="ditto"), quiet=True, dataset=arrays(0))
    return directory


@pytest.mark.parametrize("seed, round, readout", [(0, None, "model"), (1, 8, "wima3")])
def test_a_loaded_model_is_the_one_that_was_evaluated(finished, seed, round, readout):
    trained = load(finished[0], seed=np.int64(seed), round=round, readout=readout)
    assert trained.round == (round or 12)
    test = trained.prepared.dataset.test
    accuracy = (np.argmax(trained.logits(test["x"]), -1) == test["y"]).mean()
    lines = read_lines(finished[0] / "metrics.jsonl")
    line = next(line for line in lines if (line["seed"], line["round"]) == (seed, trained.round))
    assert accuracy == pytest.approx(line[readout]["accuracy"], abs=1e-6)


def test_the_mean_of_a_cohorts_models_is_the_next_rounds_model(own_data):
    cohort = sampling.cohort(0, 1, 12, 3)
    before = load(own_data, round=1, dataset=arrays(0))
    models = client_models(before, cohort)
    sizes = before.prepared.federations[0].sizes[cohort]
    mean = tree.map(lambda *leaves: sum(n * w for n, w in zip(sizes, leaves, strict=True)) / sizes.sum(), *models)
    after = load(own_data, round=2, dataset=arrays(0)).variables
    jax.tree.map(lambda a, b: np.testing.assert_allclose(a, b, rtol=1e-4, atol=1e-6), mean, after)


@pytest.mark.slow
@pytest.mark.parametrize("algorithm", ["mime:beta=0.5", "fedfa"])
def test_clients_of_every_kind_of_algorithm_return_their_models(tmp_path, algorithm):
    run(placed(SMALL, tmp_path / "run", algorithm=algorithm), quiet=True)
    models = *client_models(tmp_path / "run", [2, 5]), load(tmp_path / "run").variables
    first, second, start = (np.asarray(jax.tree.leaves(model)[0]) for model in models)
    assert (first != second).any() and (first != start).any()


@pytest.mark.parametrize("server", ["", "buffer:concurrency=5"])
def test_clients_at_rate_0_return_the_model_that_they_receive(tmp_path, server):
    """Not the server's: a look-ahead from a mix with an average."""
    run_in(SMALL, tmp_path, algorithm="fedacg", wrap=["feedback"], clock="exponential", asynchronous=server)
    trained = load(tmp_path)
    still = dataclasses.replace(trained.prepared, solver=dataclasses.replace(trained.prepared.solver, lr=0.0))
    (returned,) = client_models(dataclasses.replace(trained, prepared=still), [2])
    for a, b, server in zip(*map(jax.tree.leaves, (returned, trained.received, Variables(trained.run.params)))):
        np.testing.assert_allclose(a, b, rtol=1e-6)
        assert np.abs(a - server).max() > 1e-4


def test_what_is_not_there_is_one_line(finished, tmp_path):
    finished = finished[0]
    for call, words in (
        (lambda: load(tmp_path), "config.json can't be read"),
        (lambda: load(finished, seed=3), "seed=3"),
        (lambda: load(finished, round=9), "no checkpoint of round 9"),
        (lambda: load(finished, readout="wima9"), "model, ema, wima3, wima2_classifier"),
        (lambda: load(finished, readout=None), "readout='None'"),
        (lambda: client_models(finished, [1, 1]), "each once"),
        (lambda: client_models(finished, [20]), "0..19"),
        (lambda: client_models(finished, []), "each once"),
        (lambda: client_models(finished, [0.5]), "clients=.0.5.: give a list"),
        (lambda: client_models(finished, "12"), "clients=12: give a list"),
        (lambda: client_models(load(finished), [0], seed=1), "load is of seed 0, round 12"),
        (lambda: client_models(load(finished), [0], round=8), "load is of seed 0, round 12"),
        (lambda: load(finished, round="4"), "round='4' must be an integer"),
        (lambda: load(finished).logits(np.zeros((8, 8, 1))), "shape .8, 8, 1.; .* shape .1, 8, 8, 1."),
        (lambda: load(finished).logits(np.zeros((2, 8, 8, 3))), "^logits: model .* examples of shape .8, 8, 3."),
        (lambda: load(finished, model="digits_mlp"), "model is a str, not a fedwin.models.Model"),
    ):
        refused(words, call)


def arrays(seed):
    rng = np.random.default_rng(seed)
    x, y = rng.normal(size=(120, 8, 8, 1)).astype(np.float32), np.arange(120, dtype=np.int32) % 10
    return data.from_arrays(x[:80], y[:80], x[80:], y[80:], mean=0.5, std=2)


def test_whole_numbers_are_taken_as_the_data_set_stores_them(finished, own_data):
    x = np.full((1, 8, 8, 1), 3)
    for trained, dtype in ((load(finished[0]), np.uint8), (load(own_data, dataset=arrays(0)), np.float32)):
        np.testing.assert_array_equal(trained.logits(x), trained.logits(x.astype(dtype)))


def test_other_data_of_the_same_shape_is_refused(own_data):
    resumed = lambda directory, **objects: run(placed(SMALL, directory, algorithm="ditto"), quiet=True, **objects)
    refused("other data than .* another mean", resumed, own_data, dataset=dataclasses.replace(arrays(0), mean=0.4))
    for evaluate in (load, lambda directory, **objects: client_models(directory, [0], **objects), prepared_run):
        for other in arrays(1), dataclasses.replace(arrays(0), mean=0.4):
            refused("on other data than dataset=.* has, or with another mean or std", evaluate, own_data, dataset=other)
        refused("was run with an object, dataset=arrays; give it as dataset=", evaluate, own_data)


def test_a_directory_imports_nothing_unless_the_user_names_it(copied, tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    (tmp_path / "somebodys_code.py").write_text("import pathlib\npathlib.Path('executed').touch()\n")
    contents = json.loads((copied / "config.json").read_text())
    contents["config"]["imports"] = ["somebodys_code.py"]
    (copied / "config.json").write_text(json.dumps(contents))
    (copied / "SHA256SUMS").unlink()
    for reads in (load, lambda directory: client_models(directory, [0]), prepared_run):
        refused("uses the code of somebodys_code.py.* name it: --import", reads, copied)
    assert not (tmp_path / "executed").exists()
    load(copied, imports=["somebodys_code.py"])
    assert (tmp_path / "executed").exists()
    load(copied)  # named once in this process
