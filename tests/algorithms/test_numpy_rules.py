"""Methods against plain numpy, in every round; rules of personal models have a module of their own."""

import functools

import jax
import numpy as np
import optax
import pytest

from fedwin import core, engine, sampling, testing
from fedwin.algorithms.agnostic import domain_weights
from fedwin.engine.strategy import Strategy
from fedwin.wrappers import build_all
from tests.algorithms import numpy_clients as plain
from tests.refusals import refused


def fedavg_m(beta, corrected, server_lr=1.0):
    """FedAvg-M, and with corrections SCAFFOLD-M."""
    x, m, c, controls = plain.START, np.zeros(2), np.zeros(2), np.zeros((3, 2))
    for cohort in plain.SCHEDULE:
        ys, new, steps = {}, controls.copy(), []
        for i in cohort:
            y, gradients = x, []
            for batch in plain.batches(i):
                g = plain.gradient(y, batch)
                gradients.append(g)
                y = y - plain.LR * (beta * (g + (c - controls[i] if corrected else 0)) + (1 - beta) * m)
            ys[i], new[i] = y, np.mean(gradients, axis=0)
            steps.append(len(gradients))
        p = plain.shares(cohort)
        delta = sum(w * (ys[i] - x) for w, i in zip(p, cohort))
        m = -delta / (plain.LR * p @ steps)
        c = c + sum(new[i] - controls[i] for i in cohort) / 3
        x, controls = x + server_lr * delta, new
        of_scaffold = {"state.momentum": m, "state.control": c, "table": dict(enumerate(controls))}
        yield {"params": x} | (of_scaffold if corrected else {"state": m})


def amplified_scaffold(period, gamma, server_lr):
    """c_i are set for all clients when a period ends; a row of the table is read when its client takes part."""
    x, c, controls = plain.START, np.zeros(2), np.zeros((3, 2))
    start, sums, counts = x, np.zeros((3, 2)), np.zeros(3)
    for t, cohort in enumerate(2 * plain.SCHEDULE):
        ys = []
        for i in cohort:
            y = x
            for batch in plain.batches(i):
                g = plain.gradient(y, batch)
                sums[i] += g
                counts[i] += 1
                y = y - plain.LR * (g - controls[i] + c)
            ys.append(y)
        x = x + server_lr * (plain.shares(cohort, "uniform") @ np.array(ys) - x)
        used = controls
        if (t + 1) % period == 0:
            x = start + gamma * (x - start)
            controls = np.where(counts[:, None] > 0, sums / np.maximum(counts, 1)[:, None], controls)
            start, c, sums, counts = x, controls.mean(0), np.zeros((3, 2)), np.zeros(3)
        yield {"params": x, "state.control": c, "table.control": {i: used[i] for i in cohort}}


def fedexp(eps, weighting, evaluated):
    x, rates = plain.START, []
    for cohort in plain.SCHEDULE:
        deltas = [plain.descend(x, i) - x for i in cohort]
        p = plain.shares(cohort, weighting)
        mean = sum(share * delta for share, delta in zip(p, deltas, strict=True))
        norms = sum(share * delta @ delta for share, delta in zip(p, deltas, strict=True))
        rates.append(max(1.0, norms / (2 * (mean @ mean + eps))))
        old, x = x, x + rates[-1] * mean
        yield {"params": x, "evaluated": (x + old) / 2 if evaluated == "mean" else x}
    # Some rounds extrapolate and some do not, or the comparison would say little.
    assert min(rates) == 1 and max(rates) > 1.2


def fedgloss(rho, local_rho, ramp, dual, server_lr, beta=4):
    x, pseudo, sigma, sigmas = plain.START, None, np.zeros(2), np.zeros((3, 2))
    for t, cohort in enumerate(plain.SCHEDULE):
        grown = min(t / ramp, 1) if ramp else 1
        here, there = (0.001 + (r - 0.001) * grown if ramp else r for r in (rho, local_rho))
        z = x if pseudo is None else x + here * pseudo / np.linalg.norm(pseudo)
        moved = {}
        for i in cohort:

            def direction(y, batch):
                g = plain.gradient(y, batch)
                g = plain.gradient(y + there * g / np.linalg.norm(g), batch) if there else g
                return g - sigmas[i] + (y - z) / beta

            moved[i] = plain.descend(z, i, direction) - z
        for i in cohort:
            sigmas[i] -= moved[i] / beta
        sigma = sigma - sum(moved.values()) / (beta * 3 * (len(cohort) if dual == "cohort" else 1))
        pseudo = -plain.shares(cohort) @ np.array([moved[i] for i in cohort])
        x = x - server_lr * pseudo - beta * sigma
        yield {"params": x, "state.s": -beta * sigma, "table": dict(enumerate(-beta * sigmas))}


