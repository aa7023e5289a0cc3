"""What the tables of rounds to a target share."""

import dataclasses

from ..claims import Claim
from ..items import Entry
from ..measures import Overhead, RoundsTo, Speedup
from ..trajectories import Fields
from .settings import ASSUMED as OF_ALL
from .settings import CROSS_DEVICE, CROSS_SILO
from .settings import STANDIN as OF_ACCURACY

# Accuracy at trend scale of a network that is trained centrally, of which the targets are shares.
CENTRALISED = 95.0
FEDAVG = Fields(algorithm="fedavg")
OVERHEAD = Entry("overhead", "communication", printed=(("metric", "comm_overhead_factor"),), measure=Overhead())


def variants(targets: dict[int, float]) -> tuple[Entry, ...]:
    """Returns rounds to every target, and FedAvg's rounds over them.

    Args:
      targets: per cent of the centralised accuracy -> accuracy in per cent, at paper scale.
    """
    found = []
    for share, percent in targets.items():
        metric, trend = f"rounds_to_{share}pct_of_centralized", CENTRALISED * share / 100
        rounds, speed = (("metric", metric),), (("metric", f"{metric}_speedup"),)
        reached = RoundsTo(percent=percent, trend=trend)
        sooner = Speedup(reference=FEDAVG, percent=percent, trend=trend)
        found.append(Entry(f"rounds{share}", f"rounds to {share} %", printed=rounds, measure=reached))
        found.append(Entry(f"speedup{share}", f"speed-up to {share} %", printed=speed, measure=sooner))
    return tuple(found)


def columns(silo: Entry, device: Entry, dataset: str) -> tuple[Entry, ...]:
    """Returns the columns: cross-silo, cross-device, and the one of communication, which belongs to the method alone.

    Args:
      silo: column of an accuracy table.
      device: likewise.
      dataset: as the printed cells call it.
    """
    told = (("dataset", dataset), ("model", "LeNet-5"))
    return (
        dataclasses.replace(silo, name="silo", label="cross-silo", printed=(*silo.printed, CROSS_SILO)),
        dataclasses.replace(device, name="device", label="cross-device", printed=(*device.printed, CROSS_DEVICE)),
        dataclasses.replace(silo, name="overhead", label="communication", printed=told),
    )


def faster(rows: tuple[Entry, ...], share: int, settings: tuple[Entry, ...]) -> tuple[Claim, ...]:
    """Returns the claims that FedHBM needs fewer rounds than any other method.

    Args:
      rows: of the table.
      share: per cent of the centralised accuracy that is reached.
      settings: columns.
    """
    return tuple(
        Claim(
            f"FedHBM reaches {share} % of the centralised accuracy sooner than {row.title}: {column.title}.",
            (("row", "fedhbm"), ("column", column.name), ("variant", f"rounds{share}")),
            (("row", row.name), ("column", column.name), ("variant", f"rounds{share}")),
        )
        for column in settings
        for row in rows
        if row.name != "fedhbm"
    )


ASSUMED = (
    *OF_ALL,
    "A target is reached in the first evaluated round at or above it, without smoothing; there is one in five rounds.",
)
STANDIN = f"{OF_ACCURACY} Targets are shares of {CENTRALISED:g} %, the centralised accuracy on the stand-ins."
