"""Tables: evaluations that count, agreement with printed numbers, commands that train them again, and pictures."""

import dataclasses
import random
import re
import shlex
import subprocess
import sys

import pytest

from experiments.figures import style
from experiments.papers.catalogue import item
from experiments.papers.cell_flags import flag_text
from experiments.papers.measures import MeanLast
from experiments.papers.printed_cells import Printed
from experiments.papers.remarks import lines_of
from experiments.records import read
from experiments.reproduction import numbers, pictures, results, tables
from experiments.reproduction.numbers import Value
from experiments.reproduction.runs import all_tasks
from tests.experiments.reproduction.fakes import RUN, Fake, cell, record


def test_tables_name_what_is_averaged_and_what_follows_plus_minus():
    figure = item("ima/figure6a")
    found = [Value(each, {0: 90.0, 1: 91.0, 2: 92.0}, (120, 120), evaluations=20) for each in figure.cells("trend")]
    text = tables.section(figure, Fake(), found)
    assert "For one seed: mean accuracy (%) of the 20 evaluations after rounds 101 to 120." in text
    assert "Shown: mean over n seeds, +- their standard deviation." in text and "91.00 +- 1.00 (n = 3)" in text


def test_tables_of_stand_ins_name_the_data_that_are_used_and_never_the_others_alone(tmp_path):
    table = item("wima/table5")
    found = [Value(each, {0: 90.0}, (100, 100), evaluations=30, scale="trend") for each in table.cells("trend")]
    tables.write_numbers(table, Fake(), found, tmp_path / "a.csv")
    text = "\n".join([tables.section(table, Fake(), found, ["a.png"]), (tmp_path / "a.csv").read_text()])
    assert "| Fashion-MNIST for CIFAR-100, alpha = 0.5: all" in text and '"CIFAR-10 at 16x16, alpha = 0"' in text
    assert not re.search("(?<!Fashion-MNIST for )CIFAR-100|CIFAR-10(?! at 16x16|0)", text)


@pytest.mark.parametrize(
    "printed, std, by_seed, text",
    [
        (47.31, "0.10", {0: 47.4}, "**47.40 (5.00)**"),
        (47.31, "0.10", {0: 48.22}, "*48.22 (5.00)*"),  # within a point, but 9 standard deviations apart
        (47.31, "", {0: 47.4}, "*47.40 (5.00)*"),  # one seed, and none is printed: nothing says how much seeds differ
        (47.31, "", {0: 47.6, 1: 47.62}, "*47.61 +- 0.01 (n = 2)*"),
        (47.31, "", {0: 47.2, 1: 47.6}, "**47.40 +- 0.28 (n = 2)**"),
        (47.31, "0.30", {0: 47.998, 1: 48.422}, "*48.21 +- 0.30 (n = 2)*"),  # both deviate: 0.9 is 2.1 times 0.42
        (47.31, "", {0: 47.4, 1: None}, "*47.40 (n = 1 of 2) (5.00)*"),  # the other seed diverged
        (47.31, "3.00", {0: 49.0}, "49.00 (5.00)"),  # seeds explain it, but it is more than a point
        (0.4731, "0.03", {0: 0.49}, "0.490 (5.000)"),
    ],
)
def test_a_number_agrees_within_a_point_and_within_what_seeds_explain(printed, std, by_seed, text):
    measure = MeanLast("fraction") if printed < 1 else MeanLast()
    beside = dataclasses.replace(cell(measure), printed=Printed(str(printed), std))
    number = Value(beside, by_seed, (20, 20), evaluations=10, jump=5.0)
    assert tables.shown(number).partition(" / ")[2] == text
    assert tables.shown(dataclasses.replace(number, scale="trend")) == re.sub(r" \(5\.0+\)", "", text.strip("*"))


def test_megabytes_are_those_of_the_seed_with_the_most():
    sent = [{"seed": seed, "bytes_down": 1e6 * seed, "bytes_up": n * 1e6} for seed in (1, 2) for n in (1, 3)]
    found = Fake({RUN.key: dataclasses.replace(record(), lines=sent)})
    assert tables.megabytes(found, Value(cell(MeanLast()), {}, (20, 20))) == 5


# Commands


def test_a_forks_command_trains_the_run_that_it_forks_first():
    parent = dataclasses.replace(RUN, fields=RUN.fields | {"dataset": "fmnist"})
    fork = parent.forked(0.5, {"wrap": ["ima:window=5"]})
    both = Fake({parent.key: record(parent, "sharded:devices=2,k=1"), fork.key: record(fork, "chunked:k=1")})
    first, _, second = tables.commands(both, fork).partition(" && ")
    assert f"--out_dir=runs/{parent.key}-seed0" in first and "--keep_rounds=10" in first
    assert "--strategy=sharded:devices=2,k=1" in first and "--strategy=chunked:k=1" in second
    assert f"--fork_from=runs/{parent.key}-seed0@10" in second
    unknown = Fake({RUN.key: record(strategy="")})
    assert tables.commands(unknown, RUN).endswith("  # strategy not recorded")


