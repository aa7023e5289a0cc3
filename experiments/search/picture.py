"""Picture of a search: the metric of every trial against each parameter that was drawn."""

import pathlib
from collections.abc import Mapping
from typing import Any

from fedwin.analysis import Interval

from ..figures import style
from ..tables import formats, sweep_picture
from . import spaces

COLUMNS = 3


def draw(
    space: spaces.Space,
    drawn: Mapping[str, Mapping[str, Any]],
    intervals: Mapping[str, Interval],
    pruned: Mapping[str, int],
    best: str | None,
    scale: sweep_picture.Scale,
    path: pathlib.Path,
) -> None:
    """Draws a finished search to a PNG, a panel per parameter.

    Args:
      space: field -> Axis.
      drawn: label -> parameter -> value of the trials.
      intervals: label -> the metric that its run is ranked by.
      pruned: label of a pruned run -> the round.
      best: label of the best run, or None.
      scale: how the metric is written.
      path: of the picture.
    """
    parameters = [parameter for axis in space.values() for parameter in axis.parameters]
    columns = max(min(len(parameters), COLUMNS), 1)
    rows = max(-(-len(parameters) // columns), 1)
    figure, axes = style.subplots(rows, columns, figsize=(4.2 * columns + 1, 3.6 * rows + 0.8), squeeze=False)
    means = {label: scale.factor * each.mean for label, each in intervals.items() if each.mean is not None}
    for number, (panel, parameter) in enumerate(zip(axes.flat, parameters)):
        values = {label: of_trial[parameter.name] for label, of_trial in drawn.items() if parameter.name in of_trial}
        _panel(panel, parameter, values, means, pruned, best)
        panel.set(xlabel=parameter.title)
        if number % columns == 0:
            panel.set(ylabel=scale.name)
        if scale.percent:
            style.within_percent(panel, "y")
    for panel in axes.flat[len(parameters) :]:
        panel.set_visible(False)
    handles, labels = axes.flat[0].get_legend_handles_labels()
    figure.legend(handles, labels, loc="outside lower center", ncols=max(len(labels), 1), frameon=False)
    diverged = sum(interval.mean is None for interval in intervals.values())
    title = f"{scale.name}; {len(drawn)} trials, {len(pruned)} pruned" + (f", {diverged} diverged" if diverged else "")
    if best is not None:
        title += f"\nbest: {style.short(best)}: {formats.number(means[best], scale.digits)}"
    figure.suptitle(title, fontsize="medium")
    style.save(figure, path)


def _panel(
    panel: Any,
    parameter: spaces.Parameter,
    values: Mapping[str, Any],
    means: Mapping[str, float],
    pruned: Mapping[str, int],
    best: str | None,
) -> None:
    names = sorted(set(map(str, values.values())))
    place = {label: names.index(str(v)) if parameter.range is None else v for label, v in values.items()}
    shown = [label for label in values if label in means]
    finished, stopped = ([label for label in shown if (label in pruned) == flag] for flag in (False, True))
    dots: dict[str, Any] = dict(color=style.NEUTRAL, linestyle="", marker="o")
    at = lambda labels: ([place[label] for label in labels], [means[label] for label in labels])
    panel.plot(*at(finished), **dots, label="finished")
    panel.plot(*at(stopped), **dots, fillstyle="none", alpha=0.6, label="pruned")
    if best in shown:
        panel.plot(*at([best]), "*", color=style.BEST, markersize=15, zorder=3, label="best")
    # Invisible points extend the axis to the values of diverged runs.
    panel.plot(list(place.values()), [min(means.values(), default=0)] * len(place), alpha=0)
    if parameter.range is None:
        panel.set_xticks(range(len(names)), map(style.short, names))
        panel.margins(x=0.25)
        style.slant(panel)
    elif parameter.range.log:
        panel.set_xscale("log")
    panel.grid(alpha=0.3)
