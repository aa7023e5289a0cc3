"""Attackers that train on wrong labels."""

import dataclasses

import jax
import jax.numpy as jnp

from fedwin import core, tree
from fedwin.aggregation.attack import ATTACKS, Attack, Attackers, number_of_attackers
from fedwin.errors import UserError

# Label counts of a client, which are those of the labels that it trains on.
_COUNTS = ("train", "validation")


@jax.tree_util.register_dataclass
@dataclasses.dataclass(frozen=True)
class FlippedLabels:
    """The labels of all examples as one client sees them, flipped where it reads them if it attacks.

    Indexing flips what it selects: no client has a copy of all labels.

    Attributes:
      labels: int [N], shared by all clients.
      attacks: whether the client is an attacker, bool [].
      num_classes: C; label y becomes C - 1 - y.
    """

    labels: jax.Array
    attacks: jax.Array
    num_classes: int = dataclasses.field(metadata={"static": True})

    def __getitem__(self, rows):
        y = self.labels[rows]
        return jnp.where(self.attacks, self.num_classes - 1 - y, y).astype(y.dtype)

    def __jax_array__(self):
        return self[:]

    def __len__(self):
        return len(self.labels)

    @property
    def shape(self):
        """Shape of the labels."""
        return self.labels.shape

    @property
    def ndim(self):
        """Number of axes of the labels."""
        return self.labels.ndim

    @property
    def dtype(self):
        """Type of the labels."""
        return self.labels.dtype


@ATTACKS.register("label_flip", paper="fung2020limitations")
def label_flip(setting: core.Setting, *, clients: Attackers = 0.2) -> Attack:
    """Attackers train on labels C - 1 - y in place of y, of C classes, and are otherwise honest.

        y <- C - 1 - y

    The label counts that losses read (weighted softmax) are those of the flipped labels. Examples that clients hold out
    for validation keep their labels.

    Raises:
      UserError: when the number of classes is unknown, or examples have several labels.

    Source: Fung et al., The Limitations of Federated Learning in Sybil Settings, 2020,
    https://arxiv.org/abs/1808.04866.

    Example:
      >>> from fedwin import testing
      >>> testing.run_rounds("fedavg", attack="label_flip:clients=1", problem=testing.classification())
      {'model': [0.777, 0.589, 0.444]}
    """
    if setting.model is None:
        raise UserError("label_flip: the model does not say how many classes there are; choose another --model.")
    num_classes = setting.model.num_classes

    def poison(c, attacks):
        y = c.examples["y"]
        if y.ndim > 1 or not jnp.issubdtype(y.dtype, jnp.integer):
            raise UserError("label_flip: needs one class per example, not a sequence; choose another --attack.")
        info = dict(c.info)
        for name in (name for name in _COUNTS if name in info):
            info[name] = tree.where(attacks, jnp.flip(info[name], -1), info[name])
        return c._replace(info=info, examples=c.examples | {"y": FlippedLabels(y, attacks, num_classes)})

    return Attack("label_flip", number_of_attackers("label_flip", clients, setting.num_clients), poison=poison)
