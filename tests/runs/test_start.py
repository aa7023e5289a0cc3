"""--init_from: a run starts from the parameters of another run's checkpoint."""

import dataclasses
import json
import shutil

import jax
import numpy as np
import pytest

import fedwin
from fedwin import data, testing
from fedwin.core import Variables
from fedwin.runs.checkpoint import Checkpoints, named_leaves
from fedwin.runs.directory import Identity
from fedwin.runs.prepare import prepare, seed_keys
from fedwin.runs.start import init_source
from tests.refusals import refused
from tests.small_runs import leaves, lines, placed, small

SMALL = small(model="digits_mlp:hidden=6", num_clients=10, clients_per_round=2, num_rounds=1, eval_every=1)


@pytest.fixture(scope="module")
def other(tmp_path_factory):
    """Checkpoints of a run on other data, with three classes and one seed that is not 0."""
    generator = np.random.default_rng(0)
    x, y = generator.random((60, 8, 8, 1)).astype(np.float32), np.arange(60) % 3
    directory = tmp_path_factory.mktemp("other") / "run"
    state = prepare(dataclasses.replace(SMALL, seeds=[5]), data.from_arrays(x, y, x, y, name="three")).start(5, 1)
    store = Checkpoints(directory / "checkpoints" / "seed_5")
    for round in (0, 1):
        store.save(round, state._replace(params=jax.tree.map(lambda leaf, r=round: leaf + r, state.params)), {})
    return directory


@pytest.fixture(scope="module")
def begun(other, tmp_path_factory):
    """(directory, Config) of a finished run that began with the other's features."""
    directory = tmp_path_factory.mktemp("begun") / "run"
    mine = placed(
        SMALL, directory, init_from=f"{other}@1:part=features", seeds=[0, 1], algorithm="fedhbm:first=pretrained"
    )
    fedwin.run(mine, quiet=True)
    return directory, mine


def test_the_features_are_the_other_runs_and_the_rest_is_fresh(other, begun):
    directory, mine = begun
    theirs, fresh = leaves(other, 1, 5), prepare(dataclasses.replace(mine, init_from=""))
    for seed in (0, 1):
        found, drawn = leaves(directory, 0, seed), fresh.model.init(seed_keys(seed)["init"])
        params = {name for name in found if name.startswith("params.")}
        taken = {name for name in params if np.array_equal(found[name], theirs[name])}
        assert taken and params - taken and all(".classifier." in name for name in params - taken)
        np.testing.assert_array_equal(found["params.classifier.kernel"], drawn.params["classifier"]["kernel"])
        # Clients' anchors begin with the model that the run begins with.
        for name in params:
            anchor = found[name.replace("params.", "table.rows.anchor.")]
            np.testing.assert_array_equal(anchor, np.broadcast_to(found[name], anchor.shape))
        assert found["round"] == 0
    known = json.loads((directory / "config.json").read_text())
    assert known["initial"].keys() == {"0", "1"} and known["initial"]["0"] == known["initial"]["1"]


def test_it_resumes_unless_the_other_checkpoint_has_changed(other, begun, tmp_path, capsys):
    directory, mine = begun
    before = lines(directory)
    for seed in (0, 1):
        shutil.rmtree(directory / "checkpoints" / f"seed_{seed}" / "1")
    shutil.rmtree(directory / "checkpoints" / "seed_1")
    fedwin.run(mine)
    assert lines(directory) == before
    assert f"seed 1: starts with the features of {other}, seed 5, round 1" in capsys.readouterr().out
    theirs = other / "checkpoints" / "seed_5"
    (theirs / "1").rename(tmp_path / "1")
    assert fedwin.load(directory, seed=1).round == 1
    refused("no checkpoint of round 1; available: 0", fedwin.run, mine, quiet=True)
    shutil.copytree(theirs / "0", theirs / "1")
    refused("started with other parameters than init_from=.* has now", fedwin.check, mine)
    shutil.rmtree(theirs / "1")
    (tmp_path / "1").rename(theirs / "1")


