"""Evaluation on held-out examples (--eval_val) and on each client's own (--eval_clients), personalized too."""

import dataclasses
import functools
import shutil
import types

import jax
import numpy as np
import pytest
from scipy.special import log_softmax

import fedwin
from experiments import figure
from fedwin.core import Mean
from fedwin.data import Dataset, Partition
from fedwin.engine import client_evaluation, evaluate
from fedwin.personalization import PERSONALIZERS, Personalizer
from fedwin.runs import client_evaluations
from fedwin.runs.config import Config
from fedwin.runs.metrics_log import client_file, read_lines
from fedwin.runs.prepare import prepare
from fedwin.runs.run import measure_requirements
from fedwin.runs.schedule import Schedule
from fedwin.runs.timing import Timing
from fedwin.testing import federations
from tests.algorithms.identities import leaves
from tests.algorithms.softmax_clients import WIDTH, cross_entropy, gradient, linear_model, network
from tests.refusals import refused
from tests.runs import test_processes
from tests.runs.disturbance import assert_same_outcome, interrupted
from tests.small_runs import placed, run_in, small

# Sizes of the clients' training and test parts; the last two test clients never train, and client 1 has no test part.
TRAIN, TEST = (9, 4, 14, 6, 5, 11), (3, 0, 9, 2, 5, 4, 7, 11)
LR, BATCH = 0.2, 4


def natural_data() -> Dataset:
    """Gaussian classes by writer; the test part lists the writers in another order."""
    names = np.array([f"w{k}" for k in range(8)])
    data = federations.dataset(sum(TRAIN))
    pick = np.random.default_rng(3).permutation(sum(TEST)).astype(np.int32)
    cuts = np.concatenate([[0], np.cumsum(TEST)])
    present = [k for k in reversed(range(8)) if TEST[k]]
    test = Partition.from_lists([pick[cuts[k] : cuts[k + 1]] for k in present], ids=names[present])
    train = Partition.from_lists(np.split(np.arange(sum(TRAIN)), np.cumsum(TRAIN)[:-1]), ids=names[:6])
    return dataclasses.replace(data, natural=train, test_natural=test)


LINEAR = linear_model(inputs=6, classes=4)
NATURAL = Config(
    partition="natural",
    num_rounds=6,
    clients_per_round=2,
    batch_size=BATCH,
    shuffle=False,
    client_lr=0.05,
    observe=["wima:window=2"],
    eval_every=4,
    final_evals=1,
    strategy="chunked:k=4",  # more than take part in a round
    eval_clients="all",
    eval_clients_every=3,
    personalize=[f"finetune:lr={LR},epochs=2", f"finetune:lr={LR},part=classifier", "finetune:lr=0,part=features"],
)


def train(directory, **changes):
    return fedwin.run(placed(NATURAL, directory, **changes), quiet=True, dataset=natural_data(), model=LINEAR)


@pytest.fixture(scope="module")
def natural(tmp_path_factory):
    """The directory of a run on natural clients, of which two never train."""
    directory = tmp_path_factory.mktemp("natural") / "run"
    train(directory)
    return directory


def lines_of(directory):
    return {line["round"]: line for line in read_lines(directory / "metrics.jsonl")}


def measured(params, x, y):
    """Returns accuracy and loss of numpy's linear model, in float64."""
    theta = leaves(params).astype(np.float64)
    return np.mean(network(theta, x)[1].argmax(1) == y), cross_entropy(theta, x, y)


def fine_tuned(theta, x, y, epochs, trained):
    """Gradient descent on consecutive batches, of the parameters that a mask has."""
    for _ in range(epochs):
        for begin in range(0, len(y), BATCH):
            batch = x[begin : begin + BATCH], y[begin : begin + BATCH]
            theta = theta - LR * trained * gradient(theta, batch)
    return theta


