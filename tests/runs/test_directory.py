"""The directory of a run: config.json, metrics.jsonl, summary.json, and the checksums that every reader compares."""

import json
import pathlib
import re
import subprocess

import pytest

import fedwin
from fedwin.files import json_value, write_json
from fedwin.runs import directory as directories
from fedwin.runs.directory import hash_of, set_fields
from fedwin.runs.metrics_log import MetricsLog, read_lines
from tests.refusals import refused
from tests.runs.conftest import RUN
from tests.small_runs import lines, placed, run_in

RUN_FOLDER = pathlib.Path(__file__).parent
NAMES = ("config.json", "metrics.jsonl", "summary.json")


def edit(path):
    """Changes one digit of a number."""
    text = path.read_text()
    place = list(re.finditer(r"\d\.\d", text))[3].end() - 1
    path.write_text(f"{text[:place]}{(int(text[place]) + 1) % 10}{text[place + 1 :]}")


def test_an_intact_directory_gives_what_run_returned(finished):
    directory, summary = finished
    assert directories.verified_summary(directory) == summary
    assert directories.finished_summary(placed(RUN, directory)) == summary
    assert [(seed, entry["seed"]) for seed, entry in summary["seeds"].items()] == [(0, 0), (1, 1)]
    assert directories.summary_from_json(json.loads(json.dumps(json_value(summary)))) == summary  # as processes send it
    assert [line.split("  ")[1] for line in (directory / "SHA256SUMS").read_text().splitlines()] == list(NAMES)
    done = subprocess.run(["sha256sum", "--strict", "-c", "SHA256SUMS"], cwd=directory, capture_output=True, text=True)
    assert done.returncode == 0, done.stderr


def test_its_numbers_are_those_that_were_written_down(finished):
    """Of a version before the first release: SCAFFOLD with IMA, three observers, keys of clients and of steps."""
    expected = [json.loads(line) for line in (RUN_FOLDER / "golden_scaffold.jsonl").read_text().splitlines()]
    found = {(line["seed"], line["round"]): line for line in lines(finished[0])}
    assert len(found) == len(expected)
    for line in expected:
        mine = found[line["seed"], line["round"]]
        for name, values in line.items():
            if isinstance(values, dict):
                assert mine[name]["loss"] == pytest.approx(values["loss"], rel=1e-5), (line["round"], name)
                # One test image of 397 may fall on the other side of a boundary.
                assert mine[name]["accuracy"] == pytest.approx(values["accuracy"], abs=1.01 / 397)
        assert mine["bytes_down"] == line["bytes_down"] and mine["bytes_up"] == line["bytes_up"]


@pytest.mark.parametrize("name", NAMES)
def test_an_altered_file_is_refused_in_one_line_by_every_reader(copied, name):
    edit(copied / name)
    again = lambda: run_in(RUN, copied)
    known = lambda: directories.finished_summary(placed(RUN, copied))
    readers = {
        "config.json": [lambda: directories.read_config(copied), lambda: fedwin.load(copied), again],
        "metrics.jsonl": [lambda: read_lines(copied / "metrics.jsonl"), lambda: fedwin.export(copied, "a.npz"), again],
        "summary.json": [lambda: directories.verified_summary(copied), known],
    }
    for reads in readers[name]:
        refused(rf"{name} has been altered \(its checksum in SHA256SUMS differs\); restore it", reads)


def test_files_of_an_unfinished_run(copied):
    """No checksums; a summary and checksums end with the evaluations that they describe."""
    log, written = MetricsLog(copied), read_lines(copied / "metrics.jsonl")
    inode = (copied / "metrics.jsonl").stat().st_ino
    log.truncate_after(1, 12)
    assert (copied / "summary.json").exists() and (copied / "SHA256SUMS").exists()
    assert (copied / "metrics.jsonl").stat().st_ino == inode  # it was not written again
    log.truncate_after(1, 11)
    assert not (copied / "summary.json").exists() and not (copied / "SHA256SUMS").exists()
    refused("not finished; the same command resumes it", directories.verified_summary, copied)
    assert directories.finished_summary(placed(RUN, copied)) is None
    edit(copied / "metrics.jsonl")
    read_lines(copied / "metrics.jsonl")
    (copied / "summary.json").write_text("{}")
    log.write(written[-1])
    log.close()
    assert not (copied / "summary.json").exists()


def test_files_of_another_format_with_other_flags_or_types_are_refused(copied, finished):
    (copied / "SHA256SUMS").unlink()
    contents = json.loads((copied / "config.json").read_text())
    del contents["config"]["shuffle"]  # as if the field were newer than the directory
    write_json(copied / "config.json", contents)
    assert directories.load_config(placed(RUN, copied), copied).identity.config["shuffle"] is True
    refused("--shuffle=True, not False", directories.load_config, placed(RUN, copied, shuffle=False), copied)
    for change, words in ({"format": 2}, "has format 2, not 1"), ({"data": {"0": 5}}, "is not a run's configuration"):
        write_json(copied / "config.json", contents | change)
        refused(words, directories.read_config, copied)
    write_json(copied / "config.json", contents)
    write_json(copied / "summary.json", finished[1] | {"over_seeds": {"model": {"loss": "low"}}})
    refused("summary.json is not this run's summary", directories.verified_summary, copied)
    for change, words in ({"num_round": 1}, "Did you mean 'num_rounds'"), ({"seeds": 5}, "seeds=5 must be a list"):
        write_json(copied / "config.json", contents | {"config": contents["config"] | change})
        refused(f"run/config.json: .*{words}.* version of fedwin", directories.read_config, copied)


def test_hashes_omit_what_is_as_ever():
    """Written down before there were samplers: names of directories and fingerprints stay when a field is added."""
    assert hash_of(set_fields(fedwin.Config(final_evals=100).decisive()), size=4) == hash_of({}, size=4)
    assert directories.default_directory(fedwin.Config()).name == "digits_fedavg-d905e156"
    assert directories.default_directory(fedwin.Config(num_rounds=500)) == directories.default_directory(
        fedwin.Config(num_rounds=500, final_evals=100)
    )
    assert set_fields(fedwin.Config(num_rounds=20).decisive()) == {"num_rounds": 20, "final_evals": 5}
