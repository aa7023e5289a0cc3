"""Training runs of tables and figures, identified by a hash of the fields that determine the trained models."""

import dataclasses
import functools
import math
from collections.abc import Mapping
from typing import Any

from fedwin.runs.config import Config, ExecutionOptions
from fedwin.runs.directory import hash_of, set_fields

from ..cli import config_flags

# Fields that determine how a run is evaluated or executed, but not the models that it trains.
# --eval_examples is not among them: other test examples give other numbers.
EVALUATION = ("observe", "eval_every", "final_evals", "eval_batch_size", "eval_val")
# The name of a module among `imports` depends on the installation; the algorithm that it registers is part of the key.
EXECUTION = (*ExecutionOptions.__dataclass_fields__, "init_from")


class Fields(dict):
    """Fields of Config that differ from its defaults; hashable and immutable by convention, `|` returns a new one."""

    def __hash__(self):  # type: ignore[override]
        return hash(hash_of(self))

    @classmethod
    def of(cls, flags: str) -> "Fields":
        """Returns the fields of flags as on a command line, but without dashes.

        >>> Fields.of("dataset=digits client_lr=0.05 wrap=ima")
        {'dataset': 'digits', 'client_lr': 0.05, 'wrap': ['ima']}
        """
        known = config_flags.fields()
        pairs = (flag.partition("=") for flag in flags.split())
        return cls({name: config_flags.read(known[name], text) for name, _, text in pairs})

    def __or__(self, other: Mapping[str, Any]) -> "Fields":  # type: ignore[override]
        return Fields({**self, **other})


@dataclasses.dataclass(frozen=True)
class Checkpoint:
    """A checkpoint of another run to start from: a fork or, with a `part`, a warm start with its parameters alone."""

    run: "Run"
    round: int
    part: str | None = None


@dataclasses.dataclass(frozen=True)
class Run:
    """One trajectory.

    Two runs with the same `key` train the same models: tables and figures share them.

    Attributes:
      fields: what differs from Config's defaults.
      parent: the checkpoint that it starts from; None: random parameters.
    """

    fields: Fields
    parent: Checkpoint | None = None

    @functools.cached_property
    def key(self) -> str:
        """A hash of what determines the trained models, apart from the seeds."""
        skipped = {*EVALUATION, *EXECUTION}
        decisive = {name: value for name, value in self.config().decisive().items() if name not in skipped}
        start = None if self.parent is None else (self.parent.run.key, self.parent.round, self.parent.part)
        return hash_of([set_fields(decisive), start], size=6)

    @property
    def num_rounds(self) -> int:
        """Rounds T, those before a fork included."""
        return self.config().num_rounds

    @property
    def first_round(self) -> int:
        """The round at which training starts: 0, or that of the fork."""
        return self.parent.round if self.parent is not None and self.parent.part is None else 0

    def config(self, **more: Any) -> Config:
        """Returns the Config of the run."""
        return Config(**{**self.fields, **more})

    def forked(self, share: float, fields: Mapping[str, Any]) -> "Run":
        """Returns the run that resumes this one with other fields after a share of the rounds."""
        return Run(self.fields | fields, Checkpoint(self, math.floor(share * self.num_rounds + 1e-9)))
