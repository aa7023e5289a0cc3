"""Dispatch: many rounds in one call of a compiled program, for one seed or for several (vmapped)."""

from collections.abc import Callable

import jax
import jax.numpy as jnp
import numpy as np
from jax import lax

from fedwin import jax_config, tree
from fedwin.core import Algorithm, Cohort, Mean, Observer
from fedwin.data.federation import ShardedStore, Store
from fedwin.engine.placement import replicated
from fedwin.engine.rounds import RunState, one_round, read_out
from fedwin.engine.strategy import Strategy
from fedwin.residence.rings import windows_of
from fedwin.tree import PyTree
from fedwin.window import is_window


def _missing(shape):
    """Returns placeholders for values that are not computed: NaN, or 0 for integers."""
    return jnp.full(shape.shape, jnp.nan if jnp.issubdtype(shape.dtype, jnp.inexact) else 0, shape.dtype)


def _buffers(shapes, rounds: int):
    return tree.map(lambda s: _missing(jax.ShapeDtypeStruct((rounds, *s.shape), s.dtype)), shapes)


def _put(buffers, values, r):
    return tree.map(lambda buffer, value: lax.dynamic_update_index_in_dim(buffer, value, r, 0), buffers, values)


class Dispatch:
    """The compiled loop: `dispatch(run, store, cohorts, test, n, flags, n_max=...) -> (RunState, metrics, probes)`.

    Runs the first n (traced) of the R_max cohorts; `run` is donated and updated in place. One trace serves any n and
    any pattern of evaluations; another n_max (static: a size bucket) or another shape needs another trace. Metrics and
    probes have a leading axis R_max; rows that are not computed are NaN (0 for integers).

    Args:
      probe: (dict name -> Variables, test) -> tree of scalars, run after the rounds whose flag is set; None = never.
      compiler_options: passed to jax.jit in place of jax_config.compiler_options().
      seen: (test, completed rounds, the run's key) -> what `probe` gets; all read-outs share it.

    Attributes:
      traces: the n_max of every trace so far.
    """

    def __init__(
        self,
        algorithm: Algorithm,
        observers: dict[str, Observer],
        strategy: Strategy,
        probe: Callable | None = None,
        compiler_options: dict | None = None,
        seen: Callable = lambda test, round, key: test,
    ):
        self.algorithm, self.observers, self.strategy, self.probe = algorithm, observers, strategy, probe
        self.compiler_options, self.seen = compiler_options, seen
        self.traces: list[int] = []
        self._compiled: jax.stages.Wrapped | None = None

    def _measure(self, run: RunState, test):
        if self.probe is None:
            return ()
        return self.probe(read_out(self.algorithm, self.observers, run), self.seen(test, run.round, run.key))

    def rounds(self, run: RunState, store: Store | ShardedStore, cohorts: Cohort, test, n, flags, n_max: int):
        """The traced function, for lowering it by other means (jax.export); arguments as in a call."""
        self.traces.append(n_max)  # runs once per trace, so that recompilations can be counted
        # Needed more than once, for shapes and in the loop; jit traces it once, and inline leaves no trace of the jit.
        step = jax.jit(
            lambda run, store, c: one_round(self.algorithm, self.observers, self.strategy, n_max, run, store, c),
            inline=True,
        )
        with self.strategy.mesh_context():
            return self._rounds(step, run, store, cohorts, test, n, flags)

    def _rounds(self, step: Callable, run, store, cohorts, test, n, flags):
        """Runs `step`, (run, store, cohort) -> (run, metrics), in a loop; other arguments as in a call."""
        strategy, rounds_max = self.strategy, cohorts.ids.shape[0]
        measure = jax.jit(self._measure, inline=True)

        _, metric_shape = jax.eval_shape(step, run, store, jax.tree.map(lambda x: x[0], cohorts))
        probe_shape = jax.eval_shape(measure, run, test)
        shardings = strategy.placement(run)

        def body(r, loop):
            run, metrics, probes = loop
            cohort = jax.tree.map(lambda x: lax.dynamic_index_in_dim(x, r, 0, keepdims=False), cohorts)
            run, values = step(run, store, cohort)
            run = run if shardings is None else jax.lax.with_sharding_constraint(run, shardings)
            metrics = _put(metrics, values, r)
            if self.probe:
                skipped = lambda run, test: tree.map(_missing, probe_shape)
                probes = _put(probes, lax.cond(flags[r], measure, skipped, run, test), r)
            return run, metrics, probes

        return lax.fori_loop(0, n, body, (run, _buffers(metric_shape, rounds_max), _buffers(probe_shape, rounds_max)))

    def __call__(
        self,
        run: RunState,
        store: Store | ShardedStore,
        cohorts: Cohort,
        test: PyTree,
        n: int,
        flags: np.ndarray,
        n_max: int,
    ) -> tuple[RunState, dict[str, Mean], PyTree]:
        """Runs n rounds.

        Args:
          cohorts: clients of the rounds, [R_max, C].
          test: placed test batches, or () without a probe.
          flags: which rounds to evaluate after, bool [R_max].
          n_max: examples that a client's index has room for.
        """
        return self._jitted(run)(run, store, cohorts, test, n, flags, n_max=n_max)

    def compiled(self, run, store, cohorts: Cohort, test, n: int, flags, n_max: int) -> jax.stages.Compiled:
        """Returns the compiled program, for its memory analysis; arguments as in a call, or their shapes."""
        return self._jitted(run).lower(run, store, cohorts, test, n, flags, n_max=n_max).compile()

    def _jitted(self, run) -> jax.stages.Wrapped:
        if self._compiled is None:
            # On a mesh, outputs must come back placed as inputs are, or the next dispatch would be compiled again.
            mesh = self.strategy.mesh
            placed = None if mesh is None else (self.strategy.placement(run), replicated(mesh), replicated(mesh))
            self._compiled = jax.jit(
                self.rounds,
                donate_argnums=0,
                static_argnames="n_max",
                out_shardings=placed,
                compiler_options=self.compiler_options or jax_config.compiler_options(),
            )
        return self._compiled


