"""Numbers of the items' own evaluations, and verdicts: intervals of the differences over seeds that both sides have."""

import dataclasses

import pytest

from experiments.figures import stored as figure_files
from experiments.papers.catalogue import catalogue, item
from experiments.papers.items import Analysis, Claim, Item, Variation, file_stem
from experiments.papers.measures import MeanLast, MeanLoss, RoundsTo
from experiments.papers.trajectories import Run
from experiments.reproduction.numbers import Value, value
from experiments.reproduction.results import curves, stored
from experiments.reproduction.verdicts import corrected, figure_verdicts, readings, table, verdict, verdicts
from fedwin.analysis import p_value
from tests.experiments.reproduction.fakes import RUN, Fake, cell, number, record

CLAIM = Claim("b is better than a.", (("row", "b"),), (("row", "a"),))


def judged(measure, a, b, claim=CLAIM, **more):
    return verdict(claim, [number("a", measure, a), number("b", measure, b, **more)])


def seeds(*numbers):
    return dict(enumerate(numbers))


@pytest.mark.parametrize("final_evals, mean, evaluations", [(1, 100.0, 1), (3, 95.0, 3), (100, 52.5, 20)])
def test_the_mean_is_over_the_items_own_evaluations_and_never_that_of_the_untrained_model(
    final_evals, mean, evaluations
):
    found = value(Fake(), cell(MeanLast(), Run(RUN.fields | {"final_evals": final_evals})))
    assert found.mean == pytest.approx(mean) and found.evaluations == evaluations
    assert found.jump == (pytest.approx(5) if evaluations == 3 else found.jump)  # 90, 95, 100
    several = f"the {evaluations} evaluations after rounds {21 - evaluations} to 20"
    assert found.description.endswith(several if evaluations > 1 else "the evaluation after round 20")
    assert value(Fake(), cell(RoundsTo(trend=30.0))).by_seed == {0: 10}


def test_of_two_records_of_a_seed_the_longer_counts_and_of_all_seeds_the_shortest():
    cut = dataclasses.replace(record(), lines=record().lines[:6])
    for found in ([cut, record()], [record(), cut]):
        assert curves(Fake({RUN.key: found}), RUN)[0].rounds[-1] == 20
    assert value(Fake({RUN.key: [cut, record(seeds=(1,))]}), cell(MeanLast())).rounds == (5, 20)
    fork = RUN.forked(0.5, {"wrap": ["ima:window=5"]})  # its curve continues its parent's
    both = Fake({RUN.key: record(), fork.key: record(fork)})
    assert curves(both, fork)[0].rounds.tolist() == curves(both, RUN)[0].rounds.tolist()


NINETY, FORTY, LOSS = seeds(*[90] * 5), seeds(*[40.0] * 5), seeds(*[1.7] * 5)


@pytest.mark.parametrize(
    "measure, a, b, text",
    [
        # Differences 2, 1, 3, 2, 2: mean 2, std sqrt(0.5), t(4, 0.975) = 2.7764, half width 2.7764 sqrt(0.1) = 0.878.
        (MeanLast(), NINETY, seeds(92, 91, 93, 92, 92), "holds: +2.00 points, 95 % interval [+1.12, +2.88], 5 seeds"),
        (MeanLast(), NINETY, seeds(88, 89, 87, 88, 88), "contradicted: -2.00 points, 95 % interval [-2.88, -1.12], 5"),
        # 4, -4, 4, -4, 0: mean 0, std 4.
        (MeanLast(), NINETY, seeds(94, 86, 94, 86, 90), "open: +0.00 points, 95 % interval [-4.97, +4.97], 5 seeds"),
        (MeanLast(), NINETY, seeds(92, 91, 93, 92), "too few seeds: +2.00 points, 4 seeds"),
        (MeanLast(), NINETY, {0: 95.0}, "too few seeds: +5.00 points, 1 seed"),
        (MeanLast(), NINETY, seeds(92, 91, 93, 92, None), "too few seeds: +2.00 points, 4 seeds"),
        (MeanLast(), NINETY, {7: 95.0}, "not tested"),
        (MeanLast(), seeds(*[14] * 5), seeds(*[13] * 5), "not comparable: b at 13.0 %, near chance"),
        (MeanLast(), NINETY, seeds(14, 13, 15, 14, 14), "contradicted: -76.00 points"),  # of one run, which trains
        (MeanLast("fraction"), seeds(*[0.9] * 5), seeds(0.92, 0.91, 0.93, 0.92, 0.92), "holds: +2.00 points, 95 % int"),
        (MeanLoss(), LOSS, seeds(1.68, 1.69, 1.67, 1.68, 1.68), "holds: 0.020 nats lower, 95 % interval [0.011, 0.0"),
        (
            MeanLoss(),
            seeds(1.68, 1.69, 1.67, 1.68, 1.68),
            LOSS,
            "contradicted: 0.020 nats higher, 95 % interval [0.011",
        ),
        (MeanLoss(), LOSS, seeds(1.68, None), "too few seeds: 0.020 nats lower, 1 seed"),
        # A target that is never reached counts as all of the rounds.
        (RoundsTo(), FORTY, seeds(*[30] * 5), "holds: 25.00 % fewer rounds, 95 % interval [25.00, 25.00], 5 seeds"),
        (RoundsTo(), FORTY, seeds(*[None] * 5), "contradicted: 150.00 % more rounds, 95 % interval [150.00, 150.00"),
        (RoundsTo(), FORTY, {0: 30.0}, "too few seeds: 25.00 % fewer rounds, 1 seed"),
        (RoundsTo(), seeds(None, 40.0), seeds(None, 30.0), "too few seeds: 25.00 % fewer rounds, 1 seed"),
    ],
)
def test_a_verdict_is_the_interval_of_paired_differences(measure, a, b, text):
    assert str(judged(measure, a, b)).startswith(text)
    if isinstance(measure, RoundsTo):
        assert judged(measure, a, b, rounds=(50, 100)).word == "not tested"  # it has not ended


