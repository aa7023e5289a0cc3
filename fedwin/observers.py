"""Read-outs of a trajectory: WIMA, SWA at a constant rate, EMA. Training with and without them is bitwise the same."""

from typing import NamedTuple

import jax
import jax.numpy as jnp

from fedwin import tree, window as windows
from fedwin.core import Observer, Variables
from fedwin.errors import UserError
from fedwin.registry import Registry

OBSERVERS = Registry("observer")
PARTS = ("all", "classifier", "features")


class Reading(NamedTuple):
    """One read-out of a WIMA observer: its name, window size, part of the model, warm-up."""

    name: str
    window: int
    part: str = "all"
    warmup: str = "partial"


def select(mask, chosen, rest):
    """Leaf by leaf: `chosen` where the boolean tree `mask` says so, else `rest`."""
    return jax.tree.map(lambda m, a, b: a if m else b, mask, chosen, rest)


def classifier_mask(params, path: tuple[str, ...]):
    """Returns a boolean tree, True on the leaves below `path`; raises UserError if there are none."""
    wanted = tuple(path)

    def below(key_path, leaf):
        keys = tuple(str(getattr(k, "key", getattr(k, "name", getattr(k, "idx", k)))) for k in key_path)
        return keys[: len(wanted)] == wanted

    mask = jax.tree_util.tree_map_with_path(below, params)
    if not wanted or not any(jax.tree.leaves(mask)):
        raise UserError(f"the model has no parameters below its classifier path {'/'.join(wanted) or '(none)'}.")
    return mask


def wima(readings: tuple[Reading, ...], classifier_path: tuple[str, ...] = ()) -> Observer:
    """Window-based model averaging, any number of windows over one trajectory.

    w_WIMA^t = (1/W) sum_{k=0}^{W-1} w^{t-k}; before round W the mean of w^1..w^t ('partial') or w^t itself ('raw').

    Args:
      readings: what to read; one ring of the longest window serves all. part='classifier' takes the last layer from
        the average and the rest from the model, 'features' the reverse.
      classifier_path: where the last layer stands in params.
    Caldarola et al., Window-based Model Averaging Improves Generalization in Heterogeneous Federated Learning, 2023,
    https://arxiv.org/abs/2310.01366.
    """
    for r in readings:
        if r.part not in PARTS:
            raise UserError(f"wima: part must be one of {', '.join(PARTS)}, not '{r.part}'.")
        if r.warmup not in ("partial", "raw"):
            raise UserError(f"wima: warmup must be 'partial' or 'raw', not '{r.warmup}'.")
    sizes = tuple(dict.fromkeys(r.window for r in readings))
    windows.init(1, sizes)  # refuses a window below 1 before anything is compiled

    def init(model: Variables):
        packing = windows.flat(model)
        return windows.init(packing.size, sizes, packing.dtype)

    def update(round, model, state):
        return windows.push(state, windows.flat(model).pack(model), sizes)

    def read(model, state):
        packing = windows.flat(model)
        averages = {w: packing.unpack(windows.mean(state, i, w)) for i, w in enumerate(sizes)}
        out = {}
        for r in readings:
            # A window of one model is that model, to the bit.
            average = model if r.window == 1 else averages[r.window]
            ready = (state.count > 0) if r.warmup == "partial" else (state.count >= r.window)
            average = tree.where(ready, average, model)
            if r.part != "all":
                mask = classifier_mask(model.params, classifier_path)
                pair = (average.params, model.params) if r.part == "classifier" else (model.params, average.params)
                average = Variables(select(mask, *pair), average.stats if r.part == "features" else model.stats)
            out[r.name] = average
        return out

    return Observer(init, update, read)


@OBSERVERS.register("wima")
def wima_reading(num_rounds: int, *, window: int, part: str = "all", warmup: str = "partial") -> Reading:
    """One WIMA read-out; the run gathers all of them into one ring."""
    suffix = "" if part == "all" else f"_{part}"
    return Reading(f"wima{window}{suffix}", window, part, warmup)


def first_round(start, num_rounds: int, name: str) -> int:
    """Reads `start`: a float is a fraction of num_rounds, an integer the 0-based round.

    Raises UserError for a negative start or a fraction above 1.
    """
    if isinstance(start, bool) or not isinstance(start, (int, float)):
        raise UserError(f"{name}: start={start} is not a number; write 0.75 (fraction of the rounds) or 300 (round).")
    if start < 0 or (isinstance(start, float) and start > 1):
        raise UserError(f"{name}: start={start} must be a fraction in 0.0..1.0 or a 0-based round >= 0.")
    # The smallest epsilon against 0.29 * 100 = 28.999999999999996.
    return int(start * num_rounds + 1e-9) if isinstance(start, float) else start


class Average(NamedTuple):
    """model: the running mean; count: int32 [], models in it."""

    model: Variables
    count: jax.Array


@OBSERVERS.register("swa")
def swa(num_rounds: int, *, start=0.75, cycle: int = 10, phase: str = "code") -> Observer:
    """Server-side SWA read-out at whatever rate the clients use: theta_SWA <- (n theta_SWA + theta)/(n + 1).

    phase='code' collects after round i > start with (i - start) mod cycle = 0, 'swa' with (i - start + 1) mod cycle = 0;
    from `start` until the first collection it shows the model that round `start` began from.

    Args:
      start: fraction of the rounds or 0-based round; cycle: rounds between collections.
    Caldarola et al., Improving Generalization in Federated Learning by Seeking Flat Minima, 2022,
    https://arxiv.org/abs/2203.11834.
    """
    first = first_round(start, num_rounds, "swa")
    if not isinstance(cycle, int) or cycle < 1:
        raise UserError(f"swa: cycle={cycle} must be an integer >= 1.")
    if phase not in ("code", "swa"):
        raise UserError(f"swa: phase must be 'code' or 'swa', not '{phase}'.")

    def init(model):
        return Average(model, jnp.zeros((), jnp.int32))

    def update(round, model, state):
        due = (round - first) % cycle == 0 if phase == "code" else (round - first + 1) % cycle == 0
        collect = due & ((round > first) if phase == "code" else (round >= first))
        n = state.count
        mixed = tree.map(lambda a, w: ((n * a + w) / (n + 1)).astype(a.dtype), state.model, model)
        # Before `start` the state follows the model: at round `start` it is the snapshot that round begins from.
        kept = tree.where(round < first, model, tree.where(collect, mixed, state.model))
        return Average(kept, n + collect)

    return Observer(init, update, lambda model, state: {"swa": state.model})


@OBSERVERS.register("ema")
def ema(num_rounds: int, *, decay: float = 0.99) -> Observer:
    """Exponential moving average of the evaluated model: e <- decay e + (1 - decay) w, e_0 = the first round's model."""
    if not 0 <= decay < 1:
        raise UserError(f"ema: decay={decay} must lie in [0, 1).")

    def init(model):
        return Average(model, jnp.zeros((), jnp.int32))

    def update(round, model, state):
        moved = tree.map(lambda e, w: (decay * e + (1 - decay) * w).astype(e.dtype), state.model, model)
        return Average(tree.where(state.count == 0, model, moved), state.count + 1)

    return Observer(init, update, lambda model, state: {"ema": state.model})
