"""FedFA against a NumPy implementation of entire rounds; its anchors, calibration and refusals."""

import jax
import jax.numpy as jnp
import numpy as np
import pytest

from fedwin import testing
from fedwin.algorithms.fedfa import anchor_loss, class_means
from tests.algorithms.identities import classifier_runs, leaves, same
from tests.algorithms.softmax_clients import BATCH, CLASSES, EPOCHS, LR, SCHEDULE, clients, problem, softmax_gradient
from tests.refusals import refused

ROUNDS, RUN = 8, 4  # a quarter of the run is over after round 2: the last of four rounds calibrates
ADAM_LR, LAM, BETA = 0.05, 0.7, 0.6


def local_training(F, W, b, A, x, y, anchored, calibrated, divide):
    """What client (x, y) returns: (F, W, b, its anchors); A are the anchors that it received."""
    F, W, b, M = F.copy(), W.copy(), b.copy(), A.copy()
    adam = [[np.zeros_like(p), np.zeros_like(p)] for p in (W, b)]
    count = 0
    for _ in range(EPOCHS):
        sums, batches, present = np.zeros_like(A), 0, np.zeros((CLASSES, 1))
        for cut in range(0, len(y), BATCH):
            xs, ys = x[cut : cut + BATCH], y[cut : cut + BATCH]
            h = xs @ F
            slope = softmax_gradient(h @ W + b, ys)
            dh = slope @ W.T
            for c in set(ys):
                mine = ys == c
                if anchored:
                    dh[mine] += LAM / CLASSES * 2 * (h[mine] - A[c]) / mine.sum()
                sums[c] += h[mine].mean(0)
                present[c] += 1
            F, W, b = F - LR * xs.T @ dh, W - LR * h.T @ slope, b - LR * slope.sum(0)
            if calibrated:
                slope, count = softmax_gradient(A @ W + b, np.arange(CLASSES)), count + 1
                moved = []
                for part, gradient, state in zip((W, b), (A.T @ slope, slope.sum(0)), adam):
                    state[0] = 0.9 * state[0] + 0.1 * gradient
                    state[1] = 0.999 * state[1] + 0.001 * gradient**2
                    first, second = state[0] / (1 - 0.9**count), state[1] / (1 - 0.999**count)
                    moved.append(part - ADAM_LR * first / (np.sqrt(second) + 1e-8))
                W, b = moved
            batches += 1
        own = sorted(set(y))
        M[own] = BETA * M[own] + (1 - BETA) * sums[own] / (batches if divide == "all" else present[own])
    return F, W, b, M


def reference(F, W, b, A, divide):
    """Yields (F, W, b, A) after every round."""
    data = clients()
    for t in range(RUN):
        cohort = [data[i] for i in SCHEDULE[t]]
        back = [local_training(F, W, b, A, d["x"], d["y"], t > 0, t > ROUNDS / 4, divide) for d in cohort]
        shares = np.array([len(d["y"]) for d in cohort]) / sum(len(d["y"]) for d in cohort)
        F, W, b, A = (sum(p * value for p, value in zip(shares, values)) for values in zip(*back))
        yield F, W, b, A


@pytest.mark.parametrize("divide", ["all", "present"])
def test_four_rounds_of_fedfa(precision, divide):
    tolerance = {"float64": 1e-11, "float32": 1e-5}[precision]
    p = problem(num_rounds=ROUNDS)
    algorithm = p.build("fedfa", lam=LAM, beta=BETA, calibrate_lr=ADAM_LR, divide=divide)
    begin = [
        np.asarray(v, np.float64)
        for v in (*jax.tree.leaves(p.variables.params), algorithm.init(p.variables.params, jax.random.key(0)))
    ]
    for run, expected in zip(testing.trajectory(p, algorithm, RUN), reference(*begin, divide), strict=True):
        for ours, theirs in zip((*jax.tree.leaves(run.params), run.state), expected):
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
