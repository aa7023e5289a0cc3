"""--lora: what is trained, sent and averaged; resuming, forks, export, and a pretrained model that must not change."""

import dataclasses
import shutil

import jax
import numpy as np
import pytest

import fedwin
from fedwin.core import Variables
from fedwin.models import merged
from fedwin.runs.checkpoint import Checkpoints
from fedwin.runs.prepare import prepare
from tests.refusals import refused
from tests.runs.test_start import SMALL as START
from tests.small_runs import leaves, lines, placed

SMALL = dataclasses.replace(START, num_rounds=2, checkpoint_every=1, observe=["wima:window=2"])
# Floats of A and B in the hidden layer, 64 -> 6.
ADAPTERS = 2 * (64 + 6)


@pytest.fixture(scope="module")
def pretrained(tmp_path_factory):
    """Checkpoints of a network that is not the one of any seed."""
    directory = tmp_path_factory.mktemp("pretrained") / "run"
    state = prepare(dataclasses.replace(SMALL, observe=[])).start(7, 1)
    for round in (1, 2):
        moved = state._replace(params=jax.tree.map(lambda leaf, r=round: leaf * (1 + r), state.params))
        Checkpoints(directory / "checkpoints" / "seed_0").save(round, moved, {})
    return directory


@pytest.fixture(scope="module")
def tuned(pretrained, tmp_path_factory):
    """(directory, Config) of a finished run that adapted the pretrained model."""
    directory = tmp_path_factory.mktemp("tuned") / "run"
    mine = placed(
        SMALL, directory, init_from=f"{pretrained}@2", lora="rank=2,alpha=8", partition="shards", client_lr=0.5
    )
    fedwin.run(mine, quiet=True)
    return directory, mine


def test_adapters_alone_are_trained_sent_and_averaged(pretrained, tuned):
    directory, _ = tuned
    found = lines(directory)
    assert found[0]["model"] == found[0]["wima2"]
    assert [line["bytes_up"] for line in found] == [0, 2 * 4 * ADAPTERS, 2 * 2 * 4 * ADAPTERS]
    saved = leaves(directory, 2)
    params = {name: leaf.shape for name, leaf in saved.items() if name.startswith("params.")}
    assert params == {"params.dense1.kernel.a": (64, 2), "params.dense1.kernel.b": (2, 6)}
    trained, average = (fedwin.load(directory, readout=name) for name in ("model", "wima2"))
    for name in ("a", "b"):
        mean = np.mean([leaves(directory, round)[f"params.dense1.kernel.{name}"] for round in (1, 2)], 0)
        np.testing.assert_allclose(average.variables.params["dense1"]["kernel"][name], mean, rtol=1e-6, atol=1e-8)
    network, theirs = merged(trained.model, trained.variables).params, leaves(pretrained, 2)
    for layer, name in (("dense1", "bias"), ("classifier", "kernel"), ("classifier", "bias")):
        np.testing.assert_array_equal(network[layer][name], theirs[f"params.{layer}.{name}"])
    correction = 4 * saved["params.dense1.kernel.a"] @ saved["params.dense1.kernel.b"]
    np.testing.assert_allclose(
        network["dense1"]["kernel"], theirs["params.dense1.kernel"] + correction, rtol=1e-5, atol=1e-6
    )
    assert abs(correction).max() > 1e-3


@pytest.mark.slow
def test_the_exported_model_is_the_merged_network(tuned, tmp_path):
    directory, _ = tuned
    file = fedwin.export(directory, tmp_path / "model.npz", readout="wima2")
    plain = prepare(dataclasses.replace(SMALL, init_from=str(file)))
    start = plain.start(0, 1)
    trained = fedwin.load(directory, readout="wima2")
    x = trained.prepared.dataset.test["x"][:20]
    batch = trained.normalize({"x": jax.numpy.asarray(x)})
    logits = plain.model.apply(Variables(start.params, start.stats), batch, None, False).logits
    np.testing.assert_allclose(logits, trained.logits(x), rtol=1e-5, atol=1e-5)


def test_it_resumes_with_the_same_pretrained_model_alone(pretrained, tuned, tmp_path):
    directory, mine = tuned
    before = lines(directory)
    shutil.rmtree(directory / "checkpoints" / "seed_0" / "2")
    fedwin.run(mine, quiet=True)
    assert lines(directory) == before
    parent = shutil.copytree(directory, tmp_path / "parent")
    fork = dataclasses.replace(mine, out_dir=str(tmp_path / "fork"), fork_from=f"{parent}@1")
    fedwin.run(fork, quiet=True)
    shutil.rmtree(parent)
    shutil.rmtree(tmp_path / "fork" / "checkpoints" / "seed_0" / "2")
    fedwin.run(fork, quiet=True)  # which its own checkpoint continues
    theirs = pretrained / "checkpoints" / "seed_0"
    (theirs / "2").rename(tmp_path / "2")
    shutil.copytree(theirs / "1", theirs / "2")
    try:
        refused("started with other parameters than init_from=.* has now", fedwin.run, mine, quiet=True)
        refused("started from another model than init_from=.* is now; restore that one", fedwin.load, directory)
        fork = dataclasses.replace(fork, fork_from=f"{directory}@1")
        refused("fork_from=.* adapts another model than the parameters of", fedwin.check, fork)
    finally:
        shutil.rmtree(theirs / "2")
        (tmp_path / "2").rename(theirs / "2")


@pytest.mark.parametrize(
    "changes, words",
    [
        (dict(init_from=""), "lora=rank=2 adapts a pretrained model; name it with --init_from"),
        (dict(lora="4"), "lora=4 is not key=value,key=value; write, for instance, --lora=rank=4"),
        (dict(init_from="{base}@2:part=features"), "no 'classifier/bias', which is frozen"),
        (dict(init_from="{tuned}@2"), "corrections of --lora; export that run"),
        (dict(observe=["wima:window=2,part=classifier"]), r"no parameters below its classifier path \(none\)"),
    ],
)
def test_what_is_refused_is_one_line(pretrained, tuned, tmp_path, changes, words):
    own = {"init_from": changes.get("init_from", "{base}@2").format(base=pretrained, tuned=tuned[0])}
    refused(words, fedwin.check, placed(SMALL, tmp_path / "run", **{"lora": "rank=2"} | changes | own))


def test_all_seeds_adapt_one_model(tmp_path):
    plain = prepare(dataclasses.replace(SMALL, seeds=[0, 1]))
    for seed in (0, 1):
        Checkpoints(tmp_path / "checkpoints" / f"seed_{seed}").save(1, plain.start(seed, 1), {})
    two = dataclasses.replace(SMALL, init_from=f"{tmp_path}@1", lora="rank=2", seeds=[0, 1])
    refused("lora: seed 1 would adapt .* seed 1, round 1 and others .* seed 0, round 1", prepare, two)
    shutil.rmtree(tmp_path / "checkpoints" / "seed_1")
    one = prepare(two)
    a = [np.asarray(one.start(seed, 1).params["dense1"]["kernel"]["a"]) for seed in (0, 1)]
    assert abs(a[0] - a[1]).max() > 0.01  # A is the seed's own