@pytest.mark.parametrize("readout", ["model", "wima2"])
def test_clients_and_fine_tuning_are_those_of_numpy(natural, readout):
    data, table = natural_data(), fedwin.client_table(natural)
    p = leaves(fedwin.load(natural, readout=readout, dataset=data, model=LINEAR).variables.params).astype(np.float64)
    classifier = np.arange(p.size) >= data.train["x"].shape[1] * WIDTH
    assert table["id"].tolist() == ["w0", "w2", "w3", "w4", "w5", "w7", "w6"]
    assert table["seen"].tolist() == [True] * 5 + [False] * 2 and table["client"].tolist() == [0, 2, 3, 4, 5, 0, 1]
    for row, name in enumerate(table["id"]):
        client = int(name[1])
        own = data.test_natural.client(data.test_natural.ids.tolist().index(name))
        x, y = data.test["x"][own].astype(np.float64), data.test["y"][own]
        models = {"": p}
        if client < 6:
            mine = data.natural.client(client)
            learn = data.train["x"][mine].astype(np.float64), data.train["y"][mine]
            models["finetune."] = fine_tuned(p, *learn, 2, 1)
            models["finetune_classifier."] = fine_tuned(p, *learn, 1, classifier)
            models["finetune_features."] = p  # its rate is 0
        for kind, model in models.items():
            accuracy, loss = measured(model, x, y)
            assert table[f"{readout}.{kind}accuracy"][row] == pytest.approx(accuracy)
            assert table[f"{readout}.{kind}loss"][row] == pytest.approx(loss, rel=1e-4)
        assert table["examples"][row] == len(y) == TEST[client]
    assert np.isnan(table[f"{readout}.finetune.loss"][-2:]).all()
    evaluated = lines_of(natural)
    assert [round for round, line in evaluated.items() if "clients" in line] == [3, 6]
    for kind, rows in (("client", table["seen"]), ("unseen", ~table["seen"])):
        mean = np.average(table[f"{readout}.accuracy"][rows], weights=table["examples"][rows])
        assert evaluated[6][readout][f"{kind}_accuracy_weighted"] == pytest.approx(mean)


def test_a_resumed_run_writes_the_same_tables(natural, tmp_path):
    """An interrupted run has a checkpoint of round 0, a table of round 3, and remains of a killed write."""
    copy = interrupted(shutil.copytree(natural, tmp_path / "copy"), 0)
    client_file(copy, 0, 3).with_name(".round_6.npz.abc").write_bytes(b"half")
    train(copy)
    assert sorted(path.name for path in (copy / "clients" / "seed_0").iterdir()) == ["round_3.npz", "round_6.npz"]
    for round in (3, 6):
        assert client_file(copy, 0, round).read_bytes() == client_file(natural, 0, round).read_bytes()
    assert_same_outcome(copy, natural)


def test_an_altered_table_is_refused(natural, tmp_path):
    copy = tmp_path / "copy"
    shutil.copytree(natural, copy)
    client_file(copy, 0, 3).write_bytes(client_file(copy, 0, 6).read_bytes())
    refused(r"round_3\.npz has been altered", fedwin.client_table, copy, round=3)
    refused(r"round_3\.npz is gone or damaged; restore it", train, copy)
    refused("no evaluation of clients of round 4 with seed 0; available: 3, 6", fedwin.client_table, copy, round=4)
    refused("no evaluation of clients with seed 9; available: seed 0", fedwin.client_table, copy, 9)
    options = types.SimpleNamespace(labels=[], readouts=[], metric="", seed=0, round=6)
    assert figure._clients([copy], options)[1] == "accuracy of clients on their own examples after round 6, seed 0"
    client_file(copy, 0, 6).unlink()
    refused(r"round_6\.npz can't be read", fedwin.client_table, copy)


