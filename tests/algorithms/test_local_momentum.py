"""Local momentum: with one client that holds all examples, equal to centralized training."""

import jax
import numpy as np
import optax
import pytest

from fedwin import testing
from fedwin.schedules import cosine
from fedwin.testing.problems import KEY

X, Y = np.array([1.0, -2.0, 0.5, 3.0, -1.0]), np.array([2.0, -1.0, 0.0, 4.0, 1.0])
START, BATCH, ROUNDS, BETA = (0.3, -0.2), 2, 4, 0.9


def problem(**changes):
    """One client with five examples, batches of two, an epoch a round."""
    options = dict(batch_size=BATCH, epochs=1, lr=cosine(0.1, ROUNDS), schedule=[[0]], shuffle=True)
    return testing.regression([X], [Y], START, **(options | changes))


def orders(p):
    """The client's examples in the order of every round's batches: the last batch of an epoch is short."""
    for round in range(ROUNDS):
        # The key of (seed, round, client, phase).
        key = jax.random.fold_in(jax.random.fold_in(jax.random.fold_in(KEY, round), 0), 0)
        positions, steps = p.solve.plan(p.client(0, round=round)._replace(key=key))
        rows = np.asarray(positions)[: int(steps) * BATCH].reshape(int(steps), BATCH)
        yield [row[row >= 0] for row in rows]


def gradient(theta, batch):
    error = theta[0] * X[batch] + theta[1] - Y[batch]
    return np.array([np.mean(error * X[batch]), np.mean(error)])


def trained(p, choice):
    runs = testing.trajectory(p, p.build(choice), ROUNDS)
    return [np.array([run.params["features"]["kernel"], run.params["classifier"]["bias"]]) for run in runs]


@pytest.mark.usefixtures("double")
def test_one_client_is_a_loop_over_all_epochs_with_one_momentum_and_a_cosine():
    p = problem()
    theta, v, expected = np.array(START), np.zeros(2), []
    for t, batches in enumerate(orders(p)):
        for batch in batches:
            v = BETA * v + gradient(theta, batch)
            theta = theta - 0.1 * (1 + np.cos(np.pi * t / ROUNDS)) / 2 * v
        expected.append(theta)
    assert len({str(batches) for batches in orders(p)}) > 1  # another order in every epoch
    np.testing.assert_allclose(trained(p, f"local_momentum:momentum={BETA}"), expected, rtol=1e-12)


@pytest.mark.usefixtures("double")
def test_the_state_of_any_optimizer_is_kept():
    p = problem(optimizer=optax.adam(1.0), lr=0.1)
    optimizer = optax.adam(0.1)
    theta, expected = np.array(START), []
    state = optimizer.init(theta)
    for batches in orders(p):
        for batch in batches:
            step, state = optimizer.update(gradient(theta, batch), state)
            theta = theta + np.asarray(step)
        expected.append(theta)
    np.testing.assert_allclose(trained(p, "local_momentum:momentum=0"), expected, rtol=1e-12)


def test_a_client_that_waits_keeps_its_momentum():
    p = testing.regression([X, X], [Y, Y], START, batch_size=5, epochs=1, lr=0.1, schedule=[[0], [1], [1]])
    runs = testing.trajectory(p, p.build("local_momentum:momentum=0.5"), 3)
    first, _, third = (jax.tree.map(np.asarray, run.table) for run in runs)
    for before, after in zip(jax.tree.leaves(first), jax.tree.leaves(third), strict=True):
        np.testing.assert_array_equal(before[0], after[0])
        assert np.all(after[1] != before[1]) and np.all(before[1] == 0)