def printed_commands():
    """Returns (file, row) of all stored tables."""
    paths = sorted((results.RESULTS / "tables").glob("*/*.csv"))
    return [(path, row) for path in paths for row in lines_of(path)]


def test_all_printed_commands_name_strategies_and_only_directories_that_they_create():
    commands = {row["command"] for _, row in printed_commands() if row["command"]}
    assert len(commands) > 300
    for line in commands:
        for command in line.split(" ; "):
            made = set()
            for part in command.split(" && "):
                flags = dict(text.split("=", 1) for text in part.split() if text.startswith("--") and "=" in text)
                start = flags.get("--fork_from") or flags.get("--init_from", "")
                assert start.partition("@")[0] in {"", *made}, line
                assert "--strategy" in flags or "not recorded" in line, line
                made.add(flags["--out_dir"])


@pytest.mark.slow
def test_a_random_sample_of_printed_commands_gives_the_printed_numbers(tmp_path):
    """Trains three of the shortest half; numbers are compared if the machine is like the one that stored them."""
    rows = [(path, row) for path, row in printed_commands() if row["unit"] == "%" and path.parent.name == "trend"]
    rows = [pair for pair in rows if "=DIR" not in pair[1]["command"] and int(pair[1]["rounds"]) <= 150]
    forks = [pair for pair in rows if "&&" in pair[1]["command"]]
    generator = random.Random(random.SystemRandom().randrange(1000))
    for path, row in [*generator.sample(forks, 2), generator.choice(rows)]:
        script = row["command"].replace("fedwin train", f"{shlex.quote(sys.executable)} -m experiments train")
        environment = {"PYTHONPATH": f"{results.RESULTS.parents[1]}", "PATH": "/usr/bin:/bin", "HOME": str(tmp_path)}
        line = ["sh", "-c", script.replace(" ; ", " && ")]
        done = subprocess.run(line, cwd=tmp_path, env=environment, capture_output=True, text=True)
        assert done.returncode == 0, (row["command"], done.stderr)
        stored = results.stored("trend").records(all_tasks("trend")[row["run"]].run)
        if {each.stored["machine"] for each in stored} == {results.machine()}:
            table = item(path.stem.replace("_", "/", 1))
            (found,) = [c for c in table.cells("trend") if c.position == (row["row"], row["column"], row["variant"])]
            of_key = lambda name: sorted((tmp_path / "runs").glob(f"{name.partition('-')[0]}-seed*"))
            by_key = {each.name.partition("-")[0]: list(map(read, of_key(each.name))) for each in of_key("*")}
            mean = numbers.value(Fake(by_key), found).mean
            assert mean == pytest.approx(float(row["ours (mean over seeds)"]), abs=2e-3), (path.name, row)


def test_flags_of_a_warm_start_name_the_run_to_train_first():
    figure = item("ghb/figure4b")
    start = next(c for c in figure.cells("trend") if c.runs[0].parent)
    first, *flags = flag_text(figure, *start.position, "trend").splitlines()
    (warm,) = [flag for flag in flags if flag.startswith("--init_from=")]
    assert first.startswith("# first: fedwin train") and f"--out_dir={warm[12:].partition('@')[0]}" in first


# Pictures


def test_a_panel_has_one_number_of_seeds_and_leaves_out_of_its_scale_what_does_not_train(tmp_path, monkeypatch):
    kept = []
    monkeypatch.setattr(style, "save", lambda figure, *where: kept.append(figure))
    table = item("survey/table3")
    fedavg, scaffold, feddyn = (cell for cell in table.cells("trend")[:15] if cell.variant.name == "base")
    found = [
        Value(fedavg, {0: 42.0, 1: 44.0, 2: 90.0}, (1000, 1000), scale="trend"),
        Value(scaffold, {0: 10.0, 1: 10.0, 2: 10.0}, (1000, 1000), scale="trend"),
        Value(feddyn, {0: 40.0, 1: 41.0}, (1000, 1000), scale="trend"),
    ]
    assert pictures.draw(table, Fake(), found, tmp_path, "svg")[0].suffix == ".svg"
    (axis,) = kept[0].axes
    assert axis.get_title().endswith("2 seeds") and 39 < axis.get_xlim()[0] < axis.get_xlim()[1] < 46
    (cross,) = [line for line in axis.get_lines() if line.get_marker() == "x"]
    assert cross.get_ydata()[0] == 1 and cross.get_color() == style.looks(["scaffold"])[0]["color"]
    assert [text.get_text() for text in kept[0].legends[0].get_texts()][-1] == style.NOT_TO_SCALE
