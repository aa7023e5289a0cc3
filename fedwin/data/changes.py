"""Changes: how the examples that clients train on, and the test examples, differ from the stored ones."""

import dataclasses
from collections.abc import Mapping
from typing import Any, NamedTuple

import jax
import jax.numpy as jnp
import numpy as np

from fedwin import core
from fedwin.data.dataset import Dataset, Partition
from fedwin.data.example_source import ExampleSource
from fedwin.data.federation import Federation
from fedwin.data.shifts import DRIFTS, SHIFTS, Drift, Shift, as_numbers
from fedwin.data.views import with_counts, with_views
from fedwin.errors import UserError

# Entries of Federation.info that `Changes.of_client` reads and removes: levels and keys of shifts, keys of drifts.
LEVEL, KEY, RUN = "shift_level", "shift_key", "drift_key"


class Changes(NamedTuple):
    """The shift of each client and the drift over rounds.

    Attributes:
      shift: shift of the clients' inputs, or None.
      drift: drift of all examples, or None.
      text: both choices; '' without any.
    """

    shift: Shift | None = None
    drift: Drift | None = None
    text: str = ""

    def of_federation(self, seed: int, run_key, federation: Federation, who: str = "seen") -> Federation:
        """Returns a federation whose `info` has each client's level and keys; the seed is that of the partition."""
        info, text = dict(federation.info or {}), self.text
        if self.shift is not None:
            info[LEVEL], info[KEY] = self.shift.of_clients(federation.num_clients, seed, who)
            text += f" {seed}"
        if self.drift is not None:
            of_run = np.asarray(jax.random.key_data(run_key))
            info[RUN] = np.tile(of_run, (federation.num_clients, 1))
            text += f" {of_run}"
        return dataclasses.replace(federation, info=info, changes=text) if text else federation

    def of_client(self, c: core.Client, round, first: int = 0) -> core.Client:
        """Returns a client with the examples that it sees; may be traced.

        Args:
          round: 0-based round whose data they are.
          first: number of its first example, which determines the noise.
        """
        if not self.text:
            return c
        info = {name: value for name, value in c.info.items() if name not in (LEVEL, KEY, RUN)}
        by = self._by(round, c.info, first)
        if by["classes"] is not None:
            info = with_counts(info, lambda counts: jnp.zeros_like(counts).at[by["classes"]].add(counts))
        return with_views(c._replace(info=info), by, {"x": self._inputs, "y": _label})

    def applied(self, algorithm: core.Algorithm) -> core.Algorithm:
        """Returns an algorithm whose clients see the changed examples of the round that they start in."""

        changed = lambda phase: phase._replace(client=lambda down, c: phase.client(down, self.of_client(c, c.round)))
        return core.with_client_phases(changed, algorithm) if self.text else algorithm

    def of_test(self, batches, completed, run_key):
        """Returns test batches [n, B, ...], or a tuple of these, as they are in the last round; may be traced."""
        if self.drift is None:
            return batches
        if isinstance(batches, tuple):
            return tuple(self.of_test(each, completed, run_key) for each in batches)
        by = self._by(completed - 1, {RUN: jax.random.key_data(run_key)})
        x = jax.vmap(lambda x: self._drifted(x, by))(batches["x"])
        return batches | {"x": x, "y": _label(batches["y"], None, by)}

    def of_clients(
        self, federation: Federation, part: Partition, clients, round: int, *, most=None, among=None, first=0
    ):
        """Yields the examples of clients, {'x': [N, ...], 'y': [N]}, as the clients see them in a round.

        Args:
          federation: as `of_federation` returns it.
          part: the partition that says what clients hold: the federation's, or another one.
          clients: their numbers.
          round: 0-based.
          most: how many of each client's examples, the first ones, to yield; None: all.
          among: places in part.order to which the examples are restricted, int [n]; None: all.
          first: as for `of_client`.
        """
        wanted = np.ones(len(part.order), bool) if among is None else np.isin(np.arange(len(part.order)), among)
        stored = federation.dataset.train
        with ExampleSource({name: stored[name] for name in ("x", "y", "domain") if name in stored}) as source:
            for client in clients:
                places = np.flatnonzero(wanted[part.offset[client] : part.offset[client + 1]])[:most]
                own = source.gather(part.client(client)[places])
                if self.text:
                    by = self._by(round, {name: values[client] for name, values in federation.info.items()}, first)
                    x = self._inputs(jnp.asarray(own["x"]), jnp.asarray(places), by)
                    own |= {"x": np.asarray(x), "y": np.asarray(_label(own["y"], places, by))}
                yield own

    def _by(self, round, info: Mapping[str, Any], first: int = 0) -> dict[str, Any]:
        moved = self.drift.classes if self.drift is not None else None
        by = {name: info.get(name) for name in (LEVEL, KEY, RUN)} | {"round": round, "first": first}
        return by | {"classes": None if moved is None else moved(round, by[RUN])}

    def _drifted(self, x, by: Mapping[str, Any]):
        if self.drift is None or self.drift.inputs is None:
            return x
        return self.drift.inputs(as_numbers(x), by["round"], by[RUN])

    def _inputs(self, x, positions, by: Mapping[str, Any]):
        x = self._drifted(x, by)
        if self.shift is None:
            return x
        key = jax.random.wrap_key_data(by[KEY], impl="threefry2x32")
        return self.shift.change(as_numbers(x), by[LEVEL], key, positions + by["first"])


def _label(y, positions, by: Mapping[str, Any]):
    return y if by["classes"] is None else by["classes"][y].astype(y.dtype)


def changes_of(client_shift: str, drift: str, dataset: Dataset, num_rounds: int) -> Changes:
    """Builds the changes that --client_shift and --drift name.

    Raises:
      UserError: the data set has no inputs or labels of this kind, or the drift comes after the last round.
    """
    shift = SHIFTS.build(client_shift) if client_shift else None
    moving = DRIFTS.build(drift, dataset.num_classes) if drift else None
    x = dataset.train["x"]
    for refused, why in (
        (shift and shift.needs_images and len(x.shape) != 4, f"client_shift={client_shift} needs images [H, W, C]:"),
        (shift and x.dtype != np.uint8 and x.dtype.kind != "f", f"client_shift={client_shift} changes numbers:"),
        (moving and moving.inputs and len(x.shape) != 4, f"drift={drift} needs images [H, W, C]:"),
        (moving and moving.classes and dataset.task != "classification", f"drift={drift} exchanges classes:"),
    ):
        if refused:
            raise UserError(f"{why} '{dataset.name}' has {x.dtype} {list(x.shape[1:])}, a {dataset.task}; omit it.")
    if moving and moving.round >= num_rounds:
        raise UserError(f"drift={drift} begins after the last of {num_rounds} rounds; lower its round.")
    return Changes(shift, moving, f"{client_shift} {drift}".strip())
