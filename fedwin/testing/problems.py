"""Small federated problems: their data, and trajectories of algorithms on them."""

import functools
from typing import NamedTuple

import jax
import jax.numpy as jnp
import numpy as np

from fedwin import core, engine, jax_config, local, losses
from fedwin.algorithms import ALGORITHMS
from fedwin.core import Variables
from fedwin.data.federation import make_store
from fedwin.engine.strategy import Strategy
from fedwin.errors import user_code
from fedwin.registry import parse
from fedwin.wrappers import wrapped, wrapped_solver

# Programs here run for microseconds: compilation dominates.
_QUICK = {
    "xla_cpu_use_fusion_emitters": False,
    "xla_backend_optimization_level": 0,
    "xla_llvm_disable_expensive_passes": True,
    "xla_cpu_parallel_codegen_split_count": 1,
}


@functools.cache
def compile_options() -> dict:
    """Returns XLA options, without those that this jaxlib does not support.

    On a CPU, small programs compile in a third of the time with these options; elsewhere they are the same as in runs.
    """
    if jax.default_backend() != "cpu":
        return jax_config.compiler_options()

    def is_supported(name, value) -> bool:
        try:
            jax.jit(lambda x: x, compiler_options={name: value})(0)
        except jax.errors.JaxRuntimeError:
            return False
        return True

    return {name: value for name, value in _QUICK.items() if is_supported(name, value)}


# PRNG key of everything random in a problem.
KEY = jax.random.key(0)


class Problem(NamedTuple):
    """A small federation with everything that a run needs.

    Attributes:
      schedule: one tuple of client ids per round, repeated.
    """

    variables: Variables
    store: engine.Store
    schedule: tuple[tuple[int, ...], ...]
    setting: core.Setting
    solve: local.Solver
    n_max: int

    def build(self, builder, *wrappers, **params) -> core.Algorithm:
        """Builds an algorithm for this problem.

        Args:
          builder: a choice ('fedprox:mu=0.1') or a function (setting, solve, **params).
        """
        return build(builder, self.setting, self.solve, wrappers, params)

    def ids(self, round: int) -> tuple[int, ...]:
        """Returns the client ids of a 0-based round."""
        return self.schedule[round % len(self.schedule)]

    def cohort(self, round: int, empty: int = 0) -> core.Cohort:
        """Returns the cohort of a 0-based round, padded to the largest one and by `empty` more places."""
        ids = self.ids(round)
        padding = max(map(len, self.schedule)) - len(ids) + empty
        return core.Cohort.of([*ids, *[0] * padding], np.arange(len(ids) + padding) < len(ids))

    def client(self, id: int, state=(), round: int = 0) -> core.Client:
        """Returns a client as an algorithm's client function sees it."""
        place, round = jax.tree.map(jnp.asarray, (core.Cohort.of(id), np.int32(round)))
        key, stats = jax.random.fold_in(KEY, id), self.variables.stats
        return self.store.client(place, key=key, round=round, state=state, stats=stats, n_max=self.n_max)

    def start(self, algorithm, observers=None) -> engine.RunState:
        """Returns the RunState before the first round."""
        return engine.init(algorithm, observers or {}, self.variables, self.setting.num_clients, KEY, KEY)


def build(builder, setting, solve, wrappers=(), params=None) -> core.Algorithm:
    """Builds an algorithm inside wrappers.

    Args:
      builder: a choice ('fedprox:mu=0.1') or a function (setting, solve, **params).
      solve: the local solver; wrappers change its learning rate and epochs.
    """
    solve = wrapped_solver(solve, wrappers)
    if isinstance(builder, str):
        algorithm = ALGORITHMS.build(parse(builder).with_params(**(params or {})), setting, solve)
    else:
        with user_code(builder, "it fails"):
            algorithm = builder(setting, solve, **(params or {}))
    return wrapped(algorithm, wrappers)


def problem(params, client_examples, loss, schedule, *, num_rounds=100, init_fn=None, model=None, info=(), **solver):
    """Returns a problem with the given examples and loss.

    Args:
      params: the initial parameters, or Variables.
      client_examples: for every client, feature -> values [N_i, ...].
      loss: (params, batch, key, info) -> float []; with a model, a loss as fedwin.losses builds it.
      schedule: the client ids of every round, repeated.
      init_fn: key -> params, for algorithms that draw models; by default the initial ones.
      model: models.Model, for algorithms that use parts of the network.
      info: tree of [K, ...] that clients see as Client.info.
    """
    cast = lambda x: x.astype(jnp.result_type(float) if np.issubdtype(x.dtype, np.floating) else np.int32)
    names = client_examples[0]
    examples = {name: cast(np.concatenate([np.asarray(client[name]) for client in client_examples])) for name in names}
    sizes = [len(next(iter(client.values()))) for client in client_examples]
    store = jax.tree.map(jnp.asarray, make_store(examples, sizes, info=info))
    schedule = tuple(tuple(ids) for ids in schedule)
    variables = params if isinstance(params, Variables) else Variables(params)
    setting = core.Setting(
        num_clients=len(client_examples),
        clients_per_round=len(schedule[0]),
        num_rounds=num_rounds,
        init_fn=init_fn or (lambda key: variables.params),
        model=model,
    )
    solve = local.Solver(loss=losses.stateless(loss) if model is None else loss, **solver)
    return Problem(variables, store, schedule, setting, solve, max(sizes))


def trajectory(p: Problem, algorithm, rounds: int, observers=None, run=None) -> list[engine.RunState]:
    """Runs some rounds of an algorithm, which is compiled once.

    Args:
      run: the RunState to continue from; by default that before round 0.
    """
    one_round = functools.partial(engine.one_round, algorithm, observers or {}, Strategy(1), p.n_max)
    step = jax.jit(one_round, compiler_options=compile_options())
    run = p.start(algorithm, observers) if run is None else run
    runs = []
    for _ in range(rounds):
        run, _ = step(run, p.store, p.cohort(int(run.round)))
        runs.append(run)
    return runs


@functools.lru_cache(maxsize=8)
def _loss_program(loss):
    value = lambda params, stats, batch, info: loss(params, stats, batch, jax.random.key(0), info)[0]
    return jax.jit(value, compiler_options=compile_options())


def mean_loss(p: Problem, model: Variables) -> float:
    """Returns the loss of a model over all clients' examples.

    Args:
      model: the parameters and statistics to evaluate.

    Returns:
      (1/N) sum_i N_i f_i(model).
    """
    number, total = len(jax.tree.leaves(p.store.examples)[0]), 0.0
    for id in range(p.setting.num_clients):
        c = p.client(id)
        # A mask instead of a slice: one program serves clients of all sizes.
        mask = np.isin(np.arange(number), np.asarray(c.index)[: int(c.size)]).astype(np.float32)
        total += int(c.size) * float(_loss_program(p.solve.loss)(*model, p.store.examples | {"mask": mask}, c.info))
    return total / number
