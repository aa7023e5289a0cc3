"""Cases of the benchmark: network, cohort and batches of each, published figures of some, and synthetic examples.

Imports nothing but NumPy, so that every contestant can import it.
"""

import dataclasses
from typing import NamedTuple

import numpy as np

PEERS = ("fedjax", "torch", "pfl", "flower")
FLUTE = "https://github.com/microsoft/msrflute (README)"
FEDJAX = "https://arxiv.org/abs/2108.02117 (abstract)"


class Published(NamedTuple):
    """A published benchmark.

    Attributes:
      rounds: of the whole work.
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
        return (
            f"{self.clients} clients"
            if self.partition
            else f"{self.clients} clients x {self.steps} steps x {self.batch}"
        )


_own = (
    # pfl and Flower end an epoch with a partial batch, so their work would be another.
    Case("digits", "digits_cnn", (8, 8, 1), 10, 100, 3, 14, 10, epochs=3, peers=("fedjax", "torch")),
    Case("mlp", "mlp", (784,), 10, 100, 100, 60, 10),
    Case("cifar_cnn", "pfl_cnn", (32, 32, 3), 10, 50, 50, 50, 10),
    Case("emnist_cnn", "emnist_cnn", (28, 28, 1), 62, 10, 10, 200, 10),
    Case("lenet5", "lenet5", (32, 32, 3), 10, 10, 10, 512, 64),
    Case("resnet20", "resnet20", (32, 32, 3), 10, 2, 2, 64, 32),
    Case("leaf_lstm", "leaf_lstm", (80,), 80, 4, 4, 200, 100, lr=0.5, vocabulary=80),
)
_published = (
    Case(
        "mnist_lr", "logistic", (784,), 10, 1000, 10, 60, 10, lr=0.03, partition="power_law",
        published=Published(
            "MNIST, logistic regression, 10 of 1,000 clients by power law", 100,
            "Flower 30:14 min, FLUTE 3:20 min (CPU); FedML 3:09 min, FLUTE 1:26 min (GPUs)", FLUTE,
        ),
    ),
    Case(
        "femnist_cnn", "emnist_cnn", (28, 28, 1), 62, 100, 10, 200, 20, lr=0.1,
        published=Published(
            "FEMNIST, CNN, 10 of 3,400 clients", 1500, "FedML 5:49:52 h, FLUTE 8:22 min (GPUs)", FLUTE
        ),
    ),
    Case(
        "fed_cifar100", "resnet18:variant=imagenet", (32, 32, 3), 100, 50, 10, 100, 20, lr=0.1,
        peers=("torch", "pfl", "flower"),
        published=Published(
            "CIFAR-100, ResNet-18 with GroupNorm, 10 of 500 clients", 4000,
            "FedML 15:55:36 h, FLUTE 1:42:01 h (GPUs)", FLUTE,
        ),
    ),
    Case(
        "fed_shakespeare", "leaf_lstm:hidden=256,predict=all", (80,), 90, 50, 10, 24, 4, lr=0.8, vocabulary=90,
        every=True,
        published=Published(
            "Shakespeare, two LSTMs of 256, 10 of 715 clients", 1200, "FedML 6:46:21 h, FLUTE 21:50 min (GPUs)", FLUTE
        ),
    ),
    Case(
        "fedjax_emnist", "emnist_cnn", (28, 28, 1), 62, 100, 10, 200, 10, lr=0.001,
        algorithm="fedopt:optimizer=adam,server_lr=0.01",
        published=Published(
            "EMNIST, CNN, Adam on the server, 10 of 3,400 clients", 1500, "FedJAX a few minutes (TPUs)", FEDJAX
        ),
    ),
    Case(
        "fedjax_stackoverflow", "stackoverflow_lstm:predict=all", (20,), 10_004, 10, 2, 400, 16, lr=0.5,
        vocabulary=10_004, every=True, algorithm="fedopt:optimizer=adam,server_lr=0.02",
        published=Published(
            "Stack Overflow, LSTM of 670, Adam on the server, 50 clients", 1500,
            "FedJAX roughly an hour (TPUs)", FEDJAX, share=25.0,
        ),
    ),
    Case(
        "fedjax_apfl", "emnist_dense", (28, 28, 1), 62, 340, 340, 200, 20, lr=0.001, algorithm="apfl",
        peers=("fedjax",),
        published=Published(
            "EMNIST, APFL, dense network, 340 of 3,400 clients", 500, "FedJAX 4.99 s a round (laptop, 4 cores)",
            "https://github.com/google/fedjax (experiments/apfl)",
        ),
    ),
    Case(
        "pfl_cifar10", "pfl_cnn", (32, 32, 3), 10, 100, 50, 50, 10, lr=0.1,
        published=Published(
            "CIFAR-10, CNN, 50 of 1,000 clients", 1500, "pfl-research 7 to 72 times as fast as others (A100)",
            "https://arxiv.org/abs/2404.06430 (abstract)",
        ),
    ),
)  # fmt: skip
OWN = tuple(case.name for case in _own)
PUBLISHED = tuple(case.name for case in _published)
CASES = {case.name: case for case in (*_own, *_published)}


def scaled(case: Case, text: str) -> Case:
    """Returns the case with equal clients and the cohort 'CLIENTSxSTEPSxBATCH', in one local epoch.

    Raises:
      ValueError: the text has another form.
    """
    clients, steps, batch = (int(part) for part in text.split("x"))
    if min(clients, steps, batch) < 1:
        raise ValueError(f"{text}: clients, steps and batch must be at least 1")
    return dataclasses.replace(
        case,
        total=max(case.total, clients),
        clients=clients,
        examples=steps * batch,
        batch=batch,
        epochs=1,
        partition="",
    )


def of_request(request: dict) -> Case:
    """Returns the case of a request of the timer."""
    fields = request["case"]
    return Case(**fields | {"shape": tuple(fields["shape"]), "published": None})


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
