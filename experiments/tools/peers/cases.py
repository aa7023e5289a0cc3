"""Cases of the benchmark: network, cohort and batches of each, published figures of some, and synthetic examples.

The cases are those of cases.json. Imports nothing but NumPy, so that every contestant can import it.
"""

import dataclasses
import json
import pathlib
from typing import Any, NamedTuple

import numpy as np

PEERS = ("fedjax", "torch", "pfl", "flower", "fluke")
# Side of the matrices of the product whose speed counts as the machine's peak.
SIDE = 2048


class Published(NamedTuple):
    """A published benchmark.

    Attributes:
      rounds: rounds of the whole work.
      figures: time, tool and hardware as the source names them.
      share: clients of the work's cohort per client of the case's.
    """

    work: str
    rounds: int
    figures: str
    source: str
    share: float = 1.0


@dataclasses.dataclass(frozen=True)
class Case:
    """One workload. Every client takes full batches of its examples, shuffled per epoch.

    Attributes:
      model: the network's name here and in the peers.
      total: clients of the federation.
      clients: those of a round.
      examples: per client; of published cases the mean over the work's clients, in whole batches.
      vocabulary: number of token ids; 0: examples are numbers.
      every: whether every token has a label, as the next token's prediction has.
      partition: unequal clients: the partition of 60,000 examples that fedwin makes; '': equal clients.
      file: an .npz file with the unequal clients: x [N, *shape], y [N], sizes [total]; passes end with a partial batch.
    """

    name: str
    model: str
    shape: tuple[int, ...]
    classes: int
    total: int
    clients: int
    examples: int
    batch: int
    epochs: int = 1
    lr: float = 0.01
    vocabulary: int = 0
    every: bool = False
    algorithm: str = "fedavg"
    peers: tuple[str, ...] = PEERS
    partition: str = ""
    file: str = ""
    published: Published | None = None

    @property
    def steps(self) -> int:
        """Local steps per client and round: epochs x examples / batch, rounded up to full batches."""
        return -(-self.epochs * self.examples // self.batch)

    def __str__(self) -> str:
        return f"{self.clients} clients" + ("" if self.partition else f" x {self.steps} steps x {self.batch}")


def case_of(fields: dict[str, Any]) -> Case:
    """Returns the case of fields that have been read from JSON."""
    published = fields.get("published")
    tuples: dict[str, Any] = {name: tuple(fields[name]) for name in ("shape", "peers") if name in fields}
    return Case(**fields | tuples | {"published": Published(**published) if published else None})


CASES = {
    fields["name"]: case_of(fields)
    for fields in json.loads(pathlib.Path(__file__).with_suffix(".json").read_text(encoding="utf-8"))
}
OWN = tuple(name for name, case in CASES.items() if case.published is None)
PUBLISHED = tuple(name for name in CASES if name not in OWN)


def scaled(case: Case, text: str) -> Case:
    """Returns the case with equal clients and a cohort CLIENTSxSTEPSxBATCH, in one epoch; ValueError if unreadable."""
    clients, steps, batch = (int(part) for part in text.split("x"))
    if min(clients, steps, batch) < 1:
        raise ValueError(f"{text}: clients, steps and batch must be at least 1")
    total = max(case.total, clients)
    equal = dataclasses.replace(case, total=total, examples=steps * batch, epochs=1, partition="")
    return dataclasses.replace(equal, clients=clients, batch=batch)


def examples(case: Case) -> tuple[list[np.ndarray], list[np.ndarray]]:
    """Returns, per client, x float32 or ids int32 [examples, *shape] and y int32 [examples], equal in every peer."""
    if case.file:
        with np.load(case.file) as arrays:
            cuts = np.cumsum(arrays["sizes"])[:-1]
            return np.split(arrays["x"], cuts), np.split(arrays["y"], cuts)
    generator = np.random.default_rng(0)
    shape = (case.total, case.examples, *case.shape)
    labels = (case.total, case.examples, *(case.shape if case.every else ()))
    draw = lambda: generator.integers(0, case.vocabulary, shape).astype(np.int32)
    x = list(draw() if case.vocabulary else generator.standard_normal(shape, np.float32))
    return x, list(generator.integers(0, case.classes, labels).astype(np.int32))


def batches(case: Case, size: int, generator: np.random.Generator) -> list[np.ndarray]:
    """Returns the rows of a client's batches in a round: full ones, or of a file passes that end with a partial one."""
    passes = [generator.permutation(size) for _ in range(case.epochs)]
    if case.file:
        return [rows for each in passes for rows in np.split(each, range(case.batch, size, case.batch))]
    short = case.steps * case.batch - case.epochs * size
    rows = np.concatenate([*passes, generator.permutation(size)[:short]])
    return list(rows.reshape(case.steps, case.batch))
