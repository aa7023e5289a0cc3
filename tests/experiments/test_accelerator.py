"""The benchmark's accelerator suite: time budget, records, and a small run on a CPU."""

import dataclasses
import json
import os
import subprocess
import sys
import time

import jax
import pytest

from experiments.tools.accelerator import pieces, table4, tables, team
from experiments.tools.accelerator.pieces import FIRST_GUESS, Countdown, Records, Setup, measure_groups
from experiments.tools.peers import accelerated_peer, cases, measure
from experiments.tools.peers.worker import PeerFailed
from fedwin import models
from tests.misuse.calls import refused

SETUP = Setup("1 x toy", {"fedwin": "fedwin 1", "fedjax": "fedjax 1", "torch": "missing: no torch"})


class Bench:
    """Measures in no time: every piece takes `seconds` of a clock that only this moves."""

    def __init__(self, seconds, minutes=20.0):
        self.time, self.seconds, self.asked = 0.0, seconds, []
        self.clock = Countdown(60 * minutes, lambda: self.time)

    def measure(self, some):
        self.asked.append(some)
        self.time += self.seconds * len(some)
        failing = lambda piece: piece.who == "torch"
        return {piece: {"failed": "no torch"} if failing(piece) else figures(piece) for piece in some}


def figures(piece, ms=10.0):
    taken = {"fedwin": 1.0, "fedjax": 12.0, "torch": 3.0}[piece.who] * ms * piece.seeds
    spread = [taken, taken]
    return {"ms_per_round": taken, "quartiles_ms": spread, "of_peak": 0.25, "device_peak_bytes": 2**30}


def some_groups():
    return pieces.groups(["lenet5", "leaf_lstm"], ["fedjax", "torch"], tiny=False)


def test_every_case_is_measured_by_all_in_every_precision():
    found = [piece for group in pieces.groups(list(pieces.COHORTS), ["fedjax", "torch"], tiny=False) for piece in group]
    assert len({piece.title for piece in found}) == len(found)
    for name in pieces.COHORTS:
        own = {(piece.precision, piece.who, piece.seeds > 1) for piece in found if piece.case.name == name}
        assert {("tf32", "fedwin", True), ("tf32", "fedjax", False), ("float32", "torch", False)} <= own
        assert ("bfloat16", "fedwin", False) in own
    assert {piece.case.clients for piece in found} == {10}
    assert not [piece for piece in found if piece.how == "channels-last" and piece.case.name == "leaf_lstm"]
    alone = pieces.groups(["lenet5"], [], tiny=True)
    assert {piece.who for group in alone for piece in group} == {"fedwin"}


def test_a_call_resumes_the_last_one(tmp_path):
    groups = some_groups()
    total = sum(map(len, groups))
    first = Bench(seconds=60.0, minutes=10)
    done = measure_groups(groups, Records(tmp_path, SETUP), first.measure, first.clock)
    # Ten pieces of a minute each fit; the first group is planned before any has been measured.
    assert first.time <= 600 and len(done.measured) < total
    written = len(list(tmp_path.glob("*.json")))
    assert written + len(done.left) == total and not {p.title for p in done.left} & {p.title for p in done.measured}

    second = Bench(seconds=1.0)
    done = measure_groups(groups, Records(tmp_path, SETUP), second.measure, second.clock)
    again = {piece.title for group in first.asked for piece in group}
    assert not again & {piece.title for group in second.asked for piece in group}
    assert not done.left and len(list(tmp_path.glob("*.json"))) == total

    third = Bench(seconds=1.0)
    done = measure_groups(groups, Records(tmp_path, SETUP), third.measure, third.clock)
    assert third.asked == [] and done == ([], [])


def test_what_is_kept_for_training_is_not_spent(tmp_path):
    bench = Bench(seconds=FIRST_GUESS)
    done = measure_groups(
        some_groups(), Records(tmp_path, SETUP), bench.measure, bench.clock, reserved=1200 - 3 * FIRST_GUESS
    )
    assert bench.time == 3 * FIRST_GUESS and [len(some) for some in bench.asked] == [3]
    assert done.left[0].case.name == "lenet5"  # the rest of the group comes first in the next call


def test_failures_are_kept_and_tried_again_once_when_asked(tmp_path):
    groups = some_groups()
    measure_groups(groups, Records(tmp_path, SETUP), (bench := Bench(1.0)).measure, bench.clock)
    torch = [piece for group in groups for piece in group if piece.who == "torch"]
    assert {Records(tmp_path, SETUP).read(piece)["failed"] for piece in torch} == {"no torch"}
    measure_groups(groups, records := Records(tmp_path, SETUP, again=True), (bench := Bench(1.0)).measure, bench.clock)
    assert {piece.who for some in bench.asked for piece in some} == {"torch"}
    assert not any(records.wanted(piece) for piece in torch)


