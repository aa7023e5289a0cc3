"""Printed numbers of the papers: each belongs to one cell of the catalogue, and their arithmetic."""

import collections

import pytest

from experiments.papers.catalogue import catalogue
from experiments.papers.items import Item
from experiments.papers.printed_cells import KEY, printed

TABLES = {name: one for name, one in catalogue().items() if isinstance(one, Item) and one.table}
# Speed-ups and gains are printed with two digits and one.
HUNDREDTH, TENTH = 0.0101, 0.0501
# (dataset, partition, algorithm) of WIMA's Table 2 whose printed gain is not the difference of the printed accuracies.
WRONG_GAINS = {("CIFAR-10", "hsu_dirichlet:alpha=0;K=100", "FedAvg"): (5.3, 5.58)}


def by(paper, table, *names):
    """Returns the values of some columns -> the printed cell."""
    cells = {key: cell for key, cell in printed().items() if key[:2] == (paper, table)}
    return {tuple(dict(zip(KEY, key))[name] for name in names): cell for key, cell in cells.items()}


def test_every_printed_number_has_one_cell():
    assert len(printed()) == 1096
    assert sorted(one.table for one in TABLES.values()) == sorted({key[:2] for key in printed()})
    for name, one in TABLES.items():
        cells = [cell for cell in one.cells("paper") if cell.printed]
        found = collections.Counter(one.printed_key(cell.row, cell.column, cell.variant) for cell in cells)
        assert found == collections.Counter(key for key in printed() if key[:2] == one.table), name


@pytest.mark.parametrize("table", ["2", "9"])
def test_heavy_balls_speed_ups_are_quotients(table):
    found = by("ghb", table, "variant", "algorithm", "metric")
    speedups = {key: cell.number for key, cell in found.items() if key[2].endswith("_speedup")}
    assert len(speedups) == {"2": 36, "9": 18}[table]
    for (setting, method, metric), number in speedups.items():
        rounds = metric.removesuffix("_speedup")
        base, own = found[setting, "FedAvg", rounds].number, found[setting, method, rounds].number
        assert number is None if own is None else abs(base / own - number) <= HUNDREDTH, (setting, method, metric)


def test_wimas_gains_are_differences():
    names = ("dataset", "partition", "algorithm", "variant", "metric")
    found = by("wima", "2", *names)
    gains = {key[:3]: cell.number for key, cell in found.items() if key[-1] == "printed_gain_pp"}
    for key, gain in gains.items():
        base, own = (found[*key, variant, "test_accuracy_pct"].number for variant in ("base", "+wima_W100"))
        if key in WRONG_GAINS:
            assert (gain, round(own - base, 2)) == WRONG_GAINS[key]
        else:
            assert gain is None or abs(own - base - gain) <= TENTH, key
    assert set(WRONG_GAINS) <= set(gains)
