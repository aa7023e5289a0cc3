"""Rows of a cohort's table: what a client keeps, its rng, and what is reported of it."""

from typing import Any, NamedTuple

import jax
import jax.numpy as jnp
import numpy as np

from fedwin import core, tree
from fedwin.core import Algorithm, Phase
from fedwin.errors import UserError

# What apply reports of every client, where its algorithm has it: mean training loss and the norm of its step.
REPORTED = ("loss", "delta_l2_norm")


class Row(NamedTuple):
    """A slot of the round's table.

    Attributes:
      row: the algorithm's row.
      key: the client's rng, uint32 [2].
      report: name -> number that is reported.
    """

    row: Any
    key: Any
    report: dict[str, Any]


class Seats(NamedTuple):
    """The clients of a cohort as a round takes them, padded to C.

    Attributes:
      ids: numbers that depend on their names alone, int32 [C]; -1 = padding.
      keys: their rngs, uint32 [C, 2].
    """

    ids: Any
    keys: Any


def no_reports(places: int) -> dict[str, np.ndarray]:
    """Returns name -> [places] before anything is reported."""
    return {name: np.zeros(places, np.float32) for name in REPORTED}


class ClientWithoutWeight(core.Client):
    """A client whose share of all examples is unknown, because their number was not given."""

    @property
    def weight(self):
        raise UserError("as_fedjax: this algorithm weighs clients by their share of all examples; set total_examples.")


class UnknownCounts(dict):
    """The label counts of a client where the number of classes was not given."""

    def __contains__(self, name) -> bool:
        return True

    def __missing__(self, name):
        raise UserError(f"as_fedjax: the loss or algorithm reads label counts ('{name}'); set num_classes.")


def in_rows(algorithm: Algorithm, counted: bool, weighed: bool, written: set[str]) -> Algorithm:
    """Returns the algorithm with table rows Row: clients take their key from it and leave their report in it.

    Args:
      algorithm: any.
      counted: whether label counts are known.
      weighed: whether shares of all examples are known.
      written: gets the names that are reported, when a round is traced.
    """

    def phase_in_rows(number: int, phase: Phase) -> Phase:
        if phase.client is None:
            return phase

        def client(down, c):
            mine = c.state
            c = c._replace(state=mine.row, key=jax.random.fold_in(jax.random.wrap_key_data(mine.key), number))
            c = c if counted else c._replace(info=UnknownCounts())
            c = c if weighed else ClientWithoutWeight(*c)
            update = phase.client(down, c)
            row = mine.row if tree.is_empty(update.state) else update.state
            known = report_of(update)
            written.update(known)
            return update._replace(state=Row(row, mine.key, mine.report | known))

        return phase._replace(client=client)

    return algorithm._replace(phases=tuple(phase_in_rows(i, p) for i, p in enumerate(algorithm.phases)))


def report_of(update: core.Update) -> dict[str, jax.Array]:
    """Returns what can be reported of a client, by name, as float32."""
    known = {}
    if "loss" in update.metrics:
        known["loss"] = update.metrics["loss"].value
    step = core.mean_step_of(update.message)
    if step is not None:
        known["delta_l2_norm"] = tree.norm(step.value)
    return {name: jnp.asarray(value, jnp.float32) for name, value in known.items()}
