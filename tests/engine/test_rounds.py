"""Rounds: dispatches, strategies, padding, observers, evaluation and keys."""

import functools

import jax
import jax.numpy as jnp
import numpy as np
import pytest

from fedwin import core, engine, models, observers, testing, tree
from fedwin.engine.cohort import map_cohort
from fedwin.engine.dispatch import Dispatch
from fedwin.engine.strategy import Strategy, make_mesh
from fedwin.residence import rows
from fedwin.testing import federations
from fedwin.testing.contract import snapshot
from tests.conftest import USERS


def go(watching):
    """Returns a copy of the state after six rounds."""
    fed = federations.federation()
    algorithm = federations.build("scaffold", fed)
    dispatch = engine.Dispatch(algorithm, watching, Strategy(), compiler_options=USERS)
    run, store = federations.start(algorithm, watching, fed)
    run, _, _ = dispatch(run, store, federations.cohorts(fed, 6), (), 6, np.zeros(6, bool), n_max=max(fed.sizes))
    return snapshot(run)


def test_programs_for_a_gpu_are_those_of_every_process(monkeypatch):
    given, algorithm, jit = [], federations.build("scaffold", federations.federation()), jax.jit
    params = federations.network().init(jax.random.key(0)).params
    monkeypatch.setattr(jax, "default_backend", lambda: "gpu")
    monkeypatch.setattr(jax, "jit", lambda f, compiler_options=None, **_: given.append(compiler_options) or f)
    Dispatch(algorithm, {}, Strategy())._jitted(())
    for strategy in (Strategy(), Strategy(1, make_mesh(2))):
        strategy.jit(len)
    make = functools.partial(rows.init_rows, algorithm, params, np.arange(2), jax.random.key(0))
    made = make()
    rows.InitialRows(algorithm, params, jax.random.key(0), 2)
    models.build("digits_mlp", (8, 8, 1), 10)
    assert [options.get("xla_gpu_deterministic_ops") for options in given if options] == [True] * 6
    monkeypatch.setattr(jax, "jit", jit)  # which has no options inside of another program
    assert tree.map(jnp.shape, jax.eval_shape(make)) == tree.map(jnp.shape, made)


@pytest.mark.parametrize("strategy", [Strategy(1), Strategy(2), Strategy(None)])
def test_sums_count_booleans_widen_small_integers_and_add_up_low_precision_in_float32(strategy):
    function = lambda shared, own: ((own > 0, jnp.full((), 100, jnp.int8), jnp.ones((), jnp.bfloat16)), ())
    sums, _ = map_cohort(function, (), jnp.arange(1024), strategy)
    assert [int(total) for total in sums] == [1023, 102_400, 1024] and sums[2].dtype == jnp.bfloat16


def test_observers_leave_training_bitwise_unchanged():
    watchers = {"wima": observers.wima((observers.ReadOut("wima3", 3),)), "ema": observers.ema(core.Setting(1, 1, 20))}
    jax.tree.map(np.testing.assert_array_equal, go(watchers)._replace(observers={}), go({}))


def keys_of_clients(ids, rounds):
    """The keys that clients get in the first and second phase of some rounds of all of `ids`: [rounds, C, 2, words]."""
    none = jax.random.key_data(jax.random.key(0)) * 0

    def phase(number):
        def client(down, c):
            return core.Update((), c.state.at[number].set(jax.random.key_data(c.key)))

        return core.Phase(lambda params, state: (), client, lambda params, state, total, round: (params, state))

    algorithm = core.Algorithm(
        init=lambda params, key: (),
        phases=(phase(0), phase(1)),
        client_init=lambda params, id, key: jnp.stack([none, none]),
        eval_model=lambda model, state: model,
    )
    runs = testing.trajectory(testing.classification(schedule=[ids]), algorithm, rounds)
    return np.stack([np.asarray(run.table)[np.array(ids)] for run in runs]), runs[-1].key


def test_a_client_gets_a_new_key_in_every_round():
    keys, base = keys_of_clients([0, 2], 3)
    assert len(np.unique(keys.reshape(12, -1), axis=0)) == 12  # and in every phase
    # The other clients of a cohort, and their order, change no key.
    others, _ = keys_of_clients([3, 2, 1], 2)
    np.testing.assert_array_equal(others[:, 1], keys[:2, 1])
    # The rule itself: keys of the seed, the round, the client, the phase.
    key = jax.random.fold_in(jax.random.fold_in(jax.random.fold_in(base, 1), 2), 1)
    np.testing.assert_array_equal(keys[1, 1, 1], jax.random.key_data(key))


def test_initial_states_are_drawn_from_init_key():
    fed = federations.federation(clients=2)
    model = federations.network().init(jax.random.key(0))
    traced = []
    algorithm = core.algorithm(
        client=None,
        server=None,
        init=lambda params, key: (jax.random.key_data(key), 0.0),
        client_init=lambda params, id, key: traced.append(id) or jax.random.key_data(key),
    )
    base, own = jax.random.key(1), jax.random.key(2)
    engine.init(algorithm, {}, model, fed.num_clients, base, base)
    run = engine.init(algorithm, {}, model, fed.num_clients, base, own)
    assert len(traced) == 1  # another seed compiles nothing
    np.testing.assert_array_equal(run.state[0], jax.random.key_data(own))
    assert not run.state[1].weak_type  # or a second round would be compiled again
    np.testing.assert_array_equal(run.table, [jax.random.key_data(own)] * 2)
    np.testing.assert_array_equal(jax.random.key_data(run.key), jax.random.key_data(base))


@pytest.mark.parametrize("chunk, one, two", [(1, 5, 6), (2, 6, 8), (8, 5, 6), (None, 5, 6)])
def test_a_cohort_of_five_is_padded_to_full_chunks_and_no_further(chunk, one, two):
    assert [Strategy(chunk, mesh).multiple(5) for mesh in (None, make_mesh(2))] == [one, two]
