"""Sampling of cohorts: the clients of each round, a function of (seed, round)."""

import numpy as np

from fedwin.errors import UserError

_TAG = 0xC0407


def cohort(seed: int, round: int, num_clients: int, clients_per_round: int) -> np.ndarray:
    """Returns the ids of one round's clients, int32 [C], uniform without replacement, in drawing order.

    A function of (seed, round) alone: the same for every method, so comparisons are paired, and a resumed run needs no
    sampler state.

    Args:
      seed: of the run.
      round: 0-based.
      num_clients: K.
      clients_per_round: C.
    """
    generator = np.random.Generator(np.random.PCG64(np.random.SeedSequence([seed, _TAG, round])))
    return generator.choice(num_clients, clients_per_round, replace=False).astype(np.int32)


def cohorts(seed: int, first: int, rounds: int, num_clients: int, clients_per_round: int) -> np.ndarray:
    """Returns the cohorts of several rounds, int32 [rounds, C].

    Args:
      seed: of the run.
      first: the first round, 0-based.
      rounds: number of rounds.
      num_clients: K.
      clients_per_round: C.
    """
    return np.stack([cohort(seed, first + r, num_clients, clients_per_round) for r in range(rounds)])


def check_cohort(ids: np.ndarray) -> None:
    """Checks that no round has a client twice.

    Args:
      ids: of the clients, int32 [R, C]; -1 is padding.

    Raises:
      UserError: naming the first duplicate client.
    """
    ordered = np.sort(ids, axis=-1)
    again = (ordered[:, 1:] == ordered[:, :-1]) & (ordered[:, 1:] >= 0)
    if again.any():
        round, position = np.argwhere(again)[0]
        client = ordered[round, position]
        raise UserError(f"cohort {round}: duplicate client {client}; a round draws without replacement.")


def check_clients_per_round(clients_per_round: int, num_clients: int) -> None:
    """Raises UserError unless 1 <= clients_per_round <= num_clients."""
    if clients_per_round < 1:
        raise UserError(f"clients_per_round={clients_per_round}: a round needs at least 1 client.")
    if clients_per_round > num_clients:
        raise UserError(
            f"clients_per_round={clients_per_round} is more than the federation's {num_clients} clients; "
            f"set --clients_per_round to at most {num_clients}."
        )
