"""Tests that any federated method must pass, and small problems to run them on.

    from fedwin import testing

    def test_my_method():
        testing.check_algorithm(my_method)      # a builder (setting, train, *, ...) -> core.Algorithm
"""

import functools
from typing import Any, NamedTuple

import jax
import jax.numpy as jnp
import numpy as np

from fedwin import core, engine, local, losses
from fedwin.core import Variables
from fedwin.strategy import Strategy


class Problem(NamedTuple):
    """A small federation with everything that a run needs.

    variables: the initial model; store: the clients' data; schedule: one tuple of client ids per round; setting, train:
    what builders take; n_max: examples of the largest client.
    """

    variables: Variables
    store: engine.Store
    schedule: tuple[tuple[int, ...], ...]
    setting: core.Setting
    train: local.Solver
    n_max: int

    def build(self, builder, *wrappers, **params) -> core.Algorithm:
        """Builds an algorithm for this problem: `builder` is a choice ('fedprox:mu=0.1') or a function."""
        return build(builder, self.setting, self.train, wrappers, params)

    def cohort(self, round: int) -> np.ndarray:
        """The ids of a 0-based round, int32 [C], padded with -1; the schedule repeats."""
        width = max(len(ids) for ids in self.schedule)
        ids = self.schedule[round % len(self.schedule)]
        return np.array([*ids, *[-1] * (width - len(ids))], np.int32)

    def start(self, algorithm, observers=None) -> engine.Run:
        """Returns the run before its first round."""
        return engine.init(algorithm, observers or {}, self.variables, self.setting.num_clients, self.setting.key)


def build(builder, setting, train, wrappers=(), params=None) -> core.Algorithm:
    """Builds an algorithm, its solver's learning rate and epochs changed as the wrappers say."""
    from fedwin.algorithms import ALGORITHMS

    for wrapper in wrappers:
        train = wrapper.solver(train)
    if isinstance(builder, str):
        choice = ALGORITHMS.check(builder)
        algorithm = ALGORITHMS[choice.name](setting, train, **(choice.params | (params or {})))
    else:
        algorithm = builder(setting, train, **(params or {}))
    for wrapper in wrappers:
        algorithm = wrapper.algorithm(algorithm)
    return algorithm


def pack(client_examples: list[dict[str, Any]], dtype=None, info=None) -> engine.Store:
    """Returns the Store of clients given as lists of examples, float arrays cast to `dtype` (default: jax's float)."""
    dtype = dtype or jnp.zeros(()).dtype
    cast = lambda x: x.astype(dtype) if np.issubdtype(x.dtype, np.floating) else x.astype(np.int32)
    names = client_examples[0]
    sizes = np.array([len(next(iter(client.values()))) for client in client_examples])
    examples = {name: cast(np.concatenate([np.asarray(client[name]) for client in client_examples])) for name in names}
    return engine.Store(
        examples=jax.tree.map(jnp.asarray, examples),
        order=jnp.arange(sizes.sum(), dtype=jnp.int32),
        offset=jnp.asarray(np.concatenate([[0], np.cumsum(sizes)]), jnp.int32),
        info=jax.tree.map(jnp.asarray, info if info is not None else ()),
        weight=jnp.asarray(sizes / sizes.sum(), dtype),
    )


def problem(params, client_examples, loss, schedule, *, num_rounds=100, init_fn=None, model=None, info=None, **solver):
    """Returns a Problem; `solver` are arguments of local.Solver, `loss` is (params, batch, key, info) -> scalar."""
    store = pack(client_examples, info=info)
    num_clients = len(client_examples)
    schedule = tuple(tuple(ids) for ids in schedule)
    variables = params if isinstance(params, Variables) else Variables(params)
    setting = core.Setting(
        num_clients=num_clients,
        clients_per_round=len(schedule[0]),
        num_rounds=num_rounds,
        weights=store.weight,
        init_fn=init_fn or (lambda key: variables.params),
        key=jax.random.key(0),
        model=model,
    )
    sizes = np.diff(np.asarray(store.offset))
    train = local.Solver(loss=losses.stateless(loss) if model is None else loss, **solver)
    return Problem(variables, store, schedule, setting, train, int(sizes.max()))


def quadratic(curvatures, centres, start, *, steps, lr, schedule, sizes=None, **kwargs) -> Problem:
    """Clients f_i(x) = a_i/2 ||x - b_i||^2 that take `steps` steps with the exact gradient.

    Args:
      curvatures: a_i [K]; centres: b_i, [K] or [K, D]; start: x_0 [D]; sizes: N_i [K], weights only (default 1 each).
    """
    start = jnp.asarray(start, float)
    sizes = sizes if sizes is not None else [1] * len(curvatures)
    rows = [
        {"a": np.full((n, 1), a, float), "b": np.broadcast_to(np.asarray(b, float), (n, start.size))}
        for a, b, n in zip(curvatures, centres, sizes)
    ]

    def loss(params, batch, key, info):
        return losses.masked_mean(jnp.sum(0.5 * batch["a"] * (params["x"] - batch["b"]) ** 2, -1), batch)

    # One batch holds the largest client whole, so that a step is a pass.
    solver = dict(lr=lr, batch_size=max(sizes), epochs=steps, shuffle=False)
    return problem({"x": start}, rows, loss, schedule, **(solver | kwargs))


def regression(x, y, start, *, batch_size, epochs, lr, schedule, **kwargs) -> Problem:
    """Linear regression w x + b, loss (w x + b - y)^2 / 2; w is the 'features' part of the model, b the 'classifier'.

    Args:
      x, y: one list of numbers per client; start: [w, b].
    """
    rows = [{"x": np.asarray(a, float), "y": np.asarray(b, float)} for a, b in zip(x, y)]
    start = jnp.asarray(start, float)
    params = {"features": {"kernel": start[0]}, "classifier": {"bias": start[1]}}

    def loss(params, batch, key, info):
        error = params["features"]["kernel"] * batch["x"] + params["classifier"]["bias"] - batch["y"]
        return losses.masked_mean(0.5 * error**2, batch)

    solver = dict(lr=lr, batch_size=batch_size, epochs=epochs, shuffle=False)
    return problem(params, rows, loss, schedule, **(solver | kwargs))


def trajectory(p: Problem, algorithm, rounds: int, observers=None, run=None) -> list[engine.Run]:
    """Returns the runs after each of `rounds` rounds, one compilation."""
    step = jax.jit(functools.partial(engine.one_round, algorithm, observers or {}, Strategy(1), p.n_max))
    run = p.start(algorithm, observers) if run is None else run
    runs = []
    for _ in range(rounds):
        ids = p.cohort(int(run.round))
        slots = np.where(ids < 0, p.setting.num_clients, ids)
        run, _ = step(run, p.store, ids, ids, slots)
        runs.append(run)
    return runs
