"""Client shifts, drifts and long tails, against NumPy and SciPy."""

import jax
import jax.numpy as jnp
import numpy as np
import pytest
from scipy import ndimage

from fedwin import core, data, losses, testing
from fedwin.data.changes import KEY, LEVEL, RUN, Changes
from fedwin.data.long_tail import long_tail, most_of_class
from fedwin.data.shifts import DRIFTS, SHIFTS
from fedwin.testing.problems import KEY as RUN_KEY
from fedwin.wrappers import ASYNCHRONOUS, asynchronous
from tests.refusals import refused

CLIENT_KEY = jax.random.key(5, impl="threefry2x32")


def rotation(images, degrees):
    """Clockwise, bilinear, zero outside of the image."""
    return ndimage.rotate(images, degrees, (1, 2), reshape=False, order=1, mode="grid-constant")


def numpy_blur(images, radius, key, positions):
    for axis in (1, 2):
        place = np.arange(images.shape[axis])
        weights = np.exp(-((place[:, None] - place) ** 2) / (2 * max(radius, 1e-3) ** 2))
        images = np.moveaxis(np.tensordot(weights / weights.sum(1, keepdims=True), images, (1, axis)), 0, axis)
    return images


def numpy_noise(x, std, key, positions):
    drawn = [jax.random.normal(jax.random.fold_in(key, int(p)), x.shape[1:]) for p in positions]
    return x + std * np.stack(drawn)


EXPECTED = {
    "noise": numpy_noise,
    "rotation": lambda x, level, key, positions: rotation(x, level),
    "color": lambda x, level, key, positions: x * (1 + level * np.asarray(jax.random.uniform(key, (2,)) * 2 - 1)),
    "blur": numpy_blur,
}


@pytest.mark.parametrize("name", SHIFTS)
@pytest.mark.parametrize("level", [0.0, 1.7])
def test_a_shift_is_that_of_numpy_and_scipy(name, level):
    images = np.random.default_rng(0).random((3, 7, 6, 2)).astype(np.float32)
    positions = jnp.array([4, 0, 9])
    found = jax.jit(SHIFTS.build(name).change)(jnp.asarray(images), jnp.float32(level), CLIENT_KEY, positions)
    np.testing.assert_allclose(found, EXPECTED[name](images, level, CLIENT_KEY, positions), atol=2e-6)
    if not level:
        np.testing.assert_array_equal(found, images)


def test_levels_are_drawn_from_the_seed_or_rise():
    few, many = (SHIFTS.build("rotation:degrees=40").of_clients(count, 3) for count in (5, 50))
    for short, long in zip(few, many, strict=True):
        np.testing.assert_array_equal(short, long[:5])
    assert -40 <= many[0].min() < -20 < 20 < many[0].max() < 40 and len(np.unique(many[1])) == 100
    assert SHIFTS.build("blur:radius=2").of_clients(50, 3)[0].min() >= 0
    np.testing.assert_allclose(SHIFTS.build("noise:std=2,levels=rising").of_clients(4, 3)[0], [0.5, 1, 1.5, 2])


@pytest.mark.usefixtures("double")
def test_clients_train_on_what_numpy_makes_of_their_examples():
    """Noise from the first round on, and two classes that are exchanged in the second, with their counts."""
    p = testing.classification(loss=losses.LOSSES["wsm"], schedule=((0, 1, 2, 3),))
    shift, drift = SHIFTS.build("noise:std=0.5"), DRIFTS.build("swap:round=1", 3)
    levels, keys = shift.of_clients(4, 0)
    of_run = np.asarray(jax.random.key_data(RUN_KEY))
    info = {**p.store.info, LEVEL: levels, KEY: keys, RUN: np.tile(of_run, (4, 1))}
    changed = p._replace(store=p.store._replace(info=jax.tree.map(jnp.asarray, info)))
    method = p.build("fedavg")
    found = testing.trajectory(changed, Changes(shift, drift, "both").applied(method), 2)

    x, y, offset = (np.asarray(v).copy() for v in (p.store.examples["x"], p.store.examples["y"], p.store.offset))
    for k in range(4):
        own = slice(offset[k], offset[k + 1])
        x[own] = numpy_noise(x[own], levels[k], jax.random.wrap_key_data(keys[k]), range(offset[k + 1] - offset[k]))
    swapped = np.asarray(drift.classes(1, jnp.asarray(of_run)))
    assert sorted(swapped) == [0, 1, 2] and (swapped != np.arange(3)).sum() == 2
    run = None
    for labels, counts in ((y, p.store.info["train"]), (swapped[y], p.store.info["train"][:, np.argsort(swapped)])):
        store = p.store._replace(
            examples={"x": jnp.asarray(x), "y": jnp.asarray(labels)}, info=p.store.info | {"train": counts}
        )
        run = testing.trajectory(p._replace(store=store), method, 1, run=run)[-1]
        for ours, theirs in zip(jax.tree.leaves(found.pop(0)[:2]), jax.tree.leaves(run[:2]), strict=True):
            np.testing.assert_allclose(ours, theirs, rtol=1e-9)


