"""Private averaging: the aggregate against numpy, the noise's statistics, the norm's updates, rejected combinations."""

import dataclasses

import jax
import jax.numpy as jnp
import numpy as np
import pytest

from fedwin import core, testing
from fedwin.algorithms import ALGORITHMS
from fedwin.core import Variables
from fedwin.engine.communication import communication
from fedwin.engine.strategy import Strategy, make_mesh
from fedwin.errors import UserError
from fedwin.sampling import Population, make_sampler
from fedwin.wrappers import WRAPPERS
from fedwin.wrappers.dp import clipped, noise_of_the_sum
from tests.algorithms.identities import leaves
from tests.problems import STEPS, built, one_round, stepping
from tests.refusals import refused

FIXED = "neighbors=replace_one"
EXACT = f"dp:clip=1,noise=0,{FIXED}"


@pytest.mark.usefixtures("double")
def test_the_aggregate_is_that_of_clipped_steps_over_a_constant():
    p, members = stepping(schedule=[(0, 1, 3)]), [0, 1, 3]  # the second step is within the bound
    bounded = STEPS[members] * np.minimum(1, 1 / np.linalg.norm(STEPS[members], axis=1))[:, None]
    ours = one_round(p, "fedavg:weighting=uniform,server_lr=0.5", EXACT)
    np.testing.assert_allclose(ours.params["x"], 0.5 * bounded.sum(0) / len(members), rtol=1e-12)
    # Of a cohort of one client under an expected size of |S|, the denominator stays |S|.
    fewer = p._replace(schedule=((0,),))
    algorithm = built(p, "fedavg:weighting=uniform", EXACT)
    run = one_round(fewer, lambda setting, solve: algorithm)
    np.testing.assert_allclose(run.params["x"], bounded[0] / len(members), rtol=1e-12)
    # Where clients drop out, the expected size is that of those who answer.
    sampler = make_sampler("uniform", Population(len(STEPS), len(members), 1, (0,), len), dropout=0.5)
    run = one_round(p._replace(setting=p.setting._replace(sampling=sampler)), "fedavg:weighting=uniform", EXACT)
    np.testing.assert_allclose(run.params["x"], 2 * bounded.sum(0) / len(members), rtol=1e-12)


def wide():
    """Four clients, for `idle`: the model is the sum of the noise."""
    params = {"a": jnp.zeros(20_000), "x": jnp.zeros(1), "z": jnp.zeros((2_000, 10))}
    return stepping(np.zeros((4, 1)))._replace(variables=Variables(params))


def idle(setting, solve):
    zeros = lambda params: core.mean_step(jax.tree.map(jnp.zeros_like, params), 1)
    return core.algorithm(
        lambda params, c: core.Update({"delta": zeros(params)}),
        lambda params, state, total, round: (jax.tree.map(jnp.add, params, total["delta"].value), state),
        weighting="uniform",
    )


def test_the_noise_is_gaussian_of_the_stated_deviation_and_new_in_every_round_and_leaf():
    p = wide()
    runs = testing.trajectory(p, built(p, idle, f"dp:clip=0.5,noise=1.2,{FIXED}"), 3)
    noise = np.diff([leaves(run.params) for run in runs], axis=0, prepend=0)
    size, deviation = noise.shape[1], 1.2 * 0.5 / 4
    for drawn in noise:
        assert abs(drawn.mean()) < 5 * deviation / np.sqrt(size)
        np.testing.assert_allclose(drawn.std(), deviation, rtol=0.02)
        # The share within one and two deviations of a Gaussian.
        for bound, share in ((1, 0.6827), (2, 0.9545)):
            np.testing.assert_allclose((np.abs(drawn) < bound * deviation).mean(), share, atol=0.012)
    pairs = [(noise[0], noise[1]), (noise[1], noise[2]), (noise[0][:20_000], noise[0][20_001:])]
    for a, b in pairs:
        assert abs(np.corrcoef(a[:20_000], b[:20_000])[0, 1]) < 5 / np.sqrt(20_000)


@pytest.mark.usefixtures("double")
def test_the_norm_follows_the_quantile():
    """Without noise on sum and bits, against numpy."""
    p = stepping(schedule=[(0, 1, 2), (2, 3, 4)])
    text = f"dp:clip=0.4,noise=0,quantile=0.6,clip_lr=0.3,bit_noise=1e-9,{FIXED}"
    runs = testing.trajectory(p, built(p, "fedavg:weighting=uniform", text), 6)
    x, norm = np.zeros(3), 0.4
    for r, run in enumerate(runs):
        steps = [STEPS[i] - x for i in p.schedule[r % 2]]
        sizes = np.array([np.linalg.norm(step) for step in steps])
        x = x + sum(step * min(1, norm / size) for step, size in zip(steps, sizes)) / 3
        norm *= np.exp(-0.3 * ((sizes <= norm).mean() - 0.6))
        np.testing.assert_allclose(run.params["x"], x, rtol=1e-9)
        np.testing.assert_allclose(run.state.own.norm, norm, rtol=1e-8)
    assert 0.4 < norm


