"""The pipe between a contestant and the timer. Standard library alone: contestants have environments of their own.

The timer writes {"case": {...}, ...} in one line, then the number of rounds of each turn, a line each. The contestant
answers with {"version": ...} when it is ready, and with {"seconds": ...} after each turn.
"""

import json
import os
import sys
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


def serve(version: str, prepare: Callable[[dict], Callable[[int], float]]) -> None:
    """Answers until standard input ends.

    Args:
      prepare: request -> function that trains n rounds and returns their seconds.
    """
    request, answer, turns = connect()
    run = prepare(request)
    answer(version=version)
    for rounds in turns:
        answer(seconds=run(rounds))
