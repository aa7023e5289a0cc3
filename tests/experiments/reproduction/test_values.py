"""Verdicts on claims, computed over the seeds that both sides have."""

import dataclasses

import pytest

from experiments.papers.catalogue import item
from experiments.papers.items import Cell, Claim, Variation
from experiments.papers.measures import MeanLast, RoundsTo
from experiments.papers.trajectories import Fields, Run
from experiments.reproduction.values import Value, verdict

CLAIM = Claim("b is better than a.", (("row", "b"),), (("row", "a"),))


def number(row, measure, each, rounds=(100, 100)):
    run = Run(Fields(num_rounds=rounds[1]))
    cell = Cell(Variation(row), Variation("data"), Variation("base"), (run,), "", measure, None, None)
    return Value(cell, each, rounds, scale="trend")


def judged(measure, a, b, claim=CLAIM, **more):
    return verdict(claim, [number("a", measure, a), number("b", measure, b, **more)])


@pytest.mark.parametrize(
    "b, word",
    [
        ({0: 91.0}, "holds: 1 of 1, +1.00 points on average, 1 seed"),
        ({0: 90.4}, "too close to tell: 0 of 1, 1 within half a point, +0.40 points on average, 1 seed"),
        ({0: 89.0, 1: 81.0}, "too close to tell: 0 of 1, 1 within half a point, +0.00 points on average, 2 seeds"),
        ({0: 89.0, 1: None}, "does not show: 0 of 1, -1.00 points on average, 1 seed"),
        ({0: None}, "not tested"),
    ],
)
def test_accuracies_are_compared_over_the_seeds_that_both_have(b, word):
    assert str(judged(MeanLast(), {0: 90.0, 1: 80.0, 2: 0.0}, b)) == word


def test_shares_count_in_points_and_a_claim_may_allow_for_some():
    claim = dataclasses.replace(CLAIM, by=-2.0)
    assert str(judged(MeanLast("fraction"), {0: 0.9}, {0: 0.89}, claim)).startswith("holds: 1 of 1, -1.00 points")


@pytest.mark.parametrize(
    "b, word",
    [
        ({0: 30.0}, "holds: 1 of 1, -25 % rounds on average, 1 seed"),
        ({0: 40.0}, "too close to tell: 0 of 1, 1 within 5 % of the rounds, +0 % rounds on average, 1 seed"),
        ({0: None}, "does not show: 0 of 1, +150 % rounds on average, 1 seed"),  # never: all 100
        ({0: 30.0, 1: 70.0}, "holds: 1 of 1, -29 % rounds on average, 2 seeds"),
        ({1: None}, "not tested"),
    ],
)
def test_rounds_to_a_target_are_compared_and_never_counts_as_all_of_them(b, word):
    assert str(judged(RoundsTo(), {0: 40.0, 1: None}, b)) == word
    assert judged(RoundsTo(), {0: 40.0, 1: None}, b, rounds=(50, 100)).word == "not tested"  # it has not ended


def test_claims_name_cells_that_there_are_and_that_can_be_compared():
    for name in ("ima/table2", "ghb/table2", "ghb/table9"):
        one = item(name)
        found = [Value(cell, {0: 50.0}, (100, 100), scale="paper") for cell in one.cells("paper")]
        assert all(verdict(claim, found).pairs for claim in one.claims), name
