"""A cohort of FedJAX clients as a padded Store, and the capacity that keeps compilations few."""

import zlib
from typing import NamedTuple

import jax
import numpy as np

from fedwin import tree
from fedwin.data.federation import Store, client_weights, make_store
from fedwin.errors import UserError


class Member(NamedTuple):
    """A client of a cohort.

    Attributes:
      examples: feature -> [N_i, ...], preprocessed.
      key_data: data of the key that FedJAX gives the client for this round, uint32 [2].
    """

    name: bytes
    examples: dict[str, np.ndarray]
    key_data: np.ndarray

    @property
    def size(self) -> int:
        """Number of examples N_i."""
        return len(next(iter(self.examples.values())))


class Padding(NamedTuple):
    """Padded sizes of a cohort, which are static in the compiled round."""

    clients: int
    largest: int
    total: int


def _key_data(rng: jax.Array) -> np.ndarray:
    """Returns the data of an old-style key, an array, or of a typed key; raises ValueError for any other array."""
    data = np.asarray(jax.random.key_data(rng) if tree.is_key(rng) else rng)
    if data.dtype != np.uint32 or data.shape != (2,):
        raise ValueError(f"rng is {data.dtype}{list(data.shape)}, no uint32[2]; set jax_default_prng_impl=threefry2x32")
    return data


def cohort_members(clients) -> list[Member]:
    """Returns the clients of a FedJAX cohort that have examples.

    Args:
      clients: (id, fedjax.ClientDataset, rng) of every client, as FedJAX's samplers return them.

    Raises:
      UserError: when a client occurs twice, or no client has an example.
    """
    try:
        cohort = [Member(name, dict(data.all_examples()), _key_data(rng)) for name, data, rng in clients if len(data)]
    except (TypeError, ValueError, AttributeError) as error:
        raise UserError(
            f"as_fedjax: clients must be (id, fedjax.ClientDataset, rng) each, as fedjax's samplers return ({error})."
        ) from error
    if len({member.name for member in cohort}) < len(cohort):
        raise UserError("as_fedjax: a client is drawn twice in one round; sample without replacement.")
    if not cohort:
        raise UserError("as_fedjax: no client of this round has an example.")
    return cohort


def required_padding(cohort: list[Member]) -> Padding:
    """Returns the sizes of a cohort without any padding."""
    sizes = [member.size for member in cohort]
    return Padding(len(sizes), max(sizes), sum(sizes))


def client_number(name: bytes) -> int:
    """Returns a client's number, which depends on its name alone, bytes or others, not on clients that were seen."""
    return zlib.crc32(name if isinstance(name, bytes) else str(name).encode()) & 0x7FFFFFFF


def pack(cohort: list[Member], padding: Padding, num_classes: int | None, total_examples: int | None) -> Store:
    """Returns the examples of a cohort as one flat Store.

    Args:
      num_classes: width of the label counts, or None to leave them out.
      total_examples: examples of all clients there are; None takes those of the cohort.
    """
    flat = {}
    for name in dict.fromkeys(name for member in cohort for name in member.examples):
        try:
            arrays = [np.asarray(member.examples[name]) for member in cohort]
            if arrays[0].dtype.kind not in "biuf":
                continue  # text and the like: no array of jax
            flat[name] = np.zeros((padding.total, *arrays[0].shape[1:]), arrays[0].dtype)
            np.concatenate(arrays, out=flat[name][: sum(map(len, arrays))])
        except (KeyError, ValueError, TypeError) as error:
            raise UserError(f"as_fedjax: '{name}' is missing or different in some clients; make all alike.") from error
    sizes = np.zeros(padding.clients, np.int64)
    sizes[: len(cohort)] = [member.size for member in cohort]
    if total_examples is not None and sizes.sum() > total_examples:
        raise UserError(f"as_fedjax: total_examples={total_examples}, but a round has {sizes.sum()}; set that of all.")
    weight = client_weights(sizes, total_examples or max(sizes.sum(), 1))
    order = np.arange(padding.total, dtype=np.int32)
    return make_store(flat, sizes, order=order, info=_label_counts(cohort, padding, num_classes), weight=weight)


def _label_counts(cohort: list[Member], padding: Padding, num_classes: int | None) -> dict[str, np.ndarray]:
    if num_classes is None:
        return {}
    counts = np.zeros((padding.clients, num_classes), np.int32)
    for k, member in enumerate(cohort):
        labels = np.asarray(member.examples.get("y", ()))
        if labels.dtype.kind not in "biu" or not 0 <= labels.min() <= labels.max() < num_classes:
            wanted = f"the labels 'y' of {member.name!r} must be integers in 0..{num_classes - 1}"
            raise UserError(f"as_fedjax: {wanted}; set num_classes, or omit it.")
        counts[k] = np.bincount(labels.reshape(-1), minlength=num_classes)
    return {"train": counts, "validation": np.zeros_like(counts)}


class Capacity:
    """Chooses the Padding of every cohort, so that few different ones occur: each is a compilation.

    The first cohort is padded to twice its examples. When a cohort exceeds the padding in one dimension, all dimensions
    grow at once, or each would cause another compilation: examples by a factor of 4 the first time and of 16
    later; clients, whose padding costs most where they are mapped at once, by a factor of 3, and only if their number
    varies. Limits given as `max_clients` and `largest` are used unless a cohort exceeds them. Of 1,000 simulated
    programs (200 rounds, 2,000 log-normal clients, 10 or Bernoulli or 1 to 20 of them a round), at most 4 compiled more
    than three times at sigma <= 1.5, and 41 at sigma = 2.

    >>> capacity = Capacity(max_clients=3, largest=10, total=None)
    >>> capacity.hold(Padding(clients=2, largest=7, total=12))
    Padding(clients=3, largest=10, total=30)

    Args:
      total: examples of all clients there are, or None.
      multiple: number of clients -> the number that a strategy pads them to.
    """

    def __init__(
        self, max_clients: int | None, largest: int | None, total: int | None, multiple=lambda clients: clients
    ):
        self.limits, self.total, self.multiple = (max_clients, largest), total, multiple
        self.padding: Padding | None = None
        self.grown = 0
        self.numbers: set[int] = set()

    def hold(self, need: Padding) -> Padding:
        """Returns the padding of a cohort; that of later cohorts is at least as large."""
        self.numbers.add(need.clients)
        if self.padding is None:
            self.padding = self._with_room(need, 1, 2)
        elif any(size > limit for size, limit in zip(need, self.padding)):
            most = Padding(*map(max, self.padding, need))
            self.padding = self._with_room(most, 3 if len(self.numbers) > 1 else 1, 16 if self.grown else 4)
            self.grown += 1
        return self.padding

    def _with_room(self, most: Padding, more_clients: int, more_examples: int) -> Padding:
        """Returns the sizes `most` multiplied by the factors, or the given limits where these suffice."""
        sizes = zip(self.limits, most, (more_clients, more_examples))
        clients, largest = (limit if limit and limit >= size else factor * size for limit, size, factor in sizes)
        clients = self.multiple(clients)
        # A cohort cannot exceed clients * largest; two limits imply a third.
        total = clients * largest if all(self.limits) else min(more_examples * most.total, clients * largest)
        return Padding(clients, largest, max(most.total, min(total, self.total or total)))
