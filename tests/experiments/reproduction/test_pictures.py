"""Pictures of tables: one number of seeds per panel, and what does not train is marked at the edge."""

from experiments.figures import style
from experiments.papers.catalogue import item
from experiments.reproduction import pictures
from experiments.reproduction.store import StoredResults
from experiments.reproduction.values import Value


def test_a_panel_has_one_number_of_seeds_and_leaves_out_of_its_scale_what_does_not_train(tmp_path, monkeypatch):
    kept = []
    monkeypatch.setattr(style, "save", lambda figure, *where: kept.append(figure))
    table = item("survey/table3")
    fedavg, scaffold, feddyn = (cell for cell in table.cells("trend")[:15] if cell.variant.name == "base")
    numbers = [
        Value(fedavg, {0: 42.0, 1: 44.0, 2: 90.0}, (1000, 1000), scale="trend"),
        Value(scaffold, {0: 10.0, 1: 10.0, 2: 10.0}, (1000, 1000), scale="trend"),
        Value(feddyn, {0: 40.0, 1: 41.0}, (1000, 1000), scale="trend"),
    ]
    assert pictures.draw(table, "trend", StoredResults("trend"), numbers, tmp_path, "svg")[0].suffix == ".svg"
    (axis,) = kept[0].axes
    assert axis.get_title().endswith("2 seeds") and 39 < axis.get_xlim()[0] < axis.get_xlim()[1] < 46
    crosses = [line for line in axis.get_lines() if line.get_marker() == "x"]
    assert [line.get_ydata()[0] for line in crosses] == [1] and crosses[0].get_color() == style.looks(["scaffold"])[0][
        "color"
    ]
    assert [text.get_text() for text in kept[0].legends[0].get_texts()][-1] == style.NOT_TO_SCALE
