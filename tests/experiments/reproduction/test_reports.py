"""Reports about stored results: their final evaluations, their data, and commands that train them again."""

import csv
import dataclasses
import functools
import gzip
import json
import pathlib
import random
import shlex
import subprocess
import sys
import types

import numpy as np
import pytest

from experiments import reproduce
from experiments.papers.catalogue import item
from experiments.papers.cell_flags import flag_text
from experiments.papers.items import Cell, Variation
from experiments.papers.measures import MeanLast, RoundsTo
from experiments.papers.printed_cells import Printed
from experiments.papers.trajectories import Fields, Run
from experiments.reproduction import (
    archive,
    commands,
    datasets,
    dry_run,
    results_page,
    run_queue,
    store,
    values,
    verdicts,
    write,
)
from experiments.reproduction.plan import all_tasks, lineage
from experiments.reproduction.request import Request
from fedwin import data
from fedwin.errors import UserError

ROUNDS = 20
RUN = Run(Fields(num_rounds=ROUNDS, eval_every=5, final_evals=3))


class OneRecord:
    """A store with a record of a run: evaluated after every round, with accuracy round / ROUNDS."""

    def __init__(self, run=RUN, **header):
        lines = [{"seed": 0, "round": r, "model": {"accuracy": r / ROUNDS, "loss": 1.0}} for r in range(ROUNDS + 1)]
        config = {"num_rounds": ROUNDS, "eval_every": 1, "final_evals": 100, "algorithm": "fedavg", "dataset": "digits"}
        header = {"key": run.key, "config": config | {"seeds": [0]}, "seconds": {"0": 36.0}} | header
        self.record = {run.key: store.Record(header, lines)}

    def records(self, run):
        return [self.record[run.key]] if run.key in self.record else []


def cell(measure, run=RUN):
    return Cell(Variation("a"), Variation("data"), Variation("base"), (run,), "", measure, None, None)


@pytest.mark.parametrize("final_evals, mean, evaluations", [(1, 100.0, 1), (3, 95.0, 3), (100, 52.5, 20)])
def test_the_mean_is_over_the_items_own_evaluations_and_never_that_of_the_untrained_model(
    final_evals, mean, evaluations
):
    run = Run(RUN.fields | {"final_evals": final_evals})
    value = values.value(OneRecord(), cell(MeanLast(), run), "trend")
    assert value.mean == pytest.approx(mean) and value.evaluations == evaluations
    several = f"the {evaluations} evaluations after rounds {21 - evaluations} to 20"
    assert value.description.endswith(several if evaluations > 1 else "the evaluation after round 20")


def test_rounds_to_a_target_are_those_of_the_items_own_evaluations():
    assert values.value(OneRecord(), cell(RoundsTo(trend=30.0)), "trend").by_seed == {0: 10}


def test_both_lines_of_a_figure_average_the_same_rounds():
    stored, figure = store.StoredResults("trend"), item("ima/figure5")
    numbers = values.values(stored, figure, "trend")
    assert [number.evaluations for number in numbers] == [10, 10]
    base, ima = (number.by_seed for number in numbers)
    gain = np.mean([ima[seed] - base[seed] for seed in base.keys() & ima.keys()])
    assert f"{gain:+.2f} points" in str(verdicts.verdicts(figure, numbers)[0])


def test_tables_say_what_is_averaged_and_what_follows_plus_minus():
    figure = item("ima/figure6a")
    by_seed = {0: 90.0, 1: 91.0, 2: 92.0}
    numbers = [values.Value(each, by_seed, (120, 120), evaluations=20) for each in figure.cells("trend")]
    text = write.section(figure, "trend", OneRecord(), numbers)
    assert "Of one seed: mean accuracy (%) of the 20 evaluations after rounds 101 to 120." in text
    assert "Shown: mean over n seeds, +- their standard deviation." in text and "91.00 +- 1.00 (n = 3)" in text


