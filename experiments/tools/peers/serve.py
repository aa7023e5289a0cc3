"""The pipe between a contestant and the timer. Standard library alone: contestants have environments of their own.

The timer writes {"case": {...}, ...} in one line, then the number of rounds of each turn, a line each. The contestant
answers with {"version": ...} when it is ready, and with {"seconds": ..., "memory": ...} after each turn.
"""

import json
import os
import resource
import sys
import time
from collections.abc import Callable, Iterator


def connect() -> tuple[dict, Callable[..., None], Iterator[int]]:
    """Returns the request, a function that prints its arguments as one JSON line, and the rounds of each turn.

    Output of libraries goes to standard error, so that it does not mix with the answers.
    """
    answers = os.fdopen(os.dup(sys.stdout.fileno()), "w")
    os.dup2(sys.stderr.fileno(), sys.stdout.fileno())

    def answer(**fields):
        answers.write(json.dumps(fields) + "\n")
        answers.flush()

    return json.loads(sys.stdin.readline()), answer, map(int, sys.stdin)


def peak_memory() -> int:
    """Returns the most bytes that this process has used: of its accelerator's memory, or of the machine's (Linux)."""
    torch, jax = sys.modules.get("torch"), sys.modules.get("jax")
    if torch is not None and torch.cuda.is_initialized():
        return torch.cuda.max_memory_allocated()
    statistics = jax.local_devices()[0].memory_stats() if jax is not None else None
    return statistics["peak_bytes_in_use"] if statistics else 1024 * resource.getrusage(resource.RUSAGE_SELF).ru_maxrss


def serve(version: str, prepare: Callable[[dict], Callable[[int], float | None]]) -> None:
    """Answers until standard input ends.

    Args:
      prepare: request -> function that trains n rounds and returns their seconds; None: those of the call.
    """
    request, answer, turns = connect()
    run = prepare(request)
    answer(version=version)
    for rounds in turns:
        started = time.perf_counter()
        seconds = run(rounds)
        ended = time.perf_counter()
        answer(seconds=ended - started if seconds is None else seconds, memory=peak_memory())
