"""Every instance in the registry through the contract suite, with and without wrappers."""

import jax
import pytest

from fedwin import core, testing, tree
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


# Variants of one method differ in arithmetic, not in what they ask of a mapping: the first stands for all.
CASES = [(text, i == 0) for entry in ALGORITHMS.entries.values() for i, text in enumerate(entry.instances)]


@pytest.mark.parametrize("choice,mapped", CASES)
def test_contract(choice, mapped):
    bench = testing.Bench(choice, problem())
    testing.check_loop(bench)
    testing.check_padding(bench)
    if mapped:
        testing.check_strategy(bench, across())


@pytest.mark.parametrize("choice", FIRST[::3])
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
            y = train(params, c)
            delta = tree.sub(y.params, params)
            return core.Update({"delta": core.mean(delta, c.size)}, stats=y.stats, metrics=y.metrics)

        def server(params, state, total, round):
            sign = -1 if how == "ascent" else 1
            return tree.axpy(sign, total["delta"].value, params), state + (1.5 if how == "dtype" else 1)

        return core.algorithm(client, server, init=lambda params: jax.numpy.zeros((), jax.numpy.int32))

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
