"""What cohorts are padded to, so that few rounds compile."""

from typing import NamedTuple


class Padding(NamedTuple):
    """What a cohort is padded to.

    Attributes:
      clients: clients.
      largest: examples of the largest client.
      total: examples of all of them.
    """

    clients: int
    largest: int
    total: int


class Capacity:
    """The Padding of every cohort: few different ones, since each is a compilation.

    The first cohort gets room for twice its examples. What is outgrown grows together with all else, or one dimension
    after the other would compile: examples by 4 the first time and by 16 from then on; clients, whose padding costs
    most where they are mapped at once, by 3, and only if their number varies at all. What was promised stays unless it
    is broken. Of 1,000 simulated programs (200 rounds, 2,000 log-normal clients, 10 or Bernoulli or 1 to 20 of them a
    round), at most 4 compiled more than three times at sigma <= 1.5, and 41 at sigma = 2.

    >>> capacity = Capacity(max_clients=3, largest=10, total=None)
    >>> capacity.hold(Padding(clients=2, largest=7, total=12))
    Padding(clients=3, largest=10, total=30)

    Args:
      max_clients: clients that no cohort exceeds, or None.
      largest: examples that no client exceeds, or None.
      total: examples of all clients there are, or None.
      multiple: number of clients -> the number that a strategy pads them to.
    """

    def __init__(
        self, max_clients: int | None, largest: int | None, total: int | None, multiple=lambda clients: clients
    ):
        self.promised, self.total, self.multiple = (max_clients, largest), total, multiple
        self.padding: Padding | None = None
        self.grown = 0
        self.numbers: set[int] = set()

    def hold(self, need: Padding) -> Padding:
        """Returns what a cohort is padded to; later ones are padded to at least as much."""
        self.numbers.add(need.clients)
        if self.padding is None:
            self.padding = self._with_room(need, 1, 2)
        elif any(wish > have for wish, have in zip(need, self.padding)):
            most = Padding(*map(max, self.padding, need))
            self.padding = self._with_room(most, 3 if len(self.numbers) > 1 else 1, 16 if self.grown else 4)
            self.grown += 1
        return self.padding

    def _with_room(self, most: Padding, more_clients: int, more_examples: int) -> Padding:
        """Returns `most` times what is needed, or what was promised where that is enough."""
        asked = zip(self.promised, most, (more_clients, more_examples))
        clients, largest = (limit if limit and limit >= wish else by * wish for limit, wish, by in asked)
        clients = self.multiple(clients)
        # A cohort holds no more than its clients can; two promises make a third.
        total = clients * largest if all(self.promised) else min(more_examples * most.total, clients * largest)
        return Padding(clients, largest, max(most.total, min(total, self.total or total)))
