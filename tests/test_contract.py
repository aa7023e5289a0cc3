"""Every instance in the registry through the contract suite, with and without wrappers."""

import jax
import pytest

from fedwin import core, local, testing, tree
from fedwin.algorithms import ALGORITHMS
from fedwin.errors import UserError
from fedwin.strategy import Strategy, make_mesh

WRAPPERS = {
    "ima": ("ima:window=2,start=2",),
    "ima epoch": ("ima:window=2,start=2,schedule=epoch,period=1",),
    "swa": ("swa:start=3,cycle=2",),
}
FIRST = [entry.instances[0] for entry in ALGORITHMS.entries.values()]


def problem():
    # Four clients of five per round, so that every device maps over two.
    schedule = ((0, 1, 2, 3), (4, 3, 2, 0), (1, 4, 3, 2))
    return testing.classification((4, 2, 3, 5, 1), schedule=schedule, shuffle=False)


def across():
    """The strategy farthest from a plain loop: vmapped, on several devices where there are several."""
    return Strategy(None, make_mesh() if jax.device_count() > 1 else None)


@pytest.mark.parametrize("choice", ALGORITHMS.instances())
def test_contract(choice):
    bench = testing.Bench(choice, problem())
    testing.check_loop(bench)
    testing.check_padding(bench)
    testing.check_strategy(bench, across())


@pytest.mark.parametrize("choice", FIRST[::2])
def test_contract_with_all_wrappers_at_once(choice):
    bench = testing.Bench(choice, problem(), [text for texts in WRAPPERS.values() for text in texts])
    testing.check_loop(bench)


@pytest.mark.parametrize("choice", FIRST[::8])
def test_observers_change_nothing(choice):
    testing.check_observers(testing.Bench(choice, problem()))


@pytest.mark.slow
@pytest.mark.parametrize("wrapper", ["none", *WRAPPERS])
@pytest.mark.parametrize("choice", ALGORITHMS.instances())
def test_whole_contract(choice, wrapper):
    testing.check_algorithm(choice, problem(), wrappers=WRAPPERS.get(wrapper, ()))


def sign_sgd(setting, train, *, server_lr=0.05):
    """A user's method: the server steps by the sign of the mean step."""

    def client(params, c):
        y = train(params, c)
        delta = core.mean(tree.sub(y.params, params), c.size)
        return core.Update({"delta": delta}, stats=y.stats, metrics=y.metrics)

    def server(params, state, total, round):
        return tree.axpy(server_lr, jax.tree.map(jax.numpy.sign, total["delta"].value), params), state

    return core.algorithm(client, server)


def test_a_users_own_method_in_one_line():
    testing.check_algorithm(sign_sgd, strategies=())


def broken(how):
    def builder(setting, train):
        def client(params, c):
            y = train(params, c, local.sgd)
            delta = tree.sub(y.params, params)
            # 'padding' forgets that empty places are no clients; 'order' depends on the slot; 'row' loses its dtype.
            message = {"delta": core.mean(delta, 1.0 if how == "mean" else c.size)}
            if how == "slot":
                message["delta"] = core.mean(tree.scale(1.0 + c.slot, delta), c.size)
            return core.Update(message, state=y.steps.astype(jax.numpy.int32), stats=y.stats, metrics=y.metrics)

        def server(params, state, total, round):
            delta = total["delta"].value
            if how == "ascent":
                delta = tree.scale(-1, delta)
            return tree.add(params, delta), state + (1.5 if how == "dtype" else 1)

        return core.algorithm(
            client,
            server,
            init=lambda params: jax.numpy.zeros((), jax.numpy.int32),
            client_init=lambda params, id: jax.numpy.zeros((), jax.numpy.int32),
        )

    return builder


@pytest.mark.parametrize("how,reason", [("ascent", "loss does not fall"), ("dtype", "carry")])
def test_the_suite_finds_what_is_wrong(how, reason):
    with pytest.raises((AssertionError, TypeError), match=reason):
        testing.check_algorithm(broken(how), strategies=())


@pytest.mark.parametrize("name", list(ALGORITHMS))
def test_hyperparameters_are_described_and_checked(name):
    p = problem()
    for h in ALGORITHMS.entries[name].hyperparameters:
        assert h.meaning, f"{name}: {h.name} is not described"
        # No hyper-parameter accepts a dict, and none may fail later than at building.
        with pytest.raises(UserError, match=h.name):
            p.build(name, **{h.name: {}})
