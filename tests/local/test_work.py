"""Local steps, fractional epochs and clients that take a share of their steps, of every algorithm."""

import jax
import jax.numpy as jnp
import numpy as np
import pytest

from fedwin import core, local, testing
from fedwin.algorithms import ALGORITHMS
from fedwin.engine.strategy import Strategy
from fedwin.local import LOCAL_WORK, work_of_cohort
from tests.algorithms.numpy_clients import gradient
from tests.golden_problems import vector
from tests.local.test_local import client, seen, solver
from tests.refusals import refused


@pytest.mark.parametrize(
    "options, steps",
    [
        (dict(epochs=0.5), 2),  # ceil(0.5 * 3)
        (dict(epochs=0.5, batching="repeat"), 2),  # ceil(0.5 * 10 / 4)
        (dict(epochs=1.5), 5),
        (dict(steps=7), 7),
        (dict(steps=1, batch_size=64), 1),
    ],
)
@pytest.mark.parametrize("equal", [False, pytest.param(True, marks=pytest.mark.slow)])
def test_the_number_of_steps_is_that_asked_for(options, steps, equal):
    """Batches continue over passes: what is seen is the beginning of a long local training."""
    own = dict(batch_size=4, shuffle=True, equal_size=10 if equal else None) | options
    found = seen(solver(**own), client(10))
    assert len(found) == steps
    assert found == seen(solver(**(own | dict(epochs=4, steps=None))), client(10))[:steps]


@pytest.mark.parametrize(
    "options", [dict(epochs=0.7), dict(epochs=2.3, batching="repeat"), dict(steps=5), dict(epochs=3)]
)
def test_the_host_counts_the_steps_of_the_device(options):
    train = solver(batch_size=3, **options)
    sizes = np.arange(41)
    shares = local.exact_share(np.linspace(0, 1, 41))
    clients = jax.vmap(lambda size, work: client(40)._replace(size=size, work=work))
    steps = jax.jit(jax.vmap(lambda c: train.plan(c)[1], in_axes=0))
    stacked = clients(jnp.asarray(sizes, jnp.int32), jnp.asarray(shares))
    assert steps(stacked).tolist() == train.count_steps(sizes, 0, shares).tolist()
    assert steps(stacked._replace(work=None)).tolist() == train.count_steps(sizes, 0).tolist()
    assert train.count_steps(sizes, 0, shares)[:2].tolist() == [0, 1]  # none without examples, else at least one


def test_shares_round_up_exactly():
    """Tenths of multiples of ten are whole; float32 products such as 0.1 * 30 are not."""
    for tenths in range(1, 10):
        for count in range(10, 5000, 10):
            assert local.batches.share_of(local.exact_share(tenths / 10), count) == tenths * count // 10
    assert local.batches.share_of(local.exact_share(1.0), 10**6 + 1) == 10**6 + 1


# Four clients on the line y = w x + b, their batches in stored order.
SIZES = (7, 4, 10, 1)
X = [np.linspace(0.2, 1, n) + 0.1 * i for i, n in enumerate(SIZES)]
Y = [2 * x + 0.3 * i for i, x in enumerate(X)]
START = np.array([0.5, 0.1])
BATCH, RATE, EPOCHS = 3, 0.2, 2
# w_i in every round.
WORK = np.array([[0.3, 1.0, 0.5, 0.2], [1.0, 0.0, 0.9, 1.0], [0.6, 0.6, 0.1, 0.5]])


def numpy_rounds(batching):
    """Returns the models after each round, by plain numpy over the planned batches."""
    x, models = START, []
    for shares in WORK:
        ends = np.zeros((4, 2))
        for i, n in enumerate(SIZES):
            batches = seen(solver(batch_size=BATCH, epochs=EPOCHS, batching=batching), client(n))
            w = x
            for rows in batches[: max(1, int(np.ceil(round(shares[i] * len(batches), 6))))]:
                w = w - RATE * gradient(w, (X[i][rows], Y[i][rows]))
            ends[i] = w
        x = np.array(SIZES) @ ends / sum(SIZES)
        models.append(x)
    return models


def runs_with_shares(bench, shares, strategy=Strategy(1)):
    """Returns the state after each round, whose clients take the given shares of their local steps."""
    dispatch, cohorts = bench.compiled({}, strategy), bench.cohort_table(0)._replace(work=local.exact_share(shares))
    return [bench.go(dispatch, bench.initial, cohorts, n + 1, strategy)[0] for n in range(bench.rounds)]


@pytest.mark.parametrize("batching", ["repeat", "epoch"])
def test_clients_take_the_share_of_their_steps(batching):
    options = dict(lr=RATE, batch_size=BATCH, epochs=EPOCHS, batching=batching)
    p = testing.regression(X, Y, START, schedule=((0, 1, 2, 3),), **options)
    runs = runs_with_shares(testing.Bench("fedavg", p, rounds=len(WORK)), WORK)
    np.testing.assert_allclose([vector(run.params) for run in runs], numpy_rounds(batching), rtol=1e-5)


