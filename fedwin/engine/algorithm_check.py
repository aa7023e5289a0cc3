"""Checks of a user's algorithm: traces one round, function by function, before anything is compiled."""

import functools
import inspect
from collections.abc import Callable, Mapping
from typing import Any

import jax
import jax.numpy as jnp

from fedwin import core, tree
from fedwin.core import Algorithm, Variables
from fedwin.data.federation import Store
from fedwin.engine.cohort import client_shapes
from fedwin.engine.user_errors import UserFunction, reads
from fedwin.errors import UserError
from fedwin.registry.ranges import one_of

_structure: Callable[..., Any] = jax.tree.structure


def client_part(phase: core.Phase) -> UserFunction:
    """Returns the client function of a phase, for errors."""
    return UserFunction(
        "client", phase.client, "(down, c)", "core.Update(message, state=..., stats=y.stats, metrics=y.metrics)"
    )


def server_part(phase: core.Phase) -> UserFunction:
    """Returns the server function of a phase, for errors."""
    if phase.client is None:
        return UserFunction("server", phase.server, "(params, state, stats, round)", "(params, state, stats)")
    return UserFunction("server", phase.server, "(params, state, total, round)", "(params, state)")


def check_built(builder: Callable, build: Callable[[], Algorithm]) -> Algorithm:
    """Builds an algorithm.

    Raises:
      UserError: when the builder cannot be called with (setting, solve) or returns no core.Algorithm.
    """
    part = UserFunction(
        "the builder", builder, "(setting, solve, *, hyper=default, ...)", "core.algorithm(client, server, ...)"
    )
    kinds = (inspect.Parameter.POSITIONAL_ONLY, inspect.Parameter.POSITIONAL_OR_KEYWORD)
    parameters = inspect.signature(builder).parameters.values()
    if sum(p.kind in kinds for p in parameters) < 2 and not any(p.kind is p.VAR_POSITIONAL for p in parameters):
        raise part.error(f"takes {inspect.signature(builder)}")
    try:
        algorithm = build()
    except UserError as error:
        raise UserError(f"{part}: {error}") from error
    if not isinstance(algorithm, Algorithm):
        raise part.error(f"returns {_kind(algorithm)}")
    return algorithm


def check_round(algorithm: Algorithm, model: Variables, store: Store, n_max: int) -> None:
    """Traces one round and checks what every function of the algorithm returns; computes and compiles nothing.

    Args:
      algorithm: as its builder returns it, without wrappers, so that errors name the user's functions.
      model, store: the initial model and the clients' data, or shapes like them.
      n_max: examples of the largest client.

    Raises:
      UserError: names the function (name, file:line) and what it should return.
    """
    one_of("core.algorithm: weighting", algorithm.weighting, ("samples", "uniform"))
    if not all(isinstance(phase, core.Phase) for phase in algorithm.phases):
        raise UserError("core.Algorithm: phases must be a tuple of core.Phase; a tuple of one has a comma, (phase,).")
    number, key = jax.ShapeDtypeStruct((), jnp.int32), jax.eval_shape(lambda: jax.random.key(0))
    params, stats = jax.eval_shape(lambda model: model, model)
    takes = "(params, key), or (params) in core.algorithm,"
    first = UserFunction("init", algorithm.init, takes, "the server's state, () for none")
    state = first.trace(params, key)
    takes = "(params, id, key), or (params, id) in core.algorithm,"
    begin = UserFunction("client_init", algorithm.client_init, takes, "a client's state, () for none")
    row = begin.trace(params, number, key)
    changes_stats = tree.is_empty(stats)
    for phase in algorithm.phases:
        if phase.client is None:
            params, state, stats = _check_server_alone(phase, params, state, stats, number)
            continue
        sends = UserFunction("broadcast", phase.broadcast, "(params, state)", "what clients receive")
        part, sent = client_part(phase), sends.trace(params, state)
        update = _check_client(part, sent, lambda n: client_shapes(store, row, stats, n), row, stats, n_max)
        changes_stats |= not tree.is_empty(update.stats)
        _check_server(phase, params, state, update.message, number)
    if not changes_stats:
        raise part.error("returns no statistics, so that those of BatchNorm would never change")
    read = UserFunction("eval_model", algorithm.eval_model, "(core.Variables, state)", "core.Variables to evaluate")
    evaluated = read.trace(Variables(params, stats), state)
    if not isinstance(evaluated, Variables):
        raise read.error(f"returns {_kind(evaluated)}")
    if algorithm.client_model is not None:
        _check_client_model(algorithm, evaluated, row)


