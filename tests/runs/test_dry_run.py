"""Dry runs: the expected duration from a few timed rounds, without side effects."""

import math
import re

import jax
import numpy as np
import pytest

import fedwin.runs.run as run_module
from experiments.cli import requirements as dry_run_command
from fedwin import multi_process
from fedwin.engine import Dispatch
from fedwin.runs import timing
from fedwin.runs.config import Config
from fedwin.runs.machine import Memory
from fedwin.runs.prepare import prepare
from fedwin.runs.run import measure_requirements, run
from fedwin.runs.schedule import Schedule
from fedwin.runs.timing import TimedRun, Timing
from tests.misuse.calls import called, tree_of
from tests.refusals import refused
from tests.runs.disturbance import flags_of

SMALL = dict(dataset="digits", model="digits_mlp:hidden=4", num_clients=20, clients_per_round=3, batch_size=16)


def test_what_is_left_to_run():
    schedule = Schedule(Config(num_rounds=100, final_evals=1))
    assert Timing(2.0, 5.0, 0.5).expected(schedule, [0]) == 5 + 200 + 10 * 0.5
    assert Timing(2.0, 5.0, 0.5).expected(schedule, [0, 95, 100]) == 5 + 2 * 105 + 11 * 0.5
    assert Timing(2.0, 5.0, 0.5).expected(schedule, [100, 100]) == 0.0
    assert schedule.describe(95).startswith("100 rounds with 2 evaluations, ")  # a fork's model is evaluated first


def test_a_strategy_is_timed_where_all_processes_have_the_memory(monkeypatch):
    """The second process has too little; the first strategy is timed in any case."""
    names = []
    monkeypatch.setattr(multi_process, "all_gather_integers", lambda fits: np.array([[fits], [False]]))
    monkeypatch.setattr(timing, "_seconds_per_round", lambda plan: names.append(str(plan.strategy)) or 1.0)
    assert [timing.fastest(timing.planned(prepare(Config(**SMALL)), None), print)] == names


def test_what_a_device_refuses_is_told_with_a_remedy(tmp_path, monkeypatch):
    """XLA's messages on GPUs; --strategy=auto goes on without a strategy that exhausts the memory."""
    texts = iter(["RESOURCE_EXHAUSTED: Out of memory.", "UNIMPLEMENTED: HLO instruction select-and-scatter.4 does not"])

    def refusing(*args, **kwargs):
        raise jax.errors.JaxRuntimeError(next(texts))

    monkeypatch.setattr(Dispatch, "__call__", refusing)
    config = Config(**SMALL, num_rounds=2, strategy="vmapped", out_dir=str(tmp_path / "run"))
    refused("^RESOURCE_EXHAUSTED: Out of memory; --dry_run counts .*; set --strategy=chunked:k=1 or", run, config)
    refused("^UNIMPLEMENTED: .* select-and-scatter.4 does not; pool with fedwin.models.convolution", run, config)
    texts = iter(["RESOURCE_EXHAUSTED"] * 2)
    monkeypatch.setattr(timing, "_seconds_per_round", lambda plan: plan.strategy.chunk or refusing())
    assert timing.fastest(timing.planned(prepare(Config(**SMALL)), None), print) == "chunked:k=1"


