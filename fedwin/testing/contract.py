"""Contract suite: the checks that any federated method must pass."""

import jax
import numpy as np

from fedwin import core, engine, observers, tree
from fedwin.algorithms import ALGORITHMS
from fedwin.engine.algorithm_check import check_built, check_round
from fedwin.engine.strategy import Strategy, make_mesh
from fedwin.errors import UserError
from fedwin.testing.families import classification
from fedwin.testing.problems import Problem, build, compile_options, mean_loss
from fedwin.testing.value_checks import check_values
from fedwin.wrappers import WRAPPERS


def check_algorithm(builder, p: Problem | None = None, *, wrappers=(), degenerate=None, strategies=None, rounds=6):
    """Checks a method against everything that the engine relies on.

    Errors in user code are reported first, by tracing one round and running a few rounds client by client: a missing
    client_init, a server that returns no state, a message that the server can't read, NaNs, clients that read padding.
    Then: structure and dtypes are constant; one program serves any number of rounds; a loop is bitwise equal to single
    rounds; padding, the order of a cohort and its mapping to devices do not matter; states of clients that did not take
    part do not change; resuming from host copies is exact; buffers are updated in place; observers change nothing; the
    loss decreases. Results that depend on the order of a sum are compared up to rounding: a rule that takes signs needs
    a problem without ties.

    Args:
      builder: (setting, solve, *, ...) -> core.Algorithm, or a choice such as 'fedprox:mu=0.1'.
      p: the problem to run on, by default a classifier with three classes.
      wrappers: choices such as 'ima:window=2,start=1', applied in order.
      degenerate: hyper-parameters with which the method is FedAvg, or None.
      strategies: mappings of cohorts to compare with a plain loop; by default vmapped, and sharded over all devices.

    Raises:
      UserError: when a function of the method does not fit the others; one line names it, its file and line, and what
        it should have returned. Also when the builder or the problem has the wrong type.
      AssertionError: when the method violates the contract, with the reason.

    Prints one line on success.

    Example:
      >>> check_algorithm("fedprox:mu=0.1", strategies=())
      fedprox:mu=0.1: the contract holds.
    """
    _check_arguments(builder, p)
    p = classification(shuffle=False) if p is None else p
    with jax.debug_nans(False):  # NaN stands for what is not computed
        check_user_errors(builder, p, rounds)
        bench = Bench(builder, p, wrappers, rounds)
        check_loop(bench)
        check_padding(bench)
        check_strategy(bench, Strategy(1), watched=True)
        for strategy in default_strategies() if strategies is None else strategies:
            check_strategy(bench, strategy)
        if degenerate is not None:
            check_degenerate(Bench(builder, bench.problem, wrappers, rounds, degenerate), wrappers)
    name = builder if isinstance(builder, str) else getattr(builder, "__name__", "the method")
    print(f"{name}: the contract holds.")


def _check_arguments(builder, p) -> None:
    if not callable(builder) and not isinstance(builder, str):
        raise UserError(
            f"check_algorithm: builder={builder!r} must be a function (setting, solve, *, ...) that returns "
            f"core.algorithm(...), or a choice such as 'fedprox:mu=0.1'."
        )
    if p is not None and not isinstance(p, Problem):
        raise UserError(f"check_algorithm: p={p!r} must be a Problem, as testing.classification() returns.")


def check_user_errors(builder, p: Problem, rounds: int = 6) -> None:
    """Traces one round and runs a few rounds client by client, so that errors name the user's functions.

    Args:
      rounds: the run's number of rounds; the problem's schedule is run once.

    Raises:
      UserError: as in check_algorithm.
    """
    p = p._replace(setting=p.setting._replace(num_rounds=rounds))
    function = ALGORITHMS[ALGORITHMS.check(builder).name] if isinstance(builder, str) else builder
    algorithm = check_built(function, lambda: p.build(builder))
    check_round(algorithm, p.variables, p.store, p.n_max)
    check_values(p, algorithm, min(rounds, len(p.schedule)))


