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

from fedwin import core, engine, local, losses, observers
from fedwin.core import Variables
from fedwin.models.model import Model, Output
from fedwin.strategy import Strategy, make_mesh


# Programs here run for microseconds: compiling them is what takes time.
_QUICK = {
    "xla_cpu_use_fusion_emitters": False,
    "xla_backend_optimization_level": 0,
    "xla_llvm_disable_expensive_passes": True,
    "xla_cpu_parallel_codegen_split_count": 1,
}


@functools.cache
def compile_options() -> dict | None:
    """XLA options under which small programs compile in a third of the time, as far as this jaxlib knows them (CPU only)."""
    if jax.default_backend() != "cpu":
        return None

    def known(name, value) -> bool:
        try:
            jax.jit(lambda x: x, compiler_options={name: value})(0)
        except jax.errors.JaxRuntimeError:
            return False
        return True

    return {name: value for name, value in _QUICK.items() if known(name, value)}


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

    def client(self, id: int, state=(), round: int = 0) -> core.Client:
        """Returns what client `id` sees in a 0-based round."""
        number = lambda i: jnp.asarray(i, jnp.int32)
        begin, end = self.store.offset[id], self.store.offset[id + 1]
        return core.Client(
            id=number(id),
            slot=number(id),
            size=end - begin,
            weight=self.store.weight[id],
            key=jax.random.fold_in(self.setting.key, id),
            round=number(round),
            index=self.store.order[jnp.minimum(begin + jnp.arange(self.n_max), self.store.order.shape[0] - 1)],
            info=jax.tree.map(lambda leaf: leaf[id], self.store.info),
            state=state,
            stats=self.variables.stats,
            examples=self.store.examples,
        )

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


def classification(sizes=(4, 2, 3, 5), *, batch_size=2, epochs=2, lr=0.3, schedule=((0, 1), (2, 3), (3, 0)), **kwargs):
    """A classifier of three classes with two hidden features, label skew and a running statistic, as BatchNorm has.

    Args:
      sizes: N_i; at most 8 clients, client i holds mostly class i mod 3.
    """
    random = np.random.default_rng(0)
    labels = [np.where(np.arange(n) % 3 == 2, i + 1, i) % 3 for i, n in enumerate(sizes)]
    centres = np.array([[1.0, 0.0], [-0.5, 1.0], [-0.5, -1.0]])
    rows = [{"x": centres[y] + 0.2 * random.normal(size=(len(y), 2)), "y": y} for y in labels]
    counts = np.stack([np.bincount(y, minlength=3) for y in labels]).astype(np.int32)
    weights = random.normal(size=(2, 4)), random.normal(size=(4, 3))

    def init(key):
        drawn = tuple(0.3 * jax.random.normal(jax.random.fold_in(key, i), w.shape, float) for i, w in enumerate(weights))
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


def trajectory(p: Problem, algorithm, rounds: int, observers=None, run=None) -> list[engine.Run]:
    """Returns the runs after each of `rounds` rounds, one compilation."""
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


# ---------------------------------------------------------------------------------------------- the contract suite


def check_algorithm(builder, p: Problem | None = None, *, wrappers=(), degenerate=None, strategies=None, rounds=6):
    """Puts a method through everything that the engine relies on; raises AssertionError with the reason.

    Structure and dtypes are kept; one program serves any number of rounds; a loop equals single rounds to the bit;
    padding and the order of a cohort, and how it is mapped over, do not matter; rows of clients that did not take part
    stay; resuming from host copies is exact; buffers are updated in place; observers change nothing; the loss falls.
    What may differ by the order of a sum is compared to rounding: a rule that takes signs needs a problem without ties.

    Args:
      builder: `builder(setting, train, *, ...) -> core.Algorithm`, or a choice such as 'fedprox:mu=0.1'.
      p: the problem to run on, by default a classifier of three classes.
      wrappers: choices such as 'ima:window=2,start=1', applied in order.
      degenerate: parameters under which the method is FedAvg, or None.
      strategies: how cohorts are mapped, compared with a plain loop; by default vmapped, and sharded over all devices.
      rounds: rounds to run.
    """
    bench = Bench(builder, classification(shuffle=False) if p is None else p, wrappers, rounds)
    check_loop(bench)
    check_padding(bench)
    check_observers(bench)
    for strategy in default_strategies() if strategies is None else strategies:
        check_strategy(bench, strategy)
    if degenerate is not None:
        check_degenerate(Bench(builder, bench.problem, wrappers, rounds, degenerate), wrappers)


