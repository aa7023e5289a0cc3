"""The contract suite on every registered instance, with and without wrappers."""

import functools
import re

import jax
import pytest

from fedwin import core, testing, tree
from fedwin.algorithms import ALGORITHMS
from fedwin.engine.strategy import Strategy, make_mesh
from fedwin.errors import UserError

WRAPPERS = {
    "ima": ("ima:window=2,start=2",),
    "swa": ("swa:start=3,cycle=2,second_lr=0.1",),  # a hundredth of the rate would enlarge rounding of steps / rate
    "clip": ("clip:norm=0.5",),
    "ima before the server": ("ima:window=2,start=2,placement=pre",),
    "local statistics": ("local_bn",),
    "quantize": ("quantize:bits=8",),
    "topk": ("topk:share=0.3",),
    "feedback": ("feedback:window=2",),
    "two": ("ima:window=2,start=2,schedule=epoch,period=1", "swa:start=3,cycle=2,second_lr=0.1"),
}
ENTRIES = list(ALGORITHMS.entries.values())
FIRST = [entry.instances[0] for entry in ENTRIES]
# The first variant of a method runs bare; the others, which differ in arithmetic only, inside wrappers.
WRAPPED = [choice for entry in ENTRIES for choice in entry.instances[1:] or entry.instances]


def problem():
    # Four clients of five per round, so that every device maps over two.
    schedule = ((0, 1, 2, 3), (4, 3, 2, 0), (1, 4, 3, 2))
    return testing.classification((4, 2, 3, 5, 1), schedule=schedule, shuffle=False)


@functools.cache
def fedavg():
    """FedAvg in float64."""
    return testing.Bench("fedavg:server_lr=0.7", problem())


@pytest.mark.parametrize("choice, mapped", [(choice, number % 5 == 0) for number, choice in enumerate(FIRST)])
def test_contract(choice, mapped):
    """Every method, and every fifth one in another mapping too; all of it is slow: test_whole_contract."""
    bench = testing.Bench(choice, problem())
    testing.check_loop(bench)
    testing.check_padding(bench)
    if mapped:
        # One program for both, since compiling is what takes time: another mapping, with observers on board.
        testing.check_strategy(bench, Strategy(None, make_mesh() if jax.device_count() > 1 else None), watched=True)


# The wrappers take turns: the first of every five rounds of turns.
@pytest.mark.parametrize("number,choice", [pair for pair in enumerate(WRAPPED) if pair[0] // len(WRAPPERS) % 5 == 0])
def test_contract_in_a_wrapper(number, choice):
    """One wrapper per choice, in rotation; what an algorithm rejects is left to the next."""
    names = list(WRAPPERS)
    for name in names[number % len(names) :] + names:
        try:
            bench = testing.Bench(choice, problem(), WRAPPERS[name])
            break
        except UserError as refused:
            assert re.search("one round trip|mean step|exact step|also send", str(refused)), refused
    testing.check_loop(bench)
    testing.check_padding(bench)


@pytest.mark.parametrize("name", [entry.name for entry in ENTRIES if entry.facts["degenerate"] is not None])
def test_a_degenerate_method_is_fedavg(name):
    with jax.enable_x64(True):
        params = ALGORITHMS.entries[name].facts["degenerate"] | {"server_lr": 0.7}
        bench = testing.Bench(name, problem(), params=params)
        testing.check_degenerate(bench, plain=fedavg())


@pytest.mark.slow
@pytest.mark.parametrize("wrapper", ["none", *WRAPPERS])
@pytest.mark.parametrize("choice", ALGORITHMS.instances())
def test_whole_contract(choice, wrapper):
    try:
        testing.check_algorithm(choice, problem(), wrappers=WRAPPERS.get(wrapper, ()))
    except UserError as refused:
        assert wrapper in ("clip", "feedback", "ima before the server", "quantize", "topk"), refused
        pytest.skip(str(refused))


def sign_sgd(setting, solve, *, server_lr=0.05):
    """A user's method: the server steps by the sign of the mean step."""

    def client(params, c):
        y = solve(params, c)
        delta = core.mean(tree.sub(y.params, params), c.size)
        return core.Update({"delta": delta}, stats=y.stats, metrics=y.metrics)

    def server(params, state, total, round):
        return tree.axpy(server_lr, jax.tree.map(jax.numpy.sign, total["delta"].value), params), state

    return core.algorithm(client, server)


def test_a_users_own_method_in_one_line(capsys):
    with jax.debug_nans(True):
        testing.check_algorithm(sign_sgd, strategies=())
    assert capsys.readouterr().out == "sign_sgd: the contract holds.\n"


def test_the_suite_finds_what_is_wrong():
    ascent = lambda setting, solve: sign_sgd(setting, solve, server_lr=-0.05)
    with pytest.raises((AssertionError, UserError), match="loss does not fall.*lr=0.01"):
        testing.check_algorithm(ascent, strategies=())
