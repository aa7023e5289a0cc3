"""Privacy accounting: epsilon of a run after a number of rounds, by the accountants of dp-accounting.

A round is one Gaussian mechanism on a random cohort. Two accountants compose the rounds: Renyi differential privacy (an
upper bound, in microseconds per evaluation) and privacy loss distributions (tight, for Poisson cohorts only).

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
from typing import Literal, get_args

from fedwin.errors import UserError

Accountant = Literal["rdp", "pld"]
Neighbors = Literal["add_remove", "replace_one"]


@functools.cache
def _package() -> types.ModuleType:
    """Returns dp_accounting, with its accountants."""
    try:
        import dp_accounting
        from dp_accounting import pld, rdp
    except ImportError as error:
        raise UserError(
            "dp: epsilon is computed by the package dp-accounting, which is not installed; pip install 'fedwin[dp]'."
        ) from error
    assert pld and rdp
    return dp_accounting


@dataclasses.dataclass(frozen=True)
class Privacy:
    """The guarantee of a run: client-level (epsilon, delta) differential privacy of its server models.

    Attributes:
      noise_multiplier: standard deviation of the noise over the norm that a client's step is clipped to.
      neighbors: federations that are compared: 'add_remove' one client, or 'replace_one' by another.
      num_clients: K.
      cohort: expected number of clients of a cohort if each takes part independently of the others ('add_remove'), or
        the fixed number that is drawn without replacement ('replace_one').
      delta: the probability delta.
      accountant: whose epsilon is reported with every evaluation, 'rdp' or 'pld'.
    """

    noise_multiplier: float
    neighbors: str
    num_clients: int
    cohort: float
    delta: float
    accountant: str = "rdp"

    @property
    def rate(self) -> float:
        """Probability with which a client takes part in a round."""
        return self.cohort / self.num_clients

    def check(self) -> None:
        """Raises UserError if the package that computes epsilon is not installed."""
        _package()

    def epsilon(self, rounds: int) -> float:
        """Returns epsilon after a number of rounds, by the accountant that was chosen."""
        return _epsilon(self, self.accountant, rounds)

    def describe(self, rounds: int) -> str:
        """Returns the guarantee after a number of rounds, in words."""
        change = "adding or removing a client" if self.neighbors == "add_remove" else "replacing a client"
        return f"epsilon {self.epsilon(rounds):.3g} at delta {self.delta:g} after {rounds} rounds, for {change}"

    def report(self, rounds: int) -> dict[str, object]:
        """Returns the guarantee after a number of rounds, for the summary of a run."""
        by_accountant = {name: _epsilon(self, name, rounds) for name in get_args(Accountant) if _computes(self, name)}
        return {
            "epsilon": by_accountant,
            "delta": self.delta,
            "rounds": rounds,
            "neighbors": self.neighbors,
            "noise_multiplier": self.noise_multiplier,
            "rate": self.rate,
            "covers": "the server model of every round of one seed, and what is computed from them alone",
            "not_covered": "train_loss, cohort sizes, evaluations on clients' examples and early stops by them, client "
            "states in checkpoints",
        }


def _computes(privacy: Privacy, accountant: str) -> bool:
    """Whether an accountant knows the mechanism: privacy loss distributions need Poisson cohorts."""
    return accountant == "rdp" or privacy.neighbors == "add_remove"


def _relation(privacy: Privacy):
    relations = _package().NeighboringRelation
    return relations.ADD_OR_REMOVE_ONE if privacy.neighbors == "add_remove" else relations.REPLACE_ONE


def _event(privacy: Privacy):
    """Returns one round as an event of dp_accounting."""
    package = _package()
    if privacy.neighbors == "replace_one":
        # One clipped step in place of another changes the sum by up to twice the norm.
        noise = package.GaussianDpEvent(privacy.noise_multiplier / 2)
        return package.SampledWithoutReplacementDpEvent(privacy.num_clients, round(privacy.cohort), noise)
    noise = package.GaussianDpEvent(privacy.noise_multiplier)
    return noise if privacy.rate == 1 else package.PoissonSampledDpEvent(privacy.rate, noise)


@functools.cache
def _one_round(privacy: Privacy):
    """Returns (orders, Renyi divergence of one round at each of them)."""
    accountant = _package().rdp.RdpAccountant(neighboring_relation=_relation(privacy))
    # It warns of orders at which its series does not converge; leaving these out keeps epsilon an upper bound.
    logger = logging.getLogger("absl")
    level = logger.level
    logger.setLevel(logging.ERROR)
    try:
        accountant.compose(_event(privacy))
    finally:
        logger.setLevel(level)
    return accountant.orders, accountant.rdp


@functools.cache
def _epsilon(privacy: Privacy, accountant: str, rounds: int) -> float:
    if not rounds:
        return 0.0
    if not privacy.noise_multiplier:
        return math.inf
    if accountant == "rdp":
        orders, divergence = _one_round(privacy)
        composed = _package().rdp.rdp_privacy_accountant.compute_epsilon(orders, rounds * divergence, privacy.delta)
        return float(composed[0])
    composition = _package().pld.PLDAccountant(_relation(privacy))
    composition.compose(_event(privacy), rounds)
    return float(composition.get_epsilon(privacy.delta))