def trained(x, i, rho, peak, control=0.0):
    """Client i's model after the local steps of FedSWA, and the rates of these steps."""
    batches = list(plain.batches(i))
    J, y, rates = len(batches), x, []
    for j, batch in enumerate(batches):
        # From peak lr to rho peak lr, which step J would have.
        rates.append(plain.LR * peak * (1 - j / J) + plain.LR * peak * rho * j / J)
        y = y - rates[-1] * (plain.gradient(y, batch) + control)
    return y, rates


def fedswa(rho, peak, alpha, weighting):
    x = plain.START
    for cohort in plain.SCHEDULE:
        mean = plain.shares(cohort, weighting) @ np.array([trained(x, i, rho, peak)[0] for i in cohort])
        x = x + alpha * (mean - x)
        yield {"params": x}


def fedmoswa(rho, gamma, alpha, weighting, code):
    x, m, c = plain.START, np.zeros(2), np.zeros((3, 2))
    for t, cohort in enumerate(plain.SCHEDULE):
        p, ys, sent = plain.shares(cohort, weighting), [], []
        for i in cohort:
            y, rates = trained(x, i, rho, 1.0, m - c[i])
            divisor = len(rates) * plain.LR * (1 + rho) / 2 if code else sum(rates)
            c[i] = c[i] - m + (x - y) / divisor
            ys.append(y)
            sent.append(c[i] - m)
        x = x + alpha * (p @ np.array(ys) - x)
        m = m + (1.0 if code and t == 0 else gamma) * (p @ np.array(sent))
        yield {"params": x, "state": m, "table": dict(enumerate(c.copy()))}


def fedvarp(beta, weighting):
    """FedStale, and with beta = 1 FedVARP, as the papers write them: sums over all clients."""
    x, memory, v = plain.START, np.zeros((3, 2)), plain.shares(range(3), weighting)
    for cohort in map(list, plain.SCHEDULE):
        fresh = np.array([plain.descend(x, i) - x for i in cohort])
        x = x + plain.shares(cohort, weighting) @ (fresh - beta * memory[cohort]) + beta * (v @ memory)
        memory[cohort] = fresh
        yield {"params": x, "table": dict(enumerate(memory.copy()))}


def feddyn(alpha, server_lr, by_size):
    x, s, q = plain.START, np.zeros(2), np.zeros((3, 2))
    for cohort in plain.SCHEDULE:
        moved = {}
        for i in cohort:
            a = alpha * np.mean(plain.SIZES) / plain.SIZES[i] if by_size else alpha
            moved[i] = plain.descend(x, i, lambda y, batch: plain.gradient(y, batch) + a * (y - x + q[i])) - x
        q[list(cohort)] += [*moved.values()]
        s = s + sum(moved.values()) / 3
        average = x + plain.shares(cohort) @ np.array([*moved.values()])
        x = x + server_lr * (average + s - x)
        yield {"params": x, "evaluated": average, "state.s": s, "table": dict(enumerate(q.copy()))}


def local_momentum(momentum):
    """A client that waits keeps its momentum."""
    x, v = plain.START, np.zeros((3, 2))
    for cohort in plain.SCHEDULE:
        ends = []
        for i in cohort:
            y = x
            for batch in plain.batches(i):
                v[i] = momentum * v[i] + plain.gradient(y, batch)
                y = y - plain.LR * v[i]
            ends.append(y)
        x = plain.shares(cohort) @ np.array(ends)
        yield {"params": x}