def test_other_versions_and_devices_and_damaged_files_are_measured_again(tmp_path):
    piece, records = some_groups()[0][0], Records(tmp_path, SETUP)
    records.write(piece, figures(piece))
    assert not records.wanted(piece)
    assert json.loads(records.path(piece).read_text())["piece"]["versions"] == "fedwin 1"
    newer = dataclasses.replace(SETUP, versions={"fedwin": "fedwin 2"})
    assert Records(tmp_path, newer).wanted(piece)
    assert Records(tmp_path, dataclasses.replace(SETUP, device="2 x toy")).wanted(piece)
    records.path(piece).write_text("{")
    assert records.wanted(piece)


def test_the_tables_show_ratios_failures_and_aims(tmp_path):
    groups, records = some_groups(), Records(tmp_path, SETUP)
    measure_groups(groups, records, (bench := Bench(1.0)).measure, bench.clock)
    found = tables.gathered(groups, records)
    text = tables.pieces_table(found)
    lines = {line for line in text.splitlines() if "lenet5" in line and "tf32" in line}
    (beside,) = (line for line in lines if "fedjax" in line)
    assert "| 120.00 |" in beside and "| 12.00 | 25.0 % | 1,024 |" in beside
    (seeds,) = (line for line in lines if "5 seeds" in line)
    assert "| 10.00 |" in seeds  # a round of one of them
    assert "failed: no torch" in text
    # 10,000 rounds of 10 ms; no ResNet-20 was asked for, and FedJAX has no bfloat16.
    aims = tables.targets_table(found).splitlines()
    assert aims[2].split(" | ")[1:] == ["10 x", "12.0 x", "12.0 x", "- |"]
    assert aims[3].split(" | ")[1:] == ["under 4.0 min", "1.7 min", "1.7 min", "1.7 min |"]
    assert aims[4].split(" | ")[2:] == ["-", "-", "- |"]


def test_the_pace_leaves_compilation_out():
    # Dispatches of 50 rounds: the first took 30 s with its compilation, a resume compiled again.
    lines = [{"round": r, "seconds": s} for r, s in ((25, 30.0), (50, 30.0), (100, 31.0), (150, 32.0), (200, 60.0))]
    assert table4.pace([*lines, {"round": 250, "seconds": 61.0}]) == pytest.approx(1 / 50)
    assert table4.pace(lines[:2]) is None


SILENT = "import sys, time; sys.stdin.readline(); time.sleep(60)"


def test_a_worker_that_does_not_answer_is_ended(monkeypatch):
    monkeypatch.setattr(team, "GRACE", 0.2)
    worker = team.TimedWorker([sys.executable, "-c", SILENT], {}, lambda: 0.0)
    begun = time.monotonic()
    with pytest.raises(PeerFailed, match="no answer within 0 s"):
        worker.ask()
    assert worker.out_of_time and time.monotonic() - begun < 10
    worker.close()
    monkeypatch.setattr(team, "LONGEST", 0.2)
    patient = team.TimedWorker([sys.executable, "-c", SILENT], {}, lambda: 100.0)
    with pytest.raises(PeerFailed):
        patient.ask()
    assert not patient.out_of_time  # it would take as long in the next call
    patient.close()


DYING = """
from experiments.tools.peers import worker

def prepare(request):
    facts = {"flops": 8.0, "round_flops": 4, "parameters": 3}
    rounds = 0

    def run(n):
        nonlocal rounds
        rounds += n
        if request.get("dies") and rounds > 2:
            raise MemoryError("out of memory on purpose")
        return 0.5 * n

    return run, facts

worker.serve(prepare, {"version": "toy 1"})
"""


def test_a_piece_that_fails_in_its_turn_stops_no_other(monkeypatch):
    toys = team.Team("cpu", True, sys.executable, [], measure.Effort(2, 0.01, 1), lambda: 100.0, lambda line: None)
    command = [sys.executable, "-c", DYING]
    monkeypatch.setattr(team.Team, "_start", lambda self, *_: team.TimedWorker(command, {}, self.left))
    good, *_, bad = (piece for piece in some_groups()[0] if piece.who == "fedwin")
    request = pieces.Piece.request.fget
    monkeypatch.setattr(pieces.Piece, "request", property(lambda piece: request(piece) | {"dies": piece == bad}))
    absent = next(piece for piece in some_groups()[0] if piece.who == "torch")
    found = toys.measure([good, absent, bad], {"torch": "no torch"})
    assert found[absent] == {"failed": "no torch"}
    assert found[bad] == {"failed": "MemoryError: out of memory on purpose"}
    # Four operations in half a second; the product does eight in it.
    assert found[good]["flops_per_second"] == pytest.approx(8) and found[good]["of_peak"] == pytest.approx(0.5)