def default_strategies() -> tuple[Strategy, ...]:
    """Returns the vmapped strategy and, with several devices, the sharded one."""
    return (Strategy(None), Strategy(1, make_mesh())) if jax.device_count() > 1 else (Strategy(None),)


class Bench:
    """A method on a problem: its compiled loop and the result of one uninterrupted run."""

    def __init__(self, builder, problem: Problem, wrappers=(), rounds=6, params=None):
        setting = problem.setting._replace(num_rounds=rounds)
        self.problem = problem._replace(setting=setting)
        self.rounds = rounds
        built = [WRAPPERS.build(each, setting) if isinstance(each, str) else each(setting) for each in wrappers]
        self.algorithm = build(builder, setting, problem.solve, built, params)
        self.initial = snapshot(self.problem.start(self.algorithm))
        # With two places of padding, so that padding is part of every comparison.
        self.cohorts = self.cohort_table(2)
        self.dispatch = self.compiled({}, Strategy(1))
        self.final, _ = self.go(self.dispatch, self.initial, self.cohorts, rounds)

    def cohort_table(self, empty: int) -> core.Cohort:
        """Returns the cohorts of all rounds, arrays [rounds, C + empty] with `empty` places of padding."""
        cohorts = [self.problem.cohort(r, empty) for r in range(self.rounds)]
        return jax.tree.map(lambda *leaves: np.stack(leaves), *cohorts)

    def arguments(self, cohorts, n):
        """Returns the arguments of the loop that follow the RunState.

        Args:
          cohorts: cohorts of all rounds [rounds, C + empty].
        """
        return self.problem.store, cohorts, (), np.int32(n), np.zeros(self.rounds, bool)

    def compiled(self, watch, strategy):
        """Returns the loop, which is compiled on its first call."""
        rounds = engine.Dispatch(self.algorithm, watch, strategy, compiler_options=compile_options())
        # Accelerators multiply in less than float32 by default.
        exact = jax.default_matmul_precision("highest")(rounds)
        exact.traces = rounds.traces
        return exact

    def go(self, dispatch, host, cohorts, n, strategy=Strategy(1)):
        """Runs some rounds from a host copy.

        Args:
          cohorts: cohorts of all rounds [rounds, C + empty]; the first n are run.

        Returns:
          (host copy of the resulting RunState, metrics).
        """
        run = restore(host)
        run = strategy.place(run, strategy.placement(run))
        store, *rest = strategy.place(self.arguments(cohorts, n))
        after, metrics, _ = dispatch(run, store, *rest, n_max=self.problem.n_max)
        assert len(dispatch.traces) == 1, f"{len(dispatch.traces)} programs were compiled instead of one"
        return snapshot(after), metrics


def snapshot(values):
    """Returns copies of all leaves on the host, PRNG keys as their raw data.

    They are copies, because a view of a buffer would prevent its donation.
    """
    raw = lambda x: jax.random.key_data(x) if tree.is_key(x) else x
    return jax.tree.map(lambda x: np.array(raw(x), copy=True), values)


def restore(run: engine.RunState) -> engine.RunState:
    """Returns the RunState that a `snapshot` was taken of; every leaf has its own buffer."""
    run = tree.copy(run)
    return run._replace(key=jax.random.wrap_key_data(run.key))


def _assert_equal(a, b, context):
    for (path, x), y in zip(jax.tree_util.tree_leaves_with_path(a), jax.tree.leaves(b), strict=True):
        assert np.array_equal(x, y, equal_nan=True), f"{context}: {jax.tree_util.keystr(path)} differs"


def _assert_close(a, b, context):
    """Asserts equality up to rounding."""
    for (path, x), y in zip(jax.tree_util.tree_leaves_with_path(a), jax.tree.leaves(b), strict=True):
        rtol = 1e-10 if np.asarray(x).dtype == np.float64 else 1e-5
        close = np.allclose(x, y, rtol=rtol, atol=rtol / 10, equal_nan=True)
        assert close, f"{context}: {jax.tree_util.keystr(path)} differs"