@pytest.mark.parametrize("measure", [MeanLast(), RoundsTo()])
@pytest.mark.parametrize("b", [seeds(*[None] * 5), seeds(*[50.0] * 5, None)])
def test_a_side_that_diverged_is_not_compared(measure, b):
    diverged = dataclasses.replace(number("b", measure, b), diverged=True)
    assert str(verdict(CLAIM, [number("a", measure, NINETY), diverged])) == "not comparable: b diverged"


@pytest.mark.parametrize("by, word", [(0.0, "contradicted"), (-0.1, "contradicted"), (-0.5, "holds")])
def test_a_claim_may_allow_for_some_points(by, word):
    b = seeds(89.8, 89.7, 89.8, 89.7, 89.8)
    assert judged(MeanLast(), NINETY, b, dataclasses.replace(CLAIM, by=by)).word == word


def several(**columns):
    """Numbers of rows a and b in columns: name -> the gains of b by seed."""
    return [
        number(row, MeanLast(), {s: 50.0 + (gain if row == "b" else 0) for s, gain in enumerate(gains)}, column=column)
        for column, gains in columns.items()
        for row in "ab"
    ]


def test_of_several_comparisons_the_seed_is_the_unit():
    """Means of the seeds 3, 2, 4, 3, 3: 3 +- 2.7764 sqrt(0.5 / 5). A comparison of one seed does not count."""
    numbers = several(x=[2, 1, 3, 2, 2], y=[4, 3, 5, 4, 4], z=[-9])
    assert str(verdict(CLAIM, numbers)) == (
        "holds: +3.00 points, 95 % interval [+2.12, +3.88], 5 seeds, 2 comparisons: 2 hold "
        "(1 of 3 comparisons left out)"
    )
    assert str(verdict(CLAIM, several(x=[2] * 5, z=[-9]))).startswith("holds: +2.00 points")  # half of them are left
    few = several(x=[2] * 5, z=[-9], w=[-9])
    assert str(verdict(CLAIM, few)) == "too few seeds: -5.33 points, 1 seed"


AGAINST = several(x=[2] * 5, y=[4] * 5, z=[-1] * 5)
UNCLEAR = several(x=[2] * 5, y=[-1, 1, 1, -1, 1])


@pytest.mark.parametrize(
    "how, numbers, word",
    [
        ("", AGAINST, "holds"),
        ("every", AGAINST, "contradicted"),
        ("every", UNCLEAR, "open"),
        ("every", several(x=[2] * 5, y=[-4, -1, -1, -1, -3]), "open"),  # p = 0.034 of one, 0.067 of the smaller of two
        ("every", several(x=[2] * 5, y=[1] * 5), "holds"),
        ("within", several(x=[0.6, 0.8, 0.7, 0.6, 0.8]), "holds"),
        ("within", several(x=[1.93] * 5), "contradicted"),
        ("within", several(x=[-1.93] * 5), "contradicted"),
        ("within", several(x=[0, 1, 2, 0, 1]), "open"),
    ],
)
def test_a_claim_says_how_its_comparisons_decide(how, numbers, word):
    claim = dataclasses.replace(CLAIM, how=how, by=-1.0 if how == "within" else 0.0)
    found = verdict(claim, numbers)
    assert found.word == word and (found.p <= 0.05) == (word != "open")
    if how == "within" and word == "holds":
        assert found.p == p_value(found.counted[0].gains, 1.0)  # of the nearer bound


