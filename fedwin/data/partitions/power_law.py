"""Client sizes by a power law and few classes per client."""

from typing import Annotated

import numpy as np

from fedwin.data.dataset import PARTITIONS, Dataset, Partition
from fedwin.data.partitions.pack import assign_examples, check_counts, labels_of
from fedwin.data.rng import generator
from fedwin.errors import UserError
from fedwin.registry.ranges import PositiveInt, Range


@PARTITIONS.register("power_law", paper="li2020federated")
def power_law(
    dataset: Dataset,
    num_clients: int,
    seed: int,
    *,
    classes: PositiveInt = 2,
    least: PositiveInt = 5,
    sigma: Annotated[float, Range(0, 100)] = 2.0,  # exp(100 N(0, 1)) is still a float
) -> Partition:
    """Gives client k examples of the classes c = k, ..., k + s - 1 (mod C), in log-normal shares.

        z_kc ~ exp(sigma N(0, 1)),   n_kc = least + floor(z_kc / sum_j z_jc (N_c - least |holders of c|))

    MNIST with K = 1,000 and the default values is FedProx's and FedML's MNIST, except that those deal out all 70,000
    images and keep a tenth of each client's for its test.

    Args:
      classes: number of classes per client s, <= C.
      least: least number of examples that a client has of each of its classes.
      sigma: standard deviation of log z; 0 gives equal shares.

    Raises:
      UserError: s > C, or a class has too few examples for its holders.

    Source: FedProx, Li et al. 2020, https://arxiv.org/abs/1812.06127.

    Example:
      >>> from fedwin import data, testing
      >>> dataset = testing.federations.dataset(80)
      >>> (data.make_partition(dataset, "power_law", 6, seed=0).report["histogram"] >= 5).sum(1).tolist()
      [2, 2, 2, 2, 2, 2]
    """
    labels = labels_of(dataset, "power_law")
    num_classes = dataset.num_classes
    check_counts("power_law", len(labels), num_clients)
    if classes > num_classes:
        raise UserError(f"partition 'power_law': classes={classes}, but '{dataset.name}' has {num_classes}.")
    rng = generator(seed, "power_law")
    held = (np.arange(num_clients)[:, None] + np.arange(classes)) % num_classes
    shares = rng.lognormal(0.0, sigma, held.shape)
    by_class = [np.flatnonzero(labels == c) for c in range(num_classes)]
    counts = np.zeros((num_classes, num_clients), np.int64)
    for c, rows in enumerate(by_class):
        clients, slots = np.nonzero(held == c)
        spare = len(rows) - least * len(clients)
        if spare < 0:
            raise UserError(
                f"partition 'power_law': {len(clients)} clients need {least} examples of class {c} each, which has "
                f"{len(rows)}; use fewer clients, or a smaller least."
            )
        share = shares[clients, slots]
        counts[c, clients] = least + np.floor(share / share.sum() * spare)
    return Partition.from_lists(assign_examples(by_class, counts, rng))