@pytest.mark.slow
def test_seeds_at_once_are_timed_in_one_program():
    case = cases.scaled(dataclasses.replace(cases.CASES["digits"], model="digits_mlp", total=4), "2x2x5")
    request = {"case": dataclasses.asdict(case), "strategy": "vmapped", "seeds": 2}
    run, facts = accelerated_peer.prepare_seeds(request)
    assert run(2) > 0 and run(accelerated_peer.ROUNDS + 1) > 0
    assert facts["traces"] == 1 and facts["rounds"] == accelerated_peer.ROUNDS + 3 and facts["dispatches"] == 3
    model = models.build(case.model, case.shape, case.classes)
    assert facts["parameters"] == sum(p.size for p in jax.tree.leaves(model.init(jax.random.key(0)).params))


def test_products_are_counted_in_loops_branches_and_gradients():
    a = jax.numpy.zeros((3, 4))
    loop = lambda a: jax.lax.scan(lambda c, _: (c @ a.T @ a, None), a, length=5)[0]
    assert accelerated_peer.flops(loop, a) == 5 * 2 * (3 * 4 * 3 + 3 * 3 * 4)
    branches = lambda a: jax.lax.cond(a[0, 0] > 0, lambda a: a @ a.T @ a, lambda a: a, a)
    assert accelerated_peer.flops(branches, a) == 2 * (3 * 4 * 3 + 3 * 3 * 4)
    # A step of an LSTM of 8 + 100 and 200 inputs per unit over 80 characters, and twice as much for its gradient.
    case = dataclasses.asdict(cases.scaled(cases.CASES["leaf_lstm"], "1x1x2"))
    layers = 80 * 2 * 400 * (108 + 200) + 2 * 100 * 80
    assert accelerated_peer.round_flops({"case": case}) == 2 * 3 * layers


def test_flags_of_the_other_suite_are_one_line(tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    (tmp_path / "afile").touch()
    suite = "--suite=accelerator"
    refused(tmp_path, "minutes belongs to --suite=accelerator", "bench", "--minutes=3")
    refused(tmp_path, "studies belongs to --suite=peers", "bench", suite, "--studies=windows")
    refused(tmp_path, "cases=mlp | lenet5, resnet20", "bench", suite, "--cases=mlp")
    refused(tmp_path, "minutes=0 | (0, ", "bench", suite, "--minutes=0")
    refused(tmp_path, "out_dir=afile | --out_dir", "bench", suite, "--out_dir=afile")
    refused(tmp_path, "data_dir=gone | no folder", "bench", suite, "--data_dir=gone")


def test_without_an_accelerator_it_says_how_to_try_it(tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    monkeypatch.setattr(team.Team, "about", lambda self, names: {"fedwin": ABOUT})
    refused(tmp_path, "no accelerator | --quick", "bench", "--suite=accelerator")


ABOUT = {"version": "fedwin 1", "backend": "cpu", "device": "cpu", "devices": 1, "memory_bytes": None, "runtime": "cpu"}


@pytest.mark.slow
def test_the_whole_suite_tiny_on_a_cpu(tmp_path):
    path = tmp_path / "figures.json"
    # Unoptimised programs compile in half the time, and this is not about speed.
    flags = "--xla_backend_optimization_level=0 --xla_llvm_disable_expensive_passes=true"
    command = [sys.executable, "-m", "experiments.bench", "--suite=accelerator", "--quick", "--cases=leaf_lstm"]
    command += [f"--out_dir={tmp_path}/out", f"--json={path}", "--peers=fedjax"]
    for _ in range(2):
        ended = subprocess.run(command, capture_output=True, text=True, env=os.environ | {"XLA_FLAGS": flags})
        assert ended.returncode == 0, ended.stderr[-2000:]
    assert "0 piece(s) measured in this call" in ended.stderr  # the second call finds all of it
    found = json.loads(path.read_text())
    assert len(found["pieces"]) == 10 and not [piece for piece in found["pieces"] if "failed" in piece]
    assert {piece["traces"] for piece in found["pieces"]} == {1, None}
    assert {piece["compiled_later"] for piece in found["pieces"]} == {0, None}
    assert [run["rounds"] for run in found["training"]] == [8, 8]
    text = (tmp_path / "out" / "table.md").read_text()
    assert "trial" in text and "leaf_lstm" in text and "fedhbm" in text