@pytest.mark.parametrize(
    "printed, std, by_seed, text",
    [
        (47.31, "0.10", {0: 47.4}, "**47.40 (5.00)**"),
        (47.31, "0.10", {0: 48.22}, "*48.22 (5.00)*"),  # within a point, but 9 standard deviations apart
        (47.31, "", {0: 47.4}, "*47.40 (5.00)*"),  # one seed, and none is printed: nothing says how much seeds differ
        (47.31, "", {0: 47.6, 1: 47.62}, "*47.61 +- 0.01 (n = 2)*"),
        (47.31, "", {0: 47.2, 1: 47.6}, "**47.40 +- 0.28 (n = 2)**"),
        (47.31, "3.00", {0: 49.0}, "49.00 (5.00)"),  # seeds explain it, but it is more than a point
    ],
)
def test_a_number_agrees_within_a_point_and_within_what_seeds_explain(printed, std, by_seed, text):
    beside = dataclasses.replace(cell(MeanLast()), printed=Printed(str(printed), std))
    number = values.Value(beside, by_seed, (20, 20), evaluations=10, jump=5.0)
    assert write.shown(number).partition(" / ")[2] == text
    assert write.shown(dataclasses.replace(number, scale="trend")) == text.strip("*").replace(" (5.00)", "")


def test_the_spread_over_the_averaged_evaluations_is_that_of_one_seed():
    run = Run(RUN.fields | {"final_evals": 3})
    assert values.value(OneRecord(), cell(MeanLast(), run), "trend").jump == pytest.approx(5)  # 90, 95, 100


# Data


@pytest.fixture
def subset(monkeypatch):
    """Half of the training examples of the digits."""
    whole = data.load("digits")
    few = dataclasses.replace(whole, train={name: array[:700] for name, array in whole.train.items()})
    monkeypatch.setattr(data, "load", lambda name, data_dir=None: few)
    for function in (datasets.missing, datasets.provenance):
        monkeypatch.setattr(datasets, function.__name__, functools.cache(function.__wrapped__))


def test_paper_scale_needs_the_complete_data(subset, tmp_path):
    assert datasets.missing("digits", "", "trend") == ""
    assert "700 of 1,400 training examples" in datasets.missing("digits", "", "paper")
    table = item("survey/table1")
    cells = {table.name: table.cells("paper")[:1]}
    with pytest.raises(UserError, match="refused.*needs the complete data set; digits .* has 700 of 1,400"):
        Request(scale="paper", out_dir=tmp_path, seeds=(0,), force=True).execute([table], cells)


def test_results_of_a_subset_are_not_stored_at_paper_scale(subset, tmp_path):
    (record,) = OneRecord(data=datasets.provenance("digits", "")).records(RUN)
    assert len(record.header["data"]["checksum"]) == 32
    with pytest.raises(UserError, match="is not stored.*digits has 700 of 1,400"):
        store.StoredResults("paper", tmp_path).add(record)
    assert store.StoredResults("trend", tmp_path).add(record)


# Commands


def test_a_forks_command_trains_the_run_that_it_forks_first():
    parent = dataclasses.replace(RUN, fields=RUN.fields | {"dataset": "fmnist"})
    fork = parent.forked(0.5, {"wrap": ["ima:window=5"]})
    both = OneRecord(parent, strategy="sharded:devices=2,k=1")
    both.record |= OneRecord(fork, strategy="chunked:k=1").record
    first, _, second = commands.commands(both, fork, "trend").partition(" && ")
    assert f"--out_dir=runs/{parent.key}-seed0" in first and "--keep_rounds=10" in first
    assert "--strategy=sharded:devices=2,k=1" in first and "--strategy=chunked:k=1" in second
    assert f"--fork_from=runs/{parent.key}-seed0@10" in second


def test_a_command_says_that_a_strategy_was_not_recorded():
    assert commands.commands(OneRecord(), RUN, "trend").endswith("  # strategy not recorded")


def printed_commands():
    """Returns (file, row) of all stored tables."""
    paths = sorted((store.RESULTS / "tables").glob("*/*.csv"))
    return [(path, row) for path in paths for row in csv.DictReader(path.open(newline="", encoding="utf-8"))]