def _check_client(part: UserFunction, down, client, row, stats, n_max) -> core.Update:
    """Returns the shapes of a client's Update."""
    missing_state = "c.state is () because core.algorithm was given no client_init, which makes a client's first state"
    hint = missing_state if tree.is_empty(row) and reads(part.function, "state") else ""
    update = part.trace(down, client(n_max), hint=hint)
    if not isinstance(update, core.Update):
        raise part.error(f"returns {_kind(update)}")
    if not isinstance(update.metrics, dict) or not all(isinstance(m, core.Mean) for m in update.metrics.values()):
        raise part.error("returns metrics that are not a dict of name -> core.mean(value, weight)")
    if "loss" in update.metrics and getattr(update.metrics["loss"].total, "shape", None) != ():
        raise part.error("returns a loss that is not a number; make it core.mean(number, weight)")
    if not tree.is_empty(update.state) and tree.is_empty(row):
        raise part.error(
            "returns a state, but there is none to replace: give core.algorithm client_init=lambda params, id: ..., "
            f"which makes a client's first state, here like {_outline(update.state)}"
        )
    if not tree.is_empty(update.state):
        _same(part, row, update.state, "changes the client's state", "client_init")
    if not tree.is_empty(update.stats):
        _same(part, stats, update.stats, "changes the model's statistics", "the model")
    # Cohorts are padded to one of several sizes, so a client is traced with more than one.
    longer = part.trace(down, client(n_max + 1), hint=hint)
    _same(part, update.message, longer.message, "returns a message that differs between clients", "a smaller client")
    return update


def _check_server(phase: core.Phase, params, state, message, number) -> None:
    part = server_part(phase)
    if phase.aggregate is None:
        if any(map(tree.is_key, jax.tree.leaves(message))):
            raise client_part(phase).error("sends a PRNG key, and messages are summed; send jax.random.key_data(key)")
        total = jax.eval_shape(lambda m: tree.map(lambda x: x[None].sum(0), m), message)
    else:
        stacked = tree.map(lambda x: jax.ShapeDtypeStruct((2, *x.shape), x.dtype), message)
        takes, returns = "(messages [C, ...], present bool [C])", "the total that the server receives"
        combine = UserFunction("aggregate", phase.aggregate, takes, returns)
        total = combine.trace(stacked, jax.ShapeDtypeStruct((2,), bool))
    hint = f"clients send {_outline(message)}"
    if tree.nodes(message, core.Mean):
        hint += ", and a mean is read by .value"
    if tree.is_empty(state):
        hint += "; the state is (), because core.algorithm was given no init"
    for _ in range(2):  # the second time, a value that the first one has stored shows
        _check_pair(part, part.trace(params, state, total, number, hint=hint), params, state)


def _check_pair(part: UserFunction, returned, params, state) -> None:
    """Checks that a server returned parameters and state of the structure that it received."""
    if _structure(returned) == _structure(params) and not isinstance(returned, tuple):
        raise part.error("returns the parameters without the state (which is () where there is none)")
    if not isinstance(returned, (tuple, list)) or len(returned) != 2:
        raise part.error(f"returns {_kind(returned)}")
    swapped = _structure((state, params)) == _structure(tuple(returned))
    if swapped and _structure(params) != _structure(state):
        raise part.error("returns (state, params), the wrong way round")
    _same(part, params, returned[0], "changes the parameters", "the model")
    _same(part, state, returned[1], "changes the state", "init")


