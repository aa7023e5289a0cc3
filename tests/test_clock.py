"""Runs with a simulated clock and with --local_work, --local_steps and fractional --local_epochs."""

import dataclasses

import numpy as np
import pytest

import fedwin
from fedwin import sampling
from fedwin.clock import CLOCKS, Load, factors
from fedwin.local import work_of_cohort
from fedwin.runs import directory as directories
from fedwin.runs import prepare
from fedwin.runs.config import Config
from tests.algorithms.identities import leaves
from tests.refusals import refused
from tests.small_runs import finished_run, lines, placed, run_in, small

SMALL = small(
    partition="dirichlet:alpha=0.5",
    local_epochs=2,
    local_work="uniform:low=0.1,high=1",
    clock="bandwidth:up=1e5,down=1e6,compute=0.01,latency=0.1,spread=0.4,timeout=2",
    clients_per_round=4,
    checkpoint_every=3,
)
whole = finished_run(SMALL)


def test_the_slowest_client_decides():
    clock = CLOCKS.build("bandwidth:up=100,down=1000,compute=0.5,latency=0.25,timeout=7")
    load = Load(np.array([1, 4, 2]), down=3000, up=200, trips=2)
    ids = np.array([5, 2, 9])
    np.testing.assert_allclose(clock.seconds(0, ids, load), 2 * 0.25 + 3 + 2 + 0.5 * load.steps)
    assert clock.round(0, ids, load) == 7.5
    assert clock.round(0, ids, load._replace(steps=np.array([1, 1, 1])), missing=1) == 7  # waits for the missing one
    assert clock.round(0, ids, load, missing=1) == 7.5
    assert clock.round(0, ids[:0], load._replace(steps=np.zeros(0))) == 0  # an empty cohort


def test_speeds_depend_on_seed_and_client_alone():
    several = factors(3, np.array([7, 400, 2]), 0.5)
    np.testing.assert_array_equal(several[0], factors(3, np.array([7]), 0.5)[0])
    assert (factors(4, np.array([7]), 0.5) != several[0]).all()
    logs = np.log(factors(0, np.arange(4000), 0.5))
    np.testing.assert_allclose(logs.mean(0), 0, atol=0.03)
    np.testing.assert_allclose(logs.std(0), 0.5, rtol=0.05)
    assert abs(np.corrcoef(logs.T)[0, 1]) < 0.05  # networks and processors are independent
    clock = CLOCKS.build("bandwidth:up=100,down=100,compute=1,spread=0.5")
    network, processor = factors(3, np.array([7, 2]), 0.5).T
    expected = (100 / 100 + 300 / 100) / network + np.array([5, 6]) / processor
    np.testing.assert_allclose(clock.seconds(3, np.array([7, 2]), Load(np.array([5, 6]), 100, 300)), expected)


def test_exponential_times_are_drawn_anew_in_every_round():
    clock, load = CLOCKS.build("exponential:mean=3"), Load(np.ones(4000), 1, 1)
    drawn = np.array([clock.seconds(0, np.arange(4000), load._replace(round=round)) for round in range(5)])
    np.testing.assert_allclose((drawn.mean(), drawn.std()), 3, rtol=0.03)
    assert np.abs(np.corrcoef(drawn) - np.eye(5)).max() < 0.06
    np.testing.assert_array_equal(clock.seconds(0, np.array([7, 2]), load._replace(round=3)), drawn[3, [7, 2]])


def test_speeds_from_a_file(tmp_path):
    path = tmp_path / "speeds.csv"
    path.write_text("client,up,down,compute\n0,10,100,0.5\n1,20,50,0\n")
    clock = CLOCKS.build(f"file:path={path},latency=1")
    seconds = clock.seconds(0, np.array([1, 0]), Load(np.array([4, 6]), down=100, up=40))
    assert seconds.tolist() == [1 + 2 + 2 + 0, 1 + 1 + 4 + 3]
    refused("no line for client 2", fedwin.check, placed(SMALL, tmp_path / "none", clock=f"file:path={path}"))
    path.write_text("client,up,down,compute\n0,0,100,0.5\n")
    refused("client 0 a speed that is not positive", CLOCKS.build, f"file:path={path}")


