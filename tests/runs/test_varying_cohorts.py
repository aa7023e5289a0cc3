"""Complete runs whose cohorts vary: the same under resume and everywhere, counted, reported, or refused."""

import dataclasses
import json

import numpy as np
import pytest

import fedwin
from fedwin.runs.prepare import prepare
from tests.refusals import refused
from tests.runs.disturbance import assert_same_to_rounding
from tests.small_runs import finished_run, lines, run_in, small

SMALL = small(
    partition="shards:per_client=2",
    algorithm="scaffold",
    sampling="poisson",
    dropout=0.4,
    observe=["wima:window=3"],
    num_rounds=14,
    clients_per_round=2,
    eval_every=4,
    checkpoint_every=6,
)
whole = finished_run(SMALL)


def test_what_took_part_is_counted(whole):
    directory, summary = whole
    sampler = prepare(SMALL).setting.sampling
    drawn = [sampler.cohort(0, round) for round in range(14)]
    sizes = [len(draw.participants) for draw in drawn]
    last = lines(directory)[-1]
    assert sum((line["cohort_sizes"] for line in lines(directory)), []) == sizes
    assert last["empty_rounds"] == sizes.count(0) == summary["seeds"][0]["empty_rounds"] > 1
    per_client = last["bytes_up"] / sum(sizes)
    # Who does not answer has received the model.
    assert last["bytes_down"] == per_client * sum(len(draw.ids) for draw in drawn) > last["bytes_up"] > 0
    assert summary["seeds"][0]["diverged_at"] is None and np.isfinite(last["model"]["loss"])


def test_an_empty_round_repeats_the_model(tmp_path):
    trace, directory = tmp_path / "trace.csv", tmp_path / "run"
    trace.write_text("client,start,end\n3,0,1\n4,0,1\n5,2,3\n")
    changes = dict(sampling=f"file:path={trace},period=3", dropout=0.0, num_rounds=6, eval_every=1)
    summary = run_in(SMALL, directory, **changes)
    found = lines(directory)
    assert [line["cohort_sizes"] for line in found] == [[], [2], [0], [1], [2], [0], [1]]
    assert [line["train_loss"] is None for line in found] == [True, False, True, False, False, True, False]
    for empty in (2, 5):
        assert found[empty]["model"] == found[empty - 1]["model"]
        assert found[empty]["bytes_down"] == found[empty - 1]["bytes_down"]
    assert found[5]["wima3"] != found[4]["wima3"] and summary["seeds"][0]["empty_rounds"] == 2
    # The file's content is part of the run's identity.
    hashes = json.loads((directory / "config.json").read_text())["data"]
    assert hashes.keys() == {"0", "sampling"} and len(hashes["sampling"]) == 16
    trace.write_text("client,start,end\n3,0,1\n4,0,1\n6,2,3\n")
    refused("was run with another file than --sampling=file.*restore the file", run_in, SMALL, directory, **changes)


@pytest.fixture(
    scope="module", params=[("poisson", 0.4), ("weighted", 0.4), ("markov:up=0.02,down=0.3", 0.0)], ids=lambda p: p[0]
)
def plain(request, tmp_path_factory):
    """A configuration with a sampler and all that varies with clients and rounds, and the directory of its run."""
    sampling, dropout = request.param
    changes = dict(sampling=sampling, dropout=dropout, partition="dirichlet:alpha=0.3", local_work="uniform:low=0.1")
    changes |= dict(clock="bandwidth:up=1e5,down=1e6,compute=0.01", client_shift="noise:std=0.3", drift="swap:round=6")
    changes |= dict(val_fraction=0.2, eval_val=True, eval_clients="all", eval_clients_every=5, personalize=["finetune"])
    config, directory = dataclasses.replace(SMALL, **changes), tmp_path_factory.mktemp("plain") / "run"
    run_in(config, directory)
    return config, directory


@pytest.mark.slow
@pytest.mark.parametrize(
    "changes",
    [
        {"table": "file", "window": "file"},
        {"table": "host", "window": "host", "examples": "stream"},
        {"strategy": "vmapped"},
        {"strategy": "sharded:devices=2,k=1", "examples": "stream"},
        {"seeds": [0, 1], "seeds_at_once": 2},
        {"rounds_per_dispatch": 3},
    ],
    ids=str,
)
def test_paths_agree(plain, tmp_path, changes):
    config, directory = plain
    run_in(config, tmp_path, **changes)
    assert_same_to_rounding(tmp_path, directory, 0, rtol=1e-4, accuracy=0.05)
    if changes.keys() & {"table", "window"}:
        assert lines(tmp_path) == lines(directory)


@pytest.mark.slow
def test_a_fork_counts_the_rounds_that_it_continues(whole, tmp_path):
    run_in(SMALL, tmp_path / "fork", fork_from=f"{whole[0]}@6")
    close_lines = {line["round"]: line for line in lines(tmp_path / "fork")}
    for line in lines(whole[0]):
        if line["round"] > 6:
            assert close_lines[line["round"]]["bytes_up"] == line["bytes_up"]
            assert close_lines[line["round"]]["empty_rounds"] == line["empty_rounds"]


def test_two_sizes_of_a_round_are_refused(tmp_path):
    half = dataclasses.replace(SMALL, sampling="poisson:rate=0.5")
    refused("sampling=poisson:rate=0.5, 10 clients on average, both set", fedwin.check, half)
    fedwin.check(dataclasses.replace(SMALL, sampling="poisson:rate=0.1"))
    prepared = prepare(dataclasses.replace(SMALL, sampling="poisson:rate=0.3", clients_per_round=10))
    assert prepared.setting.clients_per_round == 6 and prepared.setting.participation == pytest.approx(0.3 * 0.6)


def test_a_sampler_that_announces_too_few_is_refused(tmp_path):
    def liar(population):
        """Draws more than it announces."""
        draw = lambda seed, round: np.arange(round + 1)
        return fedwin.sampling.Sampler(draw, population.num_clients, 2, 1, 2)

    fedwin.SAMPLERS.register("liar", liar)
    said = "round 3 has 3 clients, and its sampler announces 1 to 2 .a plain function: at most --clients_per_round."
    refused(said, run_in, SMALL, tmp_path / "run", sampling="liar", dropout=0.0)
