"""The stand-ins with searched rates: every cell has its own searched rate or is absent, and tables share their runs."""

import pytest

from experiments.papers import standin
from experiments.papers.catalogue import catalogue, item
from experiments.papers.items import Item
from experiments.reproduction import numbers, results

# Tables of our own may have other rates on purpose.
TABLES = [one for name, one in catalogue().items() if isinstance(one, Item) and not name.startswith("survey/")]


def cells(name):
    return {cell.position: cell for cell in item(name).cells("trend")}


def has_searched_rate(run):
    """Returns whether the algorithm and rate of a run, given its fields, were searched for its federation."""
    own = {name: run.get(name) for name in ("algorithm", "client_lr")}
    of = lambda name: standin.FEDERATIONS[name if name in standin.FEDERATIONS else name.rpartition("_")[0]].items()
    return any(own in best.values() and of(name) <= run.items() for name, best in standin.RATES.items())


def test_no_cell_has_the_rate_of_another_federation_or_method():
    found = set()
    for table in TABLES:
        for cell in table.cells("trend"):
            where = standin.federation_of(cell.column)
            for run in cell.runs:
                fields = (run.parent.run if run.parent else run).fields
                if where is not None:
                    place = f"{where}_{cell.variant.name}"
                    own = standin.RATES[place if place in standin.RATES else where][cell.row.name]
                    assert own.items() <= fields.items(), (table.name, cell.position)
                    assert has_searched_rate(fields)
                    assert not has_searched_rate(fields | {"client_lr": 0.7})
                    found.add((where, table.name.partition("/")[0]))
                else:
                    other = fields.get("num_clients") == 1 or fields.get("dataset") != standin.CIFAR16["dataset"]
                    # A sweep has the rate of the federation that it starts from, as in the papers.
                    start = table.base.fields("trend") if table.draw == "sweep" else {}
                    at = fields | start | {"client_lr": fields["client_lr"]}
                    assert other or any(map(has_searched_rate, (fields, at))), (table.name, cell.position)
    both = {(where, paper) for where in ("alpha0", "fashion_alpha0") for paper in ("wima", "ghb")}
    assert both | {("shards", "ima"), ("yurochkin", "ima"), ("fashion_shards", "ima")} <= found


def test_the_best_rates_have_a_lower_and_a_higher_neighbor():
    tried = {}
    for line in standin.TRIED:
        tried.setdefault((line["federation"], line["method"]), []).append(float(line["rate"]))
    for (federation, method), rates in tried.items():
        assert min(rates) < standin.RATES[federation][method]["client_lr"] < max(rates), (federation, method)


@pytest.mark.parametrize(
    "name, column",
    [("wima/table2", "cifar10_alpha0"), ("ghb/table3", "cifar10_noniid"), ("ghb/table10", "cifar10_noniid")],
)
def test_the_papers_tables_read_the_runs_of_our_own(name, column):
    own, others = cells(name), cells("survey/table3")
    for row in ("fedavg", "scaffold", "feddyn", "mime_momentum", "fedavgm", "fedhbm"):
        if (row, column, "base") in own:
            assert own[row, column, "base"].runs[0].key == others[row, "alpha0", "base"].runs[0].key
    assert own["fedavg", column, "base"].runs[0].config().client_lr == 0.1


def test_the_stand_in_has_the_papers_windows_and_other_columns_keep_theirs():
    reads = {position[1:]: cell.read for position, cell in cells("wima/table4").items()}
    assert reads["cifar10_alpha0", "w200"] == "wima:window=200" and reads["cifar100_alpha0", "w200"] == "wima:window=40"
    assert cells("wima/table2")["fedavg", "cifar10_alpha0", "gain"].read == "wima:window=100"
    paper = {cell.position: cell.read for cell in item("wima/table4").cells("paper")}
    assert paper["fedavg", "cifar100_alpha0", "w200"] == "wima:window=200"


def test_targets_are_shares_of_the_stored_centralized_accuracy():
    central = numbers.value(results.stored("trend"), cells("ghb/table6")["sgd", "cifar10_lenet5", "base"])
    assert len(central.defined) == 5 and central.mean == pytest.approx(standin.CENTRALIZED, abs=0.05)
