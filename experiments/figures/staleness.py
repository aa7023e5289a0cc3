"""Figure of an asynchronous run: who trained when, and how old the models were that clients trained from."""

import pathlib
from typing import Any

import numpy as np

from fedwin.errors import UserError
from fedwin.sampling import Sampler

from . import style

CLIENTS = 20
# Length of the time axis, in mean durations of a client's training.
DURATIONS = 12


def compute(sampler: Sampler, seed: int, num_rounds: int, clients: list[int] | None = None) -> dict[str, Any]:
    """Returns when some clients trained at the beginning of a run, and how often each staleness occurs in all of it.

    Args:
      sampler: the run's (PreparedRun.setting.sampling).
      num_rounds: server steps.
      clients: their ids; None: the first CLIENTS that start.

    Raises:
      UserError: the run is synchronous, or has no such client.
    """
    draws = [sampler.cohort(seed, step) for step in range(num_rounds)]
    if draws[0].times is None or draws[0].staleness is None:
        raise UserError("staleness: the run is synchronous; name one that was trained with --asynchronous.")
    fields = ("ids", "staleness", "times")
    ids, staleness, times = (np.concatenate([getattr(draw, name) for draw in draws]) for name in fields)
    if clients and not 0 <= min(clients) <= max(clients) < sampler.num_clients:
        raise UserError(f"staleness: the run has the clients 0..{sampler.num_clients - 1}.")
    shown = clients or list(dict.fromkeys(ids[np.lexsort((ids, times[:, 0]))].tolist()))[:CLIENTS]
    steps = np.cumsum([draw.seconds for draw in draws])
    end = min(DURATIONS * float(np.mean(times[:, 1] - times[:, 0])), float(steps[-1]))
    early = [(times[:, 0] < end) & (ids == client) for client in shown]
    return {
        "kind": "staleness",
        "clients": shown,
        "end": end,
        "steps": style.plain(steps[steps <= end]),
        "trained": [
            [[*span, age] for span, age in zip(times[of].tolist(), staleness[of].tolist(), strict=True)] for of in early
        ],
        "counts": style.plain(np.bincount(staleness)),
        "dropped": sum(draw.dropped for draw in draws),
    }


def draw(result: dict[str, Any], path: str | pathlib.Path | None, title: str):
    """Draws a Gantt chart, a bar per training in the color of its staleness, and a histogram of staleness."""
    from matplotlib import colormaps
    from matplotlib.colors import Normalize

    counts = np.array(result["counts"])
    ages, total, dropped = np.arange(len(counts)), counts.sum(), result["dropped"]
    # A few very old updates would make all others look alike.
    scale = Normalize(0, max(int(np.searchsorted(np.cumsum(counts), 0.95 * total)), 1), clip=True)
    color = lambda age: colormaps["viridis"](scale(age))
    height = max(2.4, 1.2 + 0.14 * len(result["clients"]))
    with style.panels(path, title, 1, 2, height=height, gridspec_kw={"width_ratios": (1.7, 1)}) as (figure, grid):
        chart, histogram = grid[0]
        chart.vlines(result["steps"], -0.6, len(result["clients"]) - 0.4, color="0.88", linewidth=0.6, zorder=0)
        for row, spans in enumerate(result["trained"]):
            for start, arrival, age in spans:
                chart.barh(row, arrival - start, 0.72, start, color=color(age), edgecolor=color(age), linewidth=0.4)
        chart.set_yticks(range(len(result["clients"])), [str(client) for client in result["clients"]])
        chart.set(xlabel="simulated time (s); lines: server steps; colors: staleness", ylabel="client")
        chart.set(xlim=(0, result["end"]), ylim=(len(result["clients"]) - 0.4, -0.6))
        histogram.bar(ages, counts / total, 0.85, color=[color(age) for age in ages])
        mean = float(ages @ counts / total)
        histogram.axvline(mean, color=style.NEUTRAL, linestyle="--", label=f"mean {mean:.1f}")
        further = f", {dropped:,} dropped" if dropped else ""
        histogram.set(xlabel="staleness (server steps)", ylabel=f"share of {total:,} updates{further}")
        histogram.xaxis.get_major_locator().set_params(integer=True)
        histogram.margins(y=0.2)  # room for the legend
        histogram.legend()
    return figure
