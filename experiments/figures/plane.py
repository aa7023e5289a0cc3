"""Figure of loss and error on the plane through three models."""

import pathlib
from collections.abc import Mapping
from typing import Any

import numpy as np

from fedwin import analysis
from fedwin.errors import UserError
from fedwin.runs.load import TrainedModel

from . import probing, style

# The split of the examples.
SPLIT = "test"
# Points along an axis.
POINTS = 21
# Contours end at this quantile: otherwise distant corners of the plane would take up most colors.
HIGHEST_SHOWN = 0.9
LEVELS = 16
# Both axes have the same scale, unless the aspect ratio exceeds this.
MOST_OBLONG = 2.2


@probing.in_precision
def compute(
    trained: TrainedModel,
    corners: Mapping[str, Any],
    further: Mapping[str, Any] | None = None,
    *,
    points: int = POINTS,
    count: int = 0,
) -> dict[str, Any]:
    """Returns loss and error on a grid, at the models, at their mean and at others that are projected onto the plane.

    All points are evaluated in one compiled program and one dispatch.

    Args:
      corners: label -> Variables of the three models that span the plane.
      further: label -> Variables of other models.

    Raises:
      UserError: not three models, or models that are collinear or not finite, or labels without an error rate.
    """
    if trained.prepared.dataset.task == "regression":
        raise UserError("plane: continuous labels have no error rate; draw 'fedwin figure line'.")
    if len(corners) != 3:
        raise UserError(f"plane: {len(corners)} model(s); exactly three are needed.")
    further = dict(further or {})
    through = analysis.plane(*corners.values())
    a, b = analysis.grid(through, points=points)
    # As in `analysis.point`.
    third = np.repeat(b, len(a)) / through.b3
    second = (np.tile(a, len(b)) - third * through.a3) / through.a2
    rows = [*np.stack([1 - second - third, second, third], 1), *np.eye(3), np.full(3, 1 / 3)]
    in_plane = np.pad(rows, ((0, 0), (0, len(further))))
    coefficients = np.concatenate([in_plane, np.eye(3 + len(further))[3:]])
    evaluate, batches = probing.probe(trained, [SPLIT], count)
    models = [*corners.values(), *further.values()]
    metrics = analysis.mixtures(models, coefficients, evaluate, batches)[SPLIT]
    metrics = {**metrics, "error": 1 - metrics["accuracy"]}
    size = len(a) * len(b)
    surface = {name: style.plain(metrics[name][:size].reshape(len(b), len(a))) for name in ("loss", "error")}
    marks = [
        mark | {name: style.plain(metrics[name][size + number]) for name in ("loss", "error")}
        for number, mark in enumerate(_places(through, list(corners), further))
    ]
    sizes = {"examples": int(batches[SPLIT]["mask"].sum()), "evaluations": len(coefficients)}
    axes = {"a": a.tolist(), "b": b.tolist()}
    return {"kind": "plane", "split": SPLIT, **sizes, **axes, **surface, "points": marks}


def _places(through: analysis.Plane, corners: list[str], further: Mapping[str, Any]) -> list[dict[str, Any]]:
    """Returns label, role, coordinates and residual of the models, in the order of their evaluation."""
    coordinates = analysis.corners(through)
    places = [(label, "corner", *at, 0.0) for label, at in zip(corners, coordinates)]
    places.append(("mean of the three", "mean", *coordinates.mean(0), 0.0))
    places += [(label, "further", *analysis.place(through, model)) for label, model in further.items()]
    return [
        {"label": label, "role": role, "a": float(a), "b": float(b), "residual": residual}
        for label, role, a, b, residual in places
    ]


def draw(result: dict[str, Any], path: str | pathlib.Path | None, title: str):
    """Draws contours of loss and error, triangles at the three models and a white cross at their mean."""
    a, b = np.array(result["a"]), np.array(result["b"])
    oblong = (a[-1] - a[0]) / (b[-1] - b[0])
    height = style.HEIGHT + 0.17 * len(result["points"])
    with style.panels(path, title, columns=2, width=0.85 * style.WIDTH, height=height) as (figure, grid):
        for axis, metric in zip(grid[0], ("loss", "error")):
            values = style.scaled(metric, result[metric])
            finite = values[np.isfinite(values)]
            low, high = float(finite.min()), float(np.quantile(finite, HIGHEST_SHOWN))
            # Denser at low values.
            levels = low + (high - low if high > low else 1e-9) * np.linspace(0, 1, LEVELS) ** 1.5
            shown = axis.contourf(a, b, values, levels, cmap="viridis_r", extend="both")
            axis.contour(a, b, values, levels, colors="white", linewidths=0.3, alpha=0.6)
            bar = figure.colorbar(shown, ax=axis, shrink=0.8, format="%.3g")
            bar.set_label(style.axis_of(metric, result["split"]))
            for number, mark in enumerate(result["points"]):
                axis.plot(mark["a"], mark["b"], linestyle="none", **_marker(number, mark["role"]))
            if 1 / MOST_OBLONG < oblong < MOST_OBLONG:
                axis.set_aspect("equal")
            axis.set(xlabel="distance along u", ylabel="distance along v")
        handles = grid[0, 0].get_lines()
        labels = [style.wrapped(_legend_line(mark), 105) for mark in result["points"]]
        figure.legend(handles, labels, loc="outside lower center", ncols=1, frameon=False)
    return figure


def _marker(number: int, role: str) -> dict[str, Any]:
    edge = {"markeredgecolor": "white", "markeredgewidth": 0.8}
    if role == "corner":
        return {"marker": "^", "color": style.VARIATIONS[number], "markersize": 9, **edge}
    if role == "mean":
        # The dark edge makes the white cross visible in the legend.
        return {"marker": "X", "color": "white", "markersize": 8, "markeredgecolor": "black", "markeredgewidth": 0.9}
    return {
        "marker": "PsDvo"[number % 5],
        "color": style.VARIATIONS[(number - 1) % len(style.VARIATIONS)],
        "markersize": 7.5,
        **edge,
    }


def _legend_line(mark: dict[str, Any]) -> str:
    """Returns an entry of the legend: the model, its loss and error, and its distance from the plane."""
    numbers = [f"{mark['label']}: loss {mark['loss']:.3g}" if mark["loss"] is not None else f"{mark['label']}: no loss"]
    if mark["error"] is not None:
        numbers.append(f"error {style.PERCENT * mark['error']:.1f} %")
    if mark["role"] == "further":
        numbers.append(f"{mark['residual']:.3g} away from the plane")
    return ", ".join(numbers)
