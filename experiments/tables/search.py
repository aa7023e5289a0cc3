"""Optuna's search (`fedwin sweep --search=optuna:trials=50`): ranges, sampling, pruning, and a study that resumes."""

import dataclasses
import importlib
import itertools
import json
import math
import pathlib
import re
import time
import types
from collections.abc import Mapping, Sequence
from typing import Any, Literal, NamedTuple

import fedwin
from fedwin.callbacks import Callback
from fedwin.callbacks.scores import is_lower
from fedwin.data.formats.files import reading
from fedwin.errors import UserError, require
from fedwin.files import InUse, check_unlocked, locked, writing
from fedwin.registry import Registry
from fedwin.registry.ranges import NonNegativeInt, PositiveInt
from fedwin.runs.config import Config, default_of
from fedwin.runs.directory import hash_of, set_fields

from ..cli import config_flags
from ..launching import summary_of
from . import grid, sweeps

# Builders have the signature builder(*, option=...) -> OptunaSearch, or None for the grid.
SEARCHES = Registry("search", rule="which runs are trained")
# The file of the study in the sweep's folder.
STUDY = "study.db"
# Attribute of trials: where pruning stopped them, [position of the seed, round].
PRUNED_AT = "pruned_at"
_NUMBER = r"[-+]?(?:\d+\.?\d*|\.\d+)(?:[eE][-+]?\d+)?"
_RANGE = re.compile(rf"(log:)?({_NUMBER})\.\.({_NUMBER})")
_PLACEHOLDER = re.compile(r"\{([^{}]*)\}")
# Drawn numbers are rounded to this many significant digits, so that commands and directories are readable.
DIGITS = 4
# Draws the lower end of each range and the first of several values.
_LOWEST = types.SimpleNamespace(
    suggest_float=lambda name, low, high, log: low,
    suggest_int=lambda name, low, high, log: low,
    suggest_categorical=lambda name, choices: choices[0],
)
# Field of Config and the texts of its values: one range, or values that may contain ranges in braces.
Space = Mapping[str, tuple[dataclasses.Field, Sequence[str]]]


class OptunaSearch(NamedTuple):
    """Settings of a search, as for `optuna`."""

    trials: int
    seed: int
    pruner: str
    startup: int


@SEARCHES.register("grid")
def every_point() -> None:
    """Grid: every combination of the axes' values.

    Example:
      >>> SEARCHES.build("grid")
    """


@SEARCHES.register("optuna")
def optuna(
    *,
    trials: PositiveInt = 50,
    seed: NonNegativeInt = 0,
    pruner: Literal["median", "none"] = "median",
    startup: PositiveInt = 10,
) -> OptunaSearch:
    """Optuna: points drawn by the TPE sampler; runs worse than the median of the earlier ones are pruned.

    Args:
      trials: number of trials, those of an interrupted search included.
      seed: seed of the sampler.
      pruner: median, or none.
      startup: trials that are drawn at random before TPE, and before any is pruned.

    Raises:
      UserError: optuna is not installed.

    Source: Akiba et al., Optuna: A Next-generation Hyperparameter Optimization Framework, 2019,
    https://arxiv.org/abs/1907.10902.

    Example:
      >>> SEARCHES.options("optuna")["trials"]
      50
    """
    require("search=optuna", "optuna", "optuna")
    return OptunaSearch(trials, seed, pruner, startup)


def parse(texts: Sequence[str]) -> Space:
    """Returns the space of --grid: of an axis values as in a grid, or a range; raises UserError for an invalid one."""
    space = grid.fields_of(texts)
    for field, pieces in space.values():
        for piece in pieces:
            _value(field, [piece], _LOWEST)  # the lower ends of all its ranges
    if not any(len(pieces) > 1 or _RANGE.search(pieces[0]) for _, pieces in space.values()):
        raise UserError("grid: there is nothing to draw; give an axis a range or several values, or omit --search.")
    return space


def point_of(space: Space, trial: Any) -> grid.Point:
    """Returns field -> value, drawn axis by axis by an optuna.Trial or FixedTrial."""
    return {name: _value(field, pieces, trial) for name, (field, pieces) in space.items()}


def _value(field: dataclasses.Field, pieces: Sequence[str], trial: Any) -> Any:
    """Returns a value of a field: one of several, with numbers in place of its ranges."""
    flag, kind = config_flags.flag_of(field.name), type(default_of(field))
    if len(pieces) == 1 and kind in (int, float) and ".." in pieces[0]:
        return _number(pieces[0], flag, kind is int, trial, f"{flag}={pieces[0]}")
    piece = pieces[0] if len(pieces) == 1 else trial.suggest_categorical(flag, pieces)
    where, numbers = f"{flag}={piece}", itertools.count(1)
    drawn = lambda match: repr(_number(match[1], f"{where}#{next(numbers)}", None, trial, where))
    return grid.value_of(field, _PLACEHOLDER.sub(drawn, piece), where)