def fednova(momentum, tau_eff, mu=0.0):
    x = plain.START
    for cohort in plain.SCHEDULE:
        units, taus = [], []
        for i in cohort:
            y, v, weights = x, 0.0, [0.0]  # of the gradients so far in a step
            for batch in plain.batches(i):
                v = momentum * v + plain.gradient(y, batch) + mu * (y - x)
                weights = [*weights, momentum * weights[-1] + 1 - plain.LR * mu * sum(weights)]
                y = y - plain.LR * v
            units.append((y - x) / sum(weights))
            taus.append(sum(weights) if tau_eff == "a" else len(weights) - 1)
        p = plain.shares(cohort)
        x = x + (p @ taus) * (p @ np.array(units))
        yield {"params": x}


slow = functools.partial(pytest.param, marks=pytest.mark.slow)


def qffl(q, weighting, lipschitz=None):
    """The paper's Delta_i and h_i, each times p_i."""
    x, L = plain.START, lipschitz or 1 / plain.LR
    for cohort in plain.SCHEDULE:
        p = dict(zip(cohort, plain.shares(cohort, weighting)))
        F = {i: plain.loss(x, i) + 1e-10 for i in cohort}
        moved = {i: L * (x - plain.descend(x, i)) for i in cohort}
        delta = sum(p[i] * F[i] ** q * moved[i] for i in cohort)
        h = sum(p[i] * (q * F[i] ** (q - 1) * moved[i] @ moved[i] + L * F[i] ** q) for i in cohort)
        x = x - delta / h
        yield {"params": x}


def agnostic(lr, weighting, divisor):
    """Each client is its own domain; a batch's summed loss is divided by its examples, or by all of the client's."""
    x, lam = plain.START, np.full(3, 1 / 3)
    for cohort in plain.SCHEDULE:
        share = plain.shares(cohort, weighting) * lam[list(cohort)]
        losses = np.array([plain.loss(x, i) if i in cohort else 0.0 for i in range(3)])
        scaled = lambda y, batch, i: plain.gradient(y, batch) * len(batch[0]) / divisor(batch, i)
        x = share @ np.array([plain.descend(x, i, functools.partial(scaled, i=i)) for i in cohort]) / share.sum()
        lam = lam * np.exp(lr * losses)
        lam /= lam.sum()
        yield {"params": x, "state.weights": lam}


def adagrad(v0):
    """The root is taken before eps is added."""
    x, v = plain.START, np.full(2, v0)
    for cohort in plain.SCHEDULE:
        d = plain.fedavg(x, cohort) - x
        v = v + d**2
        x = x + 0.1 * d / (np.sqrt(v) + 0.01)
        yield {"params": x}


B1, B2, EPS, DECAY, ALPHA = 0.8, 0.9, 1e-3, 0.3, 0.4


def fedadamw():
    """Models and mean second moments; both parameters of the model are arrays of one entry."""
    x, delta, mean, zero = plain.START, 0.0, np.zeros(2), 1.0
    for cohort in plain.SCHEDULE:
        ends = []
        for i in cohort:
            y, m, v = x, 0.0, mean
            for k, batch in enumerate(plain.batches(i), 1):
                g = plain.gradient(y, batch)
                m, v = B1 * m + (1 - B1) * g, B2 * v + (1 - B2) * g**2
                step = m / (1 - B1**k) / (np.sqrt(v / (1 - zero * B2**k)) + EPS)
                y = y - plain.LR * (step + DECAY * y + ALPHA * delta)
            ends.append((y, v, zero * B2**k, plain.LR * k))
        share = plain.shares(cohort)
        y, mean, zero, length = (sum(p * end[n] for p, end in zip(share, ends)) for n in range(4))
        delta, x = (x - y) / length, y
        yield {"params": x, "state.1.v": mean}