def default_strategies() -> tuple[Strategy, ...]:
    """vmapped, and sharded where there are several devices."""
    several = (Strategy(1, make_mesh()),) if jax.device_count() > 1 else ()
    return (Strategy(None), *several)


class Bench:
    """One method on one problem, its compiled loop, and the result of running it in one piece.

    Attributes: problem, algorithm, rounds, begin (host copy of the run before round 0), whole (after all rounds).
    """

    def __init__(self, builder, problem: Problem, wrappers=(), rounds=6, params=None):
        from fedwin.wrappers import WRAPPERS

        setting = problem.setting._replace(num_rounds=rounds)
        self.problem = problem._replace(setting=setting)
        self.rounds = rounds
        built = [WRAPPERS.build(text, setting) for text in wrappers]
        self.algorithm = build(builder, setting, problem.train, built, params)
        self.begin = to_host(self.problem.start(self.algorithm))
        # Two places stay empty, so that padding is part of every comparison.
        self.cohorts = self.cohort_table(2)
        self.dispatch = self.compiled({}, Strategy(1))
        self.whole, _ = self.go(self.dispatch, self.begin, self.cohorts, rounds)

    def cohort_table(self, empty: int, order=None) -> np.ndarray:
        """The cohorts of all rounds, int32 [rounds, C + empty]; `order` permutes the places."""
        ids = np.stack([self.problem.cohort(r) for r in range(self.rounds)])
        ids = np.pad(ids, ((0, 0), (0, empty)), constant_values=-1)
        return ids if order is None else ids[:, order]

    def arguments(self, ids, n):
        """What the loop takes beside the run."""
        slots = np.where(ids < 0, self.problem.setting.num_clients, ids).astype(np.int32)
        return self.problem.store, engine.Cohorts(ids, ids, slots), (), np.int32(n), np.zeros(self.rounds, bool)

    def compiled(self, watch, strategy):
        """Returns the loop; it compiles once, at its first call."""
        rounds = engine.make_rounds(self.algorithm, watch, strategy, compiler_options=compile_options())
        # Accelerators multiply in less than float32 by default.
        exact = jax.default_matmul_precision("highest")(rounds)
        exact.traces = rounds.traces
        return exact

    def go(self, dispatch, host, ids, n, strategy=Strategy(1)):
        """Runs n rounds from a host copy: (host copy of the result, metrics)."""
        run = from_host(host)
        run = strategy.place(run, strategy.placement(run))
        store, *rest = strategy.place(self.arguments(ids, n))
        after, metrics, _ = dispatch(run, store, *rest, n_max=self.problem.n_max)
        assert len(dispatch.traces) == 1, f"{len(dispatch.traces)} programs were compiled instead of one"
        return to_host(after), metrics


def to_host(tree):
    """Copies (never views: a view would cancel donation) of all leaves, keys as their raw data."""
    raw = lambda x: jax.random.key_data(x) if jnp.issubdtype(x.dtype, jax.dtypes.prng_key) else x
    return jax.tree.map(lambda x: np.array(raw(x), copy=True), tree)


def from_host(run: engine.Run) -> engine.Run:
    """The reverse of to_host for a Run; every leaf gets a buffer of its own."""
    run = jax.tree.map(lambda x: jnp.array(x, copy=True), run)
    return run._replace(key=jax.random.wrap_key_data(run.key))


def _equal(a, b, what):
    for (path, x), y in zip(jax.tree_util.tree_leaves_with_path(a), jax.tree.leaves(b), strict=True):
        assert np.array_equal(x, y, equal_nan=True), f"{what}: {jax.tree_util.keystr(path)} differs"


def _close(a, b, what):
    """Equal to rounding: sums in another order."""
    for (path, x), y in zip(jax.tree_util.tree_leaves_with_path(a), jax.tree.leaves(b), strict=True):
        x, y = np.asarray(x), np.asarray(y)
        rtol = 1e-10 if x.dtype == np.float64 else 1e-5
        message = f"{what}: {jax.tree_util.keystr(path)} differs"
        np.testing.assert_allclose(x, y, rtol=rtol, atol=rtol / 10, err_msg=message)