def expected_seconds(directory, rounds):
    """The clock of SMALL without its code, from cohorts, sizes, work and bytes."""
    first, last = lines(directory, seed=0)[0], lines(directory, seed=0)[-1]
    assert first["simulated_seconds"] == 0
    sizes = prepare.prepare(SMALL).federations[0].sizes
    down, up = (last[name] / last["round"] / 4 for name in ("bytes_down", "bytes_up"))
    assert down == up > 0
    total = 0.0
    for round in range(rounds):
        ids = sampling.cohort(0, round, 20, 4)
        shares = work_of_cohort(fedwin.LOCAL_WORK.build(SMALL.local_work), 0, round, ids)
        steps = [max(1, int(np.ceil(share * 2 * -(-n // 32)))) for share, n in zip(shares, sizes[ids], strict=True)]
        network, processor = factors(0, ids, 0.4).T
        total += max(0.1 + (down / 1e6 + up / 1e5) / network + np.array(steps) * 0.01 / processor)
    return total


def test_a_run_adds_up_its_rounds(whole):
    directory, summary = whole
    for line in lines(directory, seed=0)[1:]:
        np.testing.assert_allclose(line["simulated_seconds"], expected_seconds(directory, line["round"]), rtol=1e-12)
    assert summary["seeds"][0]["simulated_seconds"] == lines(directory, seed=0)[-1]["simulated_seconds"]
    seconds, draw = prepare.prepare(SMALL).seconds, sampling.Draw(np.arange(2), work=np.zeros(2, np.float32))
    assert 0 < seconds(0, 0, draw) < seconds(0, 0, draw._replace(work=None))


def test_forks_continue_the_counts_of_their_parents(whole, tmp_path, capsys):
    """A fork with other messages and clock, its fork with other cohorts and without a clock, and again one with it."""
    chain = [
        dict(wrap=["quantize:bits=4"], clock="bandwidth:compute=10", keep_rounds=[4]),
        dict(clock="", dropout=0.7, keep_rounds=[5]),
        dict(keep_rounds=[5], partition_seed=9),
    ]
    found, parent = [], f"{whole[0]}@3"
    for fork, changes in zip("abc", chain):
        fedwin.run(placed(SMALL, tmp_path / fork, fork_from=parent, eval_every=1, **changes))
        found.append({line["round"]: line for line in lines(tmp_path / fork)})
        parent = f"{tmp_path / fork}@{changes['keep_rounds'][0]}"
    quantized, dropping, again = found
    each = lines(whole[0])[1]["bytes_up"] // 2
    of = lambda line: (line["bytes_down"], line["bytes_up"])
    assert of(quantized[3]) == (3 * each, 3 * each)
    np.testing.assert_allclose(quantized[3]["simulated_seconds"], expected_seconds(whole[0], 3), rtol=1e-12)
    assert quantized[4]["bytes_down"] == 4 * each and 3 * each < quantized[4]["bytes_up"] < 3.25 * each
    assert quantized[4]["simulated_seconds"] > 10 + quantized[3]["simulated_seconds"]
    assert of(dropping[4]) == of(quantized[4]) and dropping[4]["cohort_sizes"] == []
    # Who does not answer has received the model.
    sent = each // 4 * dropping[5]["cohort_sizes"][0]
    assert of(dropping[5]) == (5 * each, quantized[4]["bytes_up"] + sent) and sent < each
    assert of(again[5]) == of(dropping[5]) and of(again[6]) == (6 * each, dropping[5]["bytes_up"] + each)
    assert again[5]["simulated_seconds"] == 0 < again[6]["simulated_seconds"] < 10
    said = capsys.readouterr().out
    assert f"count from round 5 on; {tmp_path / 'b'} has no --clock" in said
    assert said.count("its clients, or their examples, are not those of this run") == 1  # of the last fork


@pytest.mark.slow
def test_a_clock_changes_nothing_else(whole, tmp_path):
    run_in(SMALL, tmp_path / "none", clock="")
    without = [{name: v for name, v in line.items() if name != "simulated_seconds"} for line in lines(whole[0], seed=0)]
    assert lines(tmp_path / "none", seed=0) == without


@pytest.mark.slow
def test_missing_clients_take_the_timeout(tmp_path):
    run_in(SMALL, tmp_path / "gone", dropout=0.9, clock="bandwidth:compute=0,timeout=5")
    found = lines(tmp_path / "gone", seed=0)
    assert found[-1]["simulated_seconds"] == 6 * 5  # in every round some client is missing


@pytest.mark.slow
def test_clients_are_trained_with_the_work_of_their_round(whole):
    trained = fedwin.load(whole[0], round=3)
    everything = dataclasses.replace(trained, prepared=dataclasses.replace(trained.prepared, local_work=None))
    work = trained.prepared.local_work(0, 3, np.arange(20))
    least, before = int(work.argmin()), leaves(trained.variables.params)
    some, full = (leaves(fedwin.client_models(run, [least])[0].params) for run in (trained, everything))
    assert np.abs(some - before).max() < np.abs(full - before).max()


@pytest.mark.slow
def test_a_changed_file_of_work_is_refused(tmp_path):
    path = tmp_path / "work.csv"
    path.write_text("client,work\n1,0.5\n")
    files = dict(local_work=f"file:path={path}", clock="bandwidth")
    first = directories.file_hashes(placed(SMALL, tmp_path, **files))
    assert first["clock"] == "" and len(first["local_work"]) == 16 and directories.file_hashes(Config()) == {}
    short = dict(num_rounds=1, final_evals=0, local_epochs=1, **files)
    run_in(SMALL, tmp_path / "run", **short)
    path.write_text("client,work\n1,0.6\n")
    refused("was run with another file than --local_work=file:path=", run_in, SMALL, tmp_path / "run", **short)
