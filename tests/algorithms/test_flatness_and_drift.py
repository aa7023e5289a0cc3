"""Methods of flat minima and losses against drift, against plain numpy that differentiates by complex steps."""

import dataclasses
import functools

import numpy as np
import pytest

from fedwin import losses, testing
from tests.algorithms.identities import leaves
from tests.algorithms.softmax_clients import (
    CLASSES,
    LABELS,
    LR,
    SCHEDULE,
    WIDTH,
    batches,
    cross_entropy,
    gradient,
    log_softmax,
    network,
    problem,
)
from tests.refusals import refused

pytestmark = pytest.mark.usefixtures("double")

SIZES = np.array([len(y) for y in LABELS])
ETA = 0.7


def descend(y, i, direction):
    for batch in batches(i):
        y = y - LR * direction(y, batch)
    return y


def mean(values):
    return sum(SIZES[i] * value for i, value in values.items()) / sum(SIZES[i] for i in values)


def unit(v):
    return v / np.linalg.norm(v) if v.any() else v


def mofedsam(x, rho, beta):
    d = 0 * x
    for cohort in SCHEDULE:
        back = {}
        for i in cohort:
            ascended = lambda y, batch: gradient(y + rho * unit(gradient(y, batch)), batch)
            momentum = (1 - beta) * d / (LR * len(batches(i)))
            back[i] = descend(x, i, lambda y, batch: beta * ascended(y, batch) + momentum)
        d = x - mean(back)
        x = x - ETA * d
        yield x


def fedlesam(x, rho):
    received = {}
    for cohort in SCHEDULE:
        eps = {i: rho * unit(received.get(i, x) - x) for i in cohort}
        received |= dict.fromkeys(cohort, x)
        back = {i: descend(x, i, lambda y, batch: gradient(y + eps[i], batch)) for i in cohort}
        x = x + ETA * (mean(back) - x)
        yield x


def fedsmoo(x, rho, beta):
    """In the words of the authors' code: h and mu of the clients, the server's mu."""
    h, mu, shared = np.zeros((4, x.size)), np.zeros((4, x.size)), 0 * x
    for cohort in SCHEDULE:
        back = {}
        for i in cohort:

            def direction(y, batch):
                e = rho * unit(gradient(y, batch) - (mu[i] + shared))
                mu[i] += e - shared
                return gradient(y + e, batch) + (y + h[i] - x) / beta

            back[i] = descend(x, i, direction)
            h[i] += back[i] - x
        shared = rho * unit(mean({i: mu[i] for i in cohort}))
        x = x + ETA * (mean(back) + h.mean(0) - x)
        yield x


def averaged(x, loss):
    """FedAvg whose client i minimizes loss(theta, images, labels, x, i, its previous model)."""
    previous = {}
    for cohort in SCHEDULE:
        back = {}
        for i in cohort:
            local = lambda *at: loss(*at, x, i, previous.get(i))
            back[i] = descend(x, i, lambda y, batch: gradient(y, batch, local))
        previous |= back
        x = mean(back)
        yield x


def moon(theta, images, y, x, i, v, mu=2.0, temperature=0.7):
    cosine = lambda a, b: np.sum(a * b, -1) / np.sqrt(np.sum(a * a, -1) * np.sum(b * b, -1))
    h, server, own = (network(model, images)[0] for model in (theta, x, x if v is None else v))
    scores = np.stack([cosine(h, server), cosine(h, own)], -1) / temperature
    contrast = 0 if v is None else -np.mean(log_softmax(scores)[:, 0])
    return cross_entropy(theta, images, y) + mu * contrast


def fedntd(theta, images, y, x, i, v, beta=0.8, temperature=1.5):
    others = ~np.eye(CLASSES, dtype=bool)[y]
    of = lambda model: network(model, images)[1][others].reshape(len(y), CLASSES - 1) / temperature
    p, q = log_softmax(of(theta)), log_softmax(of(x))
    return cross_entropy(theta, images, y) + beta * np.mean(np.sum(np.exp(q) * (q - p), -1))