def test_asynchronous_clients_have_the_examples_of_their_start():
    p, drift, seen = testing.classification(), DRIFTS.build("swap:round=1", 3), {}
    fedavg = p.build("fedavg")
    told = lambda down, c: core.Update(c.examples["y"][:3], (), ())
    labels = fedavg._replace(phases=(fedavg.phases[0]._replace(client=told),))
    changed = Changes(drift=drift, text="swap").applied(labels)
    server = ASYNCHRONOUS.build("buffer:concurrency=2", 2)
    late = asynchronous(changed, server, lambda: 2)
    down, client = late.init(p.variables.params, RUN_KEY).own, jax.jit(late.phases[0].client)
    for round, staleness in ((1, 0), (1, 1), (2, 1), (2, 2)):
        c = p.store.client(core.Cohort.of(0), key=RUN_KEY, round=round, state=(), stats=(), n_max=3)
        late_one = c._replace(info={RUN: jax.random.key_data(RUN_KEY)}, staleness=jnp.int32(staleness))
        seen[round - staleness] = client(down, late_one).message.tolist()
    assert seen[0] == p.store.examples["y"][:3].tolist() != seen[1]


def test_test_examples_are_those_of_the_last_round():
    images = np.random.default_rng(2).random((2, 4, 4, 1)).astype(np.float32)
    batches = {"x": jnp.asarray(images[None]), "y": jnp.arange(2)[None]}

    def seen(drift, feature):
        of_test = jax.jit(Changes(drift=DRIFTS.build(drift, 2)).of_test)
        return lambda completed: of_test(batches, jnp.int32(completed), RUN_KEY)[feature][0]

    rotated, swapped = seen("rotate:round=3,degrees=90,rounds=2", "x"), seen("swap:round=3", "y")
    for completed, degrees in ((0, 0), (3, 0), (4, 45), (5, 90), (9, 90)):
        np.testing.assert_allclose(rotated(completed), rotation(images, degrees), atol=1e-5)
    assert [swapped(completed).tolist() for completed in (3, 4)] == [[0, 1], [1, 0]]


def long_tailed(partition, clients=None, factor=100.0):
    """Classes of 500 examples, the last of 109; returns (data set, partition)."""
    x, y = np.zeros((4609, 1), np.float32), np.repeat(np.arange(10), [500] * 9 + [109])
    owners = [f"w{row % 4}" for row in range(4609)] if partition == "natural" else None
    dataset = data.from_arrays(x, y, x[:5], y[:5], clients=owners)
    return dataset, data.make_partition(dataset, partition, clients, 1, imbalance=factor)


@pytest.mark.parametrize("partition, clients", [("iid", 5), ("dirichlet:alpha=10", 5), ("natural", None)])
def test_a_long_tail_is_drawn_before_any_partition(partition, clients):
    dataset, split = long_tailed(partition, clients)
    counts = split.class_counts(dataset.train["y"], 10).sum(0)
    left = [int(460.9 * 0.01 ** (c / 9)) for c in range(10)] - counts
    assert left.min() >= 0 and left.sum() < (5 if clients else 1)
    assert split.report["left_out"] == 4609 - counts.sum()
    np.testing.assert_array_equal(split.report["sizes"], split.sizes)
    np.testing.assert_array_equal(long_tailed(partition, clients)[1].order, split.order)
    assert set(split.order) <= set(long_tail(dataset, 100, 1)) < set(long_tail(dataset, 10, 1))
    assert [most_of_class(4900, 2, 49, c) for c in (0, 1)] == [2450, 50] and most_of_class(60_000, 6, 32, 4) == 625


def test_a_tail_that_loses_a_class_or_a_client_is_said_or_refused():
    with pytest.warns(UserWarning, match="imbalance=400: the partition leaves out all examples of class 8"):
        long_tailed("dirichlet:alpha=0.1", 20, 400.0)
    refused("imbalance=5000 leaves no example of class 7", long_tailed, "iid", 5, 5000.0)
    y = np.repeat([0, 1], [8, 4])
    own = data.from_arrays(np.zeros((12, 1)), y, np.zeros((1, 1)), y[:1], clients=[*map(str.encode, "aaaaaaaabcde")])
    words = r"client [bcde] has no examples \(2 of 5 .*; lower imbalance=3"
    refused(words, data.make_partition, own, "natural", None, 0, imbalance=3.0)