def test_figures_are_numpys():
    draw = np.random.default_rng(0)
    weight = draw.integers(0, 9, 37).astype(float)
    total = draw.random(37) * weight
    found = client_evaluations.figures(Mean(total, weight))
    kept = weight > 0
    values = np.sort(total[kept] / weight[kept])
    assert found["mean"] == pytest.approx(values.mean()) and found["std"] == pytest.approx(values.std())
    assert found["weighted"] == pytest.approx(total.sum() / weight.sum()) and kept.sum() == 29
    assert found["worst10"] == pytest.approx(values[:3].mean()) and found["best10"] == pytest.approx(values[-3:].mean())
    assert [found[f"p{p}"] for p in (5, 50, 95)] == pytest.approx(np.percentile(values, (5, 50, 95)).tolist())
    loss = client_evaluations.figures(Mean(total, weight), small_is_good=True)
    assert (loss["worst10"], loss["best10"]) == (found["best10"], found["worst10"])
    assert all(np.isnan(value) for value in client_evaluations.figures(Mean(np.zeros(2), np.zeros(2))).values())
    for lost in (np.inf, np.nan):
        diverged = client_evaluations.figures(Mean(np.array([1.0, lost, 2.0]), np.ones(3)), small_is_good=True)
        np.testing.assert_equal((diverged["worst10"], diverged["best10"], diverged["std"]), (lost, 1, np.nan))
        assert (diverged["p50"], diverged["p75"]) == (2, np.inf)


DIGITS = small(
    partition="yurochkin:alpha=0.5",
    num_clients=12,
    model="digits_mlp:hidden=8",
    clients_per_round=4,
    batch_size=16,
    observe=["wima:window=2"],
    val_fraction=0.25,
    eval_val=True,
    eval_every=4,
    eval_clients="all",
    eval_clients_every=3,
)


@pytest.mark.parametrize(
    "changes, words",
    [
        ({"eval_clients": "0"}, "must be 'all' or a number"),
        ({"eval_clients": ""}, "set --eval_clients=all, or leave it out"),
        ({"eval_clients_every": 0, "early_stopping": "patience:rounds=2"}, "set --eval_clients_every"),
        ({"early_stopping": "target:value=1,metric=client_accuracy_p5"}, "not every evaluation has client_accuracy_p5"),
        ({"val_fraction": 0.0, "eval_val": False}, "hold some out with --val_fraction"),
        ({"val_fraction": 0.001, "eval_val": False}, "raise --val_fraction"),
        ({"personalize": ["finetune", "finetune:lr=1"]}, "'finetune' is given twice"),
        ({"personalize": ["odd"]}, "must return core.Variables"),
        ({"personalize": ["failing"]}, "'failing' fails: ZeroDivisionError"),
    ],
)
def test_what_can_not_be_evaluated_is_refused(changes, words, tmp_path):
    adapt = {"odd": lambda model, client: model.params, "failing": lambda model, client: 1 / 0}
    for name, function in adapt.items():
        PERSONALIZERS.register(name, lambda setting, solve, name=name, f=function: Personalizer(name, f))
    refused(words, fedwin.check, placed(DIGITS, tmp_path / "run", **changes))


@pytest.mark.parametrize("every, rounds", [(0, [10]), (4, [4, 8, 10]), (5, [5, 10])])
def test_the_schedule_counts_evaluations_of_clients(every, rounds):
    counts = dict(num_rounds=10, eval_every=3, final_evals=2, checkpoint_every=0)
    schedule = Schedule(Config(**counts, eval_clients="all", eval_clients_every=every))
    assert [r for r in range(11) if schedule.clients_evaluated(r)] == rounds
    ends, at = [], 0
    while at < 10:
        at = schedule.dispatch_end(at, 50)
        ends.append(at)
    assert set(rounds) <= set(ends)
    assert Timing(0.0, 0.0, 0.0, 2.0).expected(schedule, [0]) == 2.0 * len(rounds)


