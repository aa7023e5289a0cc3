"""Client rows in FedJAX programs: absent clients, earlier states and bounded memory."""

import gc
import pickle

import jax
import numpy as np
import pytest

from fedwin import tree
from tests.algorithms.identities import leaves
from tests.algorithms.test_numpy_rules import slow
from tests.fedjax_bridge import problem
from tests.fedjax_bridge.test_fedjax_bridge import build, started

NAMES = [b"client%03d" % k for k in range(12)]
DATA = problem.federated_data()


def cohort(round, *numbers):
    """The clients with these numbers as FedJAX's samplers hand them over."""
    return [(NAMES[k], DATA.get_client(NAMES[k]), jax.random.fold_in(jax.random.PRNGKey(round), k)) for k in numbers]


def places(rows) -> list[int]:
    """Where in memory the leaves of rows are."""
    return [leaf.unsafe_buffer_pointer() for leaf in jax.tree.leaves(rows)]


COHORTS = (0, 1, 2, 3), (2, 5), (1, 3, 5, 6, 7, 8), (0,)


@pytest.mark.parametrize("strategy", ["chunked:k=1", "chunked:k=4", slow("vmapped")])
def test_rows_of_absent_clients_are_not_touched(strategy):
    fed, state = started("scaffold", strategy=strategy, max_clients=6, largest=17)
    for round, numbers in enumerate(COHORTS):
        before, where = state.rows, places(state.rows)
        state, told = fed.apply(state, cohort(round, *numbers))
        drawn = {NAMES[k] for k in numbers}
        assert set(told) == drawn and set(state.rows) == set(before) | drawn
        # The state before the round has its rows where it had them, and the new one shares those of absent clients.
        assert places(before) == where
        absent = {name: row for name, row in before.items() if name not in drawn}
        assert places({name: state.rows[name] for name in absent}) == places(absent)
        # New rows share no memory with anything, not even with one another.
        new = places({name: state.rows[name] for name in drawn})
        assert len(set(new)) == len(new) and not set(new) & set(where)
    assert len(fed.apply.traces) == 1


@pytest.mark.parametrize("algorithm", ["scaffold", slow("fedhbm")])
@pytest.mark.parametrize("strategy", ["chunked:k=1", slow("sharded:devices=2")])
def test_a_branch_from_an_old_state_has_the_same_bits(algorithm, strategy):
    fed, state = started(algorithm, strategy=strategy, max_clients=6, largest=17)
    states, kept = [state], [jax.device_get(state)]
    for round, numbers in enumerate(COHORTS):
        states.append(fed.apply(states[-1], cohort(round, *numbers))[0])
        kept.append(jax.tree.map(np.array, jax.device_get(states[-1])))
    for state, copy in zip(states, kept):
        jax.tree.map(np.testing.assert_array_equal, state, copy)
    # Another second round in between; then the rest as before, from the arrays and from their copies on the host.
    aside, _ = fed.apply(states[1], cohort(9, 0, 1, 2))
    assert np.abs(leaves(aside.params) - leaves(states[2].params)).max() > 0
    for again in (states[1], kept[1]):
        for round, numbers in list(enumerate(COHORTS))[1:]:
            again, _ = fed.apply(again, cohort(round, *numbers))
        jax.tree.map(np.testing.assert_array_equal, again, states[-1])
    # A client's row is where it left off: forgetting it changes the round.
    forgot, _ = fed.apply(states[1]._replace(rows={}), cohort(0, *COHORTS[0]))
    remembered, _ = fed.apply(states[1], cohort(0, *COHORTS[0]))
    assert np.abs(leaves(forgot.params) - leaves(remembered.params)).max() > 1e-6
    assert len(fed.apply.traces) == 1 and pickle.loads(pickle.dumps(kept[1])).rows.keys() == states[1].rows.keys()


@pytest.mark.parametrize("strategy", ["chunked:k=1", slow("sharded:devices=2,k=1")])
def test_padding_with_clients_costs_no_work(strategy):
    trained = []
    algorithm = build("scaffold")
    (phase,) = algorithm.phases

    def client(down, c):
        jax.debug.callback(lambda size: trained.append(int(size)), c.size)
        return phase.client(down, c)

    algorithm = algorithm._replace(phases=(phase._replace(client=client),))
    fed, state = started(algorithm, strategy=strategy, max_clients=40, largest=17)
    for round, numbers in enumerate(COHORTS):
        state, _ = fed.apply(state, cohort(round, *numbers))
    jax.effects_barrier()
    assert fed.apply.traces == [(40, 17, 680)] and 0 not in trained
    assert len(trained) == sum(map(len, COHORTS))


def live() -> int:
    """Bytes of all arrays that the devices hold; what earlier tests have left is collected first."""
    gc.collect()
    return sum(array.nbytes for array in jax.live_arrays() if not array.is_deleted())


@pytest.mark.parametrize("strategy", ["chunked:k=1", slow("chunked:k=4")])
def test_memory_is_bounded_by_the_rows_of_clients_seen(strategy):
    fed, state = started("scaffold", strategy=strategy, max_clients=6, largest=17)
    one_row = tree.nbytes(state.params)
    for round in range(2):  # compiled, and the constants of the programs made
        state, _ = fed.apply(state, cohort(round, *range(6)))
    before = live()
    for round in range(2, 10):
        state, _ = fed.apply(state, cohort(round, *((round + k) % 12 for k in range(6))))
    assert len(state.rows) == 12
    # Twelve rows in place of six; the rest (scalars that jax caches) is not a row.
    assert 6 * one_row <= live() - before < 7 * one_row
