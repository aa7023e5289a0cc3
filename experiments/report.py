"""A run for people: the table on the terminal."""

from typing import Any

from . import scores, table_files
from .text import columns


def _cell(stats: dict[str, Any], percent: bool) -> str:
    factor, digits = (100, 2) if percent else (1, 4)
    if stats["mean"] is None:
        return "diverged"
    text = f"{stats['mean'] * factor:.{digits}f}"
    text = text if stats["std"] is None else f"{text} +- {stats['std'] * factor:.{digits}f}"
    seeds, of_seeds = stats["seeds"], stats["of_seeds"]
    return text if seeds == of_seeds else f"{text} ({seeds} of {of_seeds} seeds)"


def _accuracy(seed: dict[str, Any], readout: str) -> str:
    return f"{100 * seed['last'][readout]['accuracy']:.2f}" if seed["last"] else "-"


def table(summaries: dict[str, dict[str, Any]]) -> str:
    """Returns one row per run and read-out: accuracy (%) and loss over the last rounds, mean +- std over seeds."""
    several = any(len(summary["seeds"]) > 1 for summary in summaries.values())
    rows = [("run", "read-out", "accuracy (%)", "loss", *(["each seed (%)"] if several else []), "rounds/s")]
    for run, summary in summaries.items():
        for number, (name, metrics) in enumerate(summary["over_seeds"].items()):
            each = " ".join(_accuracy(seed, name) for seed in summary["seeds"].values())
            cells = (_cell(metrics["accuracy"], True), _cell(metrics["loss"], False), *([each] if several else []))
            # All read-outs of a run are made in the same rounds.
            pace = "" if number else table_files.number(scores.pace(summary), 1)
            rows.append(("" if number else run, name, *cells, pace))
    return "\n".join([columns(rows), note(next(iter(summaries.values()))), *diverged(summaries)])


def note(summary: dict[str, Any]) -> str:
    """Returns what the numbers are means of."""
    seeds = summary["seeds"]
    return f"mean over {scores.last_rounds(summary)}; seed{'s' if len(seeds) > 1 else ''} {', '.join(map(str, seeds))}"


def diverged(summaries: dict[str, dict[str, Any]]) -> list[str]:
    """Returns a line per seed that met NaN or infinity and so counts in no mean."""
    return [
        f"{run} seed {seed} diverged in round {s['diverged_at']} and counts in no mean"
        for run, summary in summaries.items()
        for seed, s in summary["seeds"].items()
        if s["diverged_at"] is not None
    ]