@pytest.mark.slow
@pytest.mark.parametrize("choice", ALGORITHMS.instances())
def test_vmapped_clients_of_every_algorithm_with_shares_of_their_steps_equal_a_loop(choice):
    p = testing.classification(schedule=(range(4),), shuffle=False)
    bench = testing.Bench(choice, p, rounds=3)

    trained = lambda *how: jax.tree.leaves(runs_with_shares(bench, *how)[-1])
    shares = np.random.default_rng(0).random((3, 4))
    some, full = trained(shares), trained(np.ones_like(shares))
    for one, other in zip(some, trained(shares, Strategy(None)), strict=True):
        assert np.isfinite(one).all()
        np.testing.assert_allclose(one, other, rtol=2e-3, atol=2e-4)
    for one, other in zip(full, jax.tree.leaves(bench.final), strict=True):
        np.testing.assert_allclose(one, other, rtol=1e-5, atol=1e-6)
    assert any(np.abs(one - other).max() > 1e-4 for one, other in zip(some, full, strict=True))


def test_heavy_ball_momentum_moves_by_as_much_in_fewer_steps():
    """The displacements of J_i steps sum to beta times the momentum, for any J_i."""
    p = testing.two_quadratics()
    solve = local.Solver(p.solve.loss, lr=0.0, batch_size=1, epochs=5)
    algorithm = testing.problems.build("ghb:tau=1,beta=0.5", p.setting, solve)
    params = p.variables.params
    train = jax.jit(algorithm.phases[0].client, compiler_options=testing.problems.compile_options())
    for work in (0.0, 0.5, 1.0):
        c = p.client(0)._replace(work=jnp.asarray(local.exact_share(work)))
        message = train((params, jax.tree.map(jnp.ones_like, params)), c).message
        np.testing.assert_allclose(core.mean_step_of(message).value["x"], 0.5, rtol=1e-6)


@pytest.mark.parametrize("text", ["uniform", "uniform:constant=true", "stragglers:share=0.7"])
def test_the_work_depends_on_seed_round_and_client_alone(text):
    work = LOCAL_WORK.build(text)
    found = work_of_cohort(work, 5, 11, np.array([3, 9, 0]))
    assert found.dtype == np.float32
    assert found[[2, 0]].tolist() == work_of_cohort(work, 5, 11, np.array([0, 3])).tolist()
    of = lambda seed, round: work_of_cohort(work, seed, round, np.arange(500)).tolist()
    assert of(5, 10) != of(6, 10)
    assert (of(5, 10) == of(5, 11)) == ("constant" in text)


def test_the_work_is_distributed_as_it_says():
    rounds = lambda work: np.stack([work_of_cohort(work, 0, round, np.arange(100)) for round in range(200)])
    shares = rounds(LOCAL_WORK.build("uniform:low=0.2,high=0.6"))
    assert shares.min() >= 0.1999 and shares.max() <= 0.6
    np.testing.assert_allclose(np.histogram(shares, 4, (0.2, 0.6))[0] / shares.size, 0.25, atol=0.015)
    # Neither rounds nor clients are correlated.
    assert abs(np.corrcoef(shares[:-1].ravel(), shares[1:].ravel())[0, 1]) < 0.03
    slow = rounds(LOCAL_WORK.build("stragglers:share=0.9"))
    np.testing.assert_allclose(np.mean(slow < 1), 0.9, atol=0.01)
    np.testing.assert_allclose(slow[slow < 1].mean(), 0.5, atol=0.01)


@pytest.mark.parametrize(
    "text, message",
    [("uniform:low=0.8,high=0.5", "low=0.8 is above high=0.5"), ("file:path=/nowhere.csv", "can't be read")],
)
def test_impossible_work_is_refused(text, message):
    refused(message, LOCAL_WORK.build, text)


@pytest.mark.parametrize(
    "lines, message",
    [
        ("id,work\n1,0.5", "the first line must be client,work"),
        ("client,work\n1,fast", "line 2: '1,fast'"),
        ("client,work\n1,0.5\n1,0.6", "line 3"),
        ("client,work\n3,1.5", "gives client 3 the work 1.5"),
    ],
)
def test_files_of_work_are_checked(tmp_path, lines, message):
    path = tmp_path / "work.csv"
    path.write_text(lines)
    refused(message, LOCAL_WORK.build, f"file:path={path}")


def test_a_users_work_outside_of_0_to_1_is_refused():
    refused("outside of", work_of_cohort, lambda seed, round, ids: np.full(len(ids), 1.5), 0, 0, np.zeros(2, int))
