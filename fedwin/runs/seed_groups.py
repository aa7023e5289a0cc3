"""Groups of seeds that train together in one vmapped program (--seeds_at_once)."""

from collections.abc import Mapping, Sequence

import numpy as np

from fedwin.data.federation import Federation, buckets_below
from fedwin.runs.config import Config


def group_size(config: Config) -> int:
    """Returns L, the lanes of the compiled program: the seeds of the largest group; 1 = one seed after the other."""
    return max(len(group) for group in seed_groups(config))


def seed_groups(config: Config) -> list[tuple[int, ...]]:
    """Returns the seeds that train at once, group after group: as few groups as there can be, of equal sizes.

    >>> groups(Config(seeds=[0, 1, 2, 3, 4], seeds_at_once=4))
    [(0, 1, 2), (3, 4)]
    """
    seeds = config.seeds
    number = -(-len(seeds) // min(config.seeds_at_once, len(seeds)))
    size = -(-len(seeds) // number)
    return [tuple(seeds[at : at + size]) for at in range(0, len(seeds), size)]


def seeds_label(seeds: Sequence[int]) -> str:
    """Returns what progress lines call some seeds.

    >>> label([3]), label([0, 1, 2]), label([0, 2])
    ('seed 3', 'seeds 0-2', 'seeds 0,2')
    """
    if len(seeds) == 1:
        return f"seed {seeds[0]}"
    in_order = list(seeds) == list(range(seeds[0], seeds[0] + len(seeds)))
    return f"seeds {seeds[0]}-{seeds[-1]}" if in_order else f"seeds {','.join(map(str, seeds))}"


def partitions_differ(federations: Mapping[int, Federation]) -> bool:
    """Whether any two seeds differ in who holds which examples."""
    parts = [(found.partition, found.validation) for found in federations.values()]
    return any(_differ(one, other) for mine in parts[1:] for one, other in zip(parts[0], mine, strict=True))


def _differ(one, other) -> bool:
    if one is None or other is None:
        return one is not other
    return not (np.array_equal(one.order, other.order) and np.array_equal(one.offset, other.offset))


def common_buckets(federations: Mapping[int, Federation]) -> tuple[int, ...]:
    """Returns the client sizes that cohorts are padded to, the same for all seeds."""
    largest = [found.buckets[-1] for found in federations.values()]
    equal = all(found.equal_size == largest[0] for found in federations.values())
    return (largest[0],) if equal else buckets_below(max(largest))
