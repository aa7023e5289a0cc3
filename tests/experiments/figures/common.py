"""Helpers of the tests of figures."""

import json

import numpy as np
from PIL import Image

from experiments.figures import stored


def drawn(found, tmp_path):
    """Checks that a result survives JSON unchanged and that the result read back makes a picture that is not blank."""
    stored.write(tmp_path / "stored.json", found, "Title")
    again, title = stored.read(tmp_path / "stored.json")
    assert title == "Title" and again == found == json.loads(json.dumps(found, allow_nan=False))
    stored.redraw(tmp_path / "stored.json", tmp_path / "picture.png")
    pixels = np.asarray(Image.open(tmp_path / "picture.png").convert("L"))
    assert min(pixels.shape) > 60 and pixels.std() > 5
    return pixels


def line(seed, round, accuracy, loss=1.0, readout="model"):
    """A line of metrics.jsonl."""
    return {"seed": seed, "round": round, readout: {"accuracy": accuracy, "loss": loss}}