def test_a_comparison_that_is_the_other_way_is_named():
    found = verdict(CLAIM, AGAINST)
    assert str(found).endswith("5 seeds, 3 comparisons: 2 hold, 1 contradicted (z)")
    lines = table([found, verdict(CLAIM, [])]).splitlines()
    assert lines[2].startswith("| b is better than a. | **holds** | +1.67 points, 95 % interval [+1.67, +1.67] | `")
    assert [line.split(" | ")[:2] for line in lines[3:6]] == [
        ["| - x", "holds"],
        ["| - y", "holds"],
        ["| - z", "contradicted"],
    ]
    assert lines[-1] == "Claims without numbers here: 1."


def test_corrections_count_the_verdicts_of_a_paper():
    sure, weak = several(x=[2, 2.1, 2, 2.1, 2]), several(x=[1, 3, 2, 0.2, 2])
    unclear, untested = several(x=[-1, 1, 1, -1, 1]), several(x=[1])
    found = [verdict(CLAIM, numbers) for numbers in (sure, weak, unclear, untested)]
    assert corrected(found) == {"none": 2, "holm": 1, "benjamini_hochberg": 2}


def test_gains_of_two_columns_are_compared_seed_by_seed():
    claim = Claim(
        "", (("column", "x"), ("variant", "b")), (("column", "y"), ("variant", "b")), over=(("variant", "a"),)
    )
    levels = {("x", "a"): 50.0, ("x", "b"): 56.0, ("y", "a"): 60.0, ("y", "b"): 61.0}
    numbers = []
    for (column, variant), level in levels.items():
        one = number("row", MeanLast(), {seed: level + seed for seed in range(5)}, column=column)
        numbers.append(dataclasses.replace(one, cell=dataclasses.replace(one.cell, variant=Variation(variant))))
    assert str(verdict(claim, numbers)) == "holds: +5.00 points, 95 % interval [+5.00, +5.00], 5 seeds"
    assert verdict(claim, numbers[1:]).word == "not tested"  # nothing to gain over


def test_a_figure_of_models_has_numbers_that_claims_compare(tmp_path):
    mark = lambda role, loss: {"role": role, "label": role, "loss": loss, "error": loss / 10}
    points = [mark("corner", 0.4), mark("corner", 0.2), mark("mean", 0.3), mark("further", 0.1)]
    one, found, path = item("ima/figure1d"), readings({"kind": "plane", "points": points}), tmp_path / "figure.json"

    def said(by_seed):
        figure_files.write(path, {"kind": "plane", "readings": by_seed}, "")
        return [str(each).replace(", with CIFAR-10 at 16x16", "") for each in figure_verdicts(one, "trend", path)]

    assert said({"7": found}) == ["too few seeds: 0.100 nats higher, 1 seed", "too few seeds: -1.00 points, 1 seed"]
    assert said({str(seed): found for seed in range(5)}) == [
        "contradicted: 0.100 nats higher, 95 % interval [0.100, 0.100], 5 seeds",
        "contradicted: -1.00 points, 95 % interval [-1.00, -1.00], 5 seeds",
    ]
    assert [str(each) for each in figure_verdicts(one, "trend", None)] == ["not tested"] * 2
    s = {"kind": "line", "s": [0.0, 0.5, 1.0], "splits": {"test": {"loss": [2, 1, 3], "accuracy": [0.5, 0.4, 0.6]}}}
    found = readings(s)
    assert found["between"]["loss"] == 1 and found["end"]["loss"] == 2 and found["second"]["error"] == 0.4


def test_every_claim_is_about_numbers_that_there_are():
    """At paper scale, where all cells exist, and of the stored figures of models; others would never be tested."""
    kept = stored("trend")
    for one in catalogue().values():
        if isinstance(one, Item):
            each_seed = dict.fromkeys(range(5), 50.0)
            found = verdicts(one, [Value(place, each_seed, (100, 100), scale="paper") for place in one.cells("paper")])
        elif isinstance(one, Analysis) and (path := kept.figure(file_stem(one))) is not None:
            found = figure_verdicts(one, "trend", path)
        else:
            continue
        assert all(each.comparisons for each in found), one.name
