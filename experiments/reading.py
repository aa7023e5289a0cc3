"""FedAvg and its window average (WIMA) on handwritten digits, from the data to the accuracy: one file to read.

python -m experiments.reading        400 rounds of the main job's first seed, 20 s of a processor
python -m experiments.reading 20     fewer rounds

Nothing of fedwin is imported. The numbers are those of `fedwin train`, to rounding, because the same seed becomes the
same partition, initial model, cohorts and batches; a test compares them. What fedwin adds is generality and speed:
in fedwin, many of these rounds are one compiled program. Each section is one concept, under its name in fedwin.
"""

import collections
import hashlib
import math
import sys
import zlib
from collections.abc import Iterator, Sequence
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np
from jax import lax
from sklearn.datasets import load_digits

NUM_CLIENTS, CLIENTS_PER_ROUND, NUM_ROUNDS = 100, 3, 400
LOCAL_EPOCHS, BATCH_SIZE, LEARNING_RATE = 3, 10, 0.05
WINDOW = 50

# layer -> "kernel" and "bias"
Params = dict[str, dict[str, jax.Array]]


# --- Random numbers ---------------------------------------------------------------------------------------------------
# Everything random is a function of the seed and of what it is for, never of what was drawn before. So one can ask for
# the clients of round 300 without running 299 rounds, and two methods meet the same clients with the same batches.


def numpy_generator(seed: int, purpose: str | int, *numbers: int) -> np.random.Generator:
    """Returns NumPy's generator for one purpose on the host: a split, a partition, a cohort."""
    tag = zlib.crc32(purpose.encode()) if isinstance(purpose, str) else purpose
    return np.random.default_rng([seed, tag, *numbers])


def jax_key(seed: int, *numbers: int) -> jax.Array:
    """Returns JAX's key for one purpose inside a round; each number leads from a key to one that is independent."""
    key = jax.random.key(seed, impl="threefry2x32")
    for number in numbers:
        key = jax.random.fold_in(key, np.uint32(number))
    return key


# --- Data set ---------------------------------------------------------------------------------------------------------
def digits() -> tuple[np.ndarray, np.ndarray, np.ndarray, np.ndarray]:
    """Returns training images [1400, 8, 8, 1] and labels, test images [397, 8, 8, 1] and labels.

    The split is the same for all seeds: 140 images of every class for training, the others for testing.
    """
    images, labels = load_digits(return_X_y=True)
    # Gray levels 0..16 as bytes, as image files have them, and then the usual normalization.
    pixels = np.rint(images * (255 / 16)).astype(np.uint8)
    x = ((pixels.astype(np.float32) / 255 - 0.3056) / 0.3761).astype(np.float32).reshape(-1, 8, 8, 1)
    order = numpy_generator(0, "digits split").permutation(len(labels))
    by_class = [order[labels[order] == label] for label in range(10)]
    train = np.sort(np.concatenate([rows[:140] for rows in by_class]))
    test = np.sort(np.concatenate([rows[140:] for rows in by_class]))
    return x[train], labels[train], x[test], labels[test]


# --- Partition --------------------------------------------------------------------------------------------------------
def one_class_per_client(labels: np.ndarray, seed: int) -> np.ndarray:
    """Returns the examples of every client, int [100, 14]: those of one class, `--partition=dirichlet:alpha=0`.

    A Dirichlet distribution with concentration alpha draws each client's shares of the classes. Small alphas make
    clients heterogeneous; in the limit 0 a client has a single class, the hardest case.
    """
    generator = numpy_generator(seed, "dirichlet")
    shuffled = generator.permutation(len(labels))
    sorted_by_class = shuffled[np.argsort(labels[shuffled], kind="stable")]
    portions = sorted_by_class.reshape(NUM_CLIENTS, -1)
    return portions[generator.permutation(NUM_CLIENTS)]


# --- Cohort -----------------------------------------------------------------------------------------------------------
def cohort(seed: int, round: int) -> np.ndarray:
    """Returns the clients that take part in a 0-based round: 3 of 100, without replacement."""
    return numpy_generator(seed, 0xC0407, round).choice(NUM_CLIENTS, CLIENTS_PER_ROUND, replace=False)


# --- Model ------------------------------------------------------------------------------------------------------------
def initial_model(seed: int) -> Params:
    """Returns the parameters of `--model=cnn`: two 3x3 convolutions of 16 and 32 channels, two dense layers; 13,706."""
    shapes = {"conv1": (3, 3, 1, 16), "conv2": (3, 3, 16, 32), "dense1": (128, 64), "classifier": (64, 10)}
    return {name: initial_layer(seed, name, shape) for name, shape in shapes.items()}


def initial_layer(seed: int, name: str, shape: tuple[int, ...]) -> dict[str, jax.Array]:
    """Returns kernel and bias, uniform in +- 1 / sqrt(number of inputs of an output), as PyTorch draws them."""
    bound = 1 / math.sqrt(math.prod(shape[:-1]))

    def draw(place: int, shape: tuple[int, ...]) -> jax.Array:
        # The network is a flax module; flax derives a key from the layer's name and the parameter's place in it.
        digest = hashlib.sha1(name.encode() + bytes([place])).digest()
        key = jax_key(seed, 0, int.from_bytes(digest[:4], "big"))
        return jax.random.uniform(key, shape, minval=-bound, maxval=bound)

    return {"kernel": draw(1, shape), "bias": draw(2, shape[-1:])}


