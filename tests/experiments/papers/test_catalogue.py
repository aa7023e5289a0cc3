"""Catalogue of tables and figures: every run is valid at every scale, and equal runs are shared."""

import pytest

from experiments.papers import claims
from experiments.papers.catalogue import catalogue, item
from experiments.papers.cell_flags import cell_of
from experiments.papers.items import Analysis, Item, data_title
from experiments.papers.scales import SCALES
from fedwin import plugins
from fedwin.data import DATASETS
from fedwin.runs.choices import check_choices, check_training
from fedwin.wrappers import WRAPPERS

RUNNABLE = [name for name, one in catalogue().items() if isinstance(one, (Item, Analysis))]


def runs_of(one, scale):
    """Returns all runs of an item, those that others begin with included."""
    if isinstance(one, Analysis):
        found = list(one.trajectories(scale).values())
    else:
        cells = one.cells(scale)
        found = [run for cell in cells for run in (*cell.runs, *([cell.reference] if cell.reference else []))]
    return found + [run.parent.run for run in found if run.parent]


def test_every_figure_is_there():
    names = set(catalogue())
    wsm = ("2_2", *(f"3_{n}" for n in range(1, 6)), "A_1", "A_2")
    figures = {"wima": (1, 2, 3), "ima": range(1, 11), "ghb": range(1, 9), "wsm": wsm}
    for paper, numbers in figures.items():
        for number in numbers:
            # A figure of several panels is several items: figure6a, figure6b ...
            stem = f"{paper}/figure{number}"
            assert any(name == stem or name[:-1] == stem and name[-1].isalpha() for name in names), stem


@pytest.mark.parametrize("scale", SCALES)
def test_every_run_can_be_configured(scale):
    # Items share runs: each is checked once, and each plug-in loaded once.
    runs = {run.key: (name, run) for name in RUNNABLE for run in runs_of(item(name), scale)}
    configs = [(name, run.config()) for name, run in runs.values()]
    plugins.load(sorted({text for _, config in configs for text in config.imports}))
    for name, config in configs:
        config.check()
        check_choices(config)
        check_training(config, config.observe, config.num_rounds)
        DATASETS.check(config.dataset)
        assert config.clients_per_round <= (config.num_clients or config.clients_per_round), name
    for name in (name for name in RUNNABLE if isinstance(item(name), Item)):
        for run, read in {(found.runs[0], found.read) for found in item(name).cells(scale) if found.read}:
            check_training(run.config(), [read], run.num_rounds)


def test_a_line_of_claims_stands_for_combinations():
    found = item("ghb/table10").claims
    assert len(found) == 4 * 8 + 7
    assert found[1].text == "FedHBM is more accurate than SCAFFOLD: CIFAR-10, alpha = 0."
    assert found[-1].text == "Local-GHB is more accurate than MimeLiteMom: CIFAR-10, alpha = 0."
    assert found[-1].worse == (("row", "mimelite"), ("column", "cifar10_noniid"))
    gain = item("ima/figure6c").claims[-1]
    assert gain.over == (("variant", "base"),) and gain.by == -1 and gain.better[0] == ("column", "epochs17")
    assert {dict(claim.better)["metric"] for claim in item("ima/figure1a").claims} == {"loss", "error"}


def test_claims_name_cells_and_items_have_a_title_a_cost_and_a_stand_in():
    assert {name for line in claims.LINES for name in line["items"].split()} <= set(RUNNABLE)
    assert {line["how"] for line in claims.LINES} == {"", claims.EVERY, claims.WITHIN}
    for name in RUNNABLE:
        one = item(name)
        assert one.title and one.cost and one.standin, name
        if isinstance(one, Item):
            axes = ("row", "column", "variant")
            places = [set(zip(axes, found.position)) for found in one.cells("paper")]
            for side in {side for claim in one.claims for side in (claim.better, claim.worse, claim.over)}:
                assert any(set(side) <= place for place in places), (name, side)


@pytest.mark.parametrize("scale", ["smoke", "trend"])
def test_headings_name_the_data_that_are_used(scale):
    for table in (one for one in catalogue().values() if isinstance(one, Item)):
        papers, subject = {found.position: found for found in table.cells("paper")}, table.titled(scale)
        for found in table.cells(scale):
            used, wanted = (data_title(each.runs[0].config().dataset) for each in (found, papers[found.position]))
            named = found.heading.startswith(used) and wanted in found.heading and used in subject
            free = used == wanted or found.measure.constant(found.runs[0].config().algorithm) is not None
            assert found.heading == found.column.title if free else named, (table.name, found.heading)


def test_the_window_is_full_when_averaging_begins():
    for scale in ("trend", "paper"):
        for name in ("ima/table1", "ima/table2", "ima/table3", "ima/figure5", "ima/figure7a", "ima/figure7b"):
            for run in runs_of(item(name), scale):
                for text in run.config().wrap:
                    wrap = WRAPPERS.check(text).params
                    begins = int(wrap["start"] * run.num_rounds + 1e-9)
                    assert run.parent.round + wrap["window"] - 1 <= begins, (name, text, run.parent.round)


@pytest.mark.parametrize("scale", ["trend", "paper"])
def test_tables_share_their_runs(scale):
    cell = lambda name, *place: cell_of(item(name), *place, scale)
    key = lambda name, *place: cell(name, *place).runs[0].key
    first = key("ima/table1", "fedprox", "cifar10_cnn_dirichlet", "ima")
    assert first == key("ima/table2", "fedprox", "cifar10_cnn_dirichlet", "start300_rounds")
    assert first == key("ima/table3", "fedprox", "cifar10_cnn_dirichlet", "exp")
    accuracy = key("ghb/table3", "scaffold", "cifar10_noniid", "base")
    assert accuracy == key("ghb/table2", "scaffold", "silo", "rounds80")
    assert accuracy == key("ghb/table11", "scaffold", "cifar10_noniid", "base")
    assert accuracy == key("ghb/figure1", "scaffold", "cifar10_noniid", "measured")
    speedup = cell("ghb/table2", "scaffold", "silo", "speedup80")
    assert speedup.reference.key == key("ghb/table2", "fedavg", "silo", "rounds80")
    assert key("ghb/table10", "fedhbm", "cifar10_noniid", "base") == key(
        "ghb/figure2", "fedhbm", "cifar10_noniid", "base"
    )
