"""A federation of softmax classifiers on linear features h = x F, and plain numpy that differentiates them."""

import jax
import numpy as np

from fedwin import losses, testing
from fedwin.core import Variables
from fedwin.models.model import Model, Output

CLASSES, INPUTS, WIDTH = 3, 2, 4
LR, BATCH, EPOCHS = 0.3, 2, 2
# Client 1 has a short last batch, client 2 lacks a class, client 3 has one batch less.
LABELS = ((0, 1, 2, 0), (2, 2, 1), (0, 1, 1, 0), (2, 0))
SCHEDULE = ((0, 1), (2, 3), (1, 2), (0, 3))


def clients():
    random = np.random.default_rng(5)
    return [{"x": random.normal(size=(len(y), INPUTS)), "y": np.array(y)} for y in LABELS]


def batches(i):
    x, y = clients()[i]["x"], clients()[i]["y"]
    cuts = [slice(cut, cut + BATCH) for cut in range(0, len(y), BATCH)]
    return [(x[cut], y[cut]) for _ in range(EPOCHS) for cut in cuts]


def linear_model(inputs=INPUTS, classes=CLASSES):
    """Features h = x F, logits h W + b."""
    classifier = lambda params, features: features @ params["last"]["W"] + params["last"]["b"]

    def init(key):
        draw = lambda n, *shape: 0.5 * jax.random.normal(jax.random.fold_in(key, n), shape, float)
        return Variables({"F": draw(0, inputs, WIDTH), "last": {"W": draw(1, WIDTH, classes), "b": draw(2, classes)}})

    def apply(variables, batch, key, train):
        features = batch["x"] @ variables.params["F"]
        return Output(classifier(variables.params, features), features, variables.stats)

    return Model(init, apply, classifier, ("last",), "linear", classes)


def problem(loss=losses.cross_entropy, epochs=EPOCHS, **kwargs):
    model = linear_model()
    counts = np.stack([np.bincount(y, minlength=CLASSES) for y in LABELS])
    return testing.problem(
        model.init(jax.random.key(3)), clients(), loss(model), SCHEDULE, model=model, lr=LR, batch_size=BATCH,
        epochs=epochs, shuffle=False, info={"train": counts, "validation": 0 * counts}, **kwargs,
    )  # fmt: skip


def network(theta, x):
    """Features and logits of a vector of all parameters."""
    inputs = x.shape[1] * WIDTH
    classes = (theta.size - inputs) // (WIDTH + 1)
    F, W, b = np.split(theta, [inputs, theta.size - classes])
    h = x @ F.reshape(-1, WIDTH)
    return h, h @ W.reshape(WIDTH, classes) + b


def log_softmax(f, weights=1.0):
    return f - np.log(np.sum(weights * np.exp(f), -1, keepdims=True))


def cross_entropy(theta, x, y):
    return -np.mean(log_softmax(network(theta, x)[1])[range(len(y)), y])


def gradient(theta, batch, loss=cross_entropy):
    """The derivatives of loss(theta, *batch) by complex steps, which are exact to rounding."""
    return np.array([loss(theta + 1e-30j * e, *batch).imag / 1e-30 for e in np.eye(theta.size)])
