"""Stored results: packed runs, replaced by those with more evaluations; only of complete data at paper scale."""

import dataclasses
import functools
import pathlib

import pytest

from experiments import records
from experiments.papers.catalogue import item
from experiments.reproduction import page, request, results, work
from fedwin import data
from tests.experiments.reproduction.fakes import RUN, record
from tests.refusals import refused


@pytest.fixture
def kept(monkeypatch, tmp_path):
    """A function that stores a made-up record; returns whether it was stored."""
    given = []
    monkeypatch.setattr(records, "read", lambda path, read=records.read: read(path) if path.suffix else given[-1])

    def keep(folder="trend", **options):
        given.append(record(**options))
        return results.keep(RUN, pathlib.Path("directory"), tmp_path / folder)

    return keep


def test_packed_runs_are_read_as_they_were_written(tmp_path):
    paths = [tmp_path / f"{RUN.key}-seed{seed}{records.SUFFIX}" for seed in (0, 1)]
    for seed, path in enumerate(paths):
        records.write(path, record(seeds=(seed,)))
    found = results.Results("trend", tmp_path / "none", tmp_path)
    assert found.records(RUN) == [record(seeds=(0,)), record(seeds=(1,))] and list(found.packed) == [RUN.key]
    assert found.seconds(RUN) == {0: 36.0, 1: 36.0} and found.record_of(RUN, 1).seeds == [1]
    by_gpu = record(seeds=(2,))
    by_gpu.about["device"] = "gpu NVIDIA H200 x1"
    records.write(tmp_path / f"{RUN.key}-seed2{records.SUFFIX}", by_gpu)
    assert list(results.Results("trend", tmp_path).seconds(RUN)) == [0, 1]  # they say nothing of processors
    ends = {"seeds": {"0": {"diverged_at": 0}, "1": {"diverged_at": None}}}
    assert dataclasses.replace(by_gpu, summary=ends).diverged == {0: 0}
    before = paths[0].read_bytes()
    records.write(paths[0], record(seeds=(0,)))
    assert paths[0].read_bytes() == before
    paths[0].write_bytes(before[:-20])
    refused("damaged", results.Results("trend", tmp_path).records, RUN)


def test_a_run_with_more_read_outs_replaces_the_stored_one(kept, tmp_path):
    added = lambda *observe, eval_every=10: kept(observe=observe, eval_every=eval_every)
    assert added("ema") and not added("ema") and not added("swa") and not added()
    assert added("ema", "swa") and not added("ema") and not added("ema", "swa", eval_every=20)
    assert added("ema", "swa", eval_every=5)
    (path,) = (tmp_path / "trend").iterdir()
    config = records.read(path).config
    assert config["observe"] == ["ema", "swa"] and config["eval_every"] == 5


def test_paper_scale_needs_the_complete_data(kept, tmp_path, monkeypatch, capsys):
    """Of the digits there is half of the training examples."""
    whole = data.load("digits")
    few = dataclasses.replace(whole, train={name: array[:700] for name, array in whole.train.items()})
    monkeypatch.setattr(data, "load", lambda name, data_dir=None: few)
    for module, name in ((work, "missing"), (results, "provenance")):
        monkeypatch.setattr(module, name, functools.cache(getattr(module, name).__wrapped__))
    assert work.missing("digits", "", "trend") == ""
    table = item("survey/table2")
    asked, one = request.Request("paper", tmp_path, seeds=(0,), afresh=True), {table.name: table.cells("paper")[:1]}
    words = "refused.*needs the complete data set; digits .* has 700 of 1,400 training"
    refused(words, asked.execute, [table], one)
    assert capsys.readouterr().out.count("refused: ") == 1
    refused("is not stored.*digits has 700 of 1,400", kept, "paper")
    assert kept("trend")


def test_the_installed_package_is_never_written_to(monkeypatch, tmp_path):
    for module in (request, page):
        monkeypatch.setattr(module, "IN_CHECKOUT", False)
    monkeypatch.setattr(page, "pages", lambda folder: {pathlib.Path("RESULTS.md"): str(folder)})
    page.write(tmp_path)
    assert (tmp_path / "RESULTS.md").read_text().strip() == str(tmp_path / "results")
    refused("--keep stores results in a checkout", request.Request(keep=True, out_dir=tmp_path).check)


def test_without_stored_results_nothing_is_drawn(monkeypatch, tmp_path):
    monkeypatch.setattr(results, "RESULTS", tmp_path)
    asked = request.Request(from_results=True, out_dir=tmp_path)
    refused("there are no stored results of scale trend.*repository", asked.check)
    refused("there are no stored results", page.pages, tmp_path)