def test_the_pool_is_what_clients_hold_out(tmp_path):
    changes = dict(eval_clients="", eval_clients_every=0, num_rounds=2, seeds=[0, 1], out_dir=str(tmp_path / "run"))
    config, seed = dataclasses.replace(DIGITS, **changes), 1
    summary = fedwin.run(config, quiet=True)
    federations = prepare(config).federations
    federation = federations[seed]
    rows = np.concatenate([federation.validation.client(k) for k in range(DIGITS.num_clients)])
    assert len(rows) == len(set(rows)) > 300 and not set(rows) & set(federation.partition.order)
    x, y = (federation.dataset.train[name][rows] for name in ("x", "y"))
    for readout in ("model", "wima2"):
        logits = np.asarray(fedwin.load(tmp_path / "run", readout=readout, seed=seed).logits(x), np.float64)
        final = summary["seeds"][seed]["final"][readout]
        assert final["val_accuracy"] == pytest.approx(np.mean(logits.argmax(1) == y), abs=1e-6)
        assert final["val_loss"] == pytest.approx(-log_softmax(logits, 1)[np.arange(len(y)), y].mean(), rel=1e-4)
    # Batches of seeds with other numbers of held-out examples have one shape.
    sizes = {len(each.validation.order) for each in federations.values()}
    shapes = {evaluate.validation_batches(federations, each, 1000)["mask"].shape for each in federations}
    assert len(sizes) == 2 and shapes == {(1, max(sizes))}


def test_pools_that_are_empty_or_too_large_are_refused(monkeypatch):
    small = dataclasses.replace(DIGITS, val_fraction=0.01, num_clients=100, partition="iid", eval_clients="")
    refused("raise --val_fraction", fedwin.check, dataclasses.replace(small, eval_clients_every=0, out_dir="gone"))
    monkeypatch.setattr(evaluate, "TEST_BYTES", 1000)
    refused("lower --val_fraction", prepare, DIGITS)


def test_fewer_clients_are_a_subset_of_more():
    federation = prepare(DIGITS).federations[0]
    drawn = [client_evaluation.evaluated_clients(federation, text, 0)["seen"].ids for text in ("3", "5", "all")]
    assert set(drawn[0]) < set(drawn[1]) < set(drawn[2]) == set(range(12))
    assert drawn[1].tolist() != client_evaluation.evaluated_clients(federation, "5", 1)["seen"].ids.tolist()


def test_test_clients_are_matched_by_their_ids_and_the_others_are_unseen():
    data = natural_data()
    evaluated = functools.partial(client_evaluation.evaluated_clients, text="all", seed=0)
    config = dataclasses.replace(NATURAL, num_clients=4)
    federation = prepare(config, data, LINEAR).federations[0]
    found = evaluated(federation)
    trained = {name: int(name[1]) for name in federation.partition.ids.tolist()}
    assert len(trained) == 4
    sizes = dict(zip(federation.partition.ids.tolist(), found["seen"].federation.sizes.tolist(), strict=True))
    assert sizes == {name: TEST[k] for name, k in trained.items()}
    ids = np.char.add(np.char.encode(federation.partition.ids), b"\xff")  # bytes that are no text
    odd = dataclasses.replace(federation, partition=federation.partition._replace(ids=ids))
    table = client_evaluations.table_of([], {"seen": found["seen"]._replace(federation=odd)}, {"seen": {}})
    assert table["id"].tolist() == [f"{federation.partition.ids[k]}\\xff" for k in found["seen"].ids]
    strangers = found["unseen"].federation.partition
    assert set(strangers.ids) == set(data.test_natural.ids) - set(trained)
    # With held-out examples, test clients that never train remain.
    held = evaluated(prepare(dataclasses.replace(config, val_fraction=0.3), data, LINEAR).federations[0])
    assert held["unseen"].federation.sizes.tolist() == strangers.sizes.tolist()
    assert held["seen"].federation.dataset.train is data.train
    # The test part belongs to nobody under another partition.
    other = dataclasses.replace(config, partition="iid", val_fraction=0.3)
    assert list(evaluated(prepare(other, data, LINEAR).federations[0])) == ["seen"]


