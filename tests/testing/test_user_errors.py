"""Errors of check_algorithm: they name the function, its location and the expected result."""

import functools

import jax
import jax.numpy as jnp
import numpy as np
import pytest

from fedwin import core, testing, tree
from fedwin.errors import UserError
from tests.refusals import refused


def step(solve, params, c):
    y = solve(params, c)
    return y, {"delta": core.mean(tree.sub(y.params, params), c.size)}


def updated(y, message, **fields):
    return core.Update(message, **({"stats": y.stats, "metrics": y.metrics} | fields))


def good_server(params, state, total, round):
    return tree.add(params, total["delta"].value), state


def method(client=None, server=good_server, **fields):
    """A builder; `client` is (y, message, params, c) -> Update."""

    def builder(setting, solve):
        def my_client(params, c):
            y, message = step(solve, params, c)
            return client(y, message, params, c) if client else updated(y, message)

        return core.algorithm(my_client, server, **fields)

    return builder


def sends(value):
    """A builder whose clients also send value(c)."""
    return method(lambda y, m, p, c: updated(y, m | {"x": value(c)}))


def counter(params):
    return jnp.zeros((), jnp.int32)


def row(params, id):
    return {"control": tree.zeros_like(params)}


def data_dependent(y, message, params, c):
    if c.size > 3:
        message = message | {"large": c.size}
    return updated(y, message)


def another_row(y, message, params, c):
    return updated(y, message, state={"control": tree.map(lambda x: x.reshape(-1), y.params)})


def only_params(params, state, total, round):
    return tree.add(params, total["delta"].value)


def swapped(params, state, total, round):
    return state, tree.add(params, total["delta"].value)


def reads_another_key(params, state, total, round):
    return tree.add(params, total["drift"]), state


def becomes_float(params, state, total, round):
    return params, state + 1.5


def divides_by_zero(params, state, total, round):
    return tree.map(lambda x: x / (0.0 * round), params), state


def with_key(setting, solve):
    key = setting.key
    return method()(setting, solve._replace(key=key))


USER_ERRORS = {
    "client state without client_init": (
        method(lambda y, m, p, c: updated(y, m, state={"control": y.params})),
        "my_client",
        ["client_init=lambda params, id"],
    ),
    "message by value": (method(data_dependent), "my_client", ["decides by a value", "jnp.where"]),
    "a dict": (method(lambda y, m, p, c: m), "my_client", ["returns a dict {'delta': Mean}", "core.Update"]),
    "row's shape": (method(another_row, client_init=row), "my_client", ["client's state", "[8]", "from client_init"]),
    "NaN from padding": (
        sends(lambda c: jnp.mean(c.examples["x"][c.index])),
        "my_client",
        ["reads padding", "message['x']", "c.size"],
    ),
    "c.index": (sends(lambda c: 1 / len(c.index)), "my_client", ["len(c.index)", "['x']"]),
    "np.random": (sends(lambda c: np.random.rand()), "my_client", ["np.random", "['x']"]),
    "c.slot": (sends(lambda c: 1.0 * c.slot), "my_client", ["or c.slot", "['x']"]),
    "no statistics": (method(lambda y, m, p, c: core.Update(m)), "my_client", ["returns no statistics", "y.stats"]),
    "parameters without state": (method(server=only_params), "only_params", ["without the state", "(params, state)"]),
    "a key is sent": (method(lambda y, m, p, c: updated(y, m | {"key": c.key})), "my_client", ["sends a PRNG key"]),
    "swapped": (method(server=swapped, init=counter), "swapped", ["the wrong way round"]),
    "state's dtype": (method(server=becomes_float, init=counter), "becomes_float", ["int32[] from init", "float32[]"]),
    "NaN from the server": (method(server=divides_by_zero), "divides_by_zero", ["NaN or infinite in round 0"]),
    "init of three": (method(init=lambda a, b, c: ()), "lambda", ["takes (a, b, c)", "(params, key), or (params)"]),
    "eval_model": (method(eval_model=lambda model, state: model.params), "lambda", ["core.Variables to evaluate"]),
    "client_model changes a shape": (
        method(client_model=lambda model, row: tree.map(jnp.atleast_2d, model)),
        "lambda",
        ["changes the model"],
    ),
    "a stored model": (method(server=lambda p, s, t, r, k=[]: (k.append(p) or k[0], s)), "lambda", ["between calls"]),
    "a stored step": (method(lambda y, m, p, c, k=[]: k.append(m) or updated(y, k[0])), "my_client", ["between calls"]),
    "a builder's own error": (lambda setting, solve, *, share: None, "lambda", ["missing 1 required", "'share'"]),
    "setting.key": (with_key, "with_key", ["init(params, key)"]),
}


@pytest.mark.parametrize("case", USER_ERRORS)
def test_the_error_names_the_function(case):
    builder, function, words = USER_ERRORS[case]
    refused([function, "test_user_errors.py:", *words], testing.check_algorithm, builder, strategies=())


def test_the_exception_itself_is_kept():
    with pytest.raises(UserError) as caught:
        testing.check_algorithm(method(server=reads_another_key))
    assert isinstance(caught.value.__cause__, KeyError)
    line = reads_another_key.__code__.co_firstlineno
    for said in (f"test_user_errors.py:{line}", f"in line {line + 1}", "no 'drift'", "send {'delta': Mean}"):
        assert said in str(caught.value)


def test_errors_are_found_without_compiling(monkeypatch):
    def compiled(*args, **kwargs):
        raise AssertionError("compiled")

    monkeypatch.setattr(jax, "jit", compiled)
    refused("without the state", testing.check_algorithm, method(server=only_params))
    refused("no statistics", testing.check_algorithm, method(lambda y, m, p, c: core.Update(m)))


def test_functions_may_be_jitted_partial_and_keep_python_numbers():
    def builder(setting, solve):
        def client(name, params, c):
            y, message = step(solve, params, c)
            return updated(y, message | {name: core.mean(1, c.size)}, state=c.state + 1.0)

        init = functools.partial(lambda count, params: count, 3)
        return core.algorithm(
            jax.jit(functools.partial(client, "one")), good_server, init=init, client_init=lambda p, id: 0.0
        )

    testing.check_algorithm(builder, strategies=())
    changed = lambda **own: lambda setting, solve: builder(setting, solve)._replace(**own)
    refused("weighting=size must be one of samples, uniform", testing.check_algorithm, changed(weighting="size"))
    refused("phases must be a tuple of core.Phase", testing.check_algorithm, changed(phases="a"))


def test_what_empty_places_of_a_cohort_compute_is_left_out():
    """A client without examples may return anything: a division by its size is no error."""

    def share(y, message, params, c):
        return updated(y, message | {"share": 1.0 / c.size})

    testing.check_algorithm(method(share), strategies=())
