"""Figures that look into trained models: planes, lines, factors, forgetting, label histograms; and sketches."""

import dataclasses

from .items import Entry
from .scales import shrunk
from .trajectories import Fields, Run


@dataclasses.dataclass(frozen=True)
class Analysis:
    """A figure made of the checkpoints of one or several runs.

    Attributes:
      name: such as 'ima/figure1'.
      title: what it shows, one line.
      kind: of picture, a module of experiments.figures: plane, line, factors, forgetting, labels.
      base: what all runs share.
      runs: what each run changes; their names are those of panels or curves.
      at: shares of the rounds whose checkpoints are looked at, in (0, 1].
      ends: rounds whose checkpoints are looked at besides, counted back from the last one.
      options: of the picture's kind.
      trend_options: the same at trend and smoke scale; None: the same.
      shows: which panels of its kind are drawn; empty: all.
      seeds: at every scale.
      assumed: what the paper does not state, and what is taken instead.
      standin: what takes the place of data and networks at trend scale.
      cost: at paper scale, in words.
    """

    name: str
    title: str
    kind: str
    base: Entry
    runs: tuple[Entry, ...]
    at: tuple[float, ...] = (1.0,)
    ends: tuple[int, ...] = ()
    options: Fields = Fields()
    trend_options: Fields | None = None
    shows: tuple[str, ...] = ()
    seeds: tuple[int, ...] = (0,)
    assumed: tuple[str, ...] = ()
    standin: str = ""
    cost: str = ""

    def trajectories(self, scale: str) -> dict[str, Run]:
        """Returns name -> run, without those that are absent at a scale; a fork goes on from the run without it."""
        found = {}
        for entry in self.runs:
            if scale == "trend" and (entry.absent or self.base.absent):
                continue
            begun = self.base.fields(scale) | (entry.fields(scale) if entry.fork is None else Fields())
            run = Run(shrunk(begun) if scale == "smoke" else begun)
            found[entry.name] = run if entry.fork is None else run.forked(entry.fork, entry.fields(scale), entry.lead)
        return found

    def checkpoints(self, scale: str) -> tuple[int, ...]:
        """Returns the rounds whose checkpoints are looked at; none where nothing stands in."""
        runs = list(self.trajectories(scale).values())
        if not runs:
            return ()
        rounds = runs[0].num_rounds
        chosen = {max(1, round(share * rounds)) for share in self.at} | {rounds - back for back in self.ends}
        return tuple(sorted(chosen))

    def settings(self, scale: str) -> Fields:
        """Returns the options of its kind at a scale."""
        return self.options if scale == "paper" or self.trend_options is None else self.trend_options


@dataclasses.dataclass(frozen=True)
class Sketch:
    """An illustration: there is nothing to compute.

    Attributes:
      name: such as 'ghb/figure5'.
      title: what it shows.
      why: there is nothing to reproduce.
    """

    name: str
    title: str
    why: str