def _check_server_alone(phase: core.Phase, params, state, stats, number):
    part = server_part(phase)
    returned = part.trace(params, state, stats, number)
    if not isinstance(returned, (tuple, list)) or len(returned) != 3:
        raise part.error(f"returns {_kind(returned)}")
    _check_pair(part, tuple(returned[:2]), params, state)
    _same(part, stats, returned[2], "changes the model's statistics", "the model")
    return returned


def _check_client_model(algorithm: Algorithm, evaluated: Variables, row) -> None:
    part = UserFunction(
        "client_model",
        algorithm.client_model,
        "(core.Variables, a client's state)",
        "the client's core.Variables, of the structure of the model",
    )
    personal = part.trace(evaluated, row)
    if not isinstance(personal, Variables):
        raise part.error(f"returns {_kind(personal)}")
    _same(part, evaluated, personal, "changes the model", "eval_model")


def check_followed(observers: Mapping[str, core.Observer], before, after, model: Variables) -> None:
    """Checks that a traced round keeps the structure of a run's state, and that observers read models like `model`.

    Raises:
      UserError: names the part of the state, or the observer and its read-out.
    """
    shapes = lambda run: {name: _shape(leaf) for name, leaf in tree.named(run).items()}
    first, then = shapes(before), shapes(after)
    for name in first | then:
        if (was := first.get(name, "nothing")) != (now := then.get(name, "nothing")):
            raise UserError(f"a round changes '{name}' of the run's state from {was} to {now}; make it like init's.")
    fields = "seed round train_loss bytes_down bytes_up seconds simulated_seconds clients epsilon empty_rounds"
    late = "cohort_sizes mean_staleness greatest_staleness dropped_updates"
    taken = {"model", *fields.split(), *late.split()}  # of evaluations
    for observer, state in after.observers.items():
        if not tree.alike(before.observers[observer], state):
            raise UserError(f"observer '{observer}': update returns {_kind(state)}; make it like the state of init.")
        read = observers[observer].read(model, state)
        new = lambda name: isinstance(name, str) and name not in taken
        if not isinstance(read, dict) or not all(new(name) and tree.alike(x, model) for name, x in read.items()):
            wanted = "a dict, name -> core.Variables like the model, without names of other read-outs and of fields"
            raise UserError(f"observer '{observer}': read returns {_kind(read)}; it should return {wanted}.")
        taken |= read.keys()


def _same(part: UserFunction, before, after, what: str, source: str) -> None:
    """Raises unless two trees have one structure and leaves of the same shapes and dtypes."""
    if _structure(before) != _structure(after):
        raise part.error(f"{what}: {_outline(before)} from {source}, {_outline(after)} from here")
    leaves = jax.tree_util.tree_leaves_with_path(before)
    for (path, x), y in zip(leaves, jax.tree.leaves(after), strict=True):
        if (x.shape, x.dtype) != (y.shape, y.dtype):
            place = jax.tree_util.keystr(path)
            raise part.error(f"{what}: {place and place + ' is '}{_shape(x)} from {source}, {_shape(y)} from here")


def _kind(value) -> str:
    """Describes a value that a function returned, in a few words."""
    if value is None:
        return "None (is a 'return' missing?)"
    if isinstance(value, (tuple, list)) and not hasattr(value, "_fields"):
        return f"{len(value)} things"
    return f"a {type(value).__name__} {_outline(value)}" if isinstance(value, dict) else f"a {type(value).__name__}"


def _shape(leaf) -> str:
    return f"{leaf.dtype}{list(leaf.shape)}"


def _outline(value, inner: bool = False) -> str:
    """Describes the uppermost layer of a tree: its keys and their values; `inner` dicts without theirs."""
    part = functools.partial(_outline, inner=True)
    if hasattr(value, "shape"):
        return _shape(value)
    if isinstance(value, dict):
        return "{...}" if inner else "{" + ", ".join(f"{name!r}: {part(each)}" for name, each in value.items()) + "}"
    if isinstance(value, (tuple, list)) and not hasattr(value, "_fields"):
        return f"({', '.join(map(part, value))})"
    return type(value).__name__
