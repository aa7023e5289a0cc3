"""Runs with --local_steps, fractional --local_epochs and --local_work."""

import dataclasses
import json

import jax
import numpy as np
import pytest

import fedwin
from fedwin.errors import UserError
from fedwin.runs import directory as directories
from fedwin.runs import prepare
from fedwin.runs.config import Config
from tests.run_lines import lines

SMALL = Config(
    dataset="digits",
    partition="dirichlet:alpha=0.5",
    num_clients=20,
    model="digits_mlp:hidden=8",
    algorithm="fednova",
    local_epochs=2,
    local_work="uniform:low=0.1,high=1",
    num_rounds=8,
    clients_per_round=4,
    eval_every=4,
    final_evals=1,
    checkpoint_every=4,
    rounds_per_dispatch=4,
    strategy="chunked:k=1",
)


def config(directory, **changes):
    return dataclasses.replace(SMALL, out_dir=str(directory), **changes)


def losses(directory, seed=0):
    return [line["model"]["loss"] for line in lines(directory, seed)]


@pytest.fixture(scope="module")
def whole(tmp_path_factory):
    directory = tmp_path_factory.mktemp("work") / "whole"
    fedwin.run(config(directory), quiet=True)
    return directory


@pytest.mark.slow
def test_a_resumed_run_draws_the_same_work(whole, tmp_path):
    part = tmp_path / "part"
    fedwin.run(config(part, num_rounds=4), quiet=True)
    known = json.loads((part / "config.json").read_text())
    assert known["config"]["local_work"] == SMALL.local_work and known["config"]["local_epochs"] == 2
    (part / "summary.json").unlink()
    fedwin.run(config(tmp_path / "forked", fork_from=f"{part}@4"), quiet=True)
    assert lines(tmp_path / "forked", seed=0)[-1] == lines(whole, seed=0)[-1]


@pytest.mark.slow
@pytest.mark.parametrize(
    "changes", [{"strategy": "vmapped"}, {"strategy": "chunked:k=2"}, {"seeds_at_once": 2}], ids=str
)
def test_ways_to_compute_draw_the_same_work(whole, tmp_path, changes):
    fedwin.run(config(tmp_path / "other", seeds=[1, 0], **changes), quiet=True)
    np.testing.assert_allclose(losses(tmp_path / "other", 0), losses(whole), rtol=1e-4)


@pytest.mark.slow
def test_local_steps_of_whole_epochs_are_epochs(tmp_path):
    """Clients of equal size: 1797 examples among 20 clients of 89, in 9 batches of 10."""
    same = dict(partition="iid", algorithm="fedavg", local_work="", batch_size=10, num_rounds=2, eval_every=1)
    sizes = prepare.prepare(config(tmp_path / "none", **same)).federations[0].sizes
    steps = {-(-int(size) // 10) for size in sizes}
    assert len(steps) == 1
    fedwin.run(config(tmp_path / "epochs", **same), quiet=True)
    fedwin.run(config(tmp_path / "steps", **(same | dict(local_epochs=1, local_steps=2 * steps.pop()))), quiet=True)
    assert losses(tmp_path / "steps") == losses(tmp_path / "epochs")


@pytest.mark.slow
def test_clients_are_trained_with_the_work_of_their_round(whole):
    trained = fedwin.load(whole, round=4)
    everything = dataclasses.replace(trained, prepared=dataclasses.replace(trained.prepared, local_work=None))
    work = trained.prepared.local_work(0, 4, np.arange(20))
    leaf = lambda model: np.concatenate([np.ravel(x) for x in jax.tree.leaves(model.params)])
    least = int(work.argmin())
    some, full = (leaf(fedwin.client_models(run, [least])[0]) for run in (trained, everything))
    assert np.abs(some - leaf(trained.variables)).max() < np.abs(full - leaf(trained.variables)).max()


@pytest.mark.slow
def test_a_changed_file_of_work_is_refused(tmp_path):
    path = tmp_path / "work.csv"
    path.write_text("client,work\n1,0.5\n")
    files = dict(local_work=f"file:path={path}", clock="bandwidth")
    first = directories.file_hashes(config(tmp_path, **files))
    assert first["clock"] == "" and len(first["local_work"]) == 16 and directories.file_hashes(Config()) == {}
    short = dict(algorithm="fedavg", num_rounds=1, final_evals=0, local_epochs=1, **files)
    fedwin.run(config(tmp_path / "run", **short), quiet=True)
    path.write_text("client,work\n1,0.6\n")
    with pytest.raises(UserError, match="was run with another file than --local_work=file:path="):
        fedwin.run(config(tmp_path / "run", **short), quiet=True)
