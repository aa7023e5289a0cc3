"""Many rounds in one dispatch to the device."""

from collections.abc import Callable
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np
from jax import lax

from fedwin import tree
from fedwin import window as windows
from fedwin.core import Algorithm, Observer
from fedwin.data.federation import ShardedStore, Store
from fedwin.engine.placement import replicated
from fedwin.engine.rounds import Cohorts, RunState, one_round, read_out
from fedwin.engine.sampling import check_cohort
from fedwin.engine.strategy import Strategy
from fedwin.models.convolution.program_cache import allow_uncached
from fedwin.residence.offloaded_windows import windows_of


def _nothing(shape):
    """Returns what takes the place of a value that was not computed: NaN, or 0 for integers."""
    return jnp.full(shape.shape, jnp.nan if jnp.issubdtype(shape.dtype, jnp.inexact) else 0, shape.dtype)


def _buffers(shapes, rounds: int):
    return tree.map(lambda s: _nothing(jax.ShapeDtypeStruct((rounds, *s.shape), s.dtype)), shapes)


def _put(buffers, values, r):
    return tree.map(lambda buffer, value: lax.dynamic_update_index_in_dim(buffer, value, r, 0), buffers, values)


class Dispatch:
    """The compiled loop: `dispatch(run, store, cohorts, test, n, flags, n_max=...) -> (RunState, metrics, probes)`.

    Runs the first n (traced) of the R_max cohorts; `run` is donated and updated in place. One trace serves any n and
    any pattern of evaluations; another is made only for another n_max (static: a size bucket) or another shape. Metrics
    and probes have a leading axis R_max; rows that were not computed are NaN (0 for integers).

    Args:
      algorithm: what is run.
      observers: name -> Observer.
      strategy: how cohorts are mapped.
      probe: (dict name -> Variables, test) -> tree of scalars, run after the rounds whose flag is set; None = never.
      compiler_options: handed to jax.jit.

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
    ):
        self.algorithm, self.observers, self.strategy, self.probe = algorithm, observers, strategy, probe
        self.compiler_options = compiler_options
        self.traces: list[int] = []
        self._compiled: Any = None

    def _measure(self, run: RunState, test):
        return self.probe(read_out(self.algorithm, self.observers, run), test) if self.probe else ()

    def rounds(self, run: RunState, store: Store | ShardedStore, cohorts: Cohorts, test, n, flags, n_max: int):
        """The traced function, for lowering it by other means (jax.export); arguments as in a call."""
        self.traces.append(n_max)  # runs once per trace, so that recompilations can be counted
        with windows.on_mesh(self.strategy.everywhere):
            return self._rounds(run, store, cohorts, test, n, flags, n_max)

    def _rounds(self, run, store, cohorts, test, n, flags, n_max):
        strategy, rounds_max = self.strategy, cohorts.ids.shape[0]

        # Each is needed twice, for shapes and in the loop; jit traces it once, and leaves no trace of itself.
        step = jax.jit(
            lambda run, store, c: one_round(self.algorithm, self.observers, strategy, n_max, run, store, *c),
            inline=True,
        )
        measure = jax.jit(self._measure, inline=True)

        run_shape, metric_shape = jax.eval_shape(step, run, store, jax.tree.map(lambda x: x[0], cohorts))
        probe_shape = jax.eval_shape(measure, run, test)
        kept = strategy.placement(run)

        def body(r, loop):
            run, metrics, probes = loop
            now = jax.tree.map(lambda x: lax.dynamic_index_in_dim(x, r, 0, keepdims=False), cohorts)
            run, values = step(run, store, now)
            run = strategy.constrain(run, kept)
            metrics = _put(metrics, values, r)
            if self.probe:
                skipped = lambda run, test: tree.map(_nothing, probe_shape)
                probes = _put(probes, lax.cond(flags[r], measure, skipped, run, test), r)
            return run, metrics, probes

        start = (run, _buffers(metric_shape, rounds_max), _buffers(probe_shape, rounds_max))
        return lax.fori_loop(0, n, body, start)

    def __call__(
        self, run: RunState, store: Store | ShardedStore, cohorts: Cohorts, test: Any, n: int, flags: Any, n_max: int
    ) -> tuple[RunState, Any, Any]:
        """Runs n rounds.

        Args:
          run: the placed state (donated).
          store: the placed examples.
          cohorts: who takes part, [R_max, C].
          test: placed test batches, or () without a probe.
          n: rounds to run, at most R_max.
          flags: which rounds to evaluate after, bool [R_max].
          n_max: examples that a client's index has room for.

        Raises:
          UserError: a client that is given twice in one round.
        """
        if isinstance(cohorts.ids, np.ndarray):
            check_cohort(cohorts.ids.reshape(-1, cohorts.ids.shape[-1]))
        with allow_uncached():
            return self._jitted(run)(run, store, cohorts, test, n, flags, n_max=n_max)

    def compiled(self, run, store, cohorts: Cohorts, test, n: int, flags, n_max: int) -> Any:
        """Returns the compiled program, which says what it needs; arguments as in a call, or their shapes."""
        with allow_uncached():
            return self._jitted(run).lower(run, store, cohorts, test, n, flags, n_max=n_max).compile()

    def _jitted(self, run) -> Any:
        if self._compiled is None:
            # On a mesh, outputs must come back placed as inputs are, or the next dispatch would be compiled anew.
            mesh = self.strategy.mesh
            placed: dict[str, Any] = {}
            if mesh is not None:
                placed["out_shardings"] = (self.strategy.placement(run), replicated(mesh), replicated(mesh))
            self._compiled = jax.jit(
                self.rounds,
                donate_argnums=0,
                static_argnames="n_max",
                compiler_options=self.compiler_options,
                **placed,
            )
        return self._compiled


def _counters(run: RunState) -> RunState:
    """Returns a tree of booleans: which leaves count rounds, and so are the same for all seeds."""
    counting = {id(run.round), *(id(node.count) for node in windows_of(run).values())}
    return jax.tree.map(lambda leaf: id(leaf) in counting, run)


class VmappedDispatch(Dispatch):
    """A Dispatch of L lanes: jax.vmap over all its rounds, so that every seed is in a lane of its own.

    Leaves of the state have a leading axis L; cohorts are [R_max, L, C]; metrics and probes come back [R_max, L]. The
    lanes have completed the same number of rounds. What a lane computes depends on nothing that is in the others.

    Args:
      *args: as of Dispatch.
      apart: whether clients hold other examples in every lane; the index of the Store then has a leading axis L.
      test_axes: where the lanes are in what is evaluated on, as of jax.vmap.
    """

    def __init__(self, *args, apart: bool, test_axes: Any = None):
        super().__init__(*args)
        own = 0 if apart else None
        self._store_axes: Any = Store(None, own, own, own, own)  # type: ignore[arg-type]
        self._test_axes = test_axes

    def _rounds(self, run, store, cohorts, test, n, flags, n_max):
        # By one index for all lanes, a window is written in place; by one for each, XLA scatters.
        counters = _counters(run)
        try:
            return self._mapped(counters, run, store, cohorts, test, n, flags, n_max)
        except ValueError:  # a method of a user's that pushes when it sees fit: each lane then has counts of its own
            counters = jax.tree.map(lambda leaf: False, counters)._replace(round=True)
            return self._mapped(counters, run, store, cohorts, test, n, flags, n_max)

    def _mapped(self, counters, run, store, cohorts, test, n, flags, n_max):
        """Maps the rounds over lanes; of the state's leaves that `counters` names there is one for all lanes."""

        def rounds(run, store, cohorts, test):
            return super(VmappedDispatch, self)._rounds(run, store, cohorts, test, n, flags, n_max)

        lanes = run.round.shape[0]
        axes = jax.tree.map(lambda shared: None if shared else 0, counters)
        run = jax.tree.map(lambda shared, leaf: leaf[0] if shared else leaf, counters, run)
        mapped = jax.vmap(rounds, (axes, self._store_axes, 1, self._test_axes), (axes, 1, 1), axis_size=lanes)
        run, metrics, probes = mapped(run, store, cohorts, test)
        several = lambda shared, leaf: jnp.broadcast_to(leaf, (lanes, *leaf.shape)) if shared else leaf
        return jax.tree.map(several, counters, run), metrics, probes
