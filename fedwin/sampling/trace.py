"""Traces: a file with the rounds in which each client is available."""

import csv
import functools
import hashlib
import io
import pathlib

import numpy as np

from fedwin.data.rng import generator
from fedwin.errors import UserError
from fedwin.registry.ranges import NonNegativeInt
from fedwin.sampling.base import SAMPLERS, Population, Sampler, check_clients_per_round

_TAG = 0xF11E
HEADER = ("client", "start", "end")


def read_trace(path: str, num_clients: int, most: int | None = None) -> tuple[np.ndarray, str]:
    """Reads a trace.

    Args:
      path: a CSV file with the header client,start,end.
      num_clients: K.
      most: largest valid `end`, or None.

    Returns:
      (intervals int64 [n, 3], hash of the file).

    Raises:
      UserError: the file can't be read, or a line is invalid; names the line.
    """
    try:
        content = pathlib.Path(path).expanduser().read_bytes()
        lines = list(csv.reader(io.StringIO(content.decode())))
    except (OSError, UnicodeDecodeError, csv.Error) as error:
        reason = getattr(error, "strerror", None) or "not a text file"
        raise UserError(f"sampling file: {path} can't be read ({reason}); check path=.") from error
    if not lines or tuple(field.strip() for field in lines[0]) != HEADER:
        raise UserError(f"sampling file: {path}, line 1: must be the header {','.join(HEADER)}.")
    intervals = [_interval(f"sampling file: {path}, line {n}", line, num_clients, most) for n, line in _rows(lines)]
    if not intervals:
        raise UserError(f"sampling file: {path} has no line after the header; add lines client,start,end.")
    found = np.array(intervals, np.int64)
    order = np.lexsort((found[:, 1], found[:, 0]))
    by_client = found[order]
    again = (by_client[1:, 0] == by_client[:-1, 0]) & (by_client[1:, 1] < by_client[:-1, 2])
    if again.any():
        numbers = [n for n, _ in _rows(lines)]
        first = int(np.argmax(again))
        one, other = sorted(numbers[order[place]] for place in (first, first + 1))
        raise UserError(
            f"sampling file: {path}, line {other} overlaps line {one}: client {by_client[first, 0]} is already "
            f"available; merge the lines."
        )
    return found, hashlib.blake2b(content, digest_size=8).hexdigest()


def _rows(lines: list[list[str]]) -> list[tuple[int, list[str]]]:
    return [(number, line) for number, line in enumerate(lines[1:], 2) if line]


def _interval(place: str, line: list[str], num_clients: int, most: int | None) -> tuple[int, int, int]:
    try:
        client, start, end = (int(field) for field in line)
    except ValueError:
        raise UserError(f"{place}: '{','.join(line)}' must be three integers, client,start,end.") from None
    if not 0 <= client < num_clients:
        raise UserError(f"{place}: there is no client {client}; the federation has clients 0..{num_clients - 1}.")
    if not 0 <= start < end:
        raise UserError(f"{place}: start={start}, end={end} must be 0 <= start < end, the first round without it.")
    if most is not None and end > most:
        raise UserError(f"{place}: end={end} is beyond period={most}; cut the line, or set a larger period.")
    return client, start, end


@SAMPLERS.register("file", size="|S|, or all that are available")
def file(population: Population, *, path: str, period: NonNegativeInt = 0, everyone: bool = False) -> Sampler:
    """A trace, a CSV file with the rounds of each client; a round draws |S| of those available, uniformly.

        client,start,end        client is available in the rounds start <= t < end (0-based), or t mod period
        7,0,12
        7,30,41

    A client may have any number of lines, and is never available without one. If fewer than |S| are, all of them take
    part. The file's hash is part of the run's fingerprint.

    Args:
      path: the CSV file, with the header client,start,end.
      period: rounds after which the trace repeats; 0: never, and it must cover the run.
      everyone: all available clients take part, whatever clients_per_round is.

    Raises:
      UserError: when the file can't be read, a line is invalid, or the trace ends before the run.

    Example:
      >>> import tempfile, pathlib
      >>> path = pathlib.Path(tempfile.mkdtemp()) / "trace.csv"
      >>> _ = path.write_text("client,start,end\\n0,0,2\\n1,1,3\\n2,1,2\\n")
      >>> population = Population(3, 2, 4, (0,), lambda seed: np.ones(3, int))
      >>> sampler = file(population, path=str(path), period=3, everyone=True)
      >>> [sorted(sampler.cohort(seed=0, round=round).ids.tolist()) for round in range(4)]
      [[0], [0, 1, 2], [1], [0]]
    """
    trace, digest = read_trace(path, population.num_clients, period or None)
    length, rounds = period or int(trace[:, 2].max()), population.num_rounds
    if length < rounds and not period:
        raise UserError(
            f"sampling file: {path} ends before round {length + 1} of {rounds}; set period={length} to repeat it, or a "
            f"smaller --num_rounds."
        )
    if not everyone:
        check_clients_per_round(population.clients_per_round, population.num_clients)
    most = population.num_clients if everyone else population.clients_per_round
    there = np.cumsum(np.bincount(trace[:, 1], minlength=length + 1) - np.bincount(trace[:, 2], minlength=length + 1))
    sizes = np.minimum(there[:length], most)[np.arange(rounds) % length]

    @functools.lru_cache(2)
    def present(time):
        return np.sort(trace[(trace[:, 1] <= time) & (time < trace[:, 2]), 0])

    def draw(seed, round):
        # Independent of the order of lines.
        return generator(seed, _TAG, round).permutation(present(round % length))[:most]

    smallest, largest = int(sizes.min()), max(int(sizes.max()), 1)
    return Sampler(draw, population.num_clients, largest, smallest, float(sizes.mean()), digest=digest)
