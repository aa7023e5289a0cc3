"""One ring that is not on the device: what a dispatch gets of it, and where what was pushed goes."""

import dataclasses
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np

from fedwin import multi_process
from fedwin import ring_buffer as rings
from fedwin.errors import UserError
from fedwin.residence.lending import Lender
from fedwin.residence.ring_store import FiledRing, RingMemory, copied, layout_of_ring


class BorrowedRing:
    """A ring that another process has, which hands out what every dispatch needs.

    Args:
      name: of the window.
      like: the ring as the run begins with it.
    """

    def __init__(self, name: str, like: rings.Lent):
        self.name, self.slots, self.ages, self.rounds = name, like.slots, like.ages, like.rounds
        self.room, self.size = like.held.shape
        empty = lambda leaf: jax.ShapeDtypeStruct(leaf.shape, leaf.dtype)
        self.like = dataclasses.replace(like, entered=empty(like.entered), held=empty(like.held))
        # What was pushed in the last dispatch is still being written, while the next one fills the other.
        self._spare: Any = None
        self._written: Any = None
        self._base = 0

    def expect(self, count: int, following: int) -> None:
        """Starts to read for the dispatch of `following` pushes that comes after the present one of `count`."""

    def take(self, base: int, count: int) -> rings.Lent:
        """Returns what a dispatch of at most `count` pushes needs, as host arrays; `entered` comes from `room_for`."""
        self._base = base
        held = rings.needed(base, count, self.ages)
        leaving = rings.places(base, held, self.like)
        return dataclasses.replace(
            self.like, entered=(), held=self._vectors(held, count), base=np.int32(base), leaving=leaving
        )

    def room_for(self, entered, sharding) -> Any:
        """Returns an array on the devices that takes what is pushed; what is in it does not matter.

        Args:
          entered: that of the last dispatch.
          sharding: where a new one goes; None = the default device.
        """
        if entered is not self._written:
            return entered
        spare, self._spare = self._spare, None
        return jnp.zeros(entered.shape, entered.dtype, device=sharding) if spare is None else spare

    def placed(self, held: np.ndarray, on_devices: jax.Array) -> None:
        """Takes back an array of `take`'s that was copied to the devices."""

    def give(self, node) -> None:
        """Starts to write what was pushed.

        Raises:
          UserError: there was no room for it.
        """
        pushed = int(node.count) - self._base
        if pushed > self.rounds:
            raise UserError(
                f"the window '{self.name}' is pushed to more than once a round; keep it on the device, --window=device."
            )
        entered = node.ring.entered
        # A view on a CPU, of an array object of its own, which remembers it and then would not be donated.
        view = jax.default_backend() == "cpu" and entered.is_fully_replicated
        self._entered(np.asarray(entered.addressable_data(0) if view else multi_process.whole(entered))[:pushed])
        self._spare, self._written = self._written, entered

    def commit(self, round: int) -> Any:
        """Ends a generation of vectors; returns what a checkpoint holds of the ring."""
        return ()

    def keep(self) -> None:
        """Gives room to new vectors that only checkpoints needed which are gone."""

    def close(self) -> None:
        """Stops what runs beside the training."""

    def _vectors(self, held: np.ndarray, count: int) -> np.ndarray:
        return np.zeros((self.room, self.size), self.like.dtype)

    def _entered(self, vectors: np.ndarray) -> None:
        pass


class OutsideRing(BorrowedRing):
    """A ring in the main memory of this process, or in a file.

    Args:
      name: of the window.
      like: the ring as the run begins with it.
      store: where the vectors are.
    """

    def __init__(self, name: str, like: rings.Lent, store):
        super().__init__(name, like)
        self.store = store
        self._lender = Lender(store, layout_of_ring(self.size, like.dtype), self.room)

    def _slots_of(self, first: int, count: int) -> np.ndarray:
        return (first + np.arange(count)) % self.slots

    def expect(self, count: int, following: int) -> None:
        """Starts to read for the dispatch of `following` pushes that comes after the present one of `count`."""
        self._lender.expect(rings.needed(self._base + count, following, self.ages) % self.slots)

    def restored(self, source, count: int) -> None:
        """Goes on from the ring of a checkpoint, an array or a lazy one, to which `count` vectors were pushed."""
        if not isinstance(self.store, RingMemory):
            generation = source.generation if isinstance(source, FiledRing) else None
            if generation is not None and self.store.owns(generation) and generation.mark.total == self.slots:
                return self.store.begin_with(generation)
            self.store.begin_anew()
        held = min(count, self.slots)
        copied(source, self._slots_of(count - held, held), self.store)

    def placed(self, held: np.ndarray, on_devices: jax.Array) -> None:
        """Takes back an array of `take`'s that was copied to the devices."""
        begin = held.ctypes.data
        pieces = jax.block_until_ready(on_devices).addressable_shards
        # A CPU device may use the array itself.
        if not any(begin <= piece.data.unsafe_buffer_pointer() < begin + held.nbytes for piece in pieces):
            self._lender.reuse([held])

    def commit(self, round: int) -> Any:
        """Ends a generation of vectors; returns what a checkpoint holds of the ring."""
        return self._lender.commit(round)

    def keep(self) -> None:
        """Gives room to new vectors that only checkpoints needed which are gone."""
        self._lender.keep()

    def close(self) -> None:
        """Stops what runs beside the training."""
        self._lender.close()

    def _vectors(self, held: np.ndarray, count: int) -> np.ndarray:
        return self._lender.take(held % self.slots, self._slots_of(self._base, count))[0][0]

    def _entered(self, vectors: np.ndarray) -> None:
        # A dispatch may go round a short ring several times.
        lost = max(len(vectors) - self.slots, 0)
        self._lender.give(self._slots_of(self._base + lost, len(vectors) - lost), [vectors[lost:]])


def outside_ring(name: str, like: rings.Lent, store) -> BorrowedRing:
    """Returns the ring; `store` is None where another process has it."""
    return BorrowedRing(name, like) if store is None else OutsideRing(name, like, store)
