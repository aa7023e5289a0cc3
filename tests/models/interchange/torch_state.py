"""State dicts as PyTorch has them, with values by a formula, and PyTorch's logits for them."""

import json
import math
import pathlib

import numpy as np

GOLDEN = pathlib.Path(__file__).parents[2] / "golden" / "torch_logits.json"
# Case -> (network, shape of one example, map of names).
SEQUENTIAL = {"0": "stem", "1": "stem_norm", "14": "classifier"} | {
    str(3 + 3 * stage + block): f"stage{stage + 1}_block{block + 1}" for stage in range(3) for block in range(3)
}
CASES = {
    "lenet5": ("lenet5", (32, 32, 3), {"0": "conv1", "3": "conv2", "7": "dense1", "9": "dense2", "11": "classifier"}),
    "resnet20": ("resnet20", (32, 32, 3), SEQUENTIAL),
    "batch_norm": ("resnet18:variant=plain,norm=bn,width=4", (16, 16, 3), {"linear": "classifier"}),
}


def pseudo_random(count: int, salt: int) -> np.ndarray:
    """Returns numbers in [-1, 1) that any program can compute: a multiplicative hash of 0 .. count - 1."""
    hashed = (np.arange(1, count + 1, dtype=np.uint64) * 2654435761 + salt * 40503) % 2**32
    return hashed.astype(np.float64) / 2**31 - 1


def state_of(shapes: dict[str, list[int]]) -> dict[str, np.ndarray]:
    """Returns name -> values of a state dict with these shapes; layers keep the size of their input."""
    state = {}
    for salt, (name, shape) in enumerate(shapes.items()):
        draw = pseudo_random(math.prod(shape), salt).reshape(shape)
        if name.endswith("num_batches_tracked"):
            state[name] = np.zeros(shape, np.int64)
        elif len(shape) > 1:
            state[name] = (draw * (6 / math.prod(shape[1:])) ** 0.5).astype(np.float32)
        elif name.endswith(("running_var", "weight")):
            state[name] = (1 + 0.5 * draw).astype(np.float32)
        else:
            state[name] = (0.3 * draw).astype(np.float32)
    return state


def examples(shape: tuple[int, ...]) -> np.ndarray:
    """Returns two images [2, H, W, C]."""
    return pseudo_random(2 * math.prod(shape), 999).reshape(2, *shape).astype(np.float32)


def golden() -> dict:
    """Returns case -> {shapes, logits}: the shapes of the state dict in its order, and PyTorch's logits [2, 10]."""
    return json.loads(GOLDEN.read_text())
