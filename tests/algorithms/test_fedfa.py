"""FedFA against a NumPy implementation of entire rounds; its anchors, calibration and refusals."""

import jax
import jax.numpy as jnp
import numpy as np
import pytest

from fedwin import testing
from fedwin.algorithms.fedfa import anchor_loss, class_means
from tests.algorithms import softmax_clients as plain
from tests.algorithms.identities import classifier_runs, leaves, same
from tests.algorithms.numpy_clients import Adam
from tests.refusals import refused

ROUNDS = 8  # a quarter of the run is over after round 2: the last of four rounds calibrates
ADAM_LR, LAM, BETA = 0.05, 0.7, 0.6
EPOCHS = 1.5  # the second pass of a client with two batches ends after the first of them


def calibration_loss(theta, A):
    """Cross-entropy of the classifier on the anchors as features."""
    W, b = np.split(theta[plain.INPUTS * plain.WIDTH :], [plain.WIDTH * plain.CLASSES])
    return -np.mean(np.diag(plain.log_softmax(A @ W.reshape(plain.WIDTH, plain.CLASSES) + b)))


def local_training(theta, A, i, anchored, calibrated, divide):
    """What client i returns: (parameters, its anchors); A are the anchors that it received."""

    def loss(theta, x, y):
        h, _ = plain.network(theta, x)
        distances = [np.sum((h[y == c] - A[c]) ** 2) / np.sum(y == c) for c in set(y)]
        return plain.cross_entropy(theta, x, y) + anchored * LAM / plain.CLASSES * sum(distances)

    M, adam, batches = A.copy(), Adam(), plain.batches(i)
    whole = len(batches) // plain.EPOCHS
    for one_pass in (batches[:whole], batches[whole : int(np.ceil(EPOCHS * whole))]):
        sums, present = np.zeros_like(A), np.zeros((plain.CLASSES, 1))
        for x, y in one_pass:
            h, _ = plain.network(theta, x)
            for c in set(y):
                sums[c] += h[y == c].mean(0)
                present[c] += 1
            theta = theta - plain.LR * plain.gradient(theta, (x, y), loss)
            if calibrated:
                theta = theta - ADAM_LR * adam(plain.gradient(theta, (A,), calibration_loss))
        own = np.flatnonzero(present)
        M[own] = BETA * M[own] + (1 - BETA) * sums[own] / (len(one_pass) if divide == "all" else present[own])
    return theta, M


def reference(theta, A, divide):
    """Yields (parameters, anchors) after every round."""
    for t, cohort in enumerate(plain.SCHEDULE):
        back = [local_training(theta, A, i, t > 0, t > ROUNDS / 4, divide) for i in cohort]
        sizes = [len(plain.LABELS[i]) for i in cohort]
        theta, A = (np.average(values, axis=0, weights=sizes) for values in zip(*back))
        yield theta, A


@pytest.mark.parametrize("divide", ["all", "present"])
def test_four_rounds_of_fedfa(precision, divide):
    tolerance = {"float64": 1e-11, "float32": 1e-5}[precision]
    p = plain.problem(epochs=EPOCHS, num_rounds=ROUNDS)
    algorithm = p.build("fedfa", lam=LAM, beta=BETA, calibrate_lr=ADAM_LR, divide=divide)
    anchors = algorithm.init(p.variables.params, jax.random.key(0))
    begin = (np.asarray(values, np.float64) for values in (leaves(p.variables.params), anchors))
    runs = testing.trajectory(p, algorithm, len(plain.SCHEDULE))
    for run, expected in zip(runs, reference(*begin, divide), strict=True):
        for ours, theirs in zip((leaves(run.params), run.state), expected, strict=True):
            assert ours.dtype == precision
            np.testing.assert_allclose(ours, theirs, rtol=tolerance, atol=tolerance)


@pytest.mark.slow
@pytest.mark.usefixtures("double")
def test_fedfa_without_its_losses_is_fedavg_and_frozen_anchors_stay():
    p, plain = classifier_runs("fedavg")
    _, ours = classifier_runs("fedfa:lam=0,beta=1,calibrate_from=2")
    same(leaves(ours[-1].params), leaves(plain[-1].params))
    assert (ours[-1].state == p.build("fedfa").init(p.variables.params, jax.random.key(0))).all()


def test_the_content_of_padding_changes_nothing():
    features, labels, anchors = jnp.arange(6.0).reshape(3, 2), jnp.array([1, 0, 1]), jnp.ones((2, 2))
    padded = jnp.append(features, jnp.full((1, 2), jnp.nan), 0), jnp.append(labels, 0)
    mask = jnp.array([1.0, 1, 1, 0])
    assert anchor_loss(*padded, anchors, mask) == anchor_loss(features, labels, anchors)
    for found, expected in zip(class_means(*padded, 2, mask), class_means(features, labels, 2)):
        np.testing.assert_array_equal(found, expected)


def test_anchors_of_parameters_in_low_precision_are_float32():
    p = testing.classification()
    low = jax.tree.map(lambda x: x.astype(jnp.bfloat16), p.variables.params)
    run = testing.trajectory(p._replace(variables=p.variables._replace(params=low)), p.build("fedfa"), 1)[-1]
    assert run.state.dtype == jnp.float32 and run.params["last"]["kernel"].dtype == jnp.bfloat16


def test_fedfa_refuses_sequences():
    p = testing.classification()
    labels = jnp.stack([p.store.examples["y"]] * 2, 1)
    p = p._replace(store=p.store._replace(examples=p.store.examples | {"y": labels}))
    refused("fedfa needs one class per example", testing.trajectory, p, p.build("fedfa"), 1)
