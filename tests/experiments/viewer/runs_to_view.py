"""Runs to view: stored results with curves of any length and names, without training, and the data of pages."""

import base64
import gzip
import json
import re
from typing import Any

import numpy as np

from experiments import records
from experiments.viewer import groups, page, runs


def stored(path, *, rounds=200, seeds=(0,), config=None, readouts=("model",), metrics=("accuracy", "loss"), seed=0):
    """Writes a stored result whose evaluations are random walks; returns its path."""
    random = np.random.default_rng(seed)
    settings = {"algorithm": "fedavg", "dataset": "digits", "num_rounds": rounds, "eval_every": 1, "final_evals": 10}
    lines = []
    for each in seeds:
        walks = {(r, m): random.normal(0, 0.02, rounds + 1).cumsum() + 0.5 for r in readouts for m in metrics}
        for round in range(rounds + 1):
            values = {r: {m: float(walks[r, m][round]) for m in metrics} for r in readouts}
            sizes = {"bytes_down": 1000 * round, "bytes_up": 2000 * round, "simulated_seconds": 0.5 * round}
            lines.append({"seed": each, "round": round, **values, **sizes})
    about = {"config": settings | {"seeds": list(seeds)} | (config or {}), "fingerprint": "0123456789abcdef"}
    about |= {"versions": {"fedwin": "0.2.0"}, "device": "cpu cpu x1", "strategy": "chunked:k=1"}
    path.parent.mkdir(parents=True, exist_ok=True)
    records.write(path, records.Record(about, lines, {"seeds": {}}))
    return path


def viewed(*paths) -> dict[str, Any]:
    """Returns the data of the page of some folders."""
    found = [runs.read(path, name) for path, name in runs.find(paths).items()]
    return page.payload(found, groups.of_folders(found))


def unpacked(text: str) -> dict[str, Any]:
    """Returns the data of a page."""
    found = re.search(r'<script id="data" type="text/plain">([A-Za-z0-9+/=]*)</script>', text)
    assert found is not None
    return json.loads(gzip.decompress(base64.b64decode(found[1])))