def _number(text: str, name: str, integer: bool | None, trial: Any, where: str) -> float:
    """Returns a number of a range, rounded to DIGITS; `integer` None: integers if both ends are."""
    match = _RANGE.fullmatch(text.strip())
    if not match:
        raise UserError(f"grid={where}: '{text}' is not LOW..HIGH or log:LOW..HIGH; write e.g. client_lr=log:0.001..1.")
    whole = all(re.fullmatch(r"[-+]?\d+", end) for end in (match[2], match[3]))
    if integer and not whole:
        raise UserError(f"grid={where}: the ends of '{text}' must be integers.")
    low, high, log = float(match[2]), float(match[3]), bool(match[1])
    if not (math.isfinite(low) and math.isfinite(high) and low < high):
        raise UserError(f"grid={where}: the range '{text}' is empty; write the lower end first.")
    if log and low <= 0:
        raise UserError(f"grid={where}: a logarithmic range starts above 0; write e.g. log:0.001..{match[3]}.")
    if whole if integer is None else integer:
        return int(trial.suggest_int(name, int(low), int(high), log=log))
    value = float(f"{trial.suggest_float(name, low, high, log=log):.{DIGITS}g}")
    return min(max(value, low), high)


class Pruning(Callback):
    """Reports the metric after each evaluation of the first seed, and stops all seeds of a trial that the pruner ends.

    Optuna compares the best of all reports, so one of a later seed would be judged by the best of the first.

    Args:
      metric: (read-out, metric).
      reported: the last round that an ended process has reported, -1 for none: it did not prune before.
    """

    def __init__(self, trial: Any, config: Config, metric: tuple[str, str], reported: int = -1):
        self.trial, self.config, self.metric, self.reported = trial, config, metric, reported
        self.pruned_at = trial.user_attrs.get(PRUNED_AT)

    def __call__(self, round, seed, read_outs):
        """Returns whether the trial has been pruned."""
        place = [self.config.seeds.index(seed), round]
        if self.pruned_at is None and round > 0 and seed == self.config.seeds[0]:
            sweeps.check_metric(read_outs, *self.metric)
            value = read_outs[self.metric[0]][self.metric[1]]
            if math.isfinite(value) and round >= self.reported:
                if round > self.reported:
                    self.trial.report(value, round)
                if round < self.config.num_rounds and self.trial.should_prune():
                    self.pruned_at = place
                    # Before the seed's checkpoint: a run that is killed between both stops there again.
                    self.trial.set_user_attr(PRUNED_AT, place)
        return self.pruned_at is not None and place >= self.pruned_at


