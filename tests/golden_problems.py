"""The two problems of golden_wima_ghb.json (or of any file of that schema), built from the file."""

import json
import os
import pathlib

import jax.numpy as jnp
import numpy as np

from fedwin import testing

HERE = pathlib.Path(__file__).parent / "golden"
FOLDER = pathlib.Path(os.environ.get("FEDWIN_GOLDEN_DIR") or HERE)


def load(name: str, folder: pathlib.Path = FOLDER) -> dict:
    """Reads folder/name (by default of FEDWIN_GOLDEN_DIR), or tests/golden/name where that folder has no such file."""
    path = folder / name
    return json.loads((path if path.exists() else HERE / name).read_text())


def array(x):
    """The numbers of a file in the precision of a test."""
    return jnp.asarray(x, float)


def problem_a(meta: dict, **changes) -> testing.Problem:
    """Scalar quadratics, full participation unless the file says otherwise."""
    args = dict(steps=meta["J"], lr=meta["lr"], schedule=meta["schedule"], sizes=meta["n"]) | changes
    return testing.quadratic(meta["a"], meta["b"], meta["theta0"], **args)


def problem_b(meta: dict, **changes) -> testing.Problem:
    """Linear regression, unequal clients, mini-batches."""
    args = dict(batch_size=meta["batch"], epochs=meta["epochs"], lr=meta["lr"], schedule=meta["schedule"]) | changes
    return testing.regression(meta["x"], meta["y"], meta["theta0"], **args)


def vector(params) -> np.ndarray:
    """The parameters as the file writes them: x, or [w, b]."""
    if "x" in params:
        return np.asarray(params["x"])
    return np.array([params["features"]["kernel"], params["classifier"]["bias"]])


def tree(p: testing.Problem, values):
    """The reverse of `vector` for one model."""
    values = np.asarray(values)
    if "x" in p.variables.params:
        return {"x": values}
    return {"features": {"kernel": values[..., 0]}, "classifier": {"bias": values[..., 1]}}
