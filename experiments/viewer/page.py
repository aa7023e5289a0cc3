"""The viewer's page: data, program and plotting library in one HTML file that loads nothing else."""

import base64
import colorsys
import dataclasses
import datetime
import gzip
import hashlib
import html
import importlib
import json
import pathlib
import re
from collections.abc import Sequence

import fedwin
from fedwin.callbacks.scores import MAIN_METRICS, is_lower
from fedwin.errors import require
from fedwin.runs.config import Config

from ..figures import curves, style
from ..papers.trajectories import EVALUATION, EXECUTION
from ..records import DEFAULTS, Json
from .groups import Group
from .runs import NUMBERS, PATHS, ViewedRun

FOLDER = pathlib.Path(__file__).parent
# Name by which the page calls Vega-Embed.
SNIPPET = "window.vegaEmbed = vegaEmbed;"
# Fields in which runs may differ without being other methods or settings.
NOT_COMPARED = {*EVALUATION, *EXECUTION, *PATHS, *NUMBERS, "run", "state"}
NOT_COMPARED |= {name for name, field in Config.__dataclass_fields__.items() if field.metadata["operational"]}
# Dark colors, and lighter ones for a dark page: all have a contrast of at least 4.5 with it.
LIGHTER = {
    "#000000": "#f0f0f0", "#0072B2": "#6f8cff", "#D55E00": "#f0803c", "#009E73": "#2fc79a", "#8C564B": "#b98579",
    "#7F7F7F": "#9a9a9a", "#7B5FC4": "#a08be0", "#882255": "#c65d9b", "#332288": "#8f80ea", "#117733": "#3fa35f",
    "#AA6611": "#c98a3c",
}  # fmt: skip
# Most fields of a group that are columns of its table.
MOST_FIELDS = 8


def library() -> str:
    """Returns Vega, Vega-Lite and Vega-Embed as one script; raises UserError if they are not installed."""
    require("view", "vl-convert-python", "view", "vl_convert")
    return importlib.import_module("vl_convert").javascript_bundle(SNIPPET)


def payload(
    viewed: Sequence[ViewedRun], groups: Sequence[Group], left_out: Sequence[str] = (), reload: int = 0
) -> Json:
    """Returns the data of a page, with thinned curves; the page loads itself again after `reload` seconds, 0: never."""
    metrics = dict.fromkeys(curve["metric"] for run in viewed for curve in run.curves)
    by_name = {run.name: number for number, run in enumerate(viewed)}
    return {
        "version": fedwin.__version__,
        "made": f"{datetime.datetime.now():%Y-%m-%d %H:%M:%S}",
        "reload": reload,
        "metrics": {name: {"label": style.axis_of(name), "lower": is_lower(name)} for name in metrics},
        "axes": curves.AXES,
        "defaults": style.plain(DEFAULTS),
        # Vega-Lite's specifications, which the page fills with rows, titles and domains.
        "charts": json.loads((FOLDER / "charts.json").read_text()),
        "runs": [dataclasses.asdict(run) for run in viewed],
        "groups": [_group(group, viewed, by_name) for group in groups],
        "left_out": list(left_out),
    }


def _group(group: Group, viewed: Sequence[ViewedRun], by_name: dict[str, int]) -> Json:
    # The read-outs of a single run differ by color.
    color = "label" if len({entry.label for entry in group.entries}) > 1 else "readout"
    names = list(dict.fromkeys(getattr(entry, color) for entry in group.entries))
    runs = {entry.run: viewed[by_name[entry.run]] for entry in group.entries}
    fields = differing(list(runs.values()))
    grids = [list(axes) for _, axes in {(run.folder, tuple(run.grid)) for run in runs.values() if run.grid}]
    metrics = dict.fromkeys(curve["metric"] for run in runs.values() for curve in run.curves) or {"accuracy": None}
    known = {axis for run in runs.values() for curve in run.curves for axis in curve["axes"]}
    ordered = sorted(metrics, key=lambda metric: metric not in MAIN_METRICS)
    return {
        "name": group.name,
        "heading": group.heading,
        "note": group.note,
        "entries": [dataclasses.asdict(entry) | {"run": by_name[entry.run]} for entry in group.entries],
        "color": color,
        "names": names,
        "colors": [colors(names, dark=False), colors(names, dark=True)],
        "fields": fields,
        "runs": list(runs),
        "grid": grids.pop() if len(grids) == 1 else [],
        "panels": list(dict.fromkeys(entry.panel for entry in group.entries)),
        "readouts": list(dict.fromkeys(entry.readout for entry in group.entries)),
        "axes": [axis for axis in curves.AXES if axis in {"round", *known}],
        "tables": {metric: _table(group, runs, metric, fields) for metric in ordered},
        "numbers": style.plain(group.numbers),
        "claims": style.plain(group.claims),
    }


