"""Looks of methods: the same color, dash and marker in every figure; panels of seeds that all lines have."""

import types

import pytest

from experiments.figures import style
from experiments.papers.catalogue import item
from experiments.reproduction import pictures
from experiments.reproduction.numbers import Value, common_seeds


def test_a_method_looks_the_same_in_every_figure():
    first = dict(zip(["FedAvg", "FedHBM", "SCAFFOLD"], style.looks(["FedAvg", "FedHBM", "SCAFFOLD"]), strict=True))
    second = style.looks(["SCAFFOLD", "MimeLiteMom", "fedhbm", "FedAvg"])
    assert [second[0], second[2], second[3]] == [first["SCAFFOLD"], first["FedHBM"], first["FedAvg"]]


def test_no_two_lines_look_the_same():
    labels = [names.partition("=")[0] for names in style.METHODS] + ["mine", "yours", "fedavg wima50", "fedavg ema"]
    looks = style.looks(labels)
    assert len({tuple(map(str, look.values())) for look in looks}) == len(labels)
    # Read-outs of a method share its color.
    assert looks[-1]["color"] == looks[-2]["color"] == looks[0]["color"]


def test_lines_of_one_method_have_colors_of_their_own():
    looks = style.looks(["FedAvg", "FedAvg, WIMA", "FedAvg, SWA"])
    assert [look["color"] for look in looks] == [style.COLORS[0], *style.VARIATIONS[1:3]]
    assert len({look["marker"] for look in looks}) == 3
    assert not set(style.VARIATIONS) & set(style.COLORS)
    assert [look["color"] for look in style.looks(["W = 5", "W = 10"])] == list(style.VARIATIONS[:2])


@pytest.mark.parametrize("form, embedded", [("pdf", b"/FontFile2"), ("svg", b"<path")])
def test_pictures_have_embedded_fonts_names_that_are_no_formulas_and_no_date(form, embedded, tmp_path):
    for name in ("one", "two"):
        with style.panels(tmp_path / f"{name}.{form}", "\u202ea\x1b[31m") as (figure, axes):
            axes[0, 0].loglog([1, 10], [1, 5], label="$a_$")
            axes[0, 0].legend()
    assert figure.get_suptitle() == r"\u202ea\x1b[31m"
    written = (tmp_path / f"one.{form}").read_bytes()
    assert written == (tmp_path / f"two.{form}").read_bytes()
    assert embedded in written and b"<text" not in written and b"CreationDate" not in written


def test_a_panel_shows_the_seeds_that_all_lines_have():
    assert common_seeds([{0: "a", 1: "b", 2: "c"}, [0, 2], []]) == {0, 2}
    assert common_seeds([[0], [1]]) == {0, 1} and common_seeds([]) == set()


def test_a_seed_that_misses_its_target_is_left_out_of_that_point_alone(monkeypatch, tmp_path):
    found, figure = [], item("ghb/figure7")
    rounds = {"fedavg": {0: 500, 1: 700}, "scaffold": {0: 860, 1: None}}
    numbers = [Value(cell, rounds[cell.row.name], (9, 9)) for cell in figure.cells("trend") if cell.row.name in rounds]
    monkeypatch.setattr(pictures.sweeps, "draw", lambda result, path, title: found.append(result["methods"]))
    pictures.draw(figure, types.SimpleNamespace(scale="trend"), numbers, tmp_path)
    assert [{tuple(seeds) for seeds in method["seeds"]} for method in found[0]] == [{(500, 700)}, {(860,)}]
