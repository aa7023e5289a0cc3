"""Local work: the share of a round's local steps that each client takes, for clients of unequal speed.

    J_i = max(1, ceil(w_i J))            w_i in [0, 1]: the work of client i in this round

The work is drawn on the host as a function of (seed, round, client) alone. It is the same for every method and every
number of clients, so comparisons are paired and a resumed run needs no state.
"""

import csv
from collections.abc import Callable

import numpy as np

from fedwin.errors import UserError
from fedwin.files import read_bytes
from fedwin.local.batches import exact_share
from fedwin.registry import Registry
from fedwin.registry.ranges import Share

# Builders have the signature builder(*, option=...) -> LocalWork.
LOCAL_WORK = Registry("local work", builds=Callable)

# (seed, round, ids int [n]) -> w_i in [0, 1], float [n].
LocalWork = Callable[[int, int, np.ndarray], np.ndarray]

_OF_ROUND, _OF_RUN = 0x10CA1, 0x10CA2


def draws(ids: np.ndarray, *numbers: int) -> np.ndarray:
    """Draws a uniform number for each client; it depends on `numbers` and the client alone.

    Args:
      ids: ids of the clients, int [n], >= 0.
      *numbers: integers >= 0, such as seed, tag and round.

    Returns:
      In [0, 1), float [n].

    Example:
      >>> draws(np.array([5, 2]), 0, 1).round(3).tolist() == draws(np.arange(6), 0, 1)[[5, 2]].round(3).tolist()
      True
    """
    generator = np.random.Generator(np.random.PCG64(np.random.SeedSequence(numbers)))
    return generator.random(int(ids.max(initial=-1)) + 1)[ids]


@LOCAL_WORK.register("uniform", paper="wang2020tackling")
def uniform(*, low: Share = 0.2, high: Share = 1.0, constant: bool = False) -> LocalWork:
    """Uniform: w_i from [low, high], drawn in every round.

    With five local epochs, low=0.4 is FedNova's setting of two to five epochs per client and round.

    Args:
      low: smallest work, at most `high`.
      high: largest work.
      constant: draw each client's work once per run, for devices that are always equally slow.

    Source: Wang et al., Tackling the Objective Inconsistency Problem in Heterogeneous Federated Optimization, 2020,
    https://arxiv.org/abs/2007.07481.

    Example:
      >>> uniform(low=0.5, high=0.5)(0, 0, np.array([3, 1])).tolist()
      [0.5, 0.5]
    """
    _check("uniform", low, high)

    def work(seed: int, round: int, ids: np.ndarray) -> np.ndarray:
        return low + (high - low) * (draws(ids, seed, _OF_RUN) if constant else draws(ids, seed, _OF_ROUND, round))

    return work


@LOCAL_WORK.register("stragglers", paper="li2020federated")
def stragglers(*, share: Share = 0.5, low: Share = 0.0, high: Share = 1.0) -> LocalWork:
    """Stragglers: w_i from [low, high] for a share of the clients, 1 for the others, drawn in every round.

    FedProx's setting: a straggler takes a uniform number of its local steps, at least one. A client is a straggler with
    this probability, independently of the others in its cohort.

    Args:
      share: probability that a client is a straggler.
      low: smallest work of a straggler, at most `high`.
      high: largest work of a straggler.

    Source: Li et al., Federated Optimization in Heterogeneous Networks, 2020, https://arxiv.org/abs/1812.06127.

    Example:
      >>> work = stragglers(share=0.5, low=0.1, high=0.1)(0, 0, np.arange(1000))
      >>> sorted(set(work.tolist())), 450 < len(work[work < 1]) < 550
      ([0.1, 1.0], True)
    """
    _check("stragglers", low, high)

    def work(seed: int, round: int, ids: np.ndarray) -> np.ndarray:
        slow = draws(ids, seed, _OF_ROUND, round, 1) < share
        return np.where(slow, low + (high - low) * draws(ids, seed, _OF_ROUND, round), 1.0)

    return work


@LOCAL_WORK.register("file")
def file(*, path: str) -> LocalWork:
    """Work of each client from a CSV file, the same in every round; clients not in the file take all steps.

    Args:
      path: file with the header client,work and a line per client: its number, counted from 0, and w_i in [0, 1].

    Raises:
      UserError: the file cannot be read, or a line is not a client and a number in [0, 1].

    Example:
      >>> import tempfile
      >>> with tempfile.NamedTemporaryFile("w", suffix=".csv") as table:
      ...     print("client,work\\n2,0.25", file=table, flush=True)
      ...     file(path=table.name)(0, 0, np.array([2, 7])).tolist()
      [0.25, 1.0]
    """
    own = read_columns(path, "work")
    for client, (value,) in own.items():
        if not 0 <= value <= 1:
            raise UserError(f"local work 'file': {path} gives client {client} the work {value}; it must be in [0, 1].")

    def work(seed: int, round: int, ids: np.ndarray) -> np.ndarray:
        return np.array([own.get(int(client), (1.0,))[0] for client in ids], float)

    return work


def read_columns(path: str, *columns: str) -> dict[int, tuple[float, ...]]:
    """Reads numbers of clients from a CSV file with the header `client,<columns>`.

    Args:
      path: the file.
      *columns: names of the columns after `client`.

    Returns:
      client -> its numbers.

    Raises:
      UserError: the file cannot be read, has a different header, or a line is not a client and finite numbers.
    """
    head = ",".join(("client", *columns))
    try:
        lines = list(csv.reader(read_bytes(path).decode("utf-8-sig").splitlines()))
    except (OSError, UnicodeDecodeError, csv.Error) as error:
        reason = getattr(error, "strerror", None) or "it is not a CSV file"
        raise UserError(f"{path} can't be read ({reason}); name a CSV file with the header {head}.") from error
    if not lines or [name.strip() for name in lines[0]] != head.split(","):
        raise UserError(f"{path}: the first line must be {head}.")
    found: dict[int, tuple[float, ...]] = {}
    for number, line in enumerate(lines[1:], 2):
        try:
            client, values = int(line[0]), tuple(map(float, line[1:]))
            valid = client >= 0 and len(values) == len(columns) and np.isfinite(values).all() and client not in found
        except (ValueError, IndexError):
            valid = False
        if not valid:
            raise UserError(f"{path}, line {number}: '{','.join(line)}' must be {head}, each client once.")
        found[client] = values
    return found


def _check(owner: str, low: float, high: float) -> None:
    if low > high:
        raise UserError(f"{owner}: low={low} is above high={high}; exchange them.")


def work_of_cohort(work: LocalWork | None, seed: int, round: int, ids: np.ndarray) -> np.ndarray | None:
    """Returns the work of a round's clients in the form of Client.work, float32 [n]; None without local work.

    Args:
      work: the local work; None: all clients take all steps.
      round: 0-based.
      ids: the clients that take part, int [n].

    Raises:
      UserError: a user's function returns work outside [0, 1].
    """
    if work is None:
        return None
    shares = np.broadcast_to(np.asarray(work(seed, round, ids), np.float64), ids.shape)
    if not ((shares >= 0) & (shares <= 1)).all():
        raise UserError("local_work: its function returns a work outside of [0, 1]; return shares of the local steps.")
    return exact_share(shares)
