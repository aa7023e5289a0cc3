"""Local training: batches of a client's examples, and the Solver that takes SGD steps on them."""

from fedwin.local.batches import Batches, ceil_div, exact_share, shuffled
from fedwin.local.solver import Local, Solver
from fedwin.local.work import LOCAL_WORK, LocalWork, draws, read_columns, work_of_cohort
from fedwin.rules import Gradient, Rule, RuleOutput, Step, mix, proximal, sgd, shift
from fedwin.schedules import exponential

__all__ = [
    "LOCAL_WORK",
    "Batches",
    "Gradient",
    "Local",
    "LocalWork",
    "Rule",
    "RuleOutput",
    "Solver",
    "Step",
    "ceil_div",
    "draws",
    "exact_share",
    "exponential",
    "mix",
    "proximal",
    "read_columns",
    "sgd",
    "shift",
    "shuffled",
    "work_of_cohort",
]
