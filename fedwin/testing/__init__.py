"""Contract tests that any federated method must pass, and small problems to run methods on.

    from fedwin import testing

    def test_my_method():
        testing.check_algorithm(my_method)      # a builder (setting, solve, *, ...) -> core.Algorithm
        testing.check_observer(my_observer)     # and check_loss, _aggregator, _wrapper, _partition, _sampler

`run_rounds` runs a registered method for a few rounds; `families` contains federations of a few numbers each, for the
arithmetic of algorithms; `federations` a small data set and network, for tests of data, observers and evaluation;
`contract` the contract tests.
"""

from fedwin.testing import federations
from fedwin.testing.contract import (
    Bench,
    check_algorithm,
    check_degenerate,
    check_loop,
    check_padding,
    check_strategy,
    check_user_errors,
)
from fedwin.testing.families import classification, quadratic, regression
from fedwin.testing.parts import (
    check_aggregator,
    check_loss,
    check_observer,
    check_partition,
    check_sampler,
    check_wrapper,
)
from fedwin.testing.problems import Problem, compile_options, problem, trajectory
from fedwin.testing.rounds import run_rounds, two_quadratics

__all__ = [
    "Bench",
    "Problem",
    "check_aggregator",
    "check_algorithm",
    "check_degenerate",
    "check_loop",
    "check_loss",
    "check_observer",
    "check_padding",
    "check_partition",
    "check_sampler",
    "check_strategy",
    "check_user_errors",
    "check_wrapper",
    "classification",
    "compile_options",
    "federations",
    "problem",
    "quadratic",
    "regression",
    "run_rounds",
    "trajectory",
    "two_quadratics",
]