RULES = [
    ("fedavg_m:beta=0.3,server_lr=0.7", fedavg_m, (0.3, False, 0.7)),
    ("scaffold_m:beta=0.3", fedavg_m, (0.3, True)),
    ("amplified_scaffold:weighting=uniform,period=3,gamma=1.3,server_lr=0.8", amplified_scaffold, (3, 1.3, 0.8)),
    ("fedexp:eps=1e-3,weighting=uniform", fedexp, (1e-3, "uniform", "mean")),
    ("fedexp:eps=0.03,weighting=samples,eval_model=server", fedexp, (0.03, "samples", "server")),
    ("fedgloss:rho=0.3,local_rho=0.2,beta=4,ramp=2,server_lr=0.7", fedgloss, (0.3, 0.2, 2, "clients", 0.7)),
    slow("fedgloss:rho=0.3,local_rho=0,beta=4,ramp=0,dual=cohort,server_lr=1", fedgloss, (0.3, 0, 0, "cohort", 1)),
    ("fedswa:weighting=uniform", fedswa, (0.1, 1, 1.5, "uniform")),
    ("fedswa:form=code,rho=0.2", fedswa, (0.2, 2, 1, "samples")),
    ("fedmoswa:weighting=uniform", fedmoswa, (0.1, 0.2, 1.5, "uniform", False)),
    ("fedmoswa:form=code", fedmoswa, (0, 0.4, 1, "samples", True)),
    ("fedvarp:weighting=uniform", fedvarp, (1, "uniform")),
    ("fedstale:beta=0.3,weighting=samples", fedvarp, (0.3, "samples")),
    ("qffl:q=3,weighting=samples,lipschitz=2.5", qffl, (3, "samples", 2.5)),
    ("qffl:q=0.5,weighting=uniform", qffl, (0.5, "uniform")),
    ("agnostic:lr=0.8,weighting=samples", agnostic, (0.8, "samples", lambda batch, i: len(batch[0]))),
    ("agnostic:lr=0.8,weighting=uniform,batch_loss=sum", agnostic, (0.8, "uniform", lambda batch, i: plain.SIZES[i])),
    ("feddyn:alpha=0.3,server_lr=0.7,client_alpha=by_size,eval_model=average", feddyn, (0.3, 0.7, True)),
    ("local_momentum:momentum=0.8", local_momentum, (0.8,)),
    ("fednova", fednova, (0, "a")),
    ("fedopt:optimizer=adagrad,server_lr=0.1", adagrad, (0.0,)),
    ("fedadagrad:server_lr=0.1,tau=0.01,v0=0.25", adagrad, (0.25,)),
    ("fednova:mu=1.1", fednova, (0, "a", 1.1)),
]


@pytest.mark.parametrize("choice, rule, numbers", RULES)
def test_every_round_is_the_papers_rule(choice, rule, numbers, double):
    plain.compare(choice, rule(*numbers))


@pytest.mark.parametrize(
    "choice, rule",
    [
        ("fednova", fednova(0.9, "a")),
        ("fednova:tau_eff=steps", fednova(0.9, "steps")),
        ("local_momentum:momentum=0", local_momentum(0.9)),
    ],
)
def test_every_round_is_that_of_clients_whose_optimizer_has_momentum(choice, rule, double):
    plain.compare(choice, rule, optimizer=optax.sgd(1.0, 0.9))


@pytest.mark.parametrize("choice", ["cyclic", None])
def test_the_default_period_is_a_cycle_of_groups(choice):
    sampler = choice and sampling.make_sampler(choice, sampling.Population(5, 3, 4, (0,), None))  # groups of 2 and 3
    p = testing.quadratic([1.0] * 5, range(5), [9.0], steps=1, lr=0.1, schedule=((0, 1), (2, 3, 4)))
    p = p._replace(setting=p.setting._replace(sampling=sampler, clients_per_round=3))
    default, two = (testing.trajectory(p, p.build(f"amplified_scaffold{more}"), 3) for more in ("", ":period=2"))
    assert default[-1].params == two[-1].params


def test_a_period_starts_from_the_model_that_a_wrapper_made(double):
    p = plain.problem()
    averaged = p.build(
        "amplified_scaffold:period=2,gamma=2", *build_all(["ima:window=3,start=2,schedule=none"], p.setting)
    )
    runs = testing.trajectory(p, averaged, 6)
    for before, run in zip(runs[1::2], runs[2::2]):
        np.testing.assert_array_equal(plain.vector(run.state.inner.start), plain.vector(before.params))