def logits(params: Params, x: jax.Array) -> jax.Array:
    """Returns the network's outputs [B, 10] for images [B, 8, 8, 1]."""
    for name in ("conv1", "conv2"):
        layer = params[name]
        x = lax.conv_general_dilated(x, layer["kernel"], (1, 1), "SAME", dimension_numbers=("NHWC", "HWIO", "NHWC"))
        x = x + layer["bias"]
        # Max-pooling over 2 x 2 positions.
        upper = jnp.maximum(x[:, ::2, ::2], x[:, ::2, 1::2])
        lower = jnp.maximum(x[:, 1::2, ::2], x[:, 1::2, 1::2])
        x = jax.nn.relu(jnp.maximum(upper, lower))
    x = x.reshape(len(x), -1)
    x = jax.nn.relu(x @ params["dense1"]["kernel"] + params["dense1"]["bias"])
    return x @ params["classifier"]["kernel"] + params["classifier"]["bias"]


def cross_entropy(params: Params, x: jax.Array, y: jax.Array) -> jax.Array:
    """Returns the mean loss of a batch."""
    chosen = jnp.take_along_axis(jax.nn.log_softmax(logits(params, x)), y[:, None], axis=1)
    return -jnp.mean(chosen)


# --- Client -----------------------------------------------------------------------------------------------------------
@jax.jit
def sgd_step(params: Params, x: jax.Array, y: jax.Array) -> Params:
    """Returns the parameters after one local step: y <- y - lr * gradient of the batch."""
    gradient = jax.grad(cross_entropy)(params, x, y)
    return jax.tree.map(lambda p, g: p - LEARNING_RATE * g, params, gradient)


def train_client(params: Params, x: np.ndarray, y: np.ndarray, seed: int, round: int, client: int) -> Params:
    """Returns the client's model after its local epochs, each a pass over its examples in a new random order.

    The client starts from the server's model. Its data never leave it; only its model does.
    """
    for epoch in range(LOCAL_EPOCHS):
        # 1: inside a round; 0: the first exchange of a round, FedAvg's only one; 0: for the order of examples.
        key = jax_key(seed, 1, round, client, 0, 0, epoch)
        order = np.argsort(np.asarray(jax.random.bits(key, (len(y),), jnp.uint32)), kind="stable")
        for start in range(0, len(y), BATCH_SIZE):
            batch = order[start : start + BATCH_SIZE]
            params = sgd_step(params, x[batch], y[batch])
    return params


# --- Server: FedAvg ---------------------------------------------------------------------------------------------------
def fedavg(params: Params, clients: Sequence[Params]) -> Params:
    """Returns the server's next model, x <- x + mean of y_i - x over the cohort.

    In general the mean is weighted by the clients' numbers of examples; here all have 14. Adding a mean step, rather
    than taking the mean model, is where other methods begin: momentum, adaptive rates and controls change the step.
    """
    return jax.tree.map(lambda x, *ys: x + sum(y - x for y in ys) / len(ys), params, *clients)


# --- Read-out: WIMA ---------------------------------------------------------------------------------------------------
def wima(window: Sequence[Params]) -> Params:
    """Returns the mean of the server's last models.

    It is evaluated and never trained from, so that it costs no communication and FedAvg's run stays what it is. With
    one class per client each round pulls the model towards three classes; the mean of many rounds has seen them all.
    """
    return jax.tree.map(lambda *models: sum(models) / len(models), *window)


# --- Evaluation -------------------------------------------------------------------------------------------------------
@jax.jit
def evaluate(params: Params, x: jax.Array, y: jax.Array) -> dict[str, jax.Array]:
    """Returns loss and accuracy on the test images, which no client has."""
    right = jnp.argmax(logits(params, x), axis=1) == y
    return {"loss": cross_entropy(params, x, y), "accuracy": jnp.mean(right)}


# --- All rounds -------------------------------------------------------------------------------------------------------
def run(num_rounds: int = NUM_ROUNDS, window: int = WINDOW, seed: int = 0) -> Iterator[dict[str, Any]]:
    """Yields the metrics of the model and of its window average before the first round and after every round."""
    x, y, test_x, test_y = digits()
    examples = one_class_per_client(y, seed)
    model = initial_model(seed)
    last_models: collections.deque[Params] = collections.deque(maxlen=window)
    metrics = evaluate(model, test_x, test_y)
    yield {"round": 0, "model": metrics, "wima": metrics}
    for round in range(num_rounds):
        trained = []
        for client in cohort(seed, round):
            own = examples[client]
            trained.append(train_client(model, x[own], y[own], seed, round, client))
        model = fedavg(model, trained)
        last_models.append(model)
        metrics = {"model": evaluate(model, test_x, test_y), "wima": evaluate(wima(last_models), test_x, test_y)}
        yield {"round": round + 1} | metrics


def main() -> None:
    """Prints the accuracies, and as the main job does their means over the last 100 rounds."""
    num_rounds = int(sys.argv[1]) if len(sys.argv) > 1 else NUM_ROUNDS
    lines = []
    print("round  FedAvg    WIMA")
    for line in run(num_rounds):
        lines.append([float(line[name]["accuracy"]) for name in ("model", "wima")])
        if line["round"] % 20 == 0 or line["round"] == num_rounds:
            print("{:5}  {:6.2%}  {:6.2%}".format(line["round"], *lines[-1]))
    last = lines[-100:]
    print("mean of the last {} evaluations: FedAvg {:.2%}, WIMA {:.2%}".format(len(last), *np.mean(last, axis=0)))


if __name__ == "__main__":
    main()
