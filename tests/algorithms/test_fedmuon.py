"""FedMuon and MuLoCo against plain numpy."""

import jax.numpy as jnp
import numpy as np
import pytest

from fedwin import losses, testing
from fedwin.algorithms import fedmuon_bc
from tests.algorithms.numpy_clients import Adam

KERNEL = np.array([[0.5, -0.2], [0.1, 0.3], [-0.4, 0.2]])  # 3 inputs, 2 outputs
BIAS = np.array([0.1, -0.1])
SCHEDULE, SIZES, LR, STEPS = ((0, 1), (1, 2), (2,)), (3, 2, 2), 0.1, 3
random = np.random.default_rng(3)
X = [random.normal(size=(n, 3)) for n in SIZES]
Y = [random.normal(size=(n, 2)) for n in SIZES]


def problem(kernel=KERNEL, bias=BIAS, x=X, y=Y, **kwargs):
    def loss(params, batch, key, info):
        error = batch["x"] @ params["kernel"] + params["bias"] - batch["y"]
        return losses.masked_mean(0.5 * jnp.sum(error**2, -1), batch)

    params = {"kernel": jnp.asarray(kernel, float), "bias": jnp.asarray(bias, float)}
    rows = [{"x": x, "y": y} for x, y in zip(x, y)]
    return testing.problem(params, rows, loss, SCHEDULE, lr=LR, batch_size=3, epochs=STEPS, shuffle=False, **kwargs)


def orthogonalized(m, steps=5):
    """Newton-Schulz steps with the coefficients of Jordan's Muon."""
    a, b, c = 3.4445, -4.7750, 2.0315
    x = m / np.linalg.norm(m)
    for _ in range(steps):
        s = x @ x.T
        x = a * x + (b * s + c * s @ s) @ x
    return x


def expected(alpha, beta, matrix_lr, decay):
    """Kernels, biases and mean momenta after each round."""
    x, b, step, bias_step, mean, out = KERNEL, BIAS, 0 * KERNEL, 0 * BIAS, 0 * KERNEL, []
    for cohort in SCHEDULE:
        ends = []
        for i in cohort:
            w, v, momentum, adam = x, b, mean, Adam(0.9, 0.95)
            for _ in range(STEPS):
                error = (X[i] @ w + v - Y[i]) / SIZES[i]
                momentum = beta * momentum + X[i].T @ error
                w = w - LR * ((1 - alpha) * matrix_lr * (orthogonalized(momentum) + decay * w) + alpha * step)
                v = v - LR * ((1 - alpha) * (adam(error.sum(0)) + decay * v) + alpha * bias_step)
            ends.append((w, v, momentum))
        p = np.array([SIZES[i] for i in cohort]) / sum(SIZES[i] for i in cohort)
        w, v, mean = (sum(share * end[k] for share, end in zip(p, ends)) for k in range(3))
        step, bias_step = (x - w) / (LR * STEPS), (b - v) / (LR * STEPS)
        x, b = w, v
        out.append((x, b, mean))
    return [np.stack(part) for part in zip(*out)]


def test_fedmuon_is_the_papers_rule(double):
    p = problem(weight_decay=0.02)
    runs = testing.trajectory(p, p.build("fedmuon:alpha=0.4,beta=0.8,matrix_lr=2"), len(SCHEDULE))
    kernels, biases, momenta = expected(0.4, 0.8, 2, 0.02)
    np.testing.assert_allclose([run.params["kernel"] for run in runs], kernels, rtol=1e-6)
    np.testing.assert_allclose([run.params["bias"] for run in runs], biases, rtol=1e-6)
    # optax keeps (1 - beta) M.
    np.testing.assert_allclose([run.state.momentum["kernel"] / 0.2 for run in runs], momenta, rtol=1e-6, atol=1e-8)