def test_all_printed_commands_name_strategies_and_only_directories_that_they_create():
    rows = [row for _, row in printed_commands() if row["command"]]
    assert len(rows) > 500
    for row in rows:
        for command in row["command"].split(" ; "):
            made = set()
            for part in command.split(" && "):
                flags = dict(text.split("=", 1) for text in shlex.split(part)[2:] if "=" in text)
                start = flags.get("--fork_from") or flags.get("--init_from", "")
                assert start.partition("@")[0] in {"", *made}, row
                assert "--strategy" in flags or "not recorded" in row["command"], row
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
        root = str(store.RESULTS.parents[1])
        environment = {"PYTHONPATH": root, "PATH": "/usr/bin:/bin", "HOME": str(tmp_path)}
        line = ["sh", "-c", script.replace(" ; ", " && ")]
        done = subprocess.run(line, cwd=tmp_path, env=environment, capture_output=True, text=True)
        assert done.returncode == 0, (row["command"], done.stderr)
        if not recorded_here(row["run"]):
            continue
        table = item(path.stem.replace("_", "/", 1))
        (found,) = [c for c in table.cells("trend") if c.position == (row["row"], row["column"], row["variant"])]
        trained = values.value(Directories(tmp_path / "runs"), found, "trend")
        assert trained.mean == pytest.approx(float(row["ours (mean over seeds)"]), abs=2e-3), (path.name, row)


def recorded_here(key):
    """Whether all records of a run are from a machine like this one."""
    stored = store.StoredResults("trend")
    return {r.header["machine"] for r in stored.records(all_tasks("trend")[key].run)} == {store.machine()}


class Directories:
    """Records of the directories that the commands of tables create."""

    def __init__(self, folder):
        self.folder = folder

    def records(self, run):
        return [store.read_directory(path, run.key) for path in sorted(self.folder.glob(f"{run.key}-seed*"))]


def test_flags_of_a_warm_start_name_the_run_to_train_first():
    figure = item("ghb/figure4b")
    start = next(c for c in figure.cells("trend") if c.runs[0].parent)
    first, *flags = flag_text(figure, *start.position, "trend").splitlines()
    (warm,) = [flag for flag in flags if flag.startswith("--init_from=")]
    assert first.startswith("# first: fedwin train") and f"--out_dir={warm[12:].partition('@')[0]}" in first


# The command line


@pytest.mark.parametrize(
    "line, problem",
    [
        ("--list --seeds=1", "--seeds has no effect on --list"),
        ("--list wima/table2", "--list takes no table or figure"),
        ("--queue --scale=trend", "--scale has no effect on --queue"),
        ("--queue --rows=fedavg", "--rows has no effect on --queue"),
        ("--page --data_dir=x", "--data_dir has no effect on --page"),
        ("wima/table2 --print_flags --rows=fedavg", "--rows has no effect on --print_flags"),
        ("wima/table2 --row=fedavg", "--row has no effect on training"),
        ("wima/table2 --from_results --keep", "--keep has no effect on --from_results"),
        ("wima/table2 --dry_run --budget=2h", "--budget has no effect on --dry_run"),
        ("wima/table2 --scale=trend --rows=fedavg --keep --page", ""),
        ("--queue --budget=8h --keep --data_dir=x --page", ""),
        ("wima/table2 --print_flags --scale=trend", ""),
        ("--list --scale=paper --data_dir=x", ""),
        ("--page", ""),
    ],
)
def test_flags_without_effect_are_refused(line, problem, monkeypatch):
    values_of_flags = reproduce.flags.FlagValues()
    reproduce.define_flags(values_of_flags)
    names = values_of_flags(["fedwin reproduce", *line.split()])[1:]
    monkeypatch.setattr(reproduce, "FLAGS", values_of_flags)
    if not problem:
        return reproduce.check_flags(names)
    with pytest.raises(UserError, match=problem):
        reproduce.check_flags(names)


