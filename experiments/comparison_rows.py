"""What a comparison finds: intervals over seeds, and paired differences to the first method's plain model."""

from collections.abc import Mapping
from typing import Any, NamedTuple

from fedwin.analysis import Interval, mean_interval, paired_interval
from fedwin.runs.config import Config

from . import commands, scores

# Seeds pair methods that differ in none of these: they see the same clients, examples and test set.
SAME_DATA = ("dataset", "data_dir", "partition", "num_clients", "partition_seed", "val_fraction", "eval_examples")
PLAIN = "model"


class Row(NamedTuple):
    """One read-out of one method.

    Attributes:
      method: what was compared.
      readout: model, wima50 ...
      accuracy: over seeds.
      difference: seed by seed to the plain model of `reference`; None for that model itself.
      reference: the first method on the same data.
      megabytes: sent in all rounds of a seed.
      loss: mean over seeds.
      pace: rounds per second.
      command: what shows or repeats the run.
      fingerprint: of the run.
    """

    method: str
    readout: str
    accuracy: Interval
    difference: Interval | None
    reference: str
    megabytes: float | None
    loss: float | None
    pace: float | None
    command: str
    fingerprint: str


def references(configs: Mapping[str, Config]) -> dict[str, str]:
    """Returns method -> the first method whose data is the same; a difference to any other would mean nothing."""
    first: dict[tuple, str] = {}
    return {
        method: first.setdefault(tuple(getattr(config, name) for name in SAME_DATA), method)
        for method, config in configs.items()
    }


def rows_of(summaries: Mapping[str, dict[str, Any]], configs: Mapping[str, Config]) -> list[Row]:
    """Returns the rows of finished runs.

    Args:
      summaries: method -> what `fedwin.run` returned.
      configs: method -> what was run, with its out_dir.
    """
    rows, first = [], references(configs)
    for method, summary in summaries.items():
        reference = scores.by_seed(summaries[first[method]], PLAIN, "accuracy")
        megabytes = scores.megabytes_of(configs[method], summary)
        for readout in scores.readouts(summary):
            accuracy = scores.by_seed(summary, readout, "accuracy")
            itself = (method, readout) == (first[method], PLAIN)
            rows.append(
                Row(
                    method,
                    readout,
                    mean_interval(accuracy),
                    None if itself else paired_interval(accuracy, reference),
                    first[method],
                    megabytes,
                    scores.mean_of(scores.by_seed(summary, readout, "loss").values()),
                    scores.pace(summary),
                    commands.command(configs[method]),
                    summary["fingerprint"],
                )
            )
    return rows