def test_a_run_whose_checkpoint_lacks_rows_is_prepared_once(begun, tmp_path, monkeypatch):
    fedwin.run(placed(begun[1], tmp_path, seeds=[0], table="host"), quiet=True)
    made = []
    monkeypatch.setattr("fedwin.runs.load.prepare", lambda *args: made.append(prepare(*args)) or made[-1])
    assert fedwin.load(tmp_path).prepared.initial[0].seed == 5 and len(made) == 1


def test_every_seed_begins_with_all_of_its_own(tmp_path):
    plain = prepare(dataclasses.replace(SMALL, seeds=[0, 1]))
    for seed in (0, 1):
        run = plain.start(seed, 1)
        moved = run._replace(params=jax.tree.map(lambda leaf: leaf + 1, run.params))
        Checkpoints(tmp_path / "checkpoints" / f"seed_{seed}").save(1, moved, {})
    prepared = prepare(dataclasses.replace(SMALL, init_from=f"{tmp_path}@1", seeds=[0, 1]))
    for seed in (0, 1):
        mine, theirs = named_leaves({"params": prepared.start(seed, 1).params}), leaves(tmp_path, 1, seed)
        assert len(mine) == 4
        for name, leaf in mine.items():
            np.testing.assert_array_equal(leaf, theirs[name])
    fedwin.check(dataclasses.replace(SMALL, init_from=f"{tmp_path}@1", precision="float64"))


@pytest.mark.parametrize(
    "text, changes, words",
    [
        ("{other}@1", {}, ["'params.classifier.bias'", "[3]", "[10]", "choose another part"]),
        ("{other}@7:part=features", {}, ["no checkpoint of round 7", "0, 1"]),
        ("{other}@1:part=features", {"model": "digits_cnn"}, ["has no 'params.", "the same network"]),
        ("{two}@1", {"seeds": [7]}, ["no seed 7", "0, 1"]),
    ],
)
def test_what_does_not_fit_is_refused_and_writes_nothing(text, changes, words, other, tmp_path):
    two = tmp_path / "two"
    for seed in (0, 1):
        (two / "checkpoints" / f"seed_{seed}").mkdir(parents=True)
    mine = placed(SMALL, tmp_path / "run", init_from=text.format(other=other, two=two), **changes)
    refused(words, fedwin.run, mine, quiet=True)
    assert not (tmp_path / "run").exists()


def test_averages_of_a_wrapper_begin_with_the_statistics_too():
    """Those of the model that a fork continues, or of --init_from: not of a new network."""
    x, y, model = np.zeros((60, 2), np.float32), np.arange(60) % 3, testing.classification().setting.model
    config = dataclasses.replace(SMALL, num_rounds=2, wrap=["primal", "swa:start=0,cycle=1"])
    prepared = prepare(config, data.from_arrays(x, y, x, y), model)
    begun = Variables(model.init(jax.random.key(0)).params, {"mean": np.full(4, 3.0, np.float32)})
    state = prepared.start(0, 1, begun).state
    for average in (state.own, state.inner.own):
        np.testing.assert_array_equal(average.model.stats["mean"], begun.stats["mean"])


def test_the_parameters_of_the_other_run_are_in_the_fingerprint():
    known = Identity({"algorithm": "scaffold"}, {"0": "ab"}, "0.1", "cpu x", "vmapped", {}, {}, {"cores": "2"})
    assert known.fingerprint == "86ae8771dcb36bb7"
    assert dataclasses.replace(known, initial={"0": "cd"}).fingerprint != known.fingerprint


def test_a_directory_and_a_file_may_have_any_name():
    found = init_source("runs/a@3:part=all/b@12:part=classifier")
    assert (str(found.directory), found.round, found.part) == ("runs/a@3:part=all/b", 12, "classifier")
    found = init_source("runs/a@3/b:c.npz:part=features,map=d e.json,layout=torch")
    assert (str(found.path), found.part, found.map) == ("runs/a@3/b:c.npz", "features", "d e.json")
    assert init_source("c.npz:map=1e5").map == "1e5"
