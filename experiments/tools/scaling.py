"""Counts what devices exchange in a round of every algorithm, and models how a round scales with their number.

  fedwin scaling
  fedwin scaling --algorithms=scaffold --model=resnet20 --devices=2,8

Devices are simulated: programs are compiled for that many on a CPU, nothing is trained. BUILD_NOTES.md has the tables.
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

# More devices than this are not simulated: XLA would start as many threads.
MOST_DEVICES = 64
MOST_CLIENTS = 10_000
# What the model is evaluated at: name -> (devices, bytes per second of a device's wire, seconds a hop).
MACHINES = {
    "8 on NVLink": (8, 450e9, 2e-6),
    "256 on InfiniBand": (256, 50e9, 5e-6),
}


def define_flags() -> dict[str, list[str]]:
    """Defines the flags; importing this file from a test or another binary defines none."""
    flags.DEFINE_list("algorithms", [], "Algorithms to count; empty = all.")
    flags.DEFINE_list("devices", ["1", "2", "4", "8"], "Numbers of simulated devices.")
    flags.DEFINE_string("model", "lenet5", "Whose parameters travel.")
    flags.DEFINE_string("dataset", "cifar10_synthetic:n=512,tests=10", "A stand-in of the model's shape.")
    flags.DEFINE_integer("clients_per_device", 4, "Weak scaling: clients that each device trains in a round.")
    flags.DEFINE_float("client_seconds", 0.05, "What one client's local training takes on one device.")
    return {"what is counted": ["algorithms", "devices", "model", "dataset", "clients_per_device", "client_seconds"]}


def numbers(texts: list[str]) -> list[int]:
    """Reads --devices.

    Raises:
      UserError: not numbers of devices that can be simulated.
    """
    if not texts or not all(text.isascii() and text.isdecimal() and 1 <= int(text) <= MOST_DEVICES for text in texts):
        raise UserError(f"devices={','.join(texts)}: write numbers from 1 to {MOST_DEVICES}, e.g. 1,2,4,8.")
    return [int(text) for text in texts]


def setting(algorithm: str, clients_per_round: int) -> Config:
    """Returns what is compiled: a federation of which each round takes half."""
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
    """Returns what devices exchange in a round of one algorithm."""
    if devices == 1:
        return []
    return collectives.of_round(setting(algorithm, devices * flags.FLAGS.clients_per_device), devices)


def line(algorithm: str, devices: int) -> tuple[str, ...]:
    """Returns an algorithm's row of the table."""
    found = counted(algorithm, devices)
    kinds = Counter(one.kind for one in found)
    wire = sum(one.wire(devices) for one in found) if devices > 1 else 0.0
    clients, spent = devices * flags.FLAGS.clients_per_device, flags.FLAGS.client_seconds
    reduces, gathers = kinds.pop("all-reduce", 0), kinds.pop("all-gather", 0)
    cells = [algorithm, str(devices), str(reduces), str(gathers), str(kinds.total()), f"{wire / 1e6:.1f}"]
    for many, bandwidth, latency in MACHINES.values():
        # Rows grow with the cohort, which weak scaling makes larger with the devices; sums do not.
        grown = [
            one._replace(nbytes=one.nbytes * many // devices) if one.kind == "all-gather" else one for one in found
        ]
        weak = collectives.round_seconds(grown, many * flags.FLAGS.clients_per_device, many, spent, bandwidth, latency)
        strong = collectives.round_seconds(found, clients, many, spent, bandwidth, latency)
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
