"""Evaluations and summaries that were edited after the run are rejected by every reader."""

import dataclasses
import json
import os
import re
import shutil

import pytest

import fedwin
from fedwin.errors import UserError
from fedwin.files import json_value
from fedwin.runs import directory as directories
from fedwin.runs.config import Config
from fedwin.runs.metrics_log import MetricsLog, read_lines

SMALL = Config(
    dataset="digits",
    model="digits_mlp:hidden=8",
    num_clients=20,
    clients_per_round=2,
    num_rounds=3,
    eval_every=1,
    checkpoint_every=1,
    seeds=[0, 1],
)


@pytest.fixture(scope="module")
def finished(tmp_path_factory):
    directory = tmp_path_factory.mktemp("runs") / "run"
    return directory, fedwin.run(dataclasses.replace(SMALL, out_dir=str(directory)), quiet=True)


@pytest.fixture
def copied(finished, tmp_path):
    directory = tmp_path / "run"
    shutil.copytree(finished[0], directory)
    return directory


def edit(path, number=0):
    """Changes one digit of the accuracy that comes `number`-th."""
    text = path.read_text()
    place = list(re.finditer(r'"accuracy": (?:\{\s*"mean": )?0\.\d', text))[number].end() - 1
    path.write_text(f"{text[:place]}{(int(text[place]) + 1) % 10}{text[place + 1 :]}")


def test_an_intact_directory_gives_what_run_returned(finished):
    directory, summary = finished
    assert directories.verified_summary(directory) == summary
    assert directories.finished_summary(dataclasses.replace(SMALL, out_dir=str(directory))) == summary
    assert [(seed, entry["seed"]) for seed, entry in summary["seeds"].items()] == [(0, 0), (1, 1)]
    assert directories.summary_from_json(json.loads(json.dumps(json_value(summary)))) == summary  # as processes send it
    assert directories.verified_lines(directory) == read_lines(directory / "metrics.jsonl")


@pytest.mark.parametrize("number", [0, 1, 2])
def test_a_changed_digit_of_the_summary_is_refused(copied, number):
    edit(copied / "summary.json", number)
    with pytest.raises(UserError, match="summary.json has been altered .its checksum differs.; remove it"):
        directories.verified_summary(copied)
    with pytest.raises(UserError, match="altered"):
        directories.finished_summary(dataclasses.replace(SMALL, out_dir=str(copied)))


@pytest.mark.parametrize("summary", [True, False])
@pytest.mark.parametrize("number", [0, 3, 7])
def test_a_changed_digit_of_the_evaluations_is_refused(copied, number, summary):
    """With the summary's hash and, for an unfinished run, with that of the newest checkpoint."""
    edit(copied / "metrics.jsonl", number)
    if not summary:
        (copied / "summary.json").unlink()
    with pytest.raises(UserError, match=f"metrics.jsonl has been altered: seed {number // 4}'s .*; restore"):
        directories.verified_lines(copied)


def test_evaluations_after_the_newest_checkpoint_have_the_hash_of_the_summary(copied):
    """As after a divergence, whose state is not saved."""
    shutil.rmtree(copied / "checkpoints" / "seed_1" / "3")
    directories.verified_lines(copied)
    edit(copied / "metrics.jsonl", 7)
    with pytest.raises(UserError, match="seed 1's"):
        directories.verified_lines(copied)
    (copied / "summary.json").unlink()
    directories.verified_lines(copied)  # not detectable: the resumed run computes the round again


def test_directories_without_hashes_read_as_before(copied):
    contents = json.loads((copied / "summary.json").read_text())
    (copied / "summary.json").write_text(
        json.dumps({k: v for k, v in contents.items() if k not in ("metrics", "seal")})
    )
    for about in copied.glob("checkpoints/*/*/about/metadata"):
        about.write_text(json.dumps({k: v for k, v in json.loads(about.read_text()).items() if k != "seal"}))
    edit(copied / "metrics.jsonl")
    edit(copied / "summary.json")
    assert len(directories.verified_lines(copied)) == 8
    assert list(directories.verified_summary(copied)["seeds"]) == [0, 1]


def test_an_unfinished_run_has_no_summary_in_one_line(copied):
    (copied / "summary.json").unlink()
    with pytest.raises(UserError, match="not finished; the same command resumes it"):
        directories.verified_summary(copied)


def test_a_summary_ends_with_the_evaluations_that_it_describes(copied):
    """A resumed run that is killed leaves no summary of evaluations that have changed since."""
    log, lines = MetricsLog(copied), read_lines(copied / "metrics.jsonl")
    log.truncate_after(1, 3)
    assert (copied / "summary.json").exists()
    log.truncate_after(1, 2)
    assert not (copied / "summary.json").exists()
    (copied / "summary.json").write_text("{}")
    log.write(lines[-1])
    log.close()
    assert not (copied / "summary.json").exists()


@pytest.mark.parametrize("name", ["config.json", "metrics.jsonl", "summary.json"])
def test_a_pipe_in_place_of_a_file_is_refused(copied, name):
    (copied / name).unlink()
    os.mkfifo(copied / name)
    config = dataclasses.replace(SMALL, out_dir=str(copied))
    reads = {
        "config.json": lambda: fedwin.run(config, quiet=True),
        "metrics.jsonl": lambda: directories.verified_lines(copied),
        "summary.json": lambda: directories.finished_summary(config),
    }
    with pytest.raises(UserError, match=f"{name} (can't be read .not a regular file|is not a run's summary)"):
        reads[name]()
