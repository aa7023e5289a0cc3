"""Which seeds train at once (--seeds_at_once), and what they have in common."""

from collections.abc import Mapping, Sequence

import numpy as np

from fedwin.data.federation import Federation, buckets_below
from fedwin.runs.config import Config


def lanes_of(config: Config) -> int:
    """Returns L, the lanes of the compiled program: the seeds of the largest group; 1 = one seed after the other."""
    return max(len(group) for group in groups(config))


def groups(config: Config) -> list[tuple[int, ...]]:
    """Returns the seeds that train at once, group after group: as few groups as there can be, of equal sizes.

    >>> groups(Config(seeds=[0, 1, 2, 3, 4], seeds_at_once=4))
    [(0, 1, 2), (3, 4)]
    """
    seeds = config.seeds
    number = -(-len(seeds) // min(config.seeds_at_once, len(seeds)))
    size = -(-len(seeds) // number)
    return [tuple(seeds[at : at + size]) for at in range(0, len(seeds), size)]


def label(seeds: Sequence[int]) -> str:
    """Returns what progress lines call some seeds.

    >>> label([3]), label([0, 1, 2]), label([0, 2])
    ('seed 3', 'seeds 0-2', 'seeds 0,2')
    """
    if len(seeds) == 1:
        return f"seed {seeds[0]}"
    in_order = list(seeds) == list(range(seeds[0], seeds[0] + len(seeds)))
    return f"seeds {seeds[0]}-{seeds[-1]}" if in_order else f"seeds {','.join(map(str, seeds))}"


def dealt_apart(federations: Mapping[int, Federation]) -> bool:
    """Whether any two seeds differ in who holds which examples."""
    parts = [(found.partition, found.validation) for found in federations.values()]
    return any(_differ(one, other) for mine in parts[1:] for one, other in zip(parts[0], mine, strict=True))


def _differ(one, other) -> bool:
    if one is None or other is None:
        return one is not other
    return not (np.array_equal(one.order, other.order) and np.array_equal(one.offset, other.offset))


def buckets(federations: Mapping[int, Federation]) -> tuple[int, ...]:
    """Returns the client sizes that cohorts are padded to, the same for all seeds."""
    largest = [found.buckets[-1] for found in federations.values()]
    equal = all(found.equal_size == largest[0] for found in federations.values())
    return (largest[0],) if equal else buckets_below(max(largest))


# Parts of an estimate that every seed has, and those of which there is one more: a state on its way to or from a lane.
OF_EACH = ("validation set", "clients in training", "local batches", "cohorts")
OF_EACH_AND_MOVED = ("model", "client table", "algorithm", "observers")


def in_lanes(config: Config, device: Mapping[str, int], index: int) -> dict[str, int]:
    """Returns what the seeds that train at once need of a device.

    Args:
      config: the flags.
      device: part -> bytes that one seed needs.
      index: bytes of the examples that say who holds which.
    """
    if (lanes := lanes_of(config)) == 1:
        return dict(device)
    times = dict.fromkeys(OF_EACH, lanes) | dict.fromkeys(OF_EACH_AND_MOVED, lanes + 1)
    found = {part: size * times.get(part, 1) for part, size in device.items()}
    return found | {"examples": found["examples"] + (lanes - 1) * index}
