"""A run for people: the table on the terminal."""

from typing import Any

import numpy as np

from .text import columns


def _cell(stats: dict[str, Any], percent: bool) -> str:
    factor, digits = (100, 2) if percent else (1, 4)
    text = f"{stats['mean'] * factor:.{digits}f}"
    return text if stats["std"] is None else f"{text} +- {stats['std'] * factor:.{digits}f}"


def pace(seed: dict[str, Any]) -> float:
    """Returns rounds per second of one seed, without the time of compilation where the summary knows it."""
    rate, seconds = seed["rounds_per_second"], seed["wall_seconds"]
    if not rate or not seconds:
        return float("nan")
    trained = seconds - (seed.get("compile_seconds") or 0.0)
    return rate * seconds / trained if trained > 0 else rate


def table(summaries: dict[str, dict[str, Any]]) -> str:
    """Returns one row per run and read-out: accuracy (%) and loss over the last rounds, mean +- std over seeds."""
    several = any(len(summary["seeds"]) > 1 for summary in summaries.values())
    rows = [("run", "read-out", "accuracy (%)", "loss", *(["each seed (%)"] if several else []), "rounds/s")]
    for run, summary in summaries.items():
        rate = f"{np.mean([pace(seed) for seed in summary['seeds'].values()]):.1f}"
        for number, (name, metrics) in enumerate(summary["over_seeds"].items()):
            each = " ".join(f"{100 * s['last'][name]['accuracy']:.2f}" for s in summary["seeds"].values())
            cells = (_cell(metrics["accuracy"], True), _cell(metrics["loss"], False), *([each] if several else []))
            # All read-outs of a run are made in the same rounds.
            rows.append(("" if number else run, name, *cells, "" if number else rate))
    return "\n".join([columns(rows), note(next(iter(summaries.values()))), *diverged(summaries)])


def note(summary: dict[str, Any]) -> str:
    """Returns what the numbers are means of."""
    total, seeds = summary["num_rounds"], summary["seeds"]
    last = min(max(summary["last_rounds"], 1), total)
    over = f"the last {last} of {total} rounds" if last < total else f"all {total} round{'s' if total > 1 else ''}"
    return f"mean over {over}; seed{'s' if len(seeds) > 1 else ''} {', '.join(map(str, seeds))}"


def diverged(summaries: dict[str, dict[str, Any]]) -> list[str]:
    """Returns a line per seed that ended in NaN or infinity."""
    return [
        f"{run} seed {seed} diverged in round {s['diverged_at']}"
        for run, summary in summaries.items()
        for seed, s in summary["seeds"].items()
        if s["diverged_at"] is not None
    ]
