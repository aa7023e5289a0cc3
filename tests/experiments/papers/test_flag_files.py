"""The papers' presets equal those generated from the catalogue."""

import pytest

from experiments.papers.catalogue import item
from experiments.papers.flag_files import FOLDER, PRESETS, cell_of, config_of, flag_text, preset_text
from fedwin.errors import UserError

# Not of a paper, and written by hand.
OWN = {"cifar10_scaffold_wima", "digits_scaffold_wima", "fmnist_shards_ima", "mnist_writers_fedavg", "shakespeare_leaf"}


def test_every_preset_of_a_paper_is_made_of_the_catalogue():
    assert {path.stem for path in FOLDER.glob("*.flags")} == OWN | set(PRESETS) and len(PRESETS) == 20


@pytest.mark.parametrize("name", PRESETS)
def test_a_preset_is_up_to_date(name):
    assert (FOLDER / f"{name}.flags").read_text() == preset_text(name), "run `python -m experiments.papers.flag_files`"


def test_the_flags_of_a_cell():
    lines = flag_text(item("wima/table2"), "scaffold", "cifar10_alpha0").splitlines()
    assert "--algorithm=scaffold" in lines and "--partition=dirichlet:alpha=0" in lines and "--seeds=0,1,2" in lines
    one = item("ima/table1")
    forked = config_of(one, cell_of(one, "fedadam", "fmnist_shards", "ima"))
    assert (
        forked.wrap == ["ima:window=5,start=0.75,placement=pre"] and forked.num_rounds == 300 and not forked.fork_from
    )


@pytest.mark.parametrize(
    ("name", "row", "column", "told"),
    [
        ("wima/table2", "scafold", "femnist", "Did you mean 'scaffold'"),
        ("wima/table2", "scaffold", "imagenet", "has no such column"),
        ("ghb/table2", "fedavg", "nowhere", "It has: silo, device, overhead"),
        ("ghb/figure5", "fedavg", "", "no rows and columns"),
    ],
)
def test_a_cell_that_is_not_there(name, row, column, told):
    with pytest.raises(UserError, match=told):
        flag_text(item(name), row, column)
