"""Small federated problems to run methods on."""

import functools
from typing import Any, NamedTuple

import jax
import jax.numpy as jnp
import numpy as np

from fedwin import core, engine, local, losses
from fedwin.algorithms import ALGORITHMS
from fedwin.core import Variables
from fedwin.data.store import make_store
from fedwin.engine.strategy import Strategy
from fedwin.models.model import Model, Output

# Programs here run for microseconds: compiling them is what takes time.
_QUICK = {
    "xla_cpu_use_fusion_emitters": False,
    "xla_backend_optimization_level": 0,
    "xla_llvm_disable_expensive_passes": True,
    "xla_cpu_parallel_codegen_split_count": 1,
}


@functools.cache
def compile_options() -> dict | None:
    """Returns XLA options under which small programs compile in a third of the time, None on other devices than CPUs.

    Options that this jaxlib does not know are left out.
    """
    if jax.default_backend() != "cpu":
        return None

    def known(name, value) -> bool:
        try:
            jax.jit(lambda x: x, compiler_options={name: value})(0)
        except jax.errors.JaxRuntimeError:
            return False
        return True

    return {name: value for name, value in _QUICK.items() if known(name, value)}


# The key of everything random in a problem.
KEY = jax.random.key(0)


class Problem(NamedTuple):
    """A small federation with everything that a run needs.

    Attributes:
      variables: the initial model.
      store: the clients' data.
      schedule: one tuple of client ids per round.
      setting: what builders may know of the run.
      solve: the local solver that builders take.
      n_max: examples of the largest client.
    """

    variables: Variables
    store: engine.Store
    schedule: tuple[tuple[int, ...], ...]
    setting: core.Setting
    solve: local.Solver
    n_max: int

    def build(self, builder, *wrappers, **params) -> core.Algorithm:
        """Builds an algorithm for this problem: `builder` is a choice ('fedprox:mu=0.1') or a function."""
        return build(builder, self.setting, self.solve, wrappers, params)

    def cohort(self, round: int) -> np.ndarray:
        """The ids of a 0-based round, int32 [C], padded with -1; the schedule repeats."""
        width = max(len(ids) for ids in self.schedule)
        ids = self.schedule[round % len(self.schedule)]
        return np.array([*ids, *[-1] * (width - len(ids))], np.int32)

    def client(self, id: int, state=(), round: int = 0) -> core.Client:
        """Returns what client `id` sees in a 0-based round."""
        number = lambda i: jnp.asarray(i, jnp.int32)
        return self.store.client(
            id=number(id),
            row=id,
            slot=number(id),
            key=jax.random.fold_in(KEY, id),
            round=number(round),
            state=state,
            stats=self.variables.stats,
            n_max=self.n_max,
        )

    def start(self, algorithm, observers=None) -> engine.RunState:
        """Returns the run before its first round."""
        return engine.init(algorithm, observers or {}, self.variables, self.setting.num_clients, KEY, KEY)


def build(builder, setting, solve, wrappers=(), params=None) -> core.Algorithm:
    """Builds an algorithm inside wrappers.

    Args:
      builder: a choice ('fedprox:mu=0.1') or a function (setting, solve, **params).
      setting: what the builder may know of the run.
      solve: the local solver; wrappers change its learning rate and epochs.
      wrappers: built wrappers, applied in order.
      params: hyper-parameters, beside those of a choice.
    """
    for wrapper in wrappers:
        solve = wrapper.solver(solve)
    if isinstance(builder, str):
        choice = ALGORITHMS.check(builder)
        algorithm = ALGORITHMS[choice.name](setting, solve, **(choice.params | (params or {})))
    else:
        algorithm = builder(setting, solve, **(params or {}))
    for wrapper in wrappers:
        algorithm = wrapper.algorithm(algorithm)
    return algorithm


def pack(client_examples: list[dict[str, Any]], dtype=None, info=None) -> engine.Store:
    """Returns the Store of clients given as lists of examples.

    Args:
      client_examples: for every client, feature -> values [N_i, ...].
      dtype: what float arrays are cast to; default: jax's float.
      info: tree of [K, ...] that clients see as Client.info.
    """
    dtype = dtype or jnp.zeros(()).dtype
    cast = lambda x: x.astype(dtype) if np.issubdtype(x.dtype, np.floating) else x.astype(np.int32)
    names = client_examples[0]
    sizes = np.array([len(next(iter(client.values()))) for client in client_examples])
    examples = {name: cast(np.concatenate([np.asarray(client[name]) for client in client_examples])) for name in names}
    weight = (sizes / sizes.sum()).astype(dtype)
    return jax.tree.map(jnp.asarray, make_store(examples, sizes, info=() if info is None else info, weight=weight))


def problem(params, client_examples, loss, schedule, *, num_rounds=100, init_fn=None, model=None, info=None, **solver):
    """Returns a Problem.

    Args:
      params: the initial parameters, or Variables.
      client_examples: for every client, feature -> values [N_i, ...].
      loss: (params, batch, key, info) -> scalar; with a model, as fedwin.losses makes it.
      schedule: the clients of every round; it repeats.
      num_rounds: rounds that builders are told of.
      init_fn: key -> params, for algorithms that draw models; default: the initial ones.
      model: models.Model, for algorithms that must know the network's parts.
      info: tree of [K, ...] that clients see as Client.info.
      **solver: arguments of local.Solver.
    """
    store = pack(client_examples, info=info)
    num_clients = len(client_examples)
    schedule = tuple(tuple(ids) for ids in schedule)
    variables = params if isinstance(params, Variables) else Variables(params)
    setting = core.Setting(
        num_clients=num_clients,
        clients_per_round=len(schedule[0]),
        num_rounds=num_rounds,
        init_fn=init_fn or (lambda key: variables.params),
        model=model,
    )
    sizes = np.diff(np.asarray(store.offset))
    solve = local.Solver(loss=losses.stateless(loss) if model is None else loss, **solver)
    return Problem(variables, store, schedule, setting, solve, int(sizes.max()))


