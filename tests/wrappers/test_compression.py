"""Compression: levels, unbiasedness and the rule of sparsification against numpy, bytes, and rejected combinations."""

import functools
import math

import jax
import jax.numpy as jnp
import numpy as np
import pytest

from fedwin import core, testing
from fedwin.engine.communication import communication
from fedwin.testing.problems import KEY
from fedwin.wrappers import build_all
from fedwin.wrappers.compression import TAG, Feedback, kept_entries, stochastic
from tests.algorithms.identities import leaves
from tests.problems import built, one_round, stepping
from tests.refusals import refused

VALUES = np.array([0.7, -0.31, 0.05, 0.0, -1.3, 1.1], np.float32)


@pytest.mark.parametrize("bits", [2, 5])
def test_the_mean_is_the_value_and_the_variance_that_of_the_rounding(bits):
    draws = 3000
    keys = jax.random.split(jax.random.key(3), draws)
    drawn = np.asarray(jax.vmap(lambda key: stochastic(jnp.asarray(VALUES), key, bits))(keys), float)
    gap = 1.3 / (2 ** (bits - 1) - 1)
    steps = drawn / gap
    np.testing.assert_allclose(steps, np.round(steps), atol=1e-4)
    assert np.abs(np.round(steps)).max() == 2 ** (bits - 1) - 1
    fraction = VALUES.astype(float) / gap - np.floor(VALUES.astype(float) / gap + 1e-6)
    variance = np.maximum(gap**2 * fraction * (1 - fraction), 0)
    error = np.abs(drawn.mean(0) - VALUES)
    assert (error <= 5 * np.sqrt(variance / draws) + 1e-5).all(), error
    # The sample variance of two values: within 8 % at this number of draws where both are frequent.
    frequent = fraction * (1 - fraction) > 0.1
    np.testing.assert_allclose(drawn.var(0)[frequent], variance[frequent], rtol=0.08)


def test_zeros_stay_zeros_and_a_value_that_is_not_finite_shows():
    key = jax.random.key(0)
    assert not np.asarray(stochastic(jnp.zeros(5), key, 4)).any()
    assert np.isnan(np.asarray(stochastic(jnp.array([1.0, jnp.inf]), key, 4))).any()


def test_numbers_of_low_precision_are_rounded_like_those_of_float32():
    key, low = jax.random.key(0), jnp.asarray(VALUES, jnp.bfloat16)
    np.testing.assert_array_equal(stochastic(low, key, 8), stochastic(low.astype(float), key, 8).astype(jnp.bfloat16))


def test_clients_draw_for_themselves_and_for_every_array_and_in_every_round():
    p = testing.quadratic([0.0] * 3, np.zeros((3, 1)), [0.0], steps=1, lr=1.0, schedule=[range(3)])
    p = p._replace(variables=p.variables._replace(params={"x": jnp.zeros(64)}))
    constant, names = jnp.linspace(0.1, 1.0, 64), {"mine": 0, "also": 0, "other": 1}

    def algorithm(setting, solve):
        return core.algorithm(
            lambda params, c: core.Update({name: constant * (c.id == id) for name, id in names.items()}),
            lambda params, state, total, round: (params, total),
            init=lambda params: dict.fromkeys(names, constant),
        )

    runs = testing.trajectory(p, built(p, algorithm, "quantize:bits=2"), 2)
    received = [np.asarray(run.state[name]) for run in runs for name in names]
    for a in range(6):
        assert set(np.round(np.unique(received[a]), 6)) <= {0.0, 1.0}
        assert not any((received[a] == received[b]).all() for b in range(a))


@pytest.mark.parametrize(("choice", "models"), [("scaffold", 2), ("mime", 2), ("diloco:fragments=2", 0.5)])
def test_bytes_are_those_of_bits_and_scales(choice, models):
    """Clients send two models, or a half in the mean over rounds, which is rounded."""
    p = testing.classification()
    params, stats = p.variables
    sizes = [leaf.size for leaf in jax.tree.leaves(params)]
    plain = communication(p.build(choice), params, p.store, p.n_max, stats)
    for bits in (3, 8):
        ours = communication(built(p, choice, f"quantize:bits={bits}"), params, p.store, p.n_max, stats)
        assert ours.down == plain.down
        sent = sum(min(math.ceil(n * bits / 8) + 4, 4 * n) for n in sizes)
        assert ours.up - plain.up == pytest.approx(models * (sent - 4 * sum(sizes)), rel=0, abs=models < 1)


def test_arrays_that_would_not_shrink_are_sent_as_they_are():
    run = one_round(stepping(np.array([[0.3, 1.0]])), "fedavg", "quantize:bits=16")  # four bytes and the scale
    np.testing.assert_array_equal(run.params["x"], np.float32([0.3, 1.0]))


CURVATURES = [1.0, 0.5, 2.0, 0.8]
CENTERS = np.array([[3.0, -1.0, 0.2, 0.7], [0.3, 2.0, -4.0, 0.1], [1.0, 1.5, 2.5, -3.0], [-2.0, 0.4, 0.9, 1.2]])
SCHEDULE = [(0, 1), (2, 3), (1, 3), (0, 2), (0, 3)]


def problem():
    return testing.quadratic(CURVATURES, CENTERS, np.zeros(4), steps=2, lr=0.3, schedule=SCHEDULE, sizes=[1, 2, 1, 3])


