"""Tests that any federated method must pass, and small problems to run them on.

from fedwin import testing

def test_my_method():
    testing.check_algorithm(my_method)      # a builder (setting, solve, *, ...) -> core.Algorithm
"""

from fedwin.testing.contract import (
    Bench,
    check_algorithm,
    check_degenerate,
    check_loop,
    check_observers,
    check_padding,
    check_strategy,
    default_strategies,
    from_host,
    to_host,
)
from fedwin.testing.problems import (
    Problem,
    build,
    classification,
    compile_options,
    pack,
    problem,
    quadratic,
    regression,
    trajectory,
)

__all__ = [
    "Bench",
    "Problem",
    "build",
    "check_algorithm",
    "check_degenerate",
    "check_loop",
    "check_observers",
    "check_padding",
    "check_strategy",
    "classification",
    "compile_options",
    "default_strategies",
    "from_host",
    "pack",
    "problem",
    "quadratic",
    "regression",
    "to_host",
    "trajectory",
]
