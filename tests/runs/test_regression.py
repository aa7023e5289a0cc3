"""Runs on continuous labels: least squares by federated descent, metrics everywhere they are shown, what is refused."""

import csv
import dataclasses
import json

import numpy as np
import pytest

import fedwin
from experiments.figures import curves, plane, sources, targets
from experiments.sweep import select_metric
from experiments.tables import comparison, sweeps
from fedwin import data
from fedwin.runs.config import Config
from fedwin.runs.metrics_log import read_lines
from fedwin.runs.prepare import prepare
from tests.data.files import picture, refused
from tests.small_runs import finished_run, placed

LEAST_SQUARES = Config(
    dataset="california_like:n=240,tests=60,features=3", partition="dirichlet:alpha=0.3,bins=4", num_clients=4,
    clients_per_round=4, model="logistic", loss="mse", client_lr=0.2, batch_size=240, num_rounds=60,
    observe=["wima:window=3"], val_fraction=0.2, eval_val=True, eval_clients="all",
)  # fmt: skip
least_squares = finished_run(LEAST_SQUARES)


def optimum(examples, rows):
    """Least squares in closed form: (x, w) -> predictions."""
    with_ones = lambda x: np.append(np.asarray(x, np.float64), np.ones((len(x), 1)), 1)
    w = np.linalg.lstsq(with_ones(examples["x"][rows]), examples["y"][rows], rcond=None)[0]
    return w, lambda x: with_ones(x) @ w


def test_federated_descent_ends_at_the_least_squares_of_all_clients(least_squares):
    directory, summary = least_squares
    federation = prepare(LEAST_SQUARES).federations[0]
    w, predict = optimum(federation.dataset.train, federation.partition.order)
    model = fedwin.load(directory).variables.params["classifier"]
    np.testing.assert_allclose([*model["kernel"][:, 0], model["bias"][0]], w, atol=2e-4)
    x, y = (federation.dataset.test[name].astype(np.float64) for name in "xy")
    mse = np.mean((y - predict(x)) ** 2)
    last = read_lines(directory / "metrics.jsonl")[-1]["model"]
    expected = {"loss": mse, "rmse": mse**0.5, "r2": 1 - mse / y.var()}
    assert {name: last[name] for name in expected} == pytest.approx(expected, rel=1e-3)
    errors = [np.mean((federation.dataset.train["y"][rows] - predict(federation.dataset.train["x"][rows])) ** 2) ** 0.5
              for rows in map(federation.validation.client, range(4))]  # fmt: skip
    assert last["client_rmse_mean"] == pytest.approx(np.mean(errors), rel=1e-3)
    assert last["client_rmse_worst10"] == pytest.approx(max(errors), rel=1e-3)  # the largest is the worst
    assert last["client_rmse_weighted"] == pytest.approx(last["client_loss_weighted"] ** 0.5)
    assert last["val_r2"] > 0.5 and not any("accuracy" in name or "client_r2" in name for name in last)
    table = repr(summary)
    assert "R2" in table and "RMSE" in table and "%)" not in table and "wima3" in table


@pytest.mark.parametrize(
    "changes, message",
    [
        (dict(loss="cross_entropy"), "cross-entropy needs classes, .* set --loss=mse"),
        (dict(algorithm="fedfa"), "fedfa needs classes"),
        (dict(attack="label_flip"), "label_flip needs classes"),
        (dict(loss="wsm"), "continuous labels"),
        (dict(partition="power_law"), "partition 'power_law' needs classes"),
        (
            dict(early_stopping="target:value=1", eval_clients=""),
            "continuous labels have no val_accuracy; name metric=val_rmse",
        ),
        (dict(dataset="digits", partition="iid"), "loss mse needs continuous labels"),
        (dict(dataset="digits"), "'digits' has classes, not numbers to bin"),
    ],
)
def test_what_needs_classes_is_refused_on_numbers_and_the_reverse(changes, message):
    refused(message, fedwin.check, dataclasses.replace(LEAST_SQUARES, **changes))


def test_diabetes_is_scikit_learns_table():
    raw, standardized = data.load("diabetes:standardize=false"), data.load("diabetes")
    y = np.concatenate([raw.train["y"], raw.test["y"]])
    assert (len(y), y.min(), y.max(), y.mean()) == (442, 25, 346, pytest.approx(152.133484))
    assert standardized.train["y"].mean() == pytest.approx(0, abs=1e-6) and standardized.train[
        "y"
    ].std() == pytest.approx(1)
    _, predict = optimum(standardized.train, slice(None))
    residual = np.mean((standardized.test["y"] - predict(standardized.test["x"])) ** 2)
    assert 0.3 < 1 - residual / standardized.test["y"].var() < 0.7


