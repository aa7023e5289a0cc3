"""Dirichlet label skew with clients of equal size."""

import math
import warnings
from typing import Literal

import numpy as np

from fedwin.data.dataset import PARTITIONS, Dataset, Partition
from fedwin.data.partitions import fill
from fedwin.data.partitions.pack import check_counts, labels_of, with_classes
from fedwin.data.rng import generator
from fedwin.errors import UserError
from fedwin.registry.ranges import LARGEST, PositiveInt


@PARTITIONS.register("dirichlet", paper="hsu2019measuring")
def dirichlet(
    dataset: Dataset,
    num_clients: int,
    seed: int,
    *,
    alpha: float,
    prior: Literal["empirical", "symmetric"] = "empirical",
    order: Literal["sequential", "rotate"] = "sequential",
    per_client: PositiveInt | None = None,
    bins: PositiveInt | None = None,
) -> Partition:
    """Gives each client n examples, drawn without replacement by class shares q_k ~ Dirichlet(a).

        prior=empirical:  a = alpha p,  p_c = N_c / N        total concentration alpha
        prior=symmetric:  a = alpha 1                        total concentration alpha C

    alpha = 0 gives every client one class; alpha = inf gives q_k = p. The report has 'fallbacks' and, if sequential,
    'visit' [K], the order in which clients were filled.

    Args:
      alpha: concentration, >= 0 or inf.
      prior: 'empirical' or 'symmetric'.
      order: 'sequential' fills one client after another in random order, as in the published splits, so the last
        clients get the rest; 'rotate' gives every client one example at a time.
      per_client: number of examples per client n; floor(N / K) by default.

    Source: Hsu et al. 2019, https://arxiv.org/abs/1909.06335.

    Example:
      >>> from fedwin import data, testing
      >>> dataset = testing.federations.dataset(12)
      >>> data.make_partition(dataset, "dirichlet:alpha=0.5", 4, seed=0).sizes.tolist()
      [3, 3, 3, 3]
    """
    check_alpha("dirichlet", alpha, zero=True)
    dataset = with_classes(dataset, "dirichlet", bins)
    labels = labels_of(dataset, "dirichlet")
    size = per_client or max(len(labels) // num_clients, 1)
    check_counts("dirichlet", len(labels), num_clients, size)
    rng = generator(seed, "dirichlet")
    if alpha == 0:
        return one_class(labels, num_clients, size, rng)

    sizes = np.bincount(labels, minlength=dataset.num_classes)
    share = sizes / sizes.sum()
    if alpha == math.inf:
        q = np.tile(share, (num_clients, 1))
    else:
        q = draw_dirichlet(
            alpha * share if prior == "empirical" else np.full(len(sizes), float(alpha)), num_clients, rng
        )
    pools = fill.Pools(labels, len(sizes), rng)
    if order == "rotate":
        lists, fallbacks = fill.rotating(pools, q, size, rng)
        return Partition.from_lists(lists, report={"fallbacks": fallbacks})
    visit = rng.permutation(num_clients)
    lists, fallbacks = fill.sequential(pools, lambda k, is_open: q[k] * is_open, visit, size, rng)
    return Partition.from_lists(lists, report={"fallbacks": fallbacks, "visit": visit})


def one_class(labels: np.ndarray, num_clients: int, size: int, rng) -> Partition:
    """Assigns runs of `size` examples of one class to the clients, in random order: the limit alpha = 0.

    If the class sizes are not multiples of `size`, runs may hold several classes; a warning reports how many do.
    """
    shuffled = rng.permutation(len(labels))
    sorted_rows = shuffled[np.argsort(labels[shuffled], kind="stable")]
    divides = (np.bincount(labels) % size == 0).all()
    # Clients that hold all examples leave the end of the list out; smaller ones are from the whole of it.
    usual = not divides and size == len(labels) // num_clients
    runs = sorted_rows[: (num_clients if usual else len(labels) // size) * size].reshape(-1, size)
    assigned = runs[rng.permutation(len(runs))[:num_clients]]
    several = int((labels[assigned[:, 0]] != labels[assigned[:, -1]]).sum())
    warning = f"classes are not multiples of {size} examples; clients with several classes: {several}"
    if several:
        warnings.warn(f"partition 'dirichlet:alpha=0': {warning}.", stacklevel=3)
    return Partition.from_lists(assigned, report={"warning": warning} if several else {})


def draw_dirichlet(concentration: np.ndarray, count: int, rng: np.random.Generator) -> np.ndarray:
    """Draws rows q ~ Dirichlet(a) [count, C] without NaN, however small the concentration a [C].

    In log space: log G(a) = log G(a + 1) + log(U) / a, then a softmax. The division by a is done in two steps, by a /
    sum(a) and by sum(a), and the largest entry is shifted to 0 between them, so that nothing overflows before it is
    compared.
    """
    a = np.asarray(concentration, np.float64)
    total = a.sum()
    with np.errstate(divide="ignore"):
        waiting = rng.standard_exponential((count, len(a))) / (a / total)
    boost = np.log(rng.standard_gamma(a + 1, (count, len(a))))
    with np.errstate(over="ignore", invalid="ignore"):
        logits = boost - (waiting - waiting.min(1, keepdims=True)) / total
    q = np.exp(logits - logits.max(1, keepdims=True))
    return q / q.sum(1, keepdims=True)


def check_alpha(partition: str, alpha, *, zero: bool) -> None:
    """Raises UserError unless a Dirichlet concentration is a number > 0, or >= 0 with `zero`; inf is allowed."""
    number = isinstance(alpha, (int, float)) and not isinstance(alpha, bool) and not math.isnan(alpha)
    if not number or alpha < 0 or (alpha == 0 and not zero) or LARGEST < alpha < math.inf:
        raise UserError(f"partition '{partition}': alpha={alpha}; give a number {'>=' if zero else '>'} 0, or inf.")
