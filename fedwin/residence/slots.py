"""Which record of a file holds whose row, and which records no kept generation needs."""

from collections.abc import Iterable

import numpy as np

from fedwin.residence.generations import END

# A record that holds the current row of a client is needed by all generations to come.
LIVE = np.iinfo(np.int32).max


class Slots:
    """Records of a file. Record s holds a row of the generations born[s] .. died[s] - 1.

    Args:
      num_clients: K.

    Attributes:
      of: client -> its record, -1 without, int64 [K].
      check: client -> checksum of its row, uint32 [K].
      generation: the number of the generation that is being written.
      rounds: generation -> its round.
    """

    def __init__(self, num_clients: int):
        self.of = np.full(num_clients, -1, np.int64)
        self.check = np.zeros(num_clients, np.uint32)
        self.rounds: list[int] = []
        self._end = 0
        self._born, self._died = np.zeros(0, np.int32), np.zeros(0, np.int32)
        self._free = np.zeros(0, np.int64)
        self._changed: list[np.ndarray] = []

    @property
    def generation(self) -> int:
        """The number of the generation that is being written."""
        return len(self.rounds)

    def replay(self, log: np.ndarray) -> None:
        """Takes in the entries of a log that ends with a generation; afterwards, `keep` says what is free."""
        self._reserve(int(log["slot"][log["client"] != END].max(initial=-1)) + 1)
        begin = 0
        for end in np.flatnonzero(log["client"] == END):
            part = log[begin:end]
            self._bind(part["client"], part["slot"])
            self.check[part["client"]] = part["check"]
            self.rounds.append(int(log["slot"][end]))
            begin = int(end) + 1

    def assign(self, clients: np.ndarray) -> np.ndarray:
        """Returns where rows of these distinct clients may be written in the generation that is being written."""
        old = self.of[clients]
        moves = old < 0
        moves[~moves] = self._born[old[~moves]] < self.generation
        movers = clients[moves]
        if len(movers):
            self._bind(movers, self._take(len(movers)))
            self._changed.append(movers)
        return self.of[clients]

    def commit(self, round: int) -> np.ndarray:
        """Ends the generation that is being written; returns the clients whose rows changed in it."""
        changed = np.concatenate([np.zeros(0, np.int64), *self._changed])
        self._changed.clear()
        self.rounds.append(round)
        return changed

    def keep(self, rounds: Iterable[int]) -> None:
        """Frees the records that neither the newest generation needs nor those of these rounds."""
        kept = set(rounds)
        last = self.generation - 1
        alive = np.array([g for g, round in enumerate(self.rounds) if round in kept or g == last] + [LIVE])
        born, died = self._born[: self._end], self._died[: self._end]
        # The first kept generation that a record may belong to comes too late for it.
        self._free = np.flatnonzero((died < LIVE) & (alive[np.searchsorted(alive, born)] >= died))

    def _bind(self, clients: np.ndarray, slots: np.ndarray) -> None:
        old = self.of[clients]
        self._died[old[old >= 0]] = self.generation
        self.of[clients] = slots
        self._born[slots], self._died[slots] = self.generation, LIVE

    def _take(self, count: int) -> np.ndarray:
        used, self._free = self._free[:count], self._free[count:]
        begin = self._end
        self._reserve(begin + count - len(used))
        return np.concatenate([used, np.arange(begin, self._end)])

    def _reserve(self, end: int) -> None:
        self._end = max(end, self._end)
        if self._end > len(self._born):
            more = max(self._end, 2 * len(self._born)) - len(self._born)
            self._born, self._died = np.pad(self._born, (0, more)), np.pad(self._died, (0, more))