def test_arrays_take_continuous_labels_if_asked_to(tmp_path):
    x, y = np.random.default_rng(0).normal(size=(2, 12, 1))
    dataset = data.from_arrays(x, y[:, 0], x, y[:, 0], task="regression")
    assert (dataset.num_classes, dataset.train["y"].dtype) == (1, np.float32)
    refused("float64; they must be whole numbers, .* or set task=regression", data.from_arrays, x, y[:, 0], x, y[:, 0])
    refused("pass labels", data.from_arrays, x, y, x, y, task="regression")
    refused("num_classes=1", data.from_arrays, x, y[:, 0], x, y[:, 0], task="regression", num_classes=3)
    refused("record 0: 'y' has NaN", data.from_arrays, x, y[:, 0] * np.nan, x, y[:, 0], task="regression")
    np.savez(tmp_path / "data.npz", x_train=x, y_train=y[:, 0], x_test=x, y_test=y[:, 0])
    assert data.load("npz:task=regression", tmp_path).task == "regression"
    for k in range(2):
        (tmp_path / f"{k}.png").write_bytes(picture((k, k, k), kind="PNG"))
    (tmp_path / "train.csv").write_text("image_id,class\n0,1.5\n1,-2\n")
    (tmp_path / "test.csv").write_text("image_id,class\n1,0.25\n")
    images = data.load("image_folder:task=regression,size=8,resize=8", tmp_path)
    assert images.train["y"].tolist() == [1.5, -2] and images.task == "regression"


def test_a_client_is_tested_on_the_end_of_its_series(tmp_path):
    series = {"ann": np.arange(10.0), "bob": np.stack([np.arange(100, 120), np.arange(120)[::-1][:20]], 1)}
    np.savez(tmp_path / "data.npz", ann=series["ann"], eve=2 * series["ann"])
    refused("client 'bob': .* shape", data.from_series, series, window=2)
    assert len(data.from_series({"eve": range(100)}, window=2, test_share=0.29).test["y"]) == 29
    alone = data.from_series({"bob": series["bob"]}, window=2)
    assert alone.train["x"].shape[1:] == (2, 2) and alone.train["x"][0, :, 0].tolist() == [100, 101]
    dataset = data.load("npz:window=3,horizon=2,test_share=0.3", tmp_path)
    assert dataset.train["x"][:3].tolist() == [[0, 1, 2], [1, 2, 3], [2, 3, 4]]
    assert dataset.train["y"].tolist() == [4, 5, 6, 8, 10, 12] and dataset.test["y"].tolist()[:3] == [7, 8, 9]
    assert dataset.test["x"][0].tolist() == [3, 4, 5] and dataset.test_natural.ids.tolist() == ["ann", "eve"]
    refused("10 values are too few for window=8, horizon=1, test_share=0.2", data.load, "npz:window=8", tmp_path)
    for idle in ("horizon=2", "test_share=0.3", "window=3,num_classes=2", "window=3,task=sequence"):
        refused(f"npz: .*{idle.partition('=')[0]}.* leave", data.load, f"npz:{idle}", tmp_path)
    refused("client 'a': .* finite numbers", data.from_series, {"a": np.full(9, np.nan)}, window=2)
    config = dataclasses.replace(
        LEAST_SQUARES, dataset="npz:window=2", data_dir=str(tmp_path), partition="", num_clients=0, val_fraction=0.0,
        eval_val=False, clients_per_round=2, out_dir=str(tmp_path / "run"),
    )  # fmt: skip
    fedwin.check(config)


def test_tables_and_pictures_name_and_order_the_metrics_of_numbers(least_squares, tmp_path):
    directory, summary = least_squares
    config = placed(LEAST_SQUARES, directory)
    (row, _) = comparison.write(tmp_path, {"it": summary}, {"it": config})
    mean = summary["over_seeds"]["model"]["r2"]["mean"]
    with open(tmp_path / "comparison.csv") as file:
        assert float(next(csv.DictReader(file))["r2"]) == mean and row.shown(mean) == mean
    assert "| R2 |" in (tmp_path / "comparison.md").read_text()
    worse = json.loads(json.dumps(summary))
    for select, factor in (("rmse", 2), ("loss", 2), ("r2", 0.5)):
        worse["seeds"]["0"]["last"]["model"][select] *= factor
        sweep = sweeps.Sweep({}, {}, {}, {"b": worse, "a": summary}, select)
        assert list(sweep.ranked) == ["a", "b"], select
    assert select_metric("", config, {})[0] == "val_r2"
    (series, _) = sources.series([directory])
    assert sources.metric_of([series], "") == "r2" and sources.metric_of([series], "loss") == "loss"
    rounds, values = curves.curve(series, "rmse")
    found = targets.compute([series], [float(values[0, 1])], "rmse")
    assert found["methods"][0]["rounds"] == [[rounds[1]]] and rounds[1] > 0
    refused("plane: continuous labels have no error rate", plane.compute, fedwin.load(directory), {})
    rule = fedwin.STOPPING_RULES.build("target:value=0.5,metric=val_rmse")
    assert [rule.update(None, 1, value)[1] for value in (0.6, 0.4)] == [False, True]