class Search:
    """A study in a sweep's folder, which processes with the same command share.

    Args:
      space: field -> texts of its values.
      base: flags of all runs, whose out_dir is the folder.
      here: whether this process trains them.

    Raises:
      UserError: the folder holds a study of another search, or runs of the lowest values would be rejected.
    """

    def __init__(self, settings: OptunaSearch, space: Space, base: Config, select: str, readout: str, here: bool):
        self.settings, self.space, self.base, self.select, self.readout = settings, space, base, select, readout
        lowest = point_of(space, _LOWEST)
        points = [
            lowest | {name: _value(field, [piece], _LOWEST)}
            for name, (field, pieces) in space.items()
            for piece in pieces
        ]
        sweeps.check_runs({grid.label(point): grid.config_of(base, point) for point in points}, readout, here)
        with writing(base.out_dir):
            pathlib.Path(base.out_dir).mkdir(parents=True, exist_ok=True)
        self.optuna = importlib.import_module("optuna")
        self.optuna.logging.set_verbosity(self.optuna.logging.WARNING)
        median = self.optuna.pruners.MedianPruner(settings.startup, base.num_rounds // 4)
        path = (pathlib.Path(base.out_dir) / STUDY).absolute()
        with reading(path, "not a readable study", "restore it, or use another --out_dir"):
            self.study = self.optuna.create_study(
                storage=f"sqlite:///{path}",
                study_name="fedwin",
                load_if_exists=True,
                direction="minimize" if is_lower(select) else "maximize",
                pruner=median if settings.pruner == "median" else self.optuna.pruners.NopPruner(),
            )
        definition = {
            "grid": {name: list(pieces) for name, (_, pieces) in space.items()},
            "select": [select, readout],
            "search": list(settings._replace(trials=0)),
            "flags": hash_of(set_fields(base.decisive())),
        }
        recorded = json.loads(self.study.user_attrs.get("definition", "null")) or definition
        if changed := [name for name, value in recorded.items() if value != definition[name]]:
            raise UserError(
                f"out_dir={base.out_dir} holds a search with another {' and '.join(changed)}; use the same flags to "
                "resume it, or another --out_dir."
            )
        self.study.set_user_attr("definition", json.dumps(definition))
        sweeps.check_runs(self.recorded().configs)

    def run(self) -> sweeps.Sweep:
        """Runs the trials that are left; returns all, in their order; raises UserError if a run is rejected."""
        while True:
            try:
                with locked(self.base.out_dir):  # while a process draws, no other one does
                    trial = self._next()
                if trial is None:
                    return self.recorded()
                if trial:
                    self._run(trial)
                    continue
            except InUse:  # another process was quicker
                pass
            time.sleep(sweeps.PAUSE)

    def left(self) -> int:
        """Returns the number of trials that have not ended."""
        ended = [trial.state.is_finished() for trial in self.study.get_trials(deepcopy=False)]
        return max(len(ended), self.settings.trials) - sum(ended)

    def _next(self) -> Any:
        """Returns a trial to run, one that an ended process left behind or a new one; None at the end.

        False: other processes run the last ones.
        """
        running, busy = self.optuna.trial.TrialState.RUNNING, False
        for left in self.study.get_trials(deepcopy=False, states=(running,)):
            self._seed_sampler(left.number)
            trial = self.optuna.trial.Trial(self.study, left._trial_id)
            try:
                check_unlocked(grid.config_of(self.base, point_of(self.space, trial)).out_dir)
                return trial
            except InUse:
                busy = True
        number = len(self.study.get_trials(deepcopy=False))
        if number >= self.settings.trials:
            return False if busy else None
        self._seed_sampler(number)
        trial = self.study.ask()
        point_of(self.space, trial)
        return trial

    def _seed_sampler(self, number: int) -> None:
        """Gives the study a sampler of a trial: its draws do not depend on when this process began."""

        def sampler(*which: Any) -> Any:
            seed = int(hash_of([self.settings.seed, *which], size=4), 16)
            return self.optuna.samplers.TPESampler(seed=seed, n_startup_trials=self.settings.startup)

        self.study.sampler = sampler(number)
        # Numbers that are not drawn together, as at random, have a seed each: an earlier process may have drawn some.
        alone = lambda study, trial, name, range: sampler(number, name).sample_independent(study, trial, name, range)
        self.study.sampler.sample_independent = alone

    def _run(self, trial: Any) -> None:
        point = point_of(self.space, trial)
        config, label = grid.config_of(self.base, point), grid.label(point)
        print(f"[{trial.number + 1}/{self.settings.trials}] {label}")
        trials = self.study.get_trials(deepcopy=False)
        known = trials[trial.number].intermediate_values
        # One of the same values is the same run.
        for other in (each for each in trials if PRUNED_AT in each.user_attrs and each.number != trial.number):
            if point_of(self.space, self.optuna.trial.FixedTrial(other.params)) == point:
                trial.set_user_attr(PRUNED_AT, other.user_attrs[PRUNED_AT])
        pruning = Pruning(trial, config, (self.readout, self.select), max(known, default=-1))
        pruning.may_stop = self.settings.pruner != "none"
        state = self.optuna.trial.TrialState
        try:
            summary = fedwin.run(config, on_eval=pruning)
        except InUse:
            raise
        except UserError as error:  # the same command tries it again
            raise UserError(f"run '{label}': {error}") from error
        score = sweeps.score(summary, self.select, self.readout)
        # A trial of which a seed diverged ranks below all others, as a pruned one without a value does in TPE.
        if pruning.pruned_at is not None or score.mean is None or score.seeds < score.of_seeds:
            self.study.tell(trial, state=state.PRUNED, skip_if_finished=True)
        else:
            self.study.tell(trial, score.mean, skip_if_finished=True)

    def recorded(self) -> sweeps.Sweep:
        """Returns the trials that have ended, but for failed ones, in order; raises UserError if a run is gone."""
        sweep = sweeps.Sweep(
            {name: pieces for name, (_, pieces) in self.space.items()}, {}, {}, {}, self.select, self.readout
        )
        state = self.optuna.trial.TrialState
        for trial in self.study.get_trials(deepcopy=False, states=(state.COMPLETE, state.PRUNED)):
            point = point_of(self.space, self.optuna.trial.FixedTrial(trial.params))
            label, config = grid.label(point), grid.config_of(self.base, point)
            sweep.points[label], sweep.configs[label], sweep.trials[label] = point, config, trial
            if (summary := summary_of(label, config)) is None:
                raise UserError(f"{config.out_dir}: a run of the search is gone; restore it, or use another --out_dir.")
            sweep.summaries[label] = summary
            if PRUNED_AT in trial.user_attrs:
                sweep.pruned[label] = trial.user_attrs[PRUNED_AT][1]
        return sweep