@pytest.mark.slow
def test_training_and_other_evaluations_are_those_without_it(tmp_path):
    run_in(DIGITS, tmp_path / "all", personalize=["finetune"])
    run_in(DIGITS, tmp_path / "none", eval_clients="", eval_clients_every=0, eval_val=False)
    watched, plain = (lines_of(tmp_path / name) for name in ("all", "none"))
    assert set(watched) == {0, 3, 4, 6} and set(plain) == {0, 4, 6}
    for round, line in plain.items():
        for name in set(line) - {"seconds"}:
            same = watched[round][name]
            same = {metric: same[metric] for metric in line[name]} if isinstance(same, dict) else same
            assert same == line[name], (round, name)
    assert not (tmp_path / "none" / "clients").exists()
    for readout in ("model", "wima2"):
        for metric in ("accuracy", "loss"):
            pooled = watched[6][readout][f"val_{metric}"]
            assert watched[6][readout][f"client_{metric}_weighted"] == pytest.approx(pooled, rel=1e-5)


@pytest.mark.slow
def test_sequences_weigh_tokens(tmp_path):
    """The weighted mean over clients is the pooled value of every accuracy, which count different tokens."""
    config = Config(
        dataset="shakespeare_synthetic:clients=4", model="shakespeare_lstm", num_rounds=1, clients_per_round=2,
        val_fraction=0.3, eval_val=True, eval_clients="all", out_dir=str(tmp_path),
    )  # fmt: skip
    fedwin.run(config, quiet=True)
    final, table = lines_of(tmp_path)[1]["model"], fedwin.client_table(tmp_path)
    metrics = [name.removeprefix("val_") for name in final if name.startswith("val_")]
    assert len(metrics) > 2
    for metric in metrics:
        assert final[f"client_{metric}_weighted"] == pytest.approx(final[f"val_{metric}"], rel=1e-4)
        weights = table[f"tokens.{metric}"] if f"tokens.{metric}" in table else table["examples"]
        seen = table["seen"] & (weights > 0)
        mean = np.average(table[f"model.{metric}"][seen], weights=weights[seen])
        assert mean == pytest.approx(final[f"val_{metric}"], rel=1e-4)


@pytest.mark.slow
def test_personal_models_are_those_of_the_clients_rows(tmp_path):
    train(tmp_path / "run", algorithm="ditto:lam=0.5", personalize=[], seeds=[0, 1], seeds_at_once=2)
    for seed in (0, 1):
        trained = fedwin.load(tmp_path / "run", seed=seed, dataset=natural_data(), model=LINEAR)
        table, data = trained.client_table(), trained.prepared.dataset
        for row, client in enumerate(table["client"][table["seen"]]):
            own = trained.prepared.algorithm.client_model(
                trained.variables, jax.tree.map(lambda leaf, client=client: leaf[client], trained.run.table)
            )
            name = trained.prepared.federations[seed].partition.ids[client]
            mine = data.test_natural.client(data.test_natural.ids.tolist().index(name))
            accuracy, loss = measured(own.params, data.test["x"][mine], data.test["y"][mine])
            assert table["model.personal.accuracy"][row] == pytest.approx(accuracy)
            assert table["model.personal.loss"][row] == pytest.approx(loss, rel=1e-4)
        assert np.isnan(table["model.personal.loss"][~table["seen"]]).all()
        assert (table["model.personal.loss"] != table["model.loss"])[table["seen"]].sum() > 3
    refused("set --table=device", train, tmp_path / "other", algorithm="ditto", table="host")


@pytest.mark.slow
def test_evaluations_of_clients_are_timed():
    assert measure_requirements(DIGITS, rounds=2, seconds=1.0).timing.seconds_per_client_evaluation > 0


@pytest.mark.slow
def test_two_processes_write_the_same_tables(tmp_path):
    setting = test_processes.SETTING | {
        "algorithm": "ditto", "num_rounds": 8, "val_fraction": 0.3, "eval_clients": "all", "eval_clients_every": 4,
        "personalize": ["finetune"],
    }  # fmt: skip
    fedwin.run(Config(**setting, out_dir=str(tmp_path / "one")), quiet=True)
    assert test_processes.Processes(2, tmp_path / "two", **setting).ended() == [0, 0]
    for round in (4, 8):
        one, two = (client_file(tmp_path / name, 0, round).read_bytes() for name in ("one", "two"))
        assert one == two
