"""A run for people: the table on the terminal, the picture of the accuracy curves."""

import pathlib
from typing import Any

import numpy as np


def _cell(stats: dict[str, Any], percent: bool) -> str:
    factor, digits = (100, 2) if percent else (1, 4)
    text = f"{stats['mean'] * factor:.{digits}f}"
    return text if stats["std"] is None else f"{text} +- {stats['std'] * factor:.{digits}f}"


def table(summaries: dict[str, dict[str, Any]]) -> str:
    """Returns one row per run and read-out: accuracy (%) and loss over the last rounds, mean +- std over seeds."""
    rows = [("run", "read-out", "accuracy (%)", "loss", "each seed (%)", "rounds/s")]
    for run, summary in summaries.items():
        for name, metrics in summary["over_seeds"].items():
            each = " ".join(f"{100 * s['last'][name]['accuracy']:.2f}" for s in summary["seeds"].values())
            pace = np.mean([s["rounds_per_second"] or np.nan for s in summary["seeds"].values()])
            rows.append(
                (run, name, _cell(metrics["accuracy"], True), _cell(metrics["loss"], False), each, f"{pace:.1f}")
            )
    widths = [max(len(row[i]) for row in rows) for i in range(len(rows[0]))]
    lines = ["  ".join(cell.ljust(w) for cell, w in zip(row, widths)).rstrip() for row in rows]
    first = next(iter(summaries.values()))
    seeds = first["seeds"]
    note = f"mean over the last {first['last_rounds']} of {first['num_rounds']} rounds; {len(seeds)} seed(s): {', '.join(map(str, seeds))}"
    diverged = [
        f"{run} seed {seed} diverged in round {s['diverged_at']}"
        for run, summary in summaries.items()
        for seed, s in summary["seeds"].items()
        if s["diverged_at"] is not None
    ]
    return "\n".join([lines[0], "-" * len(lines[0]), *lines[1:], note, *diverged])


def curves(lines: list[dict[str, Any]], readout: str, metric: str = "accuracy") -> tuple[np.ndarray, np.ndarray]:
    """Returns (rounds [R], values [S, R]) of one read-out for the rounds that every seed has."""
    by_seed: dict[int, dict[int, float]] = {}
    for line in lines:
        if readout in line:
            by_seed.setdefault(line["seed"], {})[line["round"]] = float(line[readout][metric])
    rounds = sorted(set.intersection(*(set(found) for found in by_seed.values())))
    return np.array(rounds), np.array([[found[r] for r in rounds] for found in by_seed.values()])


def plot(panels: dict[str, list[tuple[str, np.ndarray, np.ndarray]]], path, title: str) -> None:
    """Draws accuracy curves to a PNG.

    Args:
      panels: panel title -> [(label, rounds [R], accuracies [S, R])]; the line is the mean over seeds, the band one
        standard deviation, thin lines the seeds.
      path: where the PNG goes; title: above all panels.
    """
    import matplotlib

    matplotlib.use("Agg")
    from matplotlib import pyplot as plt

    figure, axes = plt.subplots(1, len(panels), figsize=(8.5 * len(panels), 5), squeeze=False, layout="constrained")
    for axis, (name, lines) in zip(axes[0], panels.items()):
        lowest = []
        for number, (label, rounds, values) in enumerate(lines):
            color = f"C{number}"
            mean, std = np.nanmean(values, 0), np.nanstd(values, 0)
            axis.fill_between(rounds, 100 * (mean - std), 100 * (mean + std), color=color, alpha=0.15, linewidth=0)
            for seed in values:
                axis.plot(rounds, 100 * seed, color=color, alpha=0.25, linewidth=0.6)
            axis.plot(rounds, 100 * mean, color=color, label=label, linewidth=1.8)
            later = mean[rounds >= rounds[-1] / 4]
            lowest.append(100 * np.nanmin(later))
        if name:
            axis.set_title(name)
        axis.set(xlabel="round", ylabel="test accuracy (%)")
        # The first quarter climbs from chance; the claim is about what comes after.
        axis.set_ylim(max(0, min(lowest) - 5), 100)
        axis.grid(alpha=0.3)
        axis.legend(loc="lower right")
    figure.suptitle(title, fontsize="medium")
    path = pathlib.Path(path)
    figure.savefig(path, dpi=130)
    plt.close(figure)