def test_flags_are_printed_at_the_scale_that_is_given():
    table = item("wima/table2")
    flags = {scale: flag_text(table, "", "", scale=scale).splitlines() for scale in ("paper", "trend")}
    assert "--dataset=cifar10" in flags["paper"] and "--dataset=cifar10:size=16,per_class=1000" in flags["trend"]


# Time


def test_hours_of_the_queue_are_those_of_the_stored_runs():
    done, *_ = run_queue.QUEUE
    keys = {
        run.key
        for cell in item(done.item).cells("paper")
        if cell.row.name in done.rows and cell.column.name in done.columns
        for run in lineage(cell.runs[0])
    }
    paths = [
        path for path in (store.RESULTS / "paper").glob("*-seed2023.jsonl.gz") if path.name.partition("-")[0] in keys
    ]
    seconds = sum(store.load_record(path).header["seconds"]["2023"] for path in paths)
    assert len(paths) == len(keys) == 4 and run_queue.duration(done) == f"{seconds / 3600:.1f} h"
    waiting = next(step for step in run_queue.QUEUE if run_queue.progress(step)[0] == 0)
    assert run_queue.duration(waiting).startswith("about ")
    assert run_queue.duration(run_queue.QUEUE[-1]) == "GPU"


def test_a_dry_run_says_what_it_times_and_times_nothing_that_is_stored(monkeypatch):
    said, directory = (
        [],
        types.SimpleNamespace(task=types.SimpleNamespace(run=RUN), rounds_left=lambda: 10, first_round=0),
    )
    estimates = dry_run._Estimates("", "trend", said.append)
    config = RUN.config(dataset="digits")

    def refused(config):
        raise UserError("no timing")

    monkeypatch.setattr(dry_run.process_commands, "estimate", refused)
    assert estimates.left(directory, config) == "no timing" and "timing a few rounds of fedavg on digits" in said[0]
    estimates.stored = OneRecord(machine=store.machine())
    assert estimates.left(directory, config) == 18.0 and len(said) == 1


# The installed package


def test_an_archive_holds_what_the_folder_holds(tmp_path):
    (record,) = OneRecord().records(RUN)
    assert store.StoredResults("trend", tmp_path / "a").add(record)
    (tmp_path / "a" / "trend" / "ima_figure1.json.gz").write_bytes(gzip.compress(json.dumps({"title": "x"}).encode()))
    archive.pack(tmp_path / "a", tmp_path / "b" / archive.NAME)
    folder, packed = (store.StoredResults("trend", tmp_path / name) for name in "ab")
    assert folder.records(RUN) == packed.records(RUN) == [record] and folder.names() == packed.names()
    assert packed.text("ima_figure1.json.gz") == '{"title": "x"}' and packed.text("other.json.gz") is None
    path = tmp_path / "c" / archive.NAME
    path.parent.mkdir()
    path.write_bytes((tmp_path / "b" / archive.NAME).read_bytes()[:-30])
    with pytest.raises(UserError, match="damaged"):
        store.StoredResults("trend", path.parent).records(RUN)


def test_the_installed_package_is_never_written_to(monkeypatch, tmp_path):
    for module in (store, results_page):
        monkeypatch.setattr(module, "IN_CHECKOUT", False)
    monkeypatch.setattr(results_page, "pages", lambda folder: {pathlib.Path("RESULTS.md"): str(folder)})
    results_page.write(tmp_path)
    assert (tmp_path / "RESULTS.md").read_text().strip() == str(tmp_path / "results")
    with pytest.raises(UserError, match="--keep stores results in a checkout"):
        Request(keep=True, out_dir=tmp_path).check()


def test_without_stored_results_nothing_is_drawn(monkeypatch, tmp_path):
    monkeypatch.setattr(store.StoredResults, "names", lambda self, prefix="": [])
    with pytest.raises(UserError, match="there are no stored results of scale trend.*repository"):
        Request(from_results=True, out_dir=tmp_path).check()
    with pytest.raises(UserError, match="there are no stored results"):
        results_page.pages(tmp_path)