def quadratic(curvatures, centres, start, *, steps, lr, schedule, sizes=None, **kwargs) -> Problem:
    """Clients f_i(x) = a_i/2 ||x - b_i||^2 that take `steps` steps with the exact gradient.

    Args:
      curvatures: a_i [K].
      centres: b_i [K] or [K, D].
      start: x_0 [D].
      steps: J, local steps.
      lr: local learning rate.
      schedule: the clients of every round; it repeats.
      sizes: N_i [K], which only weigh; default 1 each.
      **kwargs: as in `problem`.

    >>> p = quadratic([1, 3], [0, 4], [1.0], steps=5, lr=0.1, schedule=((0, 1),))
    >>> run = trajectory(p, p.build("fedavg"), rounds=50)[-1]
    >>> round(float(run.params["x"][0]), 2)  # not 3, the minimiser of the mean: clients drift
    2.68
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
      x: one list of numbers per client.
      y: their targets, alike.
      start: [w, b].
      batch_size: B.
      epochs: passes of a client over its examples.
      lr: local learning rate.
      schedule: the clients of every round; it repeats.
      **kwargs: as in `problem`.
    """
    rows = [{"x": np.asarray(a, float), "y": np.asarray(b, float)} for a, b in zip(x, y)]
    start = jnp.asarray(start, float)
    params = {"features": {"kernel": start[0]}, "classifier": {"bias": start[1]}}

    def loss(params, batch, key, info):
        error = params["features"]["kernel"] * batch["x"] + params["classifier"]["bias"] - batch["y"]
        return losses.masked_mean(0.5 * error**2, batch)

    solver = dict(lr=lr, batch_size=batch_size, epochs=epochs, shuffle=False)
    return problem(params, rows, loss, schedule, **(solver | kwargs))


def classification(sizes=(4, 2, 3, 5), *, batch_size=2, epochs=2, lr=0.3, schedule=((0, 1), (2, 3), (3, 0)), **kwargs):
    """A classifier of three classes with two hidden features, label skew and a running statistic, as BatchNorm has.

    Args:
      sizes: N_i [K]; client i holds mostly class i mod 3.
      batch_size: B.
      epochs: passes of a client over its examples.
      lr: local learning rate.
      schedule: the clients of every round; it repeats.
      **kwargs: as in `problem`; `loss` is a registered loss, by default cross entropy.
    """
    random = np.random.default_rng(0)
    labels = [np.where(np.arange(n) % 3 == 2, i + 1, i) % 3 for i, n in enumerate(sizes)]
    centres = np.array([[1.0, 0.0], [-0.5, 1.0], [-0.5, -1.0]])
    rows = [{"x": centres[y] + 0.2 * random.normal(size=(len(y), 2)), "y": y} for y in labels]
    counts = np.stack([np.bincount(y, minlength=3) for y in labels]).astype(np.int32)
    weights = random.normal(size=(2, 4)), random.normal(size=(4, 3))

    def init(key):
        drawn = tuple(
            0.3 * jax.random.normal(jax.random.fold_in(key, i), w.shape, float) for i, w in enumerate(weights)
        )
        params = {"hidden": {"kernel": drawn[0]}, "last": {"kernel": drawn[1], "bias": jnp.zeros(3)}}
        return Variables(params, {"mean": jnp.zeros(4)})

    def classifier(params, features):
        return features @ params["last"]["kernel"] + params["last"]["bias"]

    def apply(variables, batch, key, train):
        features = jnp.tanh(batch["x"] @ variables.params["hidden"]["kernel"])
        mask = batch.get("mask", jnp.ones(len(features)))
        mean = (mask.astype(features.dtype) @ features) / jnp.maximum(jnp.sum(mask), 1)
        moved = {"mean": 0.9 * variables.stats["mean"] + 0.1 * mean.astype(features.dtype)}
        return Output(classifier(variables.params, features), features, moved if train else variables.stats)

    model = Model(init, apply, classifier, ("last",), "three classes", 3)
    info = {"train": counts, "validation": np.zeros_like(counts)}
    loss = kwargs.pop("loss", losses.cross_entropy)(model)
    solver = dict(lr=lr, batch_size=batch_size, epochs=epochs) | kwargs
    draw = lambda key: init(key).params
    return problem(init(jax.random.key(1)), rows, loss, schedule, init_fn=draw, model=model, info=info, **solver)


def trajectory(p: Problem, algorithm, rounds: int, observers=None, run=None) -> list[engine.RunState]:
    """Returns the RunState after each of some rounds; they compile once.

    Args:
      p: the problem.
      algorithm: what is run.
      rounds: how many.
      observers: name -> Observer.
      run: where to go on from; default: the beginning.
    """
    one = functools.partial(engine.one_round, algorithm, observers or {}, Strategy(1), p.n_max)
    step = jax.jit(one, compiler_options=compile_options())
    run = p.start(algorithm, observers) if run is None else run
    runs = []
    for _ in range(rounds):
        ids = p.cohort(int(run.round))
        slots = np.where(ids < 0, p.setting.num_clients, ids)
        run, _ = step(run, p.store, ids, ids, slots)
        runs.append(run)
    return runs
