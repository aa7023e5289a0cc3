"""Domain and label skew: every client has one domain, and a label-skewed part of it."""

import dataclasses

import numpy as np

from fedwin.data.dataset import PARTITIONS, Dataset, Partition
from fedwin.data.partitions.pack import build
from fedwin.data.rng import generator
from fedwin.errors import UserError


@PARTITIONS.register("domain")
def domain(dataset: Dataset, num_clients: int, seed: int, *, inner: str = "iid") -> Partition:
    """Splits each of the D domains over K / D clients with another partitioner; the Partition has `domain` [K].

    The inner partitioner's seed depends on (seed, domain). A random permutation of the clients makes their order
    independent of the domain.

    Args:
      dataset: the data set; its feature 'domain' is the domain of each example.
      num_clients: number of clients K, a multiple of D.
      inner: the partitioner within a domain, its parameters separated by semicolons
        (`domain:inner=dirichlet:alpha=0.5;prior=symmetric`).

    Raises:
      UserError: the data set has no domains, K is not a multiple of D, or the inner partitioner does not split labels.

    Example:
      >>> from fedwin import data
      >>> dataset = data.load("digit5_synthetic:per_domain=20,tests=10")
      >>> data.make_partition(dataset, "domain:inner=iid", 10, seed=0).sizes.tolist()
      [10, 10, 10, 10, 10, 10, 10, 10, 10, 10]
    """
    if "domain" not in dataset.train:
        raise UserError(f"partition 'domain' needs a data set with domains (digit5, pacs); '{dataset.name}' has none.")
    domains = np.asarray(dataset.train["domain"])
    num_domains = max(len(dataset.domain_names), int(domains.max()) + 1)
    if num_clients < num_domains or num_clients % num_domains:
        raise UserError(f"partition 'domain': {num_clients} clients; give a multiple of the {num_domains} domains.")
    text = str(inner).replace(";", ",")
    if PARTITIONS.check(text).name in ("domain", "natural", "csv"):
        raise UserError(f"partition 'domain': inner={inner} does not split labels; use shards, quantity or yurochkin.")
    each = num_clients // num_domains
    numbers = generator(seed, "domain").permutation(num_clients).reshape(num_domains, each)
    lists: list = [None] * num_clients
    of_client = np.zeros(num_clients, np.int32)
    fallbacks = 0
    for d in range(num_domains):
        rows = np.flatnonzero(domains == d)
        part = dataclasses.replace(
            dataset, name=f"{dataset.name} domain {d}", train={"y": np.asarray(dataset.train["y"])[rows]}, natural=None
        )
        split = build(text, part, each, int(generator(seed, "domain", d).integers(2**31)))
        fallbacks += split.report["fallbacks"]
        of_client[numbers[d]] = d
        for j, k in enumerate(numbers[d]):
            lists[k] = rows[split.client(j)]
    return Partition.from_lists(lists, domain=of_client, report={"inner": text, "fallbacks": fallbacks})
