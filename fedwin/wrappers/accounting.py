"""Privacy accounting: epsilon of a run after a number of rounds, computed by the accountants of dp-accounting.

A round is one Gaussian mechanism on a random cohort. Two accountants compose the rounds: Renyi differential privacy (an
upper bound, in microseconds per evaluation) and privacy loss distributions (never above it, usually tight, for Poisson
cohorts only).

Mironov et al., Renyi Differential Privacy of the Sampled Gaussian Mechanism, 2019, https://arxiv.org/abs/1908.10530.
Wang et al., Subsampled Renyi Differential Privacy and Analytical Moments Accountant, 2019,
https://arxiv.org/abs/1808.00087. Doroshenko et al., Connect the Dots: Tighter Discrete Approximations of Privacy Loss
Distributions, 2022, https://arxiv.org/abs/2207.04380.
"""

import dataclasses
import functools
import logging
import math
import types
from typing import Any, Literal, NamedTuple, get_args

import numpy as np

from fedwin.errors import require

Accountant = Literal["rdp", "pld"]
Neighbors = Literal["add_remove", "replace_one"]


def _package() -> types.ModuleType:
    """Returns dp_accounting, with its accountants."""
    require("dp: epsilon", "dp-accounting", "dp", "dp_accounting")
    import dp_accounting
    from dp_accounting import pld, rdp

    assert pld and rdp
    return dp_accounting


class Mechanism(NamedTuple):
    """One round: noise on the sum of a random cohort. Attributes are as in Privacy."""

    noise_multiplier: float
    neighbors: str
    num_clients: int
    cohort: float

    @property
    def rate(self) -> float:
        """Probability with which a client takes part."""
        return self.cohort / self.num_clients


@dataclasses.dataclass(frozen=True)
class Privacy:
    """The guarantee of a run: client-level (epsilon, delta) differential privacy of its server models.

    Attributes:
      noise_multiplier: standard deviation of the noise, divided by the norm that a client's step is clipped to.
      neighbors: federations that are compared: 'add_remove' one client, or 'replace_one' by another.
      num_clients: K.
      cohort: expected number of clients of a cohort if each takes part independently of the others ('add_remove'), or
        the fixed number that is drawn without replacement ('replace_one').
      delta: the probability delta.
      accountant: the one whose epsilon is reported with every evaluation, 'rdp' or 'pld'.
      before: rounds of another run that the account starts with.
      since: the first round of the run: 0, or that of a fork.
      alone: why the rounds of the run that it starts from, or its initial model, are not counted; '' if they are.
      seeds: the seeds that drew the cohorts and noise of all rounds.
    """

    noise_multiplier: float
    neighbors: str
    num_clients: int
    cohort: float
    delta: float
    accountant: str = "rdp"
    before: tuple[tuple[Mechanism, int], ...] = ()
    since: int = 0
    alone: str = ""
    seeds: tuple[int, ...] = ()

    @property
    def mechanism(self) -> Mechanism:
        """One round of the run."""
        return Mechanism(self.noise_multiplier, self.neighbors, self.num_clients, self.cohort)

    def spent(self, rounds: int) -> tuple[tuple[Mechanism, int], ...]:
        """Returns the mechanisms applied in a number of rounds, and how often each was applied."""
        counts: dict[Mechanism, int] = {}
        for mechanism, count in (*self.before, (self.mechanism, rounds - self.since)):
            counts[mechanism] = counts.get(mechanism, 0) + count
        return tuple((mechanism, count) for mechanism, count in counts.items() if count)

    def check(self) -> None:
        """Raises UserError if the package that computes epsilon is not installed."""
        _package()

    def epsilon(self, rounds: int) -> float:
        """Returns epsilon after a number of rounds, by the chosen accountant."""
        return _epsilon(self.spent(rounds), self.delta, self.accountant)

    def describe(self, rounds: int) -> str:
        """Returns the guarantee after a number of rounds, in words."""
        change = "adding or removing a client" if self.neighbors == "add_remove" else "replacing a client"
        earlier = sum(count for _, count in self.spent(rounds)) - rounds
        after = f"{rounds} rounds" + (f" and {earlier} of the run that it starts from" if earlier else "")
        note = f"; epsilon counts this run alone: {self.alone}" if self.alone else ""
        return f"epsilon {self.epsilon(rounds):.3g} at delta {self.delta:g} after {after}, for {change}{note}"

    def report(self, rounds: int) -> dict[str, object]:
        """Returns the guarantee after a number of rounds, for the summary of a run."""
        spent = self.spent(rounds)
        # Privacy loss distributions need Poisson cohorts.
        known = [name for name in get_args(Accountant) if name == "rdp" or self.neighbors == "add_remove"]
        parts = [{**mechanism._asdict(), "rounds": count} for mechanism, count in spent]
        return {
            "epsilon": {name: _epsilon(spent, self.delta, name) for name in known},
            "delta": self.delta,
            "rounds": sum(count for _, count in spent),
            **({"parts": parts} if len(parts) > 1 else {}),
            **({"counts_this_run_alone": self.alone} if self.alone else {}),
            "neighbors": self.neighbors,
            "noise_multiplier": self.noise_multiplier,
            "rate": self.mechanism.rate,
            "covers": "the server model of every round of one seed, and what is computed from them alone",
            "not_covered": "train_loss, cohort sizes, evaluations on clients' examples and early stops by them, client "
            "states in checkpoints",
        }


