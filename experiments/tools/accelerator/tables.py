"""Tables of the suite: measurements, performance targets, training progress, and the description of the machine."""

import os
import platform
import subprocess
from typing import Any

from ...tables.formats import NOTHING, markdown_table, number
from .pieces import PRECISIONS, Piece, Record, Records

# Number of rounds that the targets refer to.
ROUNDS = 10_000
TIMES_FEDJAX = 10.0
# Case -> target in seconds for that number of rounds.
MOST_SECONDS = {"lenet5": 240.0, "resnet20": 900.0}
HEAD = (
    "case", "clients x steps x batch", "precision", "who", "ms per round", "quartiles", "rounds/s", "10,000 rounds",
    "times fedwin", "of peak", "device memory, MiB",
)  # fmt: skip


def minutes(seconds: float | None) -> str:
    """Returns a time in minutes."""
    return NOTHING if seconds is None else f"{seconds / 60:.1f} min"


def gathered(groups: list[list[Piece]], records: Records) -> dict[Piece, Record]:
    """Returns piece -> record for all pieces with a record of this setup.

    Args:
      groups: of pieces.
      records: of the folder.
    """
    records_of = {piece: records.read(piece) for group in groups for piece in group}
    return {piece: record for piece, record in records_of.items() if record is not None}


def each_round(piece: Piece, record: Record) -> float:
    """Returns the milliseconds of a round of one seed.

    Args:
      piece: what was measured.
      record: of the piece.
    """
    return record["ms_per_round"] / piece.seeds


def fastest(records: dict[Piece, Record], case: str, precision: str, who: str, at_once: bool = False) -> Piece | None:
    """Returns the fastest piece of a contestant; None if there is none.

    Args:
      records: piece -> record.
      case: name of the case.
      precision: of the piece.
      who: fedwin, fedjax or torch.
      at_once: whether pieces with vmapped seeds count, too.
    """
    candidates = [
        piece
        for piece, record in records.items()
        if (piece.case.name, piece.precision, piece.who) == (case, precision, who)
        and "failed" not in record
        and (at_once or piece.seeds == 1)
    ]
    return min(candidates, key=lambda piece: each_round(piece, records[piece]), default=None)


def ratio(records: dict[Piece, Record], piece: Piece) -> float | None:
    """Returns the time of a piece relative to fedwin's fastest on the same work, with one seed.

    Args:
      records: piece -> record.
      piece: which one.
    """
    best = fastest(records, piece.case.name, piece.precision, "fedwin")
    return None if best is None else each_round(piece, records[piece]) / each_round(best, records[best])


def pieces_table(records: dict[Piece, Record]) -> str:
    """Returns a row per piece."""
    rows = []
    for piece, record in records.items():
        start = [piece.case.name, str(piece.case), piece.precision, piece.label]
        if "failed" in record:
            rows.append([*start, f"failed: {record['failed']}", *[""] * (len(HEAD) - len(start) - 1)])
            continue
        each, low_high = each_round(piece, record), [q / piece.seeds for q in record["quartiles_ms"]]
        share, peak = record.get("of_peak"), record.get("device_peak_bytes")
        rows.append(
            start
            + [f"{each:.2f}", "{:.2f} .. {:.2f}".format(*low_high), f"{1e3 / each:.1f}", minutes(each * ROUNDS / 1e3)]
            + [number(ratio(records, piece), 2), NOTHING if share is None else f"{100 * share:.1f} %"]
            + [NOTHING if peak is None else f"{peak / 2**20:,.0f}"]
        )
    return markdown_table(HEAD, rows)


def _over_fedjax(records: dict[Piece, Record], precision: str) -> str:
    other = fastest(records, "lenet5", precision, "fedjax")
    times = None if other is None else ratio(records, other)
    return NOTHING if times is None else f"{times:.1f} x"


def _rounds_take(records: dict[Piece, Record], case: str, precision: str) -> str:
    best = fastest(records, case, precision, "fedwin")
    return minutes(None if best is None else each_round(best, records[best]) * ROUNDS / 1e3)


def targets_table(records: dict[Piece, Record]) -> str:
    """Returns the targets and fedwin's results in each precision, with its fastest strategy and one seed."""
    rows = [
        ["LeNet-5, cohorts of 10, against FedJAX", f"{TIMES_FEDJAX:g} x"]
        + [_over_fedjax(records, p) for p in PRECISIONS]
    ]
    for case, seconds in MOST_SECONDS.items():
        name = f"{ROUNDS:,} rounds of {case}"
        rows.append([name, f"under {minutes(seconds)}"] + [_rounds_take(records, case, p) for p in PRECISIONS])
    return markdown_table(["target", "required", *PRECISIONS], rows)


def training_table(records: list[dict[str, Any]]) -> str:
    """Returns a row per started run of Table 4."""
    head = ["method", "data", "partition", "seed", "rounds", "rounds/s", "10,000 rounds", "accuracy so far"]
    rows = []
    for r in records:
        share, seconds = r["accuracy"], r["seconds_of_10000"]
        rows.append(
            [r["algorithm"], r["dataset"], r["partition"], ",".join(map(str, r["seeds"]))]
            + [f"{r['rounds']:,} of {r['of']:,}", number(r["rounds_per_second"], 1)]
            + [minutes(seconds), NOTHING if share is None else f"{100 * share:.2f} %"]
        )
    return markdown_table(head, rows)


QUERY = ["nvidia-smi", "--query-gpu=name,memory.total,driver_version", "--format=csv,noheader"]


def driver() -> str:
    """Returns name, memory and driver of the first GPU as reported by nvidia-smi; '' where there is none."""
    try:
        output = subprocess.run(QUERY, capture_output=True, text=True, timeout=30, check=True).stdout
    except (OSError, subprocess.SubprocessError):
        return ""
    lines = output.strip().splitlines()
    if not lines:
        return ""
    *_, memory, version = (part.strip() for part in lines[0].split(","))
    return f"{memory}, driver {version}"


def in_words(about: dict[str, dict[str, Any]]) -> str:
    """Returns devices, memory, driver and versions.

    Args:
      about: contestant -> its description, or {'missing': reason}.
    """
    own = about["fedwin"]
    memory = own["memory_bytes"]
    parts = [
        f"{own['devices']} x {own['device']}",
        driver() if own["backend"] in ("gpu", "cuda") else "",
        "" if memory is None else f"{memory / 2**30:.1f} GiB of it for jax",
        f"runtime: {own['runtime']}",
        f"host: {os.cpu_count()} cores ({platform.machine()}), {platform.system()}",
        f"Python {platform.python_version()}",
        *(each.get("version") or f"{who} is not here: {each['missing']}" for who, each in about.items()),
    ]
    return "; ".join(part for part in parts if part)