class VmappedDispatch(Dispatch):
    """A Dispatch of L seeds at once: jax.vmap over all its rounds.

    Leaves of the state have a leading axis L; cohorts are [R_max, L, C]; metrics and probes come back [R_max, L]. The
    seeds have completed the same number of rounds. The results of one seed do not depend on the others.

    Inside the program, the number of rounds and the counts of windows have no axis L: with one index for all seeds, a
    ring buffer is written in place; with one for each, XLA scatters. Where a method pushes to a window depending on
    what it computes, all windows have one count per seed.

    Args:
      partitions_differ: whether clients hold different examples under different seeds; the index of the Store then has
        a leading axis L.
      test_axes: axes of the seeds in the evaluation examples, as for jax.vmap.
    """

    def __init__(self, *args, partitions_differ: bool, test_axes: PyTree = None):
        super().__init__(*args)
        own = 0 if partitions_differ else None
        self._store_axes: PyTree = Store(None, own, own, own, own)  # type: ignore[arg-type]
        self._test_axes = test_axes

    def _rounds(self, step, run, store, cohorts, test, n, flags):
        shared = _shared_leaves(run, counts=True)
        if not self._counts_stay_shared(step, shared, run, store, cohorts):
            shared = _shared_leaves(run, counts=False)

        def rounds(run, store, cohorts, test):
            return super(VmappedDispatch, self)._rounds(step, run, store, cohorts, test, n, flags)

        seeds, axes = run.round.shape[0], _axes(shared)
        mapped = jax.vmap(rounds, (axes, self._store_axes, 1, self._test_axes), (axes, 1, 1), axis_size=seeds)
        run, metrics, probes = mapped(_without_axis(shared, run), store, cohorts, test)
        restored = lambda one, leaf: jnp.broadcast_to(leaf, (seeds, *leaf.shape)) if one else leaf
        return jax.tree.map(restored, shared, run), metrics, probes

    def _counts_stay_shared(self, step, shared, run, store, cohorts) -> bool:
        """Whether a round that starts with one count per window for all seeds ends with one; traces a round."""
        if not windows_of(run):
            return True
        counts = lambda *given: [node.count for node in windows_of(step(*given)[0]).values()]
        in_axes, seeds = (_axes(shared), self._store_axes, 0), run.round.shape[0]
        one_for_all = jax.vmap(counts, in_axes, out_axes=None, axis_size=seeds)
        try:
            jax.eval_shape(one_for_all, _without_axis(shared, run), store, jax.tree.map(lambda x: x[0], cohorts))
        except ValueError:  # a count depends on the seed
            return False
        return True


def _shared_leaves(run: RunState, counts: bool) -> RunState:
    """Returns which leaves of a state are the same for all seeds, counts of windows if `counts`, a tree of booleans."""

    def flags(node):
        none = jax.tree.map(lambda leaf: False, node)
        return none._replace(count=counts) if is_window(node) else none

    return jax.tree.map(flags, run, is_leaf=is_window)._replace(round=True)


def _axes(shared: RunState) -> RunState:
    return jax.tree.map(lambda one: None if one else 0, shared)


def _without_axis(shared: RunState, run: RunState) -> RunState:
    """Returns a state whose shared leaves have no axis of seeds."""
    return jax.tree.map(lambda one, leaf: leaf[0] if one else leaf, shared, run)