def test_with_momentum_the_rate_shortens_the_whole_step(double):
    """PyTorch's SGD: v <- rho v + (g + lambda y), y <- y - eta_j v."""
    p = plain.problem(optimizer=optax.sgd(1.0, 0.9), weight_decay=0.1)
    y, v = plain.START, np.zeros(2)
    batches = list(plain.batches(2))
    for j, batch in enumerate(batches):
        v = 0.9 * v + plain.gradient(y, batch) + 0.1 * y
        y = y - plain.LR * (1 - 0.9 * j / len(batches)) * v
    p = p._replace(schedule=((2,),))
    (run,) = testing.trajectory(p, p.build("fedswa:server_lr=1"), 1)
    np.testing.assert_allclose(plain.vector(run.params), y, rtol=1e-9)


@pytest.mark.parametrize("blocks", ["array", "entry"])
def test_fedadamw_is_the_papers_rule(blocks, double):
    choice = f"fedadamw:b1={B1},b2={B2},eps={EPS},alpha={ALPHA},blocks={blocks}"
    plain.compare(choice, fedadamw(), rtol=1e-12, weight_decay=DECAY)


def test_a_block_is_an_array_of_the_parameters():
    p = testing.quadratic([1.0], [[3.0, -1.0, 0.5]], np.zeros(3), steps=2, lr=0.1, schedule=[[0]])
    whole, means = (testing.trajectory(p, p.build(f"fedadamw:blocks={b}"), 1)[0].state[1].v for b in ("entry", "array"))
    for v, mean in zip(*map(jax.tree.leaves, (whole, means)), strict=True):
        assert v.size > 1 and mean.shape == ()
        np.testing.assert_allclose(mean, v.mean(), rtol=1e-6)


@pytest.mark.parametrize("q", [5, 0.5])
def test_clients_without_a_loss_leave_the_model_as_it_is(q):
    p = testing.quadratic([1.0, 2.0], [3.0, 3.0], [3.0], steps=1, lr=0.1, schedule=[[0, 1]])
    assert testing.trajectory(p, p.build(f"qffl:q={q}"), 1)[-1].params["x"] == 3


def test_a_domain_without_clients_keeps_its_count_and_factors_of_weights_enter_it():
    # FedJAX divides by zero here: domain 1 takes part in round 0 only.
    p = testing.quadratic(
        [1.0] * 3, [0.0, 1.0, 2.0], [1.0], steps=1, lr=0.1, schedule=[[0, 2], [0, 1], [1, 0]], sizes=[2, 3, 5],
        info={"domain": np.array([0, 0, 1], np.int32)},
    )  # fmt: skip
    algorithm = p.build("agnostic:domains=info,weighting=uniform,window=2")
    run = testing.trajectory(p, algorithm, 3)[-1]
    np.testing.assert_allclose(run.state.examples, [5, 2.5, 0.5])  # means of two rounds, the one before the run with 1
    assert np.isfinite(run.params["x"]).all()
    cohort = core.Cohort.of([0, 1, 2], importance=np.float32([2, 1, 0.1]))
    run, _ = engine.one_round(algorithm, {}, Strategy(1), p.n_max, p.start(algorithm), p.store, cohort)
    weights = domain_weights(np.ones(3) / 3, np.array([2 / 7, 0.5, 0]), 0.1)
    np.testing.assert_allclose([*run.state.examples, *run.state.weights], [4, 0.75, 0.5, *weights], rtol=1e-6)


def test_losses_too_large_for_exp_leave_the_worst_domain_and_the_others_a_mean():
    found = domain_weights(np.array([0.25, 0.5, 0.25]), np.array([1e4, 1.0, 1e4]), 1.0)
    np.testing.assert_allclose(found, [0.5, np.float32(1e-30), 0.5], rtol=1e-9)
    p = testing.quadratic([1, 3], [0, 4], [1.0], steps=5, lr=0.1, schedule=[(0,), (1,)])
    ours, fedavg = (testing.trajectory(p, p.build(choice), 4)[-1] for choice in ("agnostic:lr=20", "fedavg"))
    np.testing.assert_allclose(ours.params["x"], fedavg.params["x"], rtol=1e-6)


def test_domains_need_a_partition_that_has_them():
    p, words = plain.problem(), "agnostic: domains=info needs clients that belong to domains"
    refused(words, testing.trajectory, p, p.build("agnostic:domains=info"), 1)