def _shapes(tree):
    return jax.tree.map(lambda x: (x.shape, x.dtype), tree)


def check_loop(bench: Bench) -> None:
    """Structure, one program, loop = single rounds, resume, donation, untouched rows, finite values, falling loss."""
    assert _shapes(bench.begin) == _shapes(bench.whole), "a round changes the structure, a shape or a dtype of its state"
    for leaf in jax.tree.leaves((bench.whole.params, bench.whole.stats)):
        assert np.isfinite(leaf).all(), "the model is not finite"
    run, ids = bench.begin, bench.cohorts
    for r in range(bench.rounds):
        before = run
        # Round r alone: its cohort comes first.
        run, _ = bench.go(bench.dispatch, run, np.roll(ids, -r, axis=0), 1)
        away = np.setdiff1d(np.arange(bench.problem.setting.num_clients), ids[r])
        rows = lambda table: jax.tree.map(lambda leaf: leaf[away], table)
        _equal(rows(before.table), rows(run.table), "a client that did not take part: its row")
    _equal(run, bench.whole, "single rounds instead of a loop")
    half, _ = bench.go(bench.dispatch, bench.begin, ids, bench.rounds // 2)
    rest, _ = bench.go(bench.dispatch, half, np.roll(ids, -(bench.rounds // 2), axis=0), bench.rounds - bench.rounds // 2)
    _equal(rest, bench.whole, "resuming from host copies")
    given = from_host(bench.begin)
    bench.dispatch(given, *bench.arguments(ids, 1), n_max=bench.problem.n_max)
    kept = [leaf for leaf in jax.tree.leaves((given.params, given.state, given.table)) if not leaf.is_deleted()]
    assert not kept, f"{len(kept)} buffers were copied instead of updated in place"
    first, last = (_mean_loss(bench, run) for run in (bench.begin, bench.whole))
    assert last < first, f"the loss does not fall: {first:.4f} before, {last:.4f} after"


@functools.lru_cache(maxsize=8)
def _loss_program(loss):
    value = lambda params, stats, batch, info: loss(params, stats, batch, jax.random.key(0), info)[0]
    return jax.jit(value, compiler_options=compile_options())


def _mean_loss(bench, host) -> float:
    """The loss of the evaluated model over everybody's examples."""
    store = bench.problem.store
    model = bench.algorithm.eval_model(Variables(host.params, host.stats), host.state)
    info = jax.tree.map(lambda leaf: leaf[0], store.info)
    return float(_loss_program(bench.problem.train.loss)(*model, store.examples, info))


def check_padding(bench: Bench) -> None:
    """The order of a cohort and the places of its padding do not matter."""
    width = bench.cohorts.shape[1]
    shuffled = bench.cohort_table(2, np.roll(np.arange(width)[::-1], 1))
    run, _ = bench.go(bench.dispatch, bench.begin, shuffled, bench.rounds)
    _close(run, bench.whole, "another order of the cohort, padding in between")


def check_observers(bench: Bench) -> None:
    """Training with and without observers is the same."""
    check_strategy(bench, Strategy(1), watched=True)


def check_degenerate(bench: Bench, wrappers=(), plain: Bench | None = None) -> None:
    """The method, built with its degenerate parameters, is FedAvg (`plain`, by default run here)."""
    plain = plain or Bench("fedavg", bench.problem, wrappers, bench.rounds)
    _close(bench.whole.params, plain.whole.params, "with its degenerate parameters it is not FedAvg")


def check_strategy(bench: Bench, strategy: Strategy, watched: bool = False) -> None:
    """Mapping the cohort otherwise, with observers or without, gives the same to rounding."""
    clients = len(bench.problem.cohort(0))
    ids = bench.cohort_table(strategy.multiple(clients) - clients)
    readings = (observers.Reading("wima2", 2),)
    watch = {"wima": observers.wima(readings), "ema": observers.ema(bench.rounds)} if watched else {}
    begin = to_host(bench.problem.start(bench.algorithm, watch)) if watched else bench.begin
    run, _ = bench.go(bench.compiled(watch, strategy), begin, ids, bench.rounds, strategy)
    _close(run._replace(observers={}), bench.whole, f"cohort {strategy}{', with observers' * watched}")