def restored(record: dict[str, Any]) -> Privacy:
    """Returns a guarantee from its fields as JSON data."""
    before = tuple((Mechanism(*mechanism), rounds) for mechanism, rounds in record["before"])
    return Privacy(**record | {"before": before, "seeds": tuple(record["seeds"])})


def _relation(mechanism: Mechanism):
    relations = _package().NeighboringRelation
    return relations.ADD_OR_REMOVE_ONE if mechanism.neighbors == "add_remove" else relations.REPLACE_ONE


def _event(mechanism: Mechanism):
    """Returns one round as an event of dp_accounting."""
    package = _package()
    if mechanism.neighbors == "replace_one":
        # One clipped step in place of another changes the sum by up to twice the norm.
        noise = package.GaussianDpEvent(mechanism.noise_multiplier / 2)
        return package.SampledWithoutReplacementDpEvent(mechanism.num_clients, round(mechanism.cohort), noise)
    noise = package.GaussianDpEvent(mechanism.noise_multiplier)
    return noise if mechanism.rate == 1 else package.PoissonSampledDpEvent(mechanism.rate, noise)


@functools.cache
def _one_round(mechanism: Mechanism):
    """Returns (orders, Renyi divergence of one round at each of them)."""
    accountant = _package().rdp.RdpAccountant(neighboring_relation=_relation(mechanism))
    # It warns about orders at which its series does not converge; leaving these out keeps epsilon an upper bound.
    logger = logging.getLogger("absl")
    level = logger.level
    logger.setLevel(logging.ERROR)
    try:
        accountant.compose(_event(mechanism))
    finally:
        logger.setLevel(level)
    return accountant.orders, accountant.rdp


@functools.cache
def _epsilon(spent: tuple[tuple[Mechanism, int], ...], delta: float, accountant: str) -> float:
    """Returns the epsilon of mechanisms, each applied a number of times."""
    if not spent:
        return 0.0
    if not all(mechanism.noise_multiplier for mechanism, _ in spent):
        return math.inf
    orders = _one_round(spent[0][0])[0]
    divergence = sum(rounds * _one_round(mechanism)[1] for mechanism, rounds in spent)
    bound = float(_package().rdp.rdp_privacy_accountant.compute_epsilon(orders, divergence, delta)[0])
    if accountant == "rdp" or bound > 1e6:
        return bound
    # Time and memory grow with the number of losses: those of a large epsilon are on a coarser grid, rounded up.
    relation, interval = _relation(spent[0][0]), 1e-4 * max(1.0, bound / 10)
    composition = _package().pld.PLDAccountant(relation, value_discretization_interval=interval)
    for mechanism, rounds in spent:
        composition.compose(_event(mechanism), rounds)
    # Infinite, after an overflow, or too large where it is beyond the precision or the grid.
    with np.errstate(over="ignore"):
        return min(bound, float(composition.get_epsilon(delta)))
