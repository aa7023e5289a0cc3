"""Paper-scale runs in the order of what they tell; whoever has time works off the next one.

`fedwin reproduce --queue --data_dir=DIR --budget=8h --keep` goes through it; what is kept with the project is done.
"""

from typing import NamedTuple


class Place(NamedTuple):
    """One step of the queue.

    Attributes:
      item: table or figure.
      rows: names of its rows.
      columns: names of its columns.
      seeds: to train.
      hours: what it takes on two CPU cores, roughly; None: it is meant for a GPU.
    """

    item: str
    rows: tuple[str, ...]
    columns: tuple[str, ...]
    seeds: tuple[int, ...]
    hours: float | None


QUEUE = (
    Place("ima/table1", ("fedavg", "fedadam"), ("fmnist_shards",), (2023,), 1.0),
    Place("ghb/table3", ("fedavg", "fedhbm"), ("shakespeare_noniid",), (0,), 1.0),
    Place("ima/table1", ("fedprox", "fednova", "fedyogi", "fedgma"), ("fmnist_shards",), (2023,), 2.0),
    Place("ima/table1", ("fedasam", "fedfa"), ("fmnist_shards",), (2023,), 2.0),
    Place("ima/table1", ("fedavg", "fedadam"), ("fmnist_dirichlet",), (2023,), 1.0),
    Place("ghb/table3", ("scaffold", "fedavgm"), ("shakespeare_noniid",), (0,), 1.0),
    Place("ghb/table3", ("fedavg", "fedhbm"), ("shakespeare_noniid",), (1, 2), 2.0),
    Place("ima/table1", ("fedavg", "fedadam"), ("fmnist_shards",), (2024, 2025), 2.0),
    Place("ghb/table4", ("fedavg", "fedhbm"), ("cifar10_noniid",), (0,), 14.0),
    Place("ghb/table3", ("fedavg", "fedhbm", "scaffold"), ("cifar10_noniid",), (0,), None),
    Place("wima/table2", ("fedavg", "scaffold"), ("cifar10_alpha0",), (0,), None),
    Place("ghb/table10", ("fedavg", "fedhbm", "local_ghb"), ("cifar10_noniid",), (0,), None),
)
