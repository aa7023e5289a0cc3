"""Vega-Lite specifications of the viewer's charts; the page fills in data, titles and domains.

Vega-Lite itself selects by the legend, shows the numbers under the pointer, and moves and zooms.
"""

import colorsys
from typing import Any

from ..figures import style

Spec = dict[str, Any]
DASHES = [[1, 0], [6, 3], [2, 2], [9, 3, 2, 3], [1, 3], [12, 4], [4, 1], [1, 1]]
# Most names of a legend; the filter reduces them.
MOST_NAMES = 40
# Dark colors, and lighter ones for a dark page.
LIGHTER = {"#000000": "#f0f0f0", "#0072B2": "#6f8cff", "#D55E00": "#f0803c", "#009E73": "#2fc79a"}
SHOWN = {"and": [{"param": "names"}, {"param": "readouts"}]}


def colors(labels: list[str], dark: bool) -> list[str]:
    """Returns a color per label: those of methods if they differ, else a palette.

    Args:
      labels: in the order of the legend.
      dark: whether the page is dark.
    """
    found = [look["color"] for look in style.looks(labels)]
    if len(set(found)) < len(found):
        found = list(style.COLORS[: len(found)])
    if len(found) < len(labels):
        lightness = 0.64 if dark else 0.42
        parts = [colorsys.hls_to_rgb(0.382 * place % 1, lightness, 0.65) for place in range(len(labels))]
        return ["#" + "".join(f"{round(255 * part):02x}" for part in rgb) for rgb in parts]
    return [LIGHTER.get(color, color) if dark else color for color in found]


def theme(dark: bool) -> Spec:
    """Returns Vega-Lite's config for a light or a dark page."""
    text, soft, line = ("#e6e9ec", "#9aa5b1", "#363d46") if dark else ("#1c2127", "#5b6570", "#d8dde3")
    axis = {"labelColor": soft, "titleColor": text, "gridColor": line, "domainColor": line, "tickColor": line}
    return {
        "font": "system-ui, DejaVu Sans, sans-serif",
        "background": None,
        "view": {"stroke": None},
        "axis": axis | {"labelFontSize": 12, "titleFontSize": 12.5, "titleFontWeight": "normal"},
        "legend": {"labelColor": soft, "titleColor": text, "labelLimit": 220, "symbolLimit": MOST_NAMES},
        "header": {"labelColor": text, "titleColor": text, "labelLimit": 300},
    }


def curves() -> Spec:
    """Returns the chart of curves: a row per curve with c (its number), name, readout, and lists round, x, y, std."""
    faded: Spec = {"condition": {"test": SHOWN, "value": 1}, "value": 0.05}
    chosen = {"type": "point", "on": "pointerover", "nearest": True, "clear": "pointerout"}
    names = {"symbolOpacity": 1, "symbolType": "stroke", "symbolStrokeWidth": 3}
    moved = {"type": "interval", "zoom": "wheel![event.shiftKey]"}
    tips = [{"field": field, "type": "nominal"} for field in ("name", "readout", "round")]
    tips += [{"field": field, "type": "quantitative", "format": ".5~g"} for field in ("y", "std")]
    return {
        "width": "container",
        "height": 420,
        "autosize": {"type": "fit", "contains": "padding"},
        "data": {"name": "points"},
        "transform": [
            {"flatten": ["round", "x", "y", "std"]},
            {"filter": "isValid(datum.x) && isValid(datum.y)"},
            {"calculate": "datum.y - (datum.std || 0)", "as": "lo"},
            {"calculate": "datum.y + (datum.std || 0)", "as": "hi"},
            {
                "window": [{"op": "mean", "field": field, "as": field} for field in ("y", "lo", "hi")],
                "frame": [0, 0],  # smoothing
                "groupby": ["c"],
            },
        ],
        "encoding": {
            "x": {"field": "x", "type": "quantitative", "scale": {"zero": False, "nice": False}, "title": ""},
            "y": {"field": "y", "type": "quantitative", "scale": {"zero": False}, "title": ""},
            "color": {"field": "name", "type": "nominal", "scale": {}, "title": None, "legend": names},
            "detail": {"field": "c"},
        },
        "layer": [
            {
                "mark": {"type": "area", "clip": True},
                "encoding": {
                    "y": {"field": "lo", "type": "quantitative", "title": ""},
                    "y2": {"field": "hi"},
                    "opacity": {"condition": {"test": SHOWN, "value": 0.1}, "value": 0},
                },
            },
            {
                "params": [
                    {"name": "names", "select": {"type": "point", "fields": ["name"]}, "bind": "legend"},
                    {"name": "readouts", "select": {"type": "point", "fields": ["readout"]}, "bind": "legend"},
                    {"name": "zoom", "select": moved, "bind": "scales"},
                ],
                "mark": {"type": "line", "clip": True, "strokeWidth": 1.6},
                "encoding": {
                    "order": {"field": "round"},
                    "opacity": faded,
                    "tooltip": tips[:2],
                    "strokeDash": {"field": "readout", "type": "nominal", "scale": {"range": DASHES}, "title": None},
                },
            },
            {
                "params": [{"name": "near", "select": chosen}],
                "mark": {"type": "point", "filled": True, "size": 60, "clip": True},
                "encoding": {
                    "opacity": {"condition": {"param": "near", "empty": False, "value": 1}, "value": 0},
                    "tooltip": tips,
                },
            },
        ],
    }


def heat_map(best: str) -> Spec:
    """Returns the chart of a sweep: rows x, y (values of two fields), v (metric of a run).

    Args:
      best: of several runs in one cell, max or min.
    """
    value: Spec = {"aggregate": best, "field": "v", "type": "quantitative"}
    cell = {"type": "ordinal", "axis": {"labelLimit": 220, "labelAngle": 0}}
    contrast = f"luminance(scale('color', datum['{best}_v'])) > 0.4"
    scale = {"scheme": "viridis", "zero": False, "reverse": best == "min"}
    return {
        "width": {"step": 64},
        "height": {"step": 34},
        "data": {"name": "cells"},
        "encoding": {"x": cell | {"field": "x"}, "y": cell | {"field": "y"}},
        "layer": [
            {"mark": "rect", "encoding": {"color": value | {"scale": scale}}},
            {
                "mark": {"type": "text", "fontSize": 12},
                "encoding": {
                    "text": value | {"format": ".4~g"},
                    "color": {"condition": {"test": contrast, "value": "#111111"}, "value": "#ffffff"},
                },
            },
        ],
    }


def histograms() -> Spec:
    """Returns histograms of clients: rows title, lo, hi (edges of a bin), share (of the clients, in percent)."""
    return {
        "data": {"name": "bins"},
        "columns": 3,
        "facet": {"field": "title", "type": "nominal", "title": None, "sort": None},
        "spec": {
            "width": 250,
            "height": 110,
            "mark": "bar",
            "encoding": {
                "x": {"field": "lo", "type": "quantitative", "bin": {"binned": True}, "title": ""},
                "x2": {"field": "hi"},
                "y": {"field": "share", "type": "quantitative", "title": "clients (%)"},
            },
        },
    }
