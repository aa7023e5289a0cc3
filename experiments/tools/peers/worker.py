"""Worker processes of the benchmark, which answer JSON requests on a pipe.

The parent prepares named tasks in a child and then requests rounds of them, so that the tasks of several children
alternate on one machine; imports and compilation are not part of a round.
"""

import contextlib
import json
import os
import subprocess
import sys
import tempfile
import time
import traceback
from collections.abc import Callable


class PeerFailed(RuntimeError):
    """A child ended or reported an error; the text contains the reason."""


class Worker:
    """A child process that answers requests.

    Args:
      command: what to start; its module calls `serve`.
      environment: variables set on top of the parent's.
    """

    def __init__(self, command: list[str], environment: dict[str, str] | None = None):
        self._errors = tempfile.TemporaryFile("w+")
        self._process = subprocess.Popen(
            command, stdin=subprocess.PIPE, stdout=subprocess.PIPE, stderr=self._errors, text=True,
            env=os.environ | (environment or {}),
        )  # fmt: skip
        assert self._process.stdin is not None and self._process.stdout is not None
        self._questions, self._answers = self._process.stdin, self._process.stdout

    def ask(self, **request) -> dict:
        """Sends a request and waits for its answer; raises PeerFailed."""
        try:
            self._questions.write(json.dumps(request) + "\n")
            self._questions.flush()
        except BrokenPipeError:
            pass
        line = self._answers.readline()
        if not line:
            raise PeerFailed(self._last_words())
        answer = json.loads(line)
        if "error" in answer:
            raise PeerFailed(answer["error"])
        return answer

    def _last_words(self) -> str:
        self._process.wait()
        self._errors.seek(0)
        lines = [line for line in self._errors.read().splitlines() if line.strip()]
        return lines[-1] if lines else f"ended with status {self._process.returncode}"

    def close(self) -> None:
        """Ends the child."""
        with contextlib.suppress(BrokenPipeError):  # the process has ended without reading the last request
            self._questions.close()
        try:
            self._process.wait(timeout=10)
        except subprocess.TimeoutExpired:
            self._process.kill()
            self._process.wait()
        self._answers.close()
        self._errors.close()


def serve(prepare: Callable[[dict], tuple[Callable[[int], float], dict]], about: dict) -> None:
    """Answers requests on stdin until it closes.

    {"task": name, "prepare": {...}}  calls prepare({...}) -> (run, facts) and answers facts
    {"task": name, "rounds": n}       answers {"seconds": run(n), "cpu": of the processor, all threads}
    {"facts": name}                   answers its facts as they are now
    {"drop": name}                    forgets a task
    {}                                answers `about`

    Args:
      prepare: request -> (run, facts).
      about: description of the worker.
    """
    answers = os.fdopen(os.dup(sys.stdout.fileno()), "w")
    os.dup2(sys.stderr.fileno(), sys.stdout.fileno())  # output of libraries must not mix with the answers
    tasks: dict[str, tuple[Callable[[int], float], dict]] = {}
    for line in sys.stdin:
        request = json.loads(line)
        try:
            answer = about
            if "prepare" in request:
                tasks[request["task"]] = prepare(request["prepare"])
                answer = tasks[request["task"]][1]
            elif "rounds" in request:
                spent = time.process_time()
                answer = {"seconds": tasks[request["task"]][0](request["rounds"])}
                answer["cpu"] = time.process_time() - spent
            elif "facts" in request:
                answer = tasks[request["facts"]][1]
            elif "drop" in request:
                answer = {"dropped": tasks.pop(request["drop"], None) is not None}
        except Exception as error:  # the parent reports it and continues without this task
            traceback.print_exc()
            answer = {"error": f"{type(error).__name__}: {error}".splitlines()[0]}
        answers.write(json.dumps(answer) + "\n")
        answers.flush()