def check_loop(bench: Bench) -> None:
    """Checks structure, one program, loop = single rounds, resuming, donation, absent states, and a decreasing loss."""
    assert tree.alike(bench.initial, bench.final), "a round changes the structure, a shape or a dtype of its state"
    for leaf in jax.tree.leaves((bench.final.params, bench.final.stats)):
        assert np.isfinite(leaf).all(), "the model is not finite"
    # Rolled so that the cohort of round r comes first.
    from_round = lambda r: jax.tree.map(lambda leaf: np.roll(leaf, -r, axis=0), bench.cohorts)
    run = bench.initial
    for r in range(bench.rounds):
        before = run
        run, _ = bench.go(bench.dispatch, run, from_round(r), 1)
        absent = np.setdiff1d(np.arange(bench.problem.setting.num_clients), bench.problem.ids(r))
        rows = lambda table: jax.tree.map(lambda leaf: leaf[absent], table)
        _assert_equal(rows(before.table), rows(run.table), "the state of a client that did not take part")
    _assert_equal(run, bench.final, "single rounds instead of a loop")
    begin = bench.rounds // 2
    half, _ = bench.go(bench.dispatch, bench.initial, bench.cohorts, begin)
    rest, _ = bench.go(bench.dispatch, half, from_round(begin), bench.rounds - begin)
    _assert_equal(rest, bench.final, "resuming from host copies")
    donated = restore(bench.initial)
    bench.dispatch(donated, *bench.arguments(bench.cohorts, 1), n_max=bench.problem.n_max)
    copied = [leaf for leaf in jax.tree.leaves((donated.params, donated.state, donated.table)) if not leaf.is_deleted()]
    assert not copied, f"{len(copied)} buffers were copied instead of updated in place"
    evaluated = lambda run: bench.algorithm.eval_model(core.Variables(run.params, run.stats), run.state)
    first, last = (mean_loss(bench.problem, evaluated(run)) for run in (bench.initial, bench.final))
    assert last < first, (
        f"the loss does not fall: {first:.4f} before, {last:.4f} after; if the method needs a smaller learning rate, "
        f"give p=testing.classification(shuffle=False, lr=0.01)"
    )


def check_padding(bench: Bench) -> None:
    """Checks that the order of a cohort and the places of its padding do not matter."""
    order = np.roll(np.arange(bench.cohorts.ids.shape[1])[::-1], 1)
    shuffled = jax.tree.map(lambda leaf: leaf[:, order], bench.cohorts)
    run, _ = bench.go(bench.dispatch, bench.initial, shuffled, bench.rounds)
    _assert_close(run, bench.final, "another order of the cohort, padding in between")


def check_degenerate(bench: Bench, wrappers=(), plain: Bench | None = None) -> None:
    """Checks that a method with its degenerate hyper-parameters is FedAvg.

    Args:
      bench: the method, built with them.
      plain: FedAvg on the same problem; by default run here.
    """
    plain = plain or Bench("fedavg", bench.problem, wrappers, bench.rounds)
    _assert_close(bench.final.params, plain.final.params, "with its degenerate parameters it is not FedAvg")


def check_strategy(bench: Bench, strategy: Strategy, watched: bool = False) -> None:
    """Checks that another mapping of the cohort, with or without observers, gives the same result up to rounding."""
    clients = len(bench.problem.cohort(0).ids)
    cohorts = bench.cohort_table(strategy.multiple(clients) - clients)
    readings = (observers.ReadOut("wima2", 2),)
    watch = {"wima": observers.wima(readings), "ema": observers.ema(bench.problem.setting)} if watched else {}
    initial = snapshot(bench.problem.start(bench.algorithm, watch)) if watched else bench.initial
    run, _ = bench.go(bench.compiled(watch, strategy), initial, cohorts, bench.rounds, strategy)
    _assert_close(run._replace(observers={}), bench.final, f"cohort {strategy}{', with observers' * watched}")