def fedlc(theta, images, y, x, i, v, tau=1.3):
    counts = np.bincount(LABELS[i], minlength=CLASSES)
    scores = network(theta, images)[1] - tau * np.maximum(counts, 1) ** -0.25
    return -np.mean(log_softmax(scores, counts > 0)[range(len(y)), y])


def feddecorr(theta, images, y, *client, form="code", beta=0.9):
    h, count = network(theta, images)[0], len(y)
    variance = np.sum((h - h.mean(0)) ** 2, 0) / (count if form == "paper" else max(count - 1, 1))
    z = (h - h.mean(0)) / np.sqrt(variance + 1e-8)
    squares = (z.T @ z) ** 2
    off_diagonal = squares[~np.eye(WIDTH, dtype=bool)]
    term = np.sum(squares) / (count * WIDTH) ** 2 if form == "paper" else np.mean(off_diagonal) / count
    return cross_entropy(theta, images, y) + beta * term


METHODS = [
    ("mofedsam:rho=0.3,beta=0.4,server_lr=0.7", "cross_entropy", lambda x: mofedsam(x, 0.3, 0.4)),
    ("fedlesam:rho=0.3,server_lr=0.7", "cross_entropy", lambda x: fedlesam(x, 0.3)),
    ("fedsmoo:rho=0.3,beta=4,server_lr=0.7", "cross_entropy", lambda x: fedsmoo(x, 0.3, 4)),
    ("moon:mu=2,temperature=0.7", "cross_entropy", lambda x: averaged(x, moon)),
    ("fedntd:beta=0.8,temperature=1.5", "cross_entropy", lambda x: averaged(x, fedntd)),
    ("fedavg", "fedlc:tau=1.3", lambda x: averaged(x, fedlc)),
    ("fedavg", "feddecorr:beta=0.9", lambda x: averaged(x, feddecorr)),
    ("fedavg", "feddecorr:beta=0.9,form=paper", lambda x: averaged(x, functools.partial(feddecorr, form="paper"))),
]


@pytest.mark.parametrize("choice, loss, expected", METHODS, ids=lambda value: value if type(value) is str else "")
def test_four_rounds_in_numpy(choice, loss, expected):
    p = problem(lambda model: losses.LOSSES.build(loss, model))
    runs = testing.trajectory(p, p.build(choice), len(SCHEDULE))
    for run, model in zip(runs, expected(leaves(p.variables.params)), strict=True):
        np.testing.assert_allclose(leaves(run.params), model, rtol=1e-9, atol=1e-11)


def test_a_client_without_a_previous_model_is_not_asked_for_its_features():
    """Its row's statistics are zeros, by which a network with BatchNorm divides."""
    p, one = problem(), np.ones(())
    model = p.setting.model

    def scaled(variables, *batch):
        output = model.apply(variables, *batch)
        return output._replace(features=output.features / variables.stats, stats=variables.stats)

    changed = model._replace(apply=scaled, init=lambda key: model.init(key)._replace(stats=one))
    p = p._replace(setting=p.setting._replace(model=changed), variables=p.variables._replace(stats=one))
    run = testing.trajectory(p, p.build("moon"), 1)[-1]
    assert np.isfinite(leaves(run.params)).all()


@pytest.mark.parametrize("choice, loss", [("moon", losses.cross_entropy), ("fedavg", losses.feddecorr)])
def test_features_that_are_unknown_are_refused(choice, loss):
    p = problem()
    apply = p.setting.model.apply
    hidden = p.setting.model._replace(apply=lambda *args: apply(*args)._replace(features=()))
    p = p._replace(setting=p.setting._replace(model=hidden), solve=dataclasses.replace(p.solve, loss=loss(hidden)))
    refused("one feature vector per example", testing.trajectory, p, p.build(choice), 1)
