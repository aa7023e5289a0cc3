"""Features of all examples as one client sees them, changed where they are read."""

import dataclasses
from collections.abc import Callable, Mapping
from typing import Any

import jax
import jax.numpy as jnp

from fedwin import core


@jax.tree_util.register_dataclass
@dataclasses.dataclass(frozen=True)
class View:
    """A feature by the number of an example in its client; no client has a copy of the examples.

    view[rows] = change(values[index[rows]], rows, by)
    """

    values: Any
    index: jax.Array
    by: Any
    change: Callable = dataclasses.field(metadata={"static": True})

    def __getitem__(self, rows):
        rows = rows if isinstance(rows, jax.Array) else jnp.arange(len(self))[rows]
        return self.change(self.values[self.index[rows]], rows, self.by)

    def __len__(self):
        return len(self.index)

    @property
    def shape(self):
        """Shape of the feature."""
        return len(self), *self.values.shape[1:]

    @property
    def ndim(self):
        """Number of axes of the feature."""
        return self.values.ndim

    @property
    def dtype(self):
        """Type of the changed values."""
        return jax.eval_shape(lambda: self[:1]).dtype


def with_views(c: core.Client, by, changes: Mapping[str, Callable]) -> core.Client:
    """Returns a client that reads its examples changed: feature -> change, and `by`, as in View."""
    same = lambda values, rows, by: values
    views = {name: View(values, c.index, by, changes.get(name, same)) for name, values in c.examples.items()}
    return c._replace(index=jnp.arange(len(c.index), dtype=c.index.dtype), examples=views)


def with_counts(info: Mapping[str, Any], change: Callable) -> dict[str, Any]:
    """Returns Client.info with its label counts, of training and of held-out examples, changed; it may have none."""
    return dict(info) | {name: change(info[name]) for name in ("train", "validation") if name in info}
