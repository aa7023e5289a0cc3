"""Window-based model averaging (WIMA): any number of windows over one trajectory."""

from collections.abc import Sequence
from typing import Literal

import jax
import jax.numpy as jnp

from fedwin import tree
from fedwin import window as windows
from fedwin.core import Observer, Setting, Variables
from fedwin.errors import UserError
from fedwin.observers.registry import OBSERVERS, ReadOut
from fedwin.observers.weights import age_weights, parse_weights
from fedwin.registry.ranges import PositiveInt

Part = Literal["all", "classifier", "features"]


def wima_name(window: int, part: str = "all", weights: str = "uniform") -> str:
    """Returns the name of the read-out of a WIMA choice; arguments as in `wima_reading`.

    Example:
      >>> wima_name(50), wima_name(100, "classifier"), wima_name(20, weights="cosine")
      ('wima50', 'wima100_classifier', 'wima20_cosine')
    """
    named = [text for text, default in ((weights, "uniform"), (part, "all")) if text != default]
    return "_".join([f"wima{window}", *named])


def select(mask, chosen, rest):
    """Returns a tree with the leaves of `chosen` where the mask, a tree of booleans, is true, and of `rest` elsewhere.

    Example:
      >>> select({"a": True, "b": False}, {"a": 1, "b": 2}, {"a": 3, "b": 4})
      {'a': 1, 'b': 4}
    """
    return jax.tree.map(lambda m, a, b: a if m else b, mask, chosen, rest)


def mask_of_part(params, part: str, path: tuple[str, ...], owner: str):
    """Returns a boolean tree that is true on the leaves of a part of the model, its 'classifier' or its 'features'.

    Args:
      path: path of the classifier in params.
      owner: the method that has the option, for messages.

    Raises:
      UserError: when there are no leaves below the path, or no others.

    Example:
      >>> mask_of_part({"body": 0.0, "last": {"bias": 0.0}}, "features", ("last",), "wima")
      {'body': True, 'last': {'bias': False}}
    """
    wanted = tuple(path)

    def below(key_path, leaf):
        keys = tuple(str(getattr(k, "key", getattr(k, "name", getattr(k, "idx", k)))) for k in key_path)
        return keys[: len(wanted)] == wanted

    in_classifier = jax.tree_util.tree_map_with_path(below, params)
    if not wanted or not any(jax.tree.leaves(in_classifier)):
        where = f"below its classifier path {'/'.join(wanted) or '(none)'}"
        raise UserError(f"{owner}, part={part}: the model has no parameters {where}.")
    if part == "features" and all(jax.tree.leaves(in_classifier)):
        raise UserError(f"{owner}, part=features: the model has no parameters besides its classifier.")
    return jax.tree.map(lambda inside: inside == (part == "classifier"), in_classifier)


