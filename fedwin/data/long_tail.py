"""Long tails: a data set whose classes differ in size by a factor, before it is split over clients (--imbalance)."""

import dataclasses
import warnings

import numpy as np

from fedwin.data.dataset import Dataset, Partition, floor_of_share
from fedwin.data.partitions.pack import build, finish
from fedwin.data.rng import generator
from fedwin.errors import UserError
from fedwin.registry.choices import Choice

# Partitioners that assign given examples, not those that a data set has.
FIXED = ("natural", "csv")


def most_of_class(total: int, classes: int, factor: float, c: int) -> int:
    """Returns floor(N / C factor^(-c / (C - 1))), the most examples that class c of C keeps of N."""
    return int(floor_of_share(factor ** (-c / (classes - 1)), total / classes))


def long_tail(dataset: Dataset, factor: float, seed: int) -> np.ndarray:
    """Draws the training examples that remain; those of a larger factor are among those of a smaller one.

        n_c = min(N_c, floor(N / C factor^(-c / (C - 1)))),   c = 0 ... C - 1

    Returns:
      Their rows, ascending [n]; N_c of N examples are of class c.

    Source: Cao et al., 2019, https://arxiv.org/abs/1906.07413.
    """
    classes, name = dataset.num_classes, dataset.name
    if dataset.task != "classification" or classes < 2:
        raise UserError(f"imbalance={factor:g} needs a classification of two classes or more; '{name}' is not one.")
    labels, kept = np.asarray(dataset.train["y"]), []
    for c in range(classes):
        count = most_of_class(len(labels), classes, factor, c)
        kept.append(generator(seed, "long tail", c).permutation(np.flatnonzero(labels == c))[:count])
        if not len(kept[-1]):
            raise UserError(f"imbalance={factor:g} leaves no example of class {c} of '{name}'; lower it.")
    return np.sort(np.concatenate(kept))


def partitioned(dataset: Dataset, choice: Choice, num_clients: int | None, seed: int, factor: float) -> Partition:
    """Returns a partition of the examples of a long tail, as `build` makes it of all examples."""
    rows = long_tail(dataset, factor, seed)
    if choice.name not in FIXED:
        # Partitioners read labels, not inputs.
        train = {name: np.asarray(values)[rows] for name, values in dataset.train.items() if name != "x"}
        split = build(choice, dataclasses.replace(dataset, train=train, natural=None), num_clients, seed)
        if len(lost := np.setdiff1d(train["y"], train["y"][split.order])):
            text = f"imbalance={factor:g}: the partition leaves out all examples of class {lost[0]}"
            warnings.warn(f"{text}; other clients or another --partition_seed may have some.", stacklevel=3)
        report = {**split.report, "left_out": len(dataset.train["y"]) - len(split.order)}
        return split._replace(order=rows[split.order].astype(np.int32), report=report)
    split = build(choice, dataset, num_clients, seed)
    return finish(dataset, split.where(np.isin(split.order, rows)), choice.name)
