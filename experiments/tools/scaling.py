"""Counts the collectives of a round of every algorithm, and models how a round scales with the number of devices.

  fedwin scaling
  fedwin scaling --algorithms=scaffold --model=resnet20 --devices=2,8

Devices are simulated: programs are compiled for several CPU devices, and nothing is trained. BUILD_NOTES.md contains
the tables.
"""

from collections import Counter

import jax
from absl import flags

from fedwin.algorithms import ALGORITHMS
from fedwin.errors import UserError
from fedwin.registry import checks
from fedwin.runs.config import Config

from ..tables.formats import plain_table
from .peers import collectives

# Most simulated devices; XLA starts a thread for each.
MOST_DEVICES = 64
MOST_CLIENTS = 10_000
# Name -> (devices, bandwidth of a device in bytes per second, latency of a hop in seconds).
MACHINES = {
    "8 on NVLink": (8, 450e9, 2e-6),
    "256 on InfiniBand": (256, 50e9, 5e-6),
}


def define_flags() -> dict[str, list[str]]:
    """Defines the flags; returns title -> names."""
    flags.DEFINE_list("algorithms", [], "Algorithms to count; empty = all.")
    flags.DEFINE_list("devices", ["1", "2", "4", "8"], "Numbers of simulated devices.")
    flags.DEFINE_string("model", "lenet5", "Network whose parameters are exchanged.")
    flags.DEFINE_string("dataset", "cifar10_synthetic:n=512,tests=10", "Data set with the input shape of the model.")
    flags.DEFINE_integer("clients_per_device", 4, "Weak scaling: clients that each device trains in a round.")
    flags.DEFINE_float("client_seconds", 0.05, "Seconds of a client's local training on one device.")
    return {"measurements": ["algorithms", "devices", "model", "dataset", "clients_per_device", "client_seconds"]}


def numbers(texts: list[str]) -> list[int]:
    """Returns the values of --devices.

    Raises:
      UserError: one is not a number from 1 to MOST_DEVICES.
    """
    if not texts or not all(text.isascii() and text.isdecimal() and 1 <= int(text) <= MOST_DEVICES for text in texts):
        raise UserError(f"devices={','.join(texts)}: write numbers from 1 to {MOST_DEVICES}, e.g. 1,2,4,8.")
    return [int(text) for text in texts]


def setting(algorithm: str, clients_per_round: int) -> Config:
    """Returns the Config that is compiled: each round samples half of the clients.

    Args:
      algorithm: with its parameters.
      clients_per_round: size of the cohort.
    """
    return Config(
        dataset=flags.FLAGS.dataset,
        model=flags.FLAGS.model,
        algorithm=algorithm,
        num_clients=2 * clients_per_round,
        clients_per_round=clients_per_round,
        num_rounds=10,
        local_epochs=1,
        batch_size=2,
        observe=["wima:window=5"],
    )


def counted(algorithm: str, devices: int) -> list[collectives.Collective]:
    """Returns the collectives of a round of an algorithm.

    Args:
      algorithm: with its parameters.
      devices: number of devices.
    """
    if devices == 1:
        return []
    return collectives.of_round(setting(algorithm, devices * flags.FLAGS.clients_per_device), devices)


def line(algorithm: str, devices: int) -> tuple[str, ...]:
    """Returns the row of an algorithm and a number of devices.

    Args:
      algorithm: with its parameters.
      devices: number of devices.
    """
    collectives_of_round = counted(algorithm, devices)
    kinds = Counter(collective.kind for collective in collectives_of_round)
    wire = sum(collective.wire(devices) for collective in collectives_of_round) if devices > 1 else 0.0
    clients, spent = devices * flags.FLAGS.clients_per_device, flags.FLAGS.client_seconds
    reduces, gathers = kinds.pop("all-reduce", 0), kinds.pop("all-gather", 0)
    cells = [algorithm, str(devices), str(reduces), str(gathers), str(kinds.total()), f"{wire / 1e6:.1f}"]
    for many, bandwidth, latency in MACHINES.values():
        # Gathered rows grow with the cohort, which grows with the devices in weak scaling; sums do not.
        weak_collectives = [
            collective._replace(nbytes=collective.nbytes * many // devices)
            if collective.kind == "all-gather"
            else collective
            for collective in collectives_of_round
        ]
        weak = collectives.round_seconds(
            weak_collectives, many * flags.FLAGS.clients_per_device, many, spent, bandwidth, latency
        )
        strong = collectives.round_seconds(collectives_of_round, clients, many, spent, bandwidth, latency)
        one_device = spent * clients
        cells += [f"{spent * flags.FLAGS.clients_per_device / weak:.0%}", f"{one_device / strong:.1f}x"]
    return tuple(cells)


def main(argv: list[str]) -> None:
    """Prints the table."""
    devices, options = numbers(flags.FLAGS.devices), flags.FLAGS
    checks.number("scaling", 1, MOST_CLIENTS, clients_per_device=options.clients_per_device)
    checks.number("scaling", 0, open_least=True, client_seconds=options.client_seconds)
    names = options.algorithms or [entry.instances[0] for entry in ALGORITHMS.entries.values()]
    for name in names:
        ALGORITHMS.check(name)
    jax.config.update("jax_num_cpu_devices", max(devices))
    heads = [cell for name in MACHINES for cell in (f"{name}: weak", "strong")]
    rows = [line(name, number) for name in names for number in devices]
    print(
        plain_table([("algorithm", "devices", "all-reduces", "all-gathers", "others", "MB on a wire", *heads), *rows])
    )
