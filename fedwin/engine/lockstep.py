"""Several runs that differ in their seed alone, in one dispatch to the device."""

from typing import Any

import jax
import jax.numpy as jnp

from fedwin.data.store import Store
from fedwin.engine.dispatch import Dispatch
from fedwin.engine.rounds import RunState
from fedwin.residence.windows import windows_of


def _counters(run: RunState) -> RunState:
    """Returns a tree of booleans: which leaves count rounds, and so are the same for all seeds."""
    counting = {id(run.round), *(id(node.count) for node in windows_of(run).values())}
    return jax.tree.map(lambda leaf: id(leaf) in counting, run)


class Lockstep(Dispatch):
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
            return super(Lockstep, self)._rounds(run, store, cohorts, test, n, flags, n_max)

        lanes = run.round.shape[0]
        axes = jax.tree.map(lambda shared: None if shared else 0, counters)
        run = jax.tree.map(lambda shared, leaf: leaf[0] if shared else leaf, counters, run)
        mapped = jax.vmap(rounds, (axes, self._store_axes, 1, self._test_axes), (axes, 1, 1), axis_size=lanes)
        run, metrics, probes = mapped(run, store, cohorts, test)
        several = lambda shared, leaf: jnp.broadcast_to(leaf, (lanes, *leaf.shape)) if shared else leaf
        return jax.tree.map(several, counters, run), metrics, probes
