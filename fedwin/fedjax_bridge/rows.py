"""Client-table rows of the bridge: the algorithm's row, the client's key, and its reported numbers."""

from typing import Any, NamedTuple

import jax
import jax.numpy as jnp

from fedwin import core, tree
from fedwin.core import Algorithm, Phase
from fedwin.errors import UserError

# Reported numbers per client, where the algorithm provides them: mean training loss and norm of the step.
REPORTED = ("loss", "delta_l2_norm")


class Row(NamedTuple):
    """A row of the round's client table.

    Attributes:
      row: the algorithm's row, a pytree.
      key: data of the client's key, uint32 [2].
      report: name -> reported number.
    """

    row: Any
    key: Any
    report: dict[str, Any]


class ClientWithoutWeight(core.Client):
    """A client whose share of all examples is unknown because total_examples was not given."""

    @property
    def weight(self):
        """Not available.

        Raises:
          UserError: always.
        """
        raise UserError("as_fedjax: this algorithm weighs clients by their share of all examples; set total_examples.")


class UnknownCounts(dict):
    """Label counts of a client where num_classes was not given: reading them raises UserError."""

    def __contains__(self, name) -> bool:
        return True

    def __missing__(self, name):
        raise UserError(f"as_fedjax: the loss or algorithm reads label counts ('{name}'); set num_classes.")


def with_table_rows(algorithm: Algorithm, has_counts: bool, has_weights: bool, reported: set[str]) -> Algorithm:
    """Returns the algorithm with table rows Row, from which clients read their key and into which they write a report.

    Args:
      algorithm: any algorithm.
      has_counts: whether label counts are known.
      has_weights: whether the clients' shares of all examples are known.
      reported: set to which the reported names are added when a round is traced.
    """

    def phase_with_rows(number: int, phase: Phase) -> Phase:
        client_part = phase.client
        if client_part is None:
            return phase

        def client(down, c):
            own: Row = c.state
            c = c._replace(state=own.row, key=jax.random.fold_in(jax.random.wrap_key_data(own.key), number))
            c = c if has_counts else c._replace(info=UnknownCounts())
            c = c if has_weights else ClientWithoutWeight(*c)
            update = client_part(down, c)
            row = own.row if tree.is_empty(update.state) else update.state
            report = client_report(update)
            reported.update(report)
            return update._replace(state=Row(row, own.key, own.report | report))

        return phase._replace(client=client)

    return algorithm._replace(phases=tuple(phase_with_rows(i, p) for i, p in enumerate(algorithm.phases)))


def client_report(update: core.Update) -> dict[str, jax.Array]:
    """Returns the reported numbers that an update provides, name -> float32 []."""
    report = {}
    if "loss" in update.metrics:
        report["loss"] = update.metrics["loss"].value
    step = core.mean_step_of(update.message)
    if step is not None:
        report["delta_l2_norm"] = tree.norm(step.value)
    return {name: jnp.asarray(value, jnp.float32) for name, value in report.items()}