def expected(count, draws, decay=1.0, bits=None):
    """Independent of the package: models and residuals of sparsified FedAvg, with draws [rounds, clients, 4]."""
    x, residual, models, sizes = np.zeros(4), np.zeros((4, 4)), [], (1, 2, 1, 3)
    for r in range(len(draws)):
        total, weight = np.zeros(4), 0
        for i in SCHEDULE[r % len(SCHEDULE)]:
            y = x.copy()
            for _ in range(2):
                y -= 0.3 * CURVATURES[i] * (y - CENTERS[i])
            pending = decay * residual[i] + y - x
            kept = np.argsort(-np.abs(pending), kind="stable")[:count]
            sent = np.zeros(4)
            sent[kept] = pending[kept]
            if bits:
                gap = np.abs(sent).max() / (2 ** (bits - 1) - 1)
                sent = gap * np.floor(sent / gap + draws[r, i])
            residual[i] = pending - sent
            total, weight = total + sizes[i] * sent, weight + sizes[i]
        x = x + total / weight
        models.append(x)
    return models, residual


@pytest.mark.parametrize(
    "options, count, more",
    [
        ("share=0.25", 1, {}),
        ("share=0.6", 3, {}),
        ("share=0.6,decay=0.9,bits=3", 3, dict(decay=0.9, bits=3)),  # SparseLoCo
    ],
)
def test_models_and_residuals_are_those_of_the_rule(double, options, count, more):
    p = problem()
    runs = testing.trajectory(p, built(p, "fedavg", f"topk:{options}"), 8)
    # The engine's key of a client in a round's first phase.
    keys = lambda r, i: [r, i, 0, TAG]
    draw = lambda r, i: jax.random.uniform(functools.reduce(jax.random.fold_in, keys(r, i), KEY), (4,), float)
    draws = np.array([[draw(r, i) for i in range(4)] for r in range(8)])
    models, residual = expected(count, draws, **more)
    np.testing.assert_allclose([run.params["x"] for run in runs], models, rtol=1e-12, atol=1e-14)
    np.testing.assert_allclose(runs[-1].table.residual["x"], residual, rtol=1e-12, atol=1e-14)


def test_a_client_of_weight_0_sends_no_nan():
    p = problem()
    (phase,), params = built(p, "fedavg", "topk:share=0.25").phases, p.variables.params
    row = jax.tree.map(lambda x: x + np.arange(4.0), Feedback((), params))
    update = phase.client(params, p.client(0, row)._replace(importance=np.float32(0)))
    assert leaves(update.message).tolist() == [0] * 5 and leaves(update.state).tolist() == [0, 1, 2, 0]


def test_bytes_are_those_of_values_and_positions():
    p = testing.classification()
    params, stats = p.variables
    size = sum(leaf.size for leaf in jax.tree.leaves(params))
    count = lambda choice, *texts: communication(built(p, choice, *texts), params, p.store, p.n_max, stats)
    plain, sparse = count("fedavg"), count("fedavg", "topk:share=0.1")
    kept = -(-size // 10)
    assert sparse.down == plain.down and plain.up - sparse.up == 4 * size - 8 * kept
    # Within the feedback, likewise: two bytes each.
    two = count("fedavg", "topk:share=0.1,bits=16")
    assert two.up - (plain.up - 4 * size) == 2 * kept + 4 + 4 * kept
    # The step itself, or the rounded step with one scale, is smaller than values and positions.
    assert count("fedavg", "topk:share=0.6") == plain
    rounded = [count("fedavg", f"topk:share={share},bits={bits}").up for share, bits in ((1, 4), (0.1, 2))]
    assert rounded == [plain.up - 4 * size + -(-size // per_byte) + 4 for per_byte in (2, 4)]
    # SCAFFOLD's second sum is sent as it is.
    assert count("scaffold", "topk:share=0.1").up == sparse.up + 4 * size
    # Values of 8 bits, a scale for each of three arrays, positions of 4 bytes; a value alone is its own scale.
    refused("wrap=quantize: --wrap=topk after it adds", build_all, ["quantize", "topk"], p.setting)
    ten, three = (count("fedavg", f"topk:share={share}", "quantize:bits=8").up for share in (0.4, 0.1))
    assert [ten, three] == [plain.up - 4 * size + sent for sent in (10 + 3 * 4 + 10 * 4, 3 * 4 + 3 * 4)]


@pytest.mark.parametrize("part", ["features", "classifier"])
def test_entries_of_a_part_that_stays_local_are_neither_sent_nor_counted(part):
    p = testing.classification()
    params = p.variables.params
    algorithm = p.build("fedavg", *build_all([f"local:part={part}", "topk:share=0.2"], p.setting))
    (phase,) = algorithm.phases
    down = phase.broadcast(params, algorithm.init(params, KEY))
    message = phase.client(down, p.client(0, algorithm.client_init(params, 0, KEY))).message
    sent = sum(int((x != 0).sum()) for x in jax.tree.leaves(core.mean_step_of(message).total))
    counted = phase.wire(*jax.eval_shape(lambda *both: both, down, message))[1]
    assert (sent,) == counted["delta"]["positions"].shape


def test_ties_keep_the_number_of_entries():
    assert [kept_entries(100, share) for share in (0.07, 0.071, 0.001)] == [7, 8, 1]  # 0.07 * 100 is more than 7
    p = stepping(np.ones((1, 4)))
    run = one_round(p, "fedavg", "topk:share=0.5")
    assert leaves(run.params).tolist() == [1.0, 1.0, 0.0, 0.0]
