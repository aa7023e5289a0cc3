"""Streamed examples equal resident ones, and are read ahead while the device trains."""

import dataclasses
import threading
import time
import tracemalloc

import jax
import numpy as np
import pytest

from fedwin import data, engine, losses
from fedwin.core import Cohort
from fedwin.data import federation, integrity
from fedwin.data.dataset import Dataset, Partition
from fedwin.data.federation import federate
from fedwin.engine.strategy import Strategy
from fedwin.residence import examples
from fedwin.residence.rows import DeviceTable
from fedwin.runs.config import Config
from fedwin.runs.journal import Journal
from fedwin.runs.schedule import Attendance, CohortSchedule, Schedule
from fedwin.runs.train import Driver, train
from fedwin.sampling import uniform_sampler
from fedwin.testing import federations
from tests.data.files import flip, refused, write_cache

TEXT = "mnist_writers_synthetic:clients=12,n=200"


def test_a_store_holds_the_clients_examples_at_the_addresses_it_says():
    fed = federations.federation(9, equal=False)
    found = examples.StreamedExamples(fed, 3, 2, Strategy())
    ids = np.array([[4, 0, 7], [0, 8, -1]], np.int32)
    store, rows = found.load(Cohort.of(ids, ids >= 0))
    assert store.examples["x"].shape[0] == store.order.shape[0] in found.capacities
    for k, row in zip(ids.reshape(-1), rows.reshape(-1)):
        if k >= 0:
            held = store.examples["x"][store.order[store.offset[row] : store.offset[row + 1]]]
            np.testing.assert_array_equal(held, fed.dataset.train["x"][fed.partition.client(k)])
            assert store.weight[row] == pytest.approx(fed.sizes[k] / fed.sizes.sum())
            np.testing.assert_array_equal(store.info["train"][row], fed.info["train"][k])
    empty, _ = found.load(Cohort.of(ids, np.zeros((2, 3), bool)))
    assert empty.examples["x"].shape == store.examples["x"].shape
    found.close()


@pytest.mark.parametrize("dtype", [np.float32, np.float64])
def test_the_clients_weights_have_the_precision_of_the_run(dtype):
    fed, ids = federations.federation(9, equal=False), np.arange(9, dtype=np.int32)[None]
    with jax.enable_x64(dtype == np.float64):
        found = examples.StreamedExamples(fed, 9, 1, Strategy())
        streamed, rows = found.load(Cohort.of(ids))
        weights = fed.store().weight, streamed.weight[rows[0]], fed.shapes().weight
        found.close()
    assert [weight.dtype for weight in weights] == [dtype] * 3
    for weight in weights[:2]:
        np.testing.assert_array_equal(weight, (fed.sizes / fed.sizes.sum()).astype(dtype))


def of_sizes(sizes):
    """A federation of examples of 16 bytes, partitioned into clients of these sizes."""
    rows = int(np.sum(sizes))
    x, y = np.arange(rows * 4, dtype=np.float32).reshape(rows, 4), (np.arange(rows) % 3).astype(np.int32)
    dataset = Dataset("of sizes", {"x": x, "y": y}, {"x": x[:6], "y": y[:6]}, 3)
    return federate(dataset, Partition.consecutive(sizes))


def test_one_large_client_does_not_make_every_dispatch_large(monkeypatch):
    monkeypatch.setattr(examples, "DISPATCH_BYTES", 10 * 20 * 20)
    found = examples.StreamedExamples(of_sizes([1000] + [10] * 199), 5, 2, Strategy())
    assert found.rounds == 2  # as many as the usual client allows, independent of the largest one
    seen = {found.load(Cohort.of(np.arange(k, k + 10).reshape(2, 5)))[0].order.shape[0] for k in range(0, 200, 10)}
    assert seen == {found.capacities[0], found.capacities[-1]}
    assert len(found.capacities) == 3 and found.capacities[0] < 400 and found.capacities[-1] == 1090
    found.close()


def test_the_capacity_is_one_where_sizes_are_alike_and_a_bound_where_not():
    assert examples.capacities(np.full(50, 7), 20) == (140,)
    assert examples.capacities(np.array([5, 900]), 2) == (905,)
    rng = np.random.default_rng(0)
    sizes = np.minimum(rng.lognormal(4, 1.3, 1262).astype(int) + 1, 3500)  # photographers
    usual, middle, bound = examples.capacities(sizes, 10)
    needs = np.array([rng.choice(sizes, 10, replace=False).sum() for _ in range(500)])
    assert needs.max() <= bound and 0.75 < (needs <= usual).mean() < 0.95 and (needs <= middle).mean() > 0.98
    assert usual < bound / 5


