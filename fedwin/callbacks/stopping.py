"""Early stopping: rules that end a seed based on its evaluations (--early_stopping), and their registry."""

import math
from collections.abc import Callable
from typing import Any, NamedTuple

import numpy as np

from fedwin.callbacks.protocol import Callback, ReadOuts
from fedwin.callbacks.scores import FIGURES, is_lower, is_share, reaches
from fedwin.errors import UserError, user_code
from fedwin.registry import Registry
from fedwin.registry.ranges import Finite, NonNegative, PositiveInt, one_of

# Prefix of metrics on held-out examples; all others are those of the test examples.
VALIDATION_PREFIX = "val_"


class StoppingRule(NamedTuple):
    """A rule that decides after each evaluation whether a seed ends.

    It is a pure function of the evaluations: a resumed seed replays its earlier ones and ends in the same round.

    Attributes:
      metric: metric that decides: val_accuracy, val_loss ...
      read_out: read-out whose metric it is: model, wima50 ...
      init: () -> state before the first evaluation.
      update: (state, round, value) -> (state, whether the seed ends).
    """

    metric: str
    read_out: str
    init: Callable[[], Any]
    update: Callable[[Any, int, float], tuple[Any, bool]]

    @property
    def on_test(self) -> bool:
        """Whether the metric is computed on test examples."""
        return not self.metric.startswith(VALIDATION_PREFIX)


# Builders have the signature builder(*, option=...) -> StoppingRule.
STOPPING_RULES = Registry("stopping rule", rule="a seed ends when", builds=StoppingRule)


@STOPPING_RULES.register("patience", instances=("patience:rounds=20",))
def patience(
    *, rounds: PositiveInt, metric: str = "val_accuracy", read_out: str = "model", min_delta: NonNegative = 0.0
) -> StoppingRule:
    """Patience: no evaluation in the last `rounds` rounds beats the best one before them by more than min_delta.

        t - t_best >= rounds,   t_best <- t where v_t > v_best + min_delta (for losses, v_t < v_best - min_delta)

    Args:
      rounds: rounds without an improvement after which the seed ends.
      metric: metric that decides; for losses and RMSE lower values are better. The default needs --val_fraction and
        --eval_val; a metric of the test examples (accuracy, loss) is used only if it is named.
      read_out: read-out whose metric it is.
      min_delta: smallest improvement that counts.

    Source: Prechelt, Early Stopping - But When?, 1998, https://doi.org/10.1007/3-540-49430-8_3.

    Example:
      >>> rule = patience(rounds=20)
      >>> state = rule.init()
      >>> for round, value in [(10, 0.5), (20, 0.7), (30, 0.6), (40, 0.7)]:
      ...     state, stop = rule.update(state, round, value)
      ...     print(round, stop)
      10 False
      20 False
      30 False
      40 True
    """
    if is_share(metric) and min_delta >= 1:
        raise UserError(f"patience: min_delta={min_delta:g} of {metric} is a fraction; give a number below 1.")
    sign = -1.0 if is_lower(metric) else 1.0

    def update(state, round, value):
        best, at = state
        # The first evaluation is the start, whatever it is; NaN is no improvement.
        if at is None or sign * value > best + min_delta:
            return (sign * value if math.isfinite(value) else -math.inf, round), False
        return state, round - at >= rounds

    return StoppingRule(metric, read_out, lambda: (-math.inf, None), update)


@STOPPING_RULES.register("target", instances=("target:value=0.9",))
def target(*, value: Finite, metric: str = "val_accuracy", read_out: str = "model") -> StoppingRule:
    """Target: the metric has reached a value.

        v_t >= value (for losses and RMSE, v_t <= value)

    Args:
      value: value that the metric has to reach.
      metric: metric that decides, as in `patience`.
      read_out: read-out whose metric it is.

    Example:
      >>> rule = target(value=0.6)
      >>> rule.update(rule.init(), 10, 0.5)[1], rule.update(rule.init(), 20, 0.7)[1]
      (False, True)
    """
    if is_share(metric) and not 0 <= value <= 1:
        raise UserError(f"target: value={value:g} of {metric} is a fraction; give a number from 0 to 1.")
    sign = -1.0 if is_lower(metric) else 1.0
    reached = lambda now: bool(reaches(sign * now, sign * value))
    return StoppingRule(metric, read_out, lambda: None, lambda state, round, now: (state, reached(now)))


def build(choice: str, eval_val: bool, task: str = "classification") -> StoppingRule:
    """Builds the rule of --early_stopping, such as 'patience:rounds=50'.

    Args:
      eval_val: whether the run evaluates on held-out examples.
      task: task of the data set.

    Raises:
      UserError: the choice is invalid, or evaluations lack its metric: there are no classes or held-out examples.
    """
    rule = STOPPING_RULES.build(choice)
    if rule.metric.rpartition("_")[2] in FIGURES:
        raise UserError(f"early_stopping={choice}: not every evaluation has {rule.metric}; name metric=val_accuracy.")
    if task == "regression" and "accuracy" in rule.metric:
        raise UserError(f"early_stopping={choice}: continuous labels have no {rule.metric}; name metric=val_rmse.")
    if not rule.on_test and not eval_val:
        raise UserError(
            f"early_stopping={choice}: {rule.metric} needs examples that clients hold out; set --val_fraction=0.1 and "
            f"--eval_val, or let the test examples decide by naming metric=accuracy."
        )
    return rule


class EarlyStopping(Callback):
    """Ends seeds by a rule, which was built from a choice."""

    def __init__(self, rule: StoppingRule, choice: str):
        self.rule, self.choice = rule, choice
        self._states: dict[int, Any] = {}

    def resume(self, seed, evaluations):
        for round, read_outs in evaluations:
            self(round, seed, read_outs)

    def __call__(self, round, seed, read_outs):
        value = self.value(read_outs)
        with user_code(self.rule.update, f"early_stopping={self.choice} fails after round {round} of seed {seed}"):
            state = self._states[seed] if seed in self._states else self.rule.init()
            answer = self.rule.update(state, round, value)
        match answer:
            case (state, bool() | np.bool_() as stop):
                self._states[seed] = state
                return stop
        raise UserError(f"early_stopping={self.choice}: update returned {answer!r}; return (state, True or False).")

    def value(self, read_outs: ReadOuts) -> float:
        """Returns the value that decides; raises UserError if an evaluation has none."""
        found: Any = read_outs
        for option, name in (("read_out", self.rule.read_out), ("metric", self.rule.metric)):
            one_of(f"early_stopping: {option}", name, found)
            found = found[name]
        return found