def bias_corrected(beta, steps, decay, server_lr):
    """Kernels, biases, C and C_i after each round."""
    x = (KERNEL, BIAS)
    c, own, out = [0 * p for p in x], [[0 * p for p in x] for _ in SIZES], []
    for cohort in SCHEDULE:
        ends, drift = [], [0 * p for p in x]
        for i in cohort:
            y, m = x, own[i]
            for _ in range(STEPS):
                error = (X[i] @ y[0] + y[1] - Y[i]) / SIZES[i]
                m = [beta * a + (1 - beta) * g for a, g in zip(m, (X[i].T @ error, error.sum(0)))]
                k, b = (a - mine + all for a, mine, all in zip(m, own[i], c))
                moved = (orthogonalized(k, steps), b / np.linalg.norm(b))
                y = [p - LR * (step + decay * p) for p, step in zip(y, moved)]
            drift = [d + (a - mine) / len(SIZES) for d, a, mine in zip(drift, m, own[i])]
            ends.append((SIZES[i], y))
            own[i] = m
        share = np.array([n for n, _ in ends]) / sum(n for n, _ in ends)
        x = [p + server_lr * (sum(q * y[k] for q, (_, y) in zip(share, ends)) - p) for k, p in enumerate(x)]
        c = [a + d for a, d in zip(c, drift)]
        out.append((*x, c[0], np.stack([mine[0] for mine in own])))
    return [np.stack(part) for part in zip(*out)]


@pytest.mark.parametrize("size", [1e-30, 1e30])
def test_directions_do_not_depend_on_the_size_of_momenta(size):
    """Their squares are 0 and inf in float32."""
    of_size = lambda size: fedmuon_bc.orthogonalized(jnp.float32(size * KERNEL), 5)
    np.testing.assert_allclose(of_size(size), of_size(1), rtol=1e-4)


@pytest.mark.parametrize("steps", [0, 5])
def test_bias_corrected_fedmuon_is_the_papers_rule(steps, double):
    p = problem(weight_decay=0.02)
    choice = f"fedmuon_bc:beta=0.6,newton_schulz={steps},server_lr=0.7"
    runs = testing.trajectory(p, p.build(choice), len(SCHEDULE))
    found = [(run.params["kernel"], run.params["bias"], run.state["kernel"], run.table["kernel"]) for run in runs]
    for ours, theirs in zip(zip(*found), bias_corrected(0.6, steps, 0.02, 0.7), strict=True):
        np.testing.assert_allclose(np.stack(ours), theirs, rtol=1e-7, atol=1e-10)


def muloco(kernel, bias, x, y, beta, matrix_lr, decay):
    """Kernels and biases after each round of DiLoCo with Muon, in Nesterov's form, on workers that keep its state."""
    states, outer = {i: [0 * kernel, 0 * bias, 0 * bias, 0] for i in range(3)}, [0 * kernel, 0 * bias]
    out = []
    for cohort in SCHEDULE:
        ends = []
        for i in cohort:
            w, v, (m, first, second, seen) = kernel, bias, states[i]
            for t in range(seen + 1, seen + 1 + STEPS):
                error = (x[i] @ w + v - y[i]) / SIZES[i]
                gw, g = x[i].T @ error, error.sum(0)
                ahead = lambda m, g, b, t=t: b * m / (1 - b ** (t + 1)) + (1 - b) * g / (1 - b**t)
                m, first, second = beta * m + (1 - beta) * gw, 0.8 * first + 0.2 * g, 0.95 * second + 0.05 * g**2
                wide = np.sqrt(max(1, kernel.shape[1] / kernel.shape[0]))
                w = w - LR * matrix_lr * (wide * orthogonalized(ahead(m, gw, beta)) + decay * w)
                v = v - LR * (ahead(first, g, 0.8) / (np.sqrt(second / (1 - 0.95**t)) + 1e-8) + decay * v)
            states[i] = [m, first, second, seen + STEPS]
            ends.append((w, v))
        deltas = [p - sum(end[k] for end in ends) / len(ends) for k, p in enumerate((kernel, bias))]
        outer = [0.9 * m + delta for m, delta in zip(outer, deltas)]
        kernel, bias = (p - 0.7 * (d + 0.9 * m) for p, d, m in zip((kernel, bias), deltas, outer))
        out.append((kernel, bias))
    return [np.stack(part) for part in zip(*out)]


def test_muloco_is_the_papers_rule(double):
    # More outputs than inputs, so that the factor of the shape counts.
    given = KERNEL.T, np.ones(3), [x[:, :2] for x in X], [np.c_[y, y[:, 0] ** 2] for y in Y]
    p = problem(*given, weight_decay=0.02)
    runs = testing.trajectory(p, p.build("diloco:inner=muon,beta=0.8,matrix_lr=2,b1=0.8,b2=0.95"), len(SCHEDULE))
    kernels, biases = muloco(*given, 0.8, 2, 0.02)
    np.testing.assert_allclose([run.params["kernel"] for run in runs], kernels, rtol=1e-6)
    np.testing.assert_allclose([run.params["bias"] for run in runs], biases, rtol=1e-6)