def test_the_next_dispatch_is_placed_before_the_results_of_this_one_are_fetched(monkeypatch):
    """While the device works, the next examples are read and placed: were they not, `fetch` would wait in vain."""
    fed, events = federations.federation(9, equal=False), []
    there = [threading.Event() for _ in range(4)]

    class Recording(Strategy):
        def place(self, values, shardings=None):
            number = sum(kind == "placed" for kind, _ in events)
            events.append(("placed", number))
            there[number].set()
            return values

    def dispatch(run, store, cohorts, test, n, flags, n_max):
        events.append(("launched", sum(kind == "launched" for kind, _ in events)))
        return run, {}, {"model": {"loss": np.zeros(2), "accuracy": np.zeros(2)}}

    def fetch(values):
        number = sum(kind == "launched" for kind, _ in events) - 1
        assert number == 3 or there[number + 1].wait(20)
        events.append(("fetched", number))
        return values

    monkeypatch.setattr(jax, "device_get", fetch)
    source = examples.StreamedExamples(fed, 2, 2, Recording())
    schedule = Schedule(Config(num_rounds=6, final_evals=0, rounds_per_dispatch=source.rounds))
    cohorts = CohortSchedule(fed, schedule, Strategy(), 0, uniform_sampler(fed.num_clients, 2))
    run = engine.RunState((), (), (), (), {}, np.zeros((), np.int32), ())
    driver = Driver(run, dispatch, None, source, DeviceTable(fed.num_clients), cohorts)
    train(driver, Journal(0, Attendance(cohorts)), None, 0)
    source.close()
    # The first two dispatches hold one round each, until the pace is known.
    assert len(events) == 12 and sum(kind == "launched" for kind, _ in events) == 4
    for number in (0, 1, 2):
        assert events.index(("placed", number + 1)) < events.index(("fetched", number))


def test_a_damaged_cache_is_found_while_its_examples_are_streamed(tmp_path, monkeypatch):
    monkeypatch.setattr(integrity, "SMALL_BYTES", 0)
    flip(write_cache(data.load(TEXT), TEXT, tmp_path) / "train.x.npy")
    dataset = data.load(TEXT, tmp_path)
    source = examples.StreamedExamples(federate(dataset, dataset.natural), 3, 2, Strategy())
    ids = np.array([[0, 1, 2]], np.int32)

    def read():
        for _ in range(1000):  # it is compared while reading
            source.load(Cohort.of(ids))
            time.sleep(0.01)

    refused("train.x.npy: damaged.*--force", read)
    source.close()


def test_default_of_streaming(monkeypatch):
    fed = federations.federation(9, equal=False)
    assert not examples.should_stream(fed, "auto") and examples.should_stream(fed, "stream")
    monkeypatch.setattr(examples, "RESIDENT_BYTES", 100)
    assert examples.should_stream(fed, "auto") and not examples.should_stream(fed, "device")
    lazy = data.load("pacs_synthetic:per_domain=2,tests=1,size=16")
    images = dataclasses.replace(lazy, train={**lazy.train, "x": data.Images([""] * 8, 16)})
    monkeypatch.undo()
    assert examples.should_stream(federate(images, data.make_partition(images, "iid", 2, 0)), "auto")


def test_hundreds_of_thousands_of_users_cost_an_index(tmp_path):
    """The index is read, no example is: the labels of this map would be rejected if anyone looked."""
    n, clients = 700_000, 342_477
    folder = tmp_path / "words.npy"
    x = np.lib.format.open_memmap(folder, "w+", np.int32, (n, 20))
    x[:] = 99_999
    offset = np.linspace(0, n, clients + 1).astype(np.int64)
    ids = np.array([f"{k:08d}" for k in range(clients)])
    natural = Partition(np.arange(n, dtype=np.int32), offset, ids=ids)
    mapped = np.load(folder, mmap_mode="r")
    words = Dataset(
        "words", {"x": mapped, "y": mapped}, {"x": x[:5], "y": x[:5] * 0}, 10_004, "sequence", natural=natural
    )
    tracemalloc.start()
    fed = federate(words, data.make_partition(words, None, None, 0))
    source = examples.StreamedExamples(fed, 10, 5, Strategy())
    peak = tracemalloc.get_traced_memory()[1]
    tracemalloc.stop()
    source.close()
    assert fed.num_clients == clients and fed.info == {}
    assert peak < 100 * clients


def test_class_counts_are_left_out_where_they_would_not_fit(monkeypatch):
    monkeypatch.setattr(federation, "MAX_CELLS", 35)
    fed = federations.federation(9, equal=False)  # 9 clients x 4 classes
    assert "train" not in fed.info
    refused("wsm and fedlc need the clients' class counts", losses.class_proportions, fed.info)