def test_the_bits_have_their_noise_and_the_sum_has_more():
    p = wide()
    text = f"dp:clip=1,noise=0.8,quantile=0.5,clip_lr=1,bit_noise=0.5,{FIXED}"
    runs = testing.trajectory(p, built(p, idle, text), 60)
    # Andrew et al., Theorem 1.
    multiplier = (0.8**-2 - 1.0**-2) ** -0.5
    np.testing.assert_allclose(noise_of_the_sum(0.8, 0.5), multiplier, rtol=1e-12)
    np.testing.assert_allclose(np.std(leaves(runs[0].params)), multiplier / 4, rtol=0.02)
    second, norm = leaves(runs[1].params) - leaves(runs[0].params), runs[0].state.own.norm
    np.testing.assert_allclose(np.std(second), multiplier * norm / 4, rtol=0.02)
    # All steps are within the norm: the share is 1 and the noise that of the bits, over four clients.
    logs = np.log([1.0, *(float(run.state.own.norm) for run in runs)])
    shares = 0.5 - np.diff(logs)
    assert abs(shares.mean() - 1) < 5 * (0.5 / 4) / np.sqrt(60)
    np.testing.assert_allclose(shares.std(), 0.5 / 4, rtol=0.4)


def test_a_step_that_is_not_finite_counts_as_zero():
    p = stepping(np.array([[np.inf, 1.0, 0.0], [0.3, 0.4, 0.0]]))
    np.testing.assert_allclose(one_round(p, "fedavg:weighting=uniform", EXACT).params["x"], [0.15, 0.2, 0], rtol=1e-6)


def test_norms_of_low_precision_are_those_of_float32():
    # Squares below 6e-8 are 0 in float16, and a sum above 65,504 is infinite.
    for size in (1e-4, 10):
        step, within = clipped(jnp.full(10_000, size, jnp.float16), 50 * size)
        np.testing.assert_allclose(np.asarray(step, float), size / 2, rtol=1e-3)
        assert not within


@pytest.mark.slow
def test_an_empty_cohort_gets_noise_too():
    p = stepping()
    algorithm = built(p, "fedavg:weighting=uniform", f"dp:clip=1,noise=1,{FIXED}")
    assert algorithm.steps_without_clients
    empty = p._replace(schedule=((-1, -1),))
    first, second = testing.trajectory(empty, algorithm, 2)
    steps = leaves(first.params), leaves(second.params) - leaves(first.params)
    assert np.isfinite(steps).all() and (np.abs(steps) > 1e-4).all() and (steps[0] != steps[1]).all()


def test_bytes_are_those_of_the_step_and_with_a_quantile_those_of_norm_and_bit():
    p = stepping(np.ones((1, 3)))
    p = p._replace(setting=p.setting._replace(num_clients=5))
    count = lambda *texts: communication(built(p, "fedavg:weighting=uniform", *texts), p.variables.params, p.store)
    assert count(EXACT) == count()
    adaptive = count(EXACT + ",quantile=0.5")
    assert (adaptive.down, adaptive.up) == (count().down + 4, count().up + 1)


@pytest.mark.parametrize(
    "text,reason",
    [
        ("dp:clip=1,noise=1", "poisson"),
        (f"dp:clip=1,noise=1,delta=0.3,{FIXED}", "delta=0.3"),
        (f"dp:clip=1,noise=1,quantile=0.5,bit_noise=0.5,{FIXED}", "bit_noise=0.5"),
        (f"dp:clip=1,noise=1,accountant=pld,{FIXED}", "accountant=pld"),
    ],
)
def test_parameters_out_of_range_are_refused(text, reason):
    refused(reason, WRAPPERS.build, text, core.Setting(10, 2, 100))


def test_cohorts_and_neighbors_must_fit():
    population = Population(10, 2, 20, (0,), lambda seed: np.ones(10, int))
    setting = core.Setting(10, 2, 20, sampling=make_sampler("poisson:rate=0.3", population))
    wrapper = WRAPPERS.build("dp:clip=1,noise=1", setting)
    assert wrapper.privacy.mechanism.rate == pytest.approx(0.3)
    refused("sampling=uniform", WRAPPERS.build, EXACT, setting)
    drops = setting._replace(sampling=dataclasses.replace(setting.sampling, dropout=0.5))
    # The noise of the bits is by default at least as large as that of the sum.
    adaptive = f"dp:clip=1,noise=1,quantile=0.5,{FIXED}"
    assert WRAPPERS.build(adaptive, core.Setting(10, 2, 20)).privacy.noise_multiplier == 1  # of sum and bits together
    # Who drops out takes no part, but only the draw is accounted.
    assert WRAPPERS.build("dp:clip=1,noise=1", drops).privacy.mechanism.rate == pytest.approx(0.3)


def contract_problem():
    schedule = ((0, 1, 2, 3), (4, 3, 2, 0), (1, 4, 3, 2))
    x, y = [[1.0, 2.0], [0.5], [1.5, -1.0], [2.0], [0.3, 0.8]], [[2.0, 4.5], [1.2], [3.0, -2.2], [4.1], [0.5, 1.7]]
    return testing.regression(x, y, [0.1, 0.2], batch_size=1, epochs=2, lr=0.1, schedule=schedule)


@pytest.mark.slow
@pytest.mark.parametrize("adaptive", [False, True])
@pytest.mark.parametrize("choice", ALGORITHMS.instances())
def test_contract(choice, adaptive):
    """Every algorithm fulfills the contract in a private run, or is refused in one line."""
    text = f"dp:clip=0.5,noise=0.01{',quantile=0.5' * adaptive},{FIXED}"
    choice = ALGORITHMS.check(choice).with_params(weighting="uniform")
    try:
        bench = testing.Bench(str(choice), contract_problem(), [text])
    except UserError as refused:
        # This problem has no network, which FedNTD and MOON need, whose messages are FedAvg's.
        assert str(refused).startswith(("dp", "fedntd needs classes", "a loss needs a network"))
        assert "\n" not in str(refused)
        pytest.skip(str(refused))
    testing.check_loop(bench)
    testing.check_padding(bench)
    testing.check_strategy(bench, Strategy(None, make_mesh() if jax.device_count() > 1 else None), watched=True)