def test_a_dry_run_prints_and_writes_nothing(tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    monkeypatch.setattr(run_module, "available", lambda: Memory(10**10, 2 * 10**10))
    ended = called("train", *flags_of(SMALL), "--num_rounds=70000", "--seeds=0,1", "--eval_every=100", "--dry_run")
    assert ended.status == 0 and not ended.lines, ended
    for start in ("fedavg on digits", "memory: examples", "plan: strategy ", "disk: checkpoints ", "expected: "):
        assert start in ended.out, ended.out
    assert re.search(r"; each device \d+ MB of 20,000 MB .*, main memory \d+ MB of 10,000 MB that are avail", ended.out)
    said = "70,000 rounds with 800 evaluations, every 100 rounds from round 0 on and after each of the last 100 (--fin"
    assert said in ended.out and ", for each of the seeds 0,1\n" in ended.out, ended.out
    assert not tree_of(tmp_path)


@pytest.mark.slow
def test_a_dry_run_times_a_few_rounds_counts_what_is_done_and_writes_nothing(tmp_path, capsys, monkeypatch):
    config = Config(**SMALL, num_rounds=2, out_dir=str(tmp_path / "run"))
    run(config, quiet=True)
    before, counts = tree_of(tmp_path), []
    time_dispatch = TimedRun.time_dispatch

    def recorded(self, *args, **kwargs):
        found = time_dispatch(self, *args, **kwargs)
        counts.append(found[0])
        return found

    monkeypatch.setattr(TimedRun, "time_dispatch", recorded)
    assert dry_run_command.show(config) == 0.0
    assert "for seed 0; done: 2\n" in capsys.readouterr().out and tree_of(tmp_path) == before
    counts.clear()
    found = measure_requirements(config, rounds=9, seconds=60.0).timing
    assert all(math.isfinite(each) and each >= 0 for each in found[:4]) and found.seconds_per_round > 0
    assert sum(counts) == 14  # two without clients, three with one per device, one that is evaluated, eight more


def test_vmapped_seeds_share_the_seconds_of_a_round(monkeypatch):
    monkeypatch.setattr(TimedRun, "time_dispatch", lambda self, most, evaluated=False: (1, 5.0))
    config = Config(**SMALL, num_rounds=70, seeds=[0, 1], seeds_at_once=2, strategy="vmapped")
    assert measure_requirements(config, rounds=2).timing.seconds_per_round == 2.5


@pytest.mark.parametrize("at_once, rate", [(1, 0.1), (2, 0.1), (1, 1e30)])
def test_a_seed_that_ended_has_nothing_left(at_once, rate, tmp_path):
    """One that a callback stops, unless it diverges in the same round."""
    changes = dict(num_rounds=3, eval_every=1, seeds=[0, 1], seeds_at_once=at_once, client_lr=rate)
    config = Config(**SMALL, **changes, strategy="chunked:k=1", out_dir=str(tmp_path))
    run(config, quiet=True, on_eval=lambda round, seed, read_outs: seed == 1)
    assert dry_run_command.completed(config, tmp_path) == (([3, 1], [3]) if rate < 1 else ([0, 0], []))
    (tmp_path / "summary.json").unlink()  # as if it was not finished
    assert dry_run_command.completed(config, tmp_path) == (([3, 1], [3]) if rate < 1 else ([0, 0], [0]))


def test_several_runs_are_examined_once_for_each_kind_of_work(tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    words = [*flags_of(SMALL), "--num_rounds=3", "--methods=fedavg", "--methods=fedavg --client_lr=0.2", "--dry_run"]
    ended = called("compare", *words)
    assert ended.status == 0 and not ended.lines, ended
    assert ended.out.count("memory: ") == 1 and "[2/2] fedavg --client_lr=0.2\nas fedavg\n" in ended.out, ended.out
    assert "in all: " in ended.out and not tree_of(tmp_path)
    (said,) = called("compare", *words, "--fork_from=a").lines
    assert "2 of 2 runs would be refused" in said


def test_what_does_not_fit_is_said_before_anything_is_made(tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    config = Config(**SMALL, num_rounds=3)
    found = measure_requirements(config, rounds=1)
    assert found.requirements.device["activations"] > 0
    total = sum(found.requirements.parts.values())
    monkeypatch.setattr(TimedRun, "start", None)
    monkeypatch.setattr(run_module, "available", lambda: Memory(total - 1))
    refused("of memory that this run needs, and .* are available; ", measure_requirements, config)
    monkeypatch.setattr(run_module, "free_disk", lambda directory: 1000)
    refused(r"^checkpoints: .* available; lower --keep_checkpoints, or choose another", measure_requirements, config)
    assert not tree_of(tmp_path)


def test_long_rounds_are_scaled_from_the_steps_of_one_client_per_device(monkeypatch):
    timed = []

    def time_dispatch(self, most, evaluated=False):
        timed.append(self._partial.most)
        steps = self._partial.steps(self.program.prepared.solver, self._completed)
        self._completed += 1
        return 1, 5.0 + 2.0 * steps

    monkeypatch.setattr(TimedRun, "time_dispatch", time_dispatch)
    config = Config(**SMALL, partition="dirichlet:alpha=0.5", num_rounds=70, strategy="chunked:k=1")
    found = measure_requirements(config)
    prepared = found.checked.plan.prepared
    cohorts = [prepared.setting.sampling.cohort(0, round).ids for round in range(config.rounds_per_dispatch)]
    steps = [np.sum(-(-prepared.federations[0].sizes[ids] // config.batch_size)) for ids in cohorts]
    assert timed == [0, 0, 1] and found.timing.timed == "one client and one batch per device"
    assert math.isclose(found.timing.seconds_per_round, 5 + 2 * config.local_epochs * np.mean(steps))
