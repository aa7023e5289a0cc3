"""Dirichlet over labels with equal sizes, Hsu et al. 2019, https://arxiv.org/abs/1909.06335."""

import math
import warnings

import numpy as np

from fedwin.data.dataset import PARTITIONS, Dataset, Partition
from fedwin.data.partitions import fill
from fedwin.data.partitions.pack import check_counts, labels_of, pack
from fedwin.data.rng import generator
from fedwin.errors import UserError


def check_alpha(partition: str, alpha, *, zero: bool) -> None:
    """Checks a concentration.

    Args:
      partition: name of the partitioner, for error lines.
      alpha: the concentration.
      zero: whether it may be 0.

    Raises:
      UserError: it is not a number >= 0, or > 0.
    """
    number = isinstance(alpha, (int, float)) and not isinstance(alpha, bool) and not math.isnan(alpha)
    if not number or alpha < 0 or (alpha == 0 and not zero):
        raise UserError(f"partition '{partition}': alpha={alpha}; give a number {'>=' if zero else '>'} 0.")


def draw_dirichlet(concentration: np.ndarray, count: int, rng: np.random.Generator) -> np.ndarray:
    """Draws [count, C] rows q ~ Dirichlet(concentration), however small the concentration, without NaN.

    In log space: log G(a) = log G(a + 1) + log(U) / a, then softmax. The division by a is split into a relative part
    and the sum, and the largest entry is moved to 0 between the two, so that nothing overflows before it is compared.

    Args:
      concentration: a [C].
      count: rows.
      rng: draws them.
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


@PARTITIONS.register("dirichlet")
def dirichlet(
    dataset: Dataset,
    num_clients: int,
    seed: int,
    *,
    alpha: float,
    prior: str = "empirical",
    order: str = "sequential",
    per_client: int | None = None,
) -> Partition:
    """Draws class shares q_k ~ Dirichlet(a) and fills every client with n examples drawn by them without replacement.

    a = alpha p, p_c = N_c / N (`empirical`: the total concentration is alpha), or a = alpha 1 (`symmetric`: it is
    alpha C). alpha = 0 gives every client one class; alpha = inf gives q_k = p.

    Args:
      alpha: concentration, >= 0.
      prior: 'empirical' or 'symmetric'.
      order: 'sequential' fills one client after another in a random order, as in the published splits, so the last ones
        get what is left; 'rotate' gives one example at a time to every client.
      per_client: n; floor(N / K) by default.

    Returns:
      Partition whose report has 'visit' [K], the order in which clients were filled (sequential only).

    Raises:
      UserError: alpha < 0, unknown prior or order, too few examples.
    """
    check_alpha("dirichlet", alpha, zero=True)
    for key, value, known in (("prior", prior, ("empirical", "symmetric")), ("order", order, ("sequential", "rotate"))):
        if value not in known:
            raise UserError(f"partition 'dirichlet': {key}={value}; it is {' or '.join(known)}.")
    labels = labels_of(dataset, "dirichlet")
    size = len(labels) // max(num_clients or 1, 1) if per_client is None else per_client
    check_counts("dirichlet", len(labels), num_clients, size)
    rng = generator(seed, "dirichlet")
    if alpha == 0:
        return one_class(dataset, labels, num_clients, size, rng)

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
        return pack(dataset, lists, "dirichlet", fallbacks=fallbacks)
    visit = rng.permutation(num_clients)
    lists, fallbacks = fill.sequential(pools, lambda k, is_open: q[k] * is_open, visit, size, rng)
    return pack(dataset, lists, "dirichlet", fallbacks=fallbacks, visit=visit)


def one_class(dataset: Dataset, labels, num_clients: int, size: int, rng) -> Partition:
    """Deals runs of `size` examples of one class, in random order, one to each client: the limit alpha = 0.

    Where the class sizes are not multiples of `size`, the label-sorted list is cut instead and a run may hold two
    classes; a warning says so.

    Args:
      dataset: what is dealt.
      labels: of its training examples [N].
      num_clients: K.
      size: examples of each client.
      rng: draws the order.
    """
    shuffled = rng.permutation(len(labels))
    sorted_rows = shuffled[np.argsort(labels[shuffled], kind="stable")]
    sizes = np.bincount(labels, minlength=dataset.num_classes)
    warned = None
    if (sizes % size == 0).all():
        runs = sorted_rows.reshape(-1, size)
    else:
        runs = sorted_rows[: num_clients * size].reshape(-1, size)
        warned = f"classes are not multiples of {size} examples, so some clients hold two classes"
        warnings.warn(f"partition 'dirichlet:alpha=0': {warned}.", stacklevel=3)
    dealt = runs[rng.permutation(len(runs))[:num_clients]]
    return pack(dataset, dealt, "dirichlet", **({"warning": warned} if warned else {}))
