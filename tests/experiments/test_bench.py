"""The benchmark: its timer, its cases, and one short complete run."""

import json
import os
import subprocess
import sys

import numpy as np
import pytest

from experiments import bench
from experiments.tools import timer
from experiments.tools.peers import cases

TOY = """
import json, sys, time
request = json.loads(sys.stdin.readline())
if "missing" in request:
    import no_such_library
print(json.dumps({"version": "toy 1"}), flush=True)
for turn, line in enumerate(sys.stdin):
    if turn == request.get("dies"):
        raise MemoryError("on purpose")
    print(json.dumps({"seconds": request["seconds"] * int(line)}), flush=True)
"""


def toy(label, **request):
    return timer.Contestant(label, [sys.executable, "-c", TOY], {"seconds": 0.01} | request)


def test_contestants_take_turns_and_absent_ones_are_named():
    some = [toy("fedwin"), toy("slow", seconds=0.02), toy("absent", missing=1), toy("dying", dies=4)]
    lines = []
    timings, failed = timer.take_turns(some, timer.Effort(3, 0.05, 10), lines.append)
    assert list(timings) == ["fedwin", "slow"]
    assert "no_such_library" in failed["absent"] and "on purpose" in failed["dying"]
    summary = timings["slow"].summary(timings["fedwin"])
    assert summary["times_first"] == pytest.approx(2) and summary["ms_per_round"] == pytest.approx(20)
    assert summary["turns"] == 3 and summary["quartiles_ms"] == pytest.approx([20, 20])
    assert sum("turn " in line for line in lines) == 3


def test_all_contestants_get_the_same_work():
    generator = np.random.default_rng(0)
    for case in cases.CASES.values():
        rows = cases.batches(case, case.examples, generator)
        assert len(rows) == case.steps and all(len(each) == case.batch for each in rows)
        first = np.concatenate(rows)[: case.examples]
        assert len(set(first)) == len(first)  # a pass is a permutation
        whole = case.epochs * case.examples % case.batch == 0
        assert whole or not {"pfl", "flower"} & set(case.peers)
    small = cases.scaled(cases.CASES["lenet5"], "2x3x4")
    x, y = cases.examples(small)
    assert len(x) == 10 and x[0].shape == (12, 32, 32, 3) and y[0].shape == (12,)


def test_the_report_has_ratios_and_published_figures():
    common = {"case": "mnist_lr", "cohort": str(cases.CASES["mnist_lr"])}
    own = {"ms_per_round": 4.0, "quartiles_ms": [3.0, 5.0], "times_first": 1.0}
    records = [
        common | {"who": "fedwin"} | own,
        common | {"who": "fedjax"} | own | {"times_first": 1.5},
        common | {"who": "torch", "absent": "No module named 'torch'"},
    ]
    text = bench.report_text({"machine": "a toy", "load_before": [0.5], "records": records})
    assert "1.50 x" in text and "absent" in text and "0.4 s" in text and "FLUTE 1:26 min" in text


@pytest.mark.slow
def test_quick_run_against_fedjax(tmp_path):
    path = tmp_path / "bench.json"
    # Unoptimized programs compile in half the time, and this is not about speed.
    flags = "--xla_backend_optimization_level=0 --xla_llvm_disable_expensive_passes=true"
    command = [sys.executable, "-m", "experiments.bench", "--quick", "--cases=digits,mnist_lr,fedjax_apfl"]
    command += ["--peers=fedjax", "--methods=scaffold --window=host", f"--json={path}"]
    done = subprocess.run(command, capture_output=True, text=True, env=os.environ | {"XLA_FLAGS": flags})
    assert done.returncode == 0, done.stderr[-2000:]
    records = json.loads(path.read_text())["records"]
    assert [record["who"] for record in records] == ["fedwin", "fedwin scaffold --window=host", "fedjax"] * 3
    assert all(record["ms_per_round"] > 0 for record in records) and "fedwin is faster" in done.stdout
