"""Evaluation on held-out examples: pooled over clients, without effect on training."""

import dataclasses

import numpy as np
import pytest

import fedwin
from fedwin.engine import evaluate
from fedwin.errors import UserError
from fedwin.runs.config import Config
from fedwin.runs.metrics_log import read_lines
from fedwin.runs.prepare import prepare
from fedwin.runs.run import measure_requirements

SMALL = Config(
    dataset="digits",
    partition="yurochkin:alpha=0.5",
    num_clients=12,
    model="digits_mlp:hidden=8",
    num_rounds=3,
    clients_per_round=4,
    batch_size=16,
    observe=["wima:window=2"],
    val_fraction=0.25,
    eval_every=2,
    final_evals=1,
    eval_batch_size=64,
    strategy="chunked:k=1",
    seeds=[0, 1],
)


@pytest.fixture(scope="module")
def watched(tmp_path_factory):
    """(directory, summary) of a run whose held-out examples are evaluated."""
    directory = tmp_path_factory.mktemp("validation") / "run"
    return directory, fedwin.run(dataclasses.replace(SMALL, eval_val=True, out_dir=str(directory)), quiet=True)


def test_the_pool_is_what_clients_hold_out(watched):
    directory, summary = watched
    seed = 1
    federation = prepare(SMALL).federations[seed]
    rows = np.concatenate([federation.validation.client(k) for k in range(SMALL.num_clients)])
    assert len(rows) == len(set(rows)) > 300 and not set(rows) & set(federation.partition.order)
    x, y = (federation.dataset.train[name][rows] for name in ("x", "y"))
    for readout in ("model", "wima2"):
        logits = np.asarray(fedwin.load(directory, readout=readout, seed=seed).logits(x), np.float64)
        final = summary["seeds"][seed]["final"][readout]
        assert final["val_accuracy"] == pytest.approx(np.mean(logits.argmax(1) == y), abs=1e-6)
        log_sums = np.log(np.exp(logits - logits.max(1, keepdims=True)).sum(1)) + logits.max(1)
        assert final["val_loss"] == pytest.approx(np.mean(log_sums - logits[np.arange(len(y)), y]), rel=1e-4)


@pytest.mark.slow
def test_training_and_test_numbers_are_those_without_it(watched, tmp_path):
    plain, (directory, summary) = tmp_path / "plain", watched
    unwatched = fedwin.run(dataclasses.replace(SMALL, out_dir=str(plain)), quiet=True)
    for one, two in zip(read_lines(plain / "metrics.jsonl"), read_lines(directory / "metrics.jsonl"), strict=True):
        for name in set(one) - {"seconds"}:
            known = two[name] if name not in ("model", "wima2") else {m: two[name][m] for m in ("loss", "accuracy")}
            assert known == one[name], name
        assert set(two["model"]) == {"loss", "accuracy", "val_loss", "val_accuracy"}
    assert summary["over_seeds"]["wima2"]["val_accuracy"]["seeds"] == 2 and summary["traces"] == unwatched["traces"]


def test_batches_of_seeds_of_other_sizes_have_one_shape():
    federations = prepare(SMALL).federations
    sizes = {len(federation.validation.order) for federation in federations.values()}
    shapes = {seed: evaluate.validation_batches(federations, seed, 1000)["mask"].shape for seed in federations}
    assert len(sizes) == 2 and set(shapes.values()) == {(1, max(sizes))}


def test_what_is_not_held_out_cannot_be_evaluated(tmp_path, monkeypatch):
    wanted = dataclasses.replace(SMALL, eval_val=True, out_dir=str(tmp_path / "run"))
    for changes, words in (
        ({"val_fraction": 0.0}, "set --val_fraction"),
        ({"val_fraction": 0.01, "num_clients": 100, "partition": "iid"}, "raise --val_fraction"),
    ):
        with pytest.raises(UserError, match=words):
            fedwin.check(dataclasses.replace(wanted, **changes))
    monkeypatch.setattr(evaluate, "TEST_BYTES", 1000)
    with pytest.raises(UserError, match="lower --val_fraction"):
        evaluate.check_validation(prepare(SMALL).federations[0], 0)
    assert not (tmp_path / "run").exists()


@pytest.mark.slow
def test_a_run_that_evaluates_them_can_be_timed():
    config = dataclasses.replace(SMALL, eval_val=True, seeds=[0])
    assert measure_requirements(config, rounds=2, seconds=1.0).timing.seconds_per_round > 0
