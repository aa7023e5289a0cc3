"""Random runs, disturbed at random moments: they end as undisturbed ones do."""

import random
import signal

import pytest

from tests.runs.disturbance import assert_same_outcome, hears, started, wait_until
from tests.small_runs import lines

ROUNDS = 120
# Kind of disturbance -> exit status, unless the run ends before.
SIGNALS = {signal.SIGKILL: -9, signal.SIGTERM: 143, signal.SIGINT: 130}


def drawn_flags(rng):
    """Flags of a run without its directory."""
    return [
        "--dataset=digits", "--num_clients=20", "--clients_per_round=3", "--batch_size=16", f"--num_rounds={ROUNDS}",
        f"--algorithm={rng.choice(('fedavg', 'scaffold', 'fedhbm', 'ghb:tau=5', 'feddyn:alpha=0.1', 'diloco'))}",
        f"--partition=dirichlet:alpha={rng.choice((0, 0.3))}",
        f"--observe={rng.choice(('wima:window=5', 'ema:decay=0.9', 'swa:start=0.5,cycle=2'))}",
        f"--model=digits_mlp:hidden={rng.choice((4, 8))}",
        f"--strategy={rng.choice(('default', 'vmapped', 'chunked:k=2', 'sharded:devices=2,k=1'))}",
        f"--examples={rng.choice(('device', 'stream'))}", f"--table={rng.choice(('device', 'host', 'file'))}",
        f"--window={rng.choice(('device', 'host', 'file'))}", f"--seeds={rng.choice(('0', '0,1'))}",
        f"--eval_every={rng.randint(1, 8)}", f"--final_evals={rng.randint(1, 20)}",
        f"--checkpoint_every={rng.choice((0, 6, 15, 30))}", f"--keep_checkpoints={rng.choice((1, 3))}",
        f"--rounds_per_dispatch={rng.randint(3, 12)}",
    ]  # fmt: skip


def ended(process):
    """Returns the status of a process; any error is one line."""
    said = process.communicate(timeout=300)[1]
    errors = [line for line in said.splitlines() if line.startswith("error:")]
    assert "Traceback" not in said and len(errors) == (process.returncode in (1, 2)), said
    return process.returncode


def signaled(flags, directory, evaluations, rng):
    """Sends a signal after a random number of evaluations."""
    process, wanted = started(flags, directory), rng.randint(1, evaluations)
    path = directory / "metrics.jsonl"
    written = lambda: path.exists() and path.read_bytes().count(b"\n") >= wanted
    wait_until(lambda: process.poll() is not None or (hears(process) and written()))
    number = rng.choice(list(SIGNALS))
    if process.poll() is None:
        process.send_signal(number)
    assert ended(process) in (0, SIGNALS[number])


@pytest.mark.slow
def test_disturbed_runs_end_as_undisturbed_ones(tmp_path):
    seed = random.randrange(10**6)
    print(f"seed {seed}")
    rng = random.Random(seed)
    for number in range(4):
        flags = drawn_flags(rng)
        print(*flags)
        whole = tmp_path / f"{number}"
        assert ended(started(flags, whole)) == 0
        directory = tmp_path / f"{number} disturbed"
        for _ in range(3):
            signaled(flags, directory, len(lines(whole)), rng)
        assert ended(started(flags, directory)) == 0
        assert_same_outcome(directory, whole)
