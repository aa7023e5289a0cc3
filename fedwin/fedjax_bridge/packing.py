"""A cohort as FedJAX hands it over, put into a Store of padded size."""

from typing import Any, NamedTuple

import jax
import jax.numpy as jnp
import numpy as np

from fedwin.data.store import Store, make_store, shares
from fedwin.errors import UserError
from fedwin.fedjax_bridge.capacity import Padding


class Member(NamedTuple):
    """A client of a cohort.

    Attributes:
      name: FedJAX's client id.
      examples: feature -> [N_i, ...], preprocessed.
      rng: the key that FedJAX gives it for this round.
    """

    name: bytes
    examples: dict[str, Any]
    rng: Any

    @property
    def size(self) -> int:
        return len(next(iter(self.examples.values())))

    @property
    def key_data(self) -> np.ndarray:
        """The uint32 [2] of its rng, an old-style key or a new one."""
        is_new = jnp.issubdtype(self.rng.dtype, jax.dtypes.prng_key)
        return np.asarray(jax.random.key_data(self.rng) if is_new else self.rng)


def members(clients) -> list[Member]:
    """Returns the clients with examples of FedJAX's cohort, (id, ClientDataset, rng) each.

    Raises:
      UserError: for a client that is drawn twice, and where no client has an example.
    """
    try:
        found = [Member(name, dict(dataset.all_examples()), rng) for name, dataset, rng in clients if len(dataset)]
    except (TypeError, ValueError, AttributeError) as error:
        raise UserError(
            f"as_fedjax: clients must be (id, fedjax.ClientDataset, rng) each, as fedjax's samplers return ({error})."
        ) from error
    if len({member.name for member in found}) < len(found):
        raise UserError("as_fedjax: a client is drawn twice in one round; sample without replacement.")
    if not found:
        raise UserError("as_fedjax: no client of this round has an example.")
    return found


def need(cohort: list[Member]) -> Padding:
    """Returns the room that a cohort takes."""
    sizes = [member.size for member in cohort]
    return Padding(len(sizes), max(sizes), sum(sizes))


def pack(cohort: list[Member], padding: Padding, num_classes: int | None, total_examples: int | None) -> Store:
    """Puts a cohort's examples into one flat store.

    Args:
      cohort: its clients.
      padding: room of the store.
      num_classes: width of the label counts, or None for none.
      total_examples: of all clients there are; None: of these.
    """
    flat = {}
    for name, values in cohort[0].examples.items():
        if values.dtype.kind not in "biuf":
            continue  # text and the like: no array of jax
        arrays = [np.asarray(member.examples[name]) for member in cohort]
        flat[name] = np.zeros((padding.total, *arrays[0].shape[1:]), arrays[0].dtype)
        np.concatenate(arrays, out=flat[name][: sum(map(len, arrays))])
    sizes = np.zeros(padding.clients, np.int64)
    sizes[: len(cohort)] = [member.size for member in cohort]
    weight = shares(sizes, total_examples or max(sizes.sum(), 1))
    order = np.arange(padding.total, dtype=np.int32)
    return make_store(flat, sizes, order=order, info=_label_counts(cohort, padding, num_classes), weight=weight)


def _label_counts(cohort: list[Member], padding: Padding, num_classes: int | None) -> dict[str, np.ndarray]:
    if num_classes is None:
        return {}
    counts = np.zeros((padding.clients, num_classes), np.int32)
    for k, member in enumerate(cohort):
        labels = np.asarray(member.examples["y"]).reshape(-1)
        counts[k] = np.bincount(labels, minlength=num_classes)[:num_classes]
    return {"train": counts, "validation": np.zeros_like(counts)}