def colors(labels: list[str], dark: bool) -> list[str]:
    """Returns a color per label: those of methods if they differ, else a palette."""
    found = [look["color"] for look in style.looks(labels)]
    if len(set(found)) < len(found):
        found = list(style.COLORS[: len(found)])
    if len(found) < len(labels):
        parts = [colorsys.hls_to_rgb(0.382 * place % 1, 0.7 if dark else 0.42, 0.65) for place in range(len(labels))]
        return ["#" + "".join(f"{round(255 * part):02x}" for part in rgb) for rgb in parts]
    return [LIGHTER.get(color, color) if dark else color for color in found]


def _table(group: Group, runs: dict[str, ViewedRun], metric: str, fields: list[str]) -> dict[str, list]:
    """Returns titles of columns, and a row per read-out of a run: numbers of one metric, sizes, fields that differ."""
    head = ["run", "read-out", style.axis_of(metric), "± std", "last", "best", "in round", "state", *NUMBERS, *fields]
    rows = []
    for entry in group.entries:
        run = runs[entry.run]
        settings = DEFAULTS | run.settings
        curve = next((c for c in run.curves if (c["readout"], c["metric"]) == (entry.readout, metric)), None)
        numbers = [None] * 5 if curve is None else [*curve["final"], curve["last"], *curve["best"]]
        rows.append(
            [entry.label, entry.readout, *numbers, *(settings.get(name) for name in ("state", *NUMBERS, *fields))]
        )
    used = [place for place in range(len(head)) if place < 3 or any(row[place] is not None for row in rows)]
    kept = [[row[place] for place in used] for row in rows]
    return {"head": [head[place] for place in used], "rows": style.plain(kept)}


def differing(viewed: Sequence[ViewedRun]) -> list[str]:
    """Returns the fields and parameters of choices in which runs differ, numbers first.

    A choice whose name is the same everywhere is described by its parameters.
    """
    values = [DEFAULTS | run.settings for run in viewed]
    columns = {name: [each.get(name) for each in values] for each in values for name in each}
    columns = {n: column for n, column in columns.items() if n not in NOT_COMPARED and len(set(map(str, column))) > 1}
    bare = lambda name: len({str(value).partition(":")[0] for value in columns[name]}) == 1
    kept = [n for n in columns if not (bare(n) and any(other.startswith(f"{n}.") for other in columns))]
    numeric = lambda name: all(isinstance(value, (int, float)) for value in columns[name])
    return sorted(kept, key=lambda name: not numeric(name))[:MOST_FIELDS]


def build(data: Json, title: str, bundle: str) -> str:
    """Returns the page as HTML.

    Its policy (Content-Security-Policy) allows the two scripts of the page, by their hashes, and no connection.
    """
    text = json.dumps(data, separators=(",", ":"), allow_nan=False)
    scripts = [inline(bundle), inline((FOLDER / "page.js").read_text())]
    hashes = [base64.b64encode(hashlib.sha256(script.encode()).digest()).decode() for script in scripts]
    parts = {
        "policy": " ".join(f"'sha256-{each}'" for each in hashes),
        "title": html.escape(title),
        "style": (FOLDER / "page.css").read_text(),
        "library": scripts[0],
        "program": scripts[1],
        # Letters and digits, whatever texts the data contain.
        "data": base64.b64encode(gzip.compress(text.encode(), mtime=0)).decode(),
    }
    return re.sub(r"\{\{(\w+)\}\}", lambda match: parts[match[1]], (FOLDER / "page.html").read_text())


def inline(script: str) -> str:
    """Returns a script as it may stand in HTML: text that would end or comment it out occurs in its strings only."""
    return re.sub(r"<(/script|!--)", r"<\\\1", script, flags=re.IGNORECASE).replace("\r\n", "\n").replace("\r", "\\r")