def wima(
    readings: tuple[ReadOut, ...], classifier_path: tuple[str, ...] = (), num_rounds: int | None = None
) -> Observer:
    """Returns an observer of any number of WIMA windows over one trajectory.

        w_WIMA^t = sum_{k=0}^{W-1} c_k w^{t-k},   c_k = 1/W;   before round W the mean of w^1..w^t ('partial') or w^t

    A mean with equal weights costs one addition and one subtraction of a vector per round. A mean with other weights
    costs nothing until it is read, and then one pass over its W models. If the ring buffer is on the host or in a file,
    these W models are on the device during a dispatch.

    Args:
      readings: the read-outs; one ring buffer of the longest window serves all.
      classifier_path: path of the last layer in params.
      num_rounds: rounds of the run, which bound the size of the ring buffer; None if unknown.

    Returns:
      The core.Observer, with one read-out per reading.

    Raises:
      UserError: when there is no reading, or one is invalid.

    Source: Caldarola et al., Window-based Model Averaging Improves Generalization in Heterogeneous Federated Learning,
    2023, https://arxiv.org/abs/2310.01366.
    """
    if not isinstance(readings, (tuple, list)) or not readings or not all(isinstance(r, ReadOut) for r in readings):
        raise UserError(f"wima: readings={readings!r} must be a tuple of one or more observers.ReadOut(name, window).")
    for r in readings:
        windows.check_size("window", r.window)
    readings = tuple(r._replace(weights=parse_weights(r.weights, r.window)) for r in readings)
    # No model ever leaves a window that is longer than the run.
    held = lambda size: size if num_rounds is None else min(size, num_rounds)
    sizes = tuple(dict.fromkeys(r.window for r in readings if r.weights == "uniform"))
    capacities = tuple(map(held, sizes))
    weighted = max((held(r.window) for r in readings if r.weights != "uniform"), default=0)

    def init(model: Variables):
        packing = windows.flat(model)
        return windows.init(packing.size, capacities, packing.dtype, weighted)

    def update(round, model, state):
        return windows.push(state, windows.flat(model).pack(model), capacities)

    def read(model, state):
        packing = windows.flat(model)
        averages = {w: packing.unpack(windows.mean(state, i, capacities[i])) for i, w in enumerate(sizes)}
        out = {}
        for r in readings:
            # The mean of one model is that model, bitwise.
            if r.window == 1:
                average = model
            elif r.weights == "uniform":
                average = averages[r.window]
            else:
                filled = jnp.clip(state.count, 1, held(r.window))
                weights = age_weights(r.weights, held(r.window), filled, packing.dtype)
                average = packing.unpack(windows.weighted_mean(state, weights))
            ready = (state.count > 0) if r.warmup == "partial" else (state.count >= r.window)
            average = tree.where(ready, average, model)
            if r.part != "all":
                mask = mask_of_part(model.params, r.part, classifier_path, "wima")
                stats = average.stats if r.part == "features" else model.stats
                average = Variables(select(mask, average.params, model.params), stats)
            out[r.name] = average
        return out

    return Observer(init, update, read)


def wima_of(readings: Sequence[ReadOut], setting: Setting) -> Observer:
    """Returns the observer of all WIMA read-outs of a run."""
    path = () if setting.model is None else setting.model.classifier_path
    return wima(tuple(readings), path, setting.most_rounds)


@OBSERVERS.register("wima", paper="caldarola2023window")
def wima_reading(
    setting: Setting,
    *,
    window: PositiveInt,
    part: Part = "all",
    warmup: Literal["partial", "raw"] = "partial",
    weights: str = "uniform",
) -> ReadOut:
    """WIMA: w_WIMA^t = (1/W) sum_{k=0}^{W-1} w^{t-k}; all windows of a run share one ring buffer.

        w_WIMA^t = sum_{k=0}^{W-1} c_k w^{t-k},   c_k = 1/W

    Other weights c_k stand for a decay of the learning rate (Tian et al., WSM, 2025, https://arxiv.org/abs/2507.17634):
    to first order, steps whose rate decays along a curve f, from f(0) = 1 to f(1) = 0, end at the mean with
    c_k = f((W-1-k)/W) - f((W-k)/W).

    Args:
      window: W, models in the mean.
      part: 'all', or the part taken from the average: 'classifier' or 'features'.
      warmup: before round W, 'partial' returns the mean of the models so far, 'raw' the model itself.
      weights: c_k by the decay that they stand for: 'uniform' or 'linear', f(s) = 1 - s, equal weights; 'cosine', (1 +
        cos(pi s)) / 2, most in the middle; 'inverse_sqrt', 1 - sqrt(s), most for the oldest; 'quadratic', 1 - s^2,
        growing linearly to the newest. Or W numbers, newest first, such as '3-2-1', divided by their sum.

    Returns:
      The ReadOut 'wimaW' ('wimaW_classifier', 'wimaW_features', 'wimaW_cosine' ...).

    Source: Caldarola et al., Window-based Model Averaging Improves Generalization in Heterogeneous Federated Learning,
    2023, https://arxiv.org/abs/2310.01366.

    Example:
      >>> from fedwin import testing
      >>> testing.run_rounds("fedavg", observers=["wima:window=2", "wima:window=3"])
      {'model': [3.916, 3.315, 3.169], 'wima2': [3.916, 3.576, 3.236], 'wima3': [3.916, 3.576, 3.414]}
    """
    return ReadOut(wima_name(window, part, weights), window, part, warmup, weights)
