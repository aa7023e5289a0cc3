"""One training run of an experiment: what decides it, whatever is read off it."""

import dataclasses
import functools
import math
from collections.abc import Mapping
from typing import Any

from fedwin.runs.config import Config, default_of
from fedwin.runs.fingerprint import hash_of, jsonable, set_fields

# Fields that decide what is seen of a run, or how it is executed, but not the models that it trains. Numbers from
# other test examples are other numbers: --eval_examples is not among them.
READING = ("observe", "eval_every", "final_evals", "eval_batch_size", "eval_val")
EXECUTION = ("seeds", "strategy", "rounds_per_dispatch", "stop_on_divergence", "fork_from", "init_from")

_NUMBERS = {field.name for field in dataclasses.fields(Config) if isinstance(default_of(field), float)}


class Fields(dict):
    """Fields of Config that differ from its defaults; `|` makes new ones. Hashable, and so never changed."""

    def __hash__(self):  # type: ignore[override]
        return hash(hash_of(self))

    def __or__(self, other: Mapping[str, Any]) -> "Fields":  # type: ignore[override]
        return Fields({**self, **other})


@dataclasses.dataclass(frozen=True)
class Source:
    """Where a trajectory begins, if not at a fresh model.

    Attributes:
      run: another trajectory.
      round: whose checkpoint.
      part: None goes on from there (--fork_from); else only these parameters are taken (--init_from).
    """

    run: "Run"
    round: int
    part: str | None = None


@dataclasses.dataclass(frozen=True)
class Run:
    """One trajectory.

    Two runs with the same `key` train the same models: tables and figures share them.

    Attributes:
      fields: what differs from Config's defaults.
      source: where it begins; None: at a fresh model.
    """

    fields: Fields
    source: Source | None = None

    @functools.cached_property
    def key(self) -> str:
        """A hash of what decides the trained models, the seeds apart."""
        skipped = {*READING, *EXECUTION}
        decisive = {name: value for name, value in self.config().decisive().items() if name not in skipped}
        came = None if self.source is None else (self.source.run.key, self.source.round, self.source.part)
        return hash_of(jsonable([set_fields(decisive), came]), size=6)

    @property
    def num_rounds(self) -> int:
        """Rounds T, those before a fork included."""
        return self.config().num_rounds

    def config(self, **more: Any) -> Config:
        """Returns the Config of the run; whole numbers count as numbers where a field is one.

        Args:
          **more: fields on top: seeds, out_dir, observe ...
        """
        values: dict[str, Any] = {**self.fields, **more}
        values |= {name: float(value) for name, value in values.items() if name in _NUMBERS}
        return Config(**values)

    def forked(self, share: float, fields: Mapping[str, Any], lead: int = 0) -> "Run":
        """Returns the run that goes on from this one with other fields.

        Args:
          share: of the rounds after which they part.
          fields: what is different from there on.
          lead: how many rounds earlier the other run's checkpoint is taken; they are trained alike.
        """
        parting = math.floor(share * self.num_rounds + 1e-9)
        return Run(self.fields | fields, Source(self, max(parting - lead, 0)))
