"""Offloaded windows hold the same vectors as windows on the device, for any sequence of dispatches."""

import functools

import jax
import jax.numpy as jnp
import numpy as np
import pytest

from fedwin import engine, window
from fedwin.core import Cohort
from fedwin.residence import rings
from fedwin.residence.rings import OffloadedWindows, traceable, windows_of, without_vectors
from fedwin.residence.rows import DeviceTable
from fedwin.residence.saved import SnapshotRing
from fedwin.residence.store import FileStore, MemoryStore
from fedwin.wrappers.asynchronous import OldModels
from fedwin.wrappers.base import Wrapped
from tests.refusals import refused

SIZES, TAU, LENGTH, ROUNDS = (2, 9, 4), 6, 8, 5


def begin() -> engine.RunState:
    state = {"delay": window.delay(LENGTH, TAU), "one": window.delay(LENGTH, 1)}
    watching = {"w": window.init(LENGTH, SIZES, weighted=5), "short": window.init(LENGTH, (2,))}
    return engine.RunState((), (), state, (), watching, jnp.int32(0), ())


@jax.jit
def pushed(run, vector):
    delays = {name: window.shift(line, vector) for name, line in run.state.items()}
    sizes = {"w": SIZES, "short": (2,)}
    watching = {name: window.push(seen, vector, sizes[name]) for name, seen in run.observers.items()}
    return run._replace(state=delays, observers=watching)


def offloaded(kind: str, root) -> tuple[OffloadedWindows, engine.RunState]:
    run, place = rings.allocate(begin(), ROUNDS), lambda values, where: jax.device_put(values)
    store = lambda name, *args: MemoryStore(*args) if kind == "host" else FileStore(root / name, *args, list)
    return OffloadedWindows(DeviceTable(1), run, store, place, lambda run: None), run


read = jax.jit(lambda run: window.weighted_mean(run.observers["w"], np.arange(1.0, 6)))

# The clients of every dispatch: rings do not depend on them.
CLIENTS = Cohort.of(np.zeros((ROUNDS, 1), int))


def assert_equal(mine: engine.RunState, theirs: engine.RunState) -> None:
    for name, node in windows_of(theirs).items():
        a, b = (side._replace(ring=()) for side in (windows_of(mine)[name], node))
        jax.tree.map(functools.partial(np.testing.assert_array_equal, err_msg=name), a, b)


@pytest.mark.parametrize("kind", ["host", "file"])
@pytest.mark.parametrize("expected", [True, False])
def test_any_dispatches_give_the_bits_of_the_device(kind, expected, tmp_path):
    rng = np.random.default_rng(0)
    residence, run = offloaded(kind, tmp_path)
    whole, counts = begin(), [int(n) for n in rng.integers(1, ROUNDS + 1, 20)]
    for now, following in zip(counts, counts[1:]):
        run, _ = residence.load(run, CLIENTS, now)
        np.testing.assert_array_equal(read(run), read(whole))
        if expected:
            residence.prefetch(CLIENTS, following)
        # Not every round pushes: the next dispatch then needs more than was prefetched.
        for _ in range(now if rng.random() < 0.7 else now - 1):
            vector = jnp.asarray(rng.standard_normal(LENGTH), jnp.float32)
            run, whole = pushed(run, vector), pushed(whole, vector)
            assert_equal(run, whole)
            np.testing.assert_array_equal(read(run), read(whole))
        residence.write_back(run)
    saved = residence.checkpoint(run._replace(round=np.int32(3)))
    if kind == "host":
        for name, node in windows_of(whole).items():
            np.testing.assert_array_equal(windows_of(saved)[name].ring, node.ring)
    residence.close()


def test_a_window_that_is_pushed_to_twice_a_round_is_refused(tmp_path):
    residence, run = offloaded("host", tmp_path)
    run, _ = residence.load(run, CLIENTS, ROUNDS)
    for _ in range(ROUNDS + 1):
        run = pushed(run, jnp.ones(LENGTH))
    refused("more than once a round; keep it on the device, --window=device", residence.write_back, run)
    residence.close()


@pytest.mark.parametrize("kind", ["host", "file"])
@pytest.mark.parametrize("most, held", [(2, 7), (12, 9)])
def test_old_models_are_those_of_their_round(kind, most, held, tmp_path):
    """Model number n is full of n; dispatches of up to `most` rounds go round a ring of 9."""
    rng, zeros = np.random.default_rng(0), np.zeros((1, 2), np.float32)
    own = OldModels({"a": zeros, "b": zeros[0, :1]}, np.zeros(9, int), 2).allocated(most)
    run = engine.RunState((), (), Wrapped((), own), (), {}, 0, ())
    store = lambda name, *args: MemoryStore(*args) if kind == "host" else FileStore(tmp_path, *args, list)
    residence = OffloadedWindows(DeviceTable(1), run, store, lambda values, where: values, lambda run: None)
    staleness = np.minimum(rng.integers(0, 9, (21 * most, 2)), np.arange(21 * most)[:, None])
    cohorts = lambda first: Cohort.of(np.zeros((most, 2), int), staleness=staleness[first : first + most])
    for now, following in zip(counts := rng.integers(1, most + 1, 20), counts[1:]):
        first, (run, _) = run.round, residence.load(run, cohorts(run.round), now)
        residence.prefetch(cohorts(first + now), following)
        place, leaves = run.state.own.place, list(run.state.own.models.values())
        assert len(leaves[0]) == held
        for round in range(first, first + now):
            for number in (round, *(round - staleness[round])):
                assert all((leaf[place[number % 9]] == number).all() for leaf in leaves)
            for leaf in leaves:
                leaf[place[(round + 1) % 9]] = round + 1
        residence.write_back(run := run._replace(round=first + now))
    residence.close()


@pytest.mark.parametrize("count", [0, 1, 4, 13])
def test_weighted_means_are_read_before_the_first_dispatch(count):
    """As the first evaluation of a fork reads them."""
    begin = lambda: engine.RunState((), (), (), (), {"w": window.init(LENGTH, (9,), weighted=5)}, jnp.int32(0), ())
    fresh, saved, weights = rings.allocate(begin(), ROUNDS), begin(), np.arange(1.0, 6) * (np.arange(5) < count)
    for vector in np.random.default_rng(0).standard_normal((count, LENGTH)).astype(np.float32):
        saved = saved._replace(observers={"w": window.push(saved.observers["w"], vector, (9,))})
    residence = OffloadedWindows(DeviceTable(1), fresh, lambda name, *of: MemoryStore(*of), None, lambda run: None)
    both = jax.device_put(residence.restore(saved, fresh)), saved
    np.testing.assert_array_equal(*(window.weighted_mean(run.observers["w"], weights) for run in both))
    residence.close()


def test_room_is_that_of_the_vectors_which_leave():
    for ages in ((1,), (0,), (9,), (2, 9, 4), (3, 3), (9, 0, 1)):
        for rounds in (1, 4, 12):
            most = max(len(rings.vectors_leaving(base, rounds, ages)) for base in range(40))
            assert rings.max_earlier(rounds, ages) == most + 1


def test_states_without_vectors():
    run = rings.allocate(begin(), 3)
    shapes = {name: node.ring.shape for name, node in windows_of(begin()).items()}
    empty = without_vectors(run)
    assert {name: node.ring.shape for name, node in windows_of(empty).items()} == shapes
    assert all(
        isinstance(node.ring, SnapshotRing) and not np.asarray(node.ring).any() for node in windows_of(empty).values()
    )
    # Such a state can be traced like one with vectors.
    jax.eval_shape(pushed, traceable(empty), jnp.ones(LENGTH))
