"""Servers for which simulated seconds decide who takes part: asynchronous ones, and those that leave out stragglers."""

import dataclasses
import functools
import heapq

import jax
import numpy as np
import pytest

import fedwin
from fedwin import engine, sampling, testing
from fedwin.clock import CLOCKS, Load
from fedwin.core import Cohort
from fedwin.engine.strategy import Strategy
from fedwin.runs.choices import check_deadline
from fedwin.runs.plan import make_plan
from fedwin.runs.prepare import prepare
from fedwin.runs.start import check_fork
from fedwin.sampling import Jobs
from fedwin.schedules import exponential
from fedwin.wrappers import ASYNCHRONOUS, STALENESS, asynchronous
from fedwin.wrappers.asynchronous import resized_ring
from tests.refusals import refused
from tests.runs.disturbance import assert_same_to_rounding, interrupted
from tests.small_runs import finished_run, leaves, lines, run_in, small

K, SIZE, CONCURRENCY, STEPS, LR, TIMEOUT = 20, 3, 8, 5, 0.1, 2.0
RANDOM = np.random.default_rng(0)
CURVATURES, CENTERS, SIZES = RANDOM.uniform(0.5, 2, K), RANDOM.normal(size=(K, 3)), RANDOM.integers(1, 6, K)
START = np.array([3.0, -2.0, 1.0])


def jobs(seed, round, ids, work=None):
    load = Load(np.ones(len(ids)), 1, 1, round=round)
    return Jobs(CLOCKS.build("exponential:mean=2.0").seconds(seed, ids, load))


def arrivals(size=SIZE, concurrency=CONCURRENCY, most=100, dropout=0.0):
    return sampling.asynchronous(K, size, concurrency, most, dropout, TIMEOUT, jobs)


class Reference:
    """A server and its clients on quadratics, in numpy: who starts trains at once, and delivers on arrival."""

    def __init__(self, method, mixing=None):
        self.method, self.mixing, self.x, self.t = method, mixing, START.copy(), 0
        self.m, self.v, self.c = np.zeros(3), np.zeros(3), np.zeros(3)
        self.rows, self.anchors = np.zeros((K, 3)), {}

    def trained(self, i):
        y, first, lr = self.x.copy(), self.x.copy(), LR * 0.98**self.t
        gradients = []
        for _ in range(STEPS):
            g = CURVATURES[i] * (y - CENTERS[i])
            gradients.append(g)
            if self.method == "scaffold":
                y = y - lr * (g - self.rows[i] + self.c)
            elif self.method == "fedhbm" and i in self.anchors:
                y = y - lr * g + 0.5 * (SIZE / K) / STEPS * (y - self.anchors[i])
            else:
                y = y - lr * g
        return first, y, np.mean(gradients, 0), self.t

    def step(self, buffer):
        total, drift = np.zeros(3), np.zeros(3)
        for i, (first, y, gradient, version) in buffer:
            weight = (1 + self.t - version) ** -0.5
            origin = first if self.mixing is None else self.x
            total += SIZES[i] * weight * (self.mixing or 1) * (y - origin)
            drift += (gradient - self.rows[i]) / K
            self.rows[i], self.anchors[i] = gradient, y
        d = total / sum(SIZES[i] for i, _ in buffer)
        self.c = self.c + drift
        if self.method == "fedavgm":
            self.m = 0.5 * self.m + d
            d = self.m
        elif self.method == "fedadam":
            self.m, self.v = 0.9 * self.m + 0.1 * d, 0.99 * self.v + 0.01 * d**2
            d = 0.1 * self.m / (np.sqrt(self.v) + 1e-3)
        self.x, self.t = self.x + d, self.t + 1

    def run(self, steps):
        events, buffer, busy, models, now = [], [], set(), [], 0.0
        cohorts = [sampling.cohort(0, number, K, CONCURRENCY) for number in range(99)]
        line = [pair for number, ids in enumerate(cohorts) for pair in zip(ids.tolist(), jobs(0, number, ids).seconds)]
        while len(models) < steps:
            while len(events) < CONCURRENCY:
                i, seconds = line.pop(0)
                if i not in busy:
                    busy.add(i)
                    heapq.heappush(events, (now + seconds, i, self.trained(i)))
            now, i, result = heapq.heappop(events)
            buffer.append((i, result))
            if len(buffer) == SIZE:
                self.step(buffer)
                models.append(self.x)
                busy -= {i for i, _ in buffer}
                buffer = []
        return np.array(models)


METHODS = ("fedavg", "fedavgm:beta=0.5", "fedadam:server_lr=0.1", "scaffold", "fedhbm:beta=0.5")


@pytest.mark.parametrize("method, mixing", [("fedavg", 0.6), *((method, None) for method in METHODS)])
def test_updates_are_those_of_clients_that_train_from_the_model_of_their_start(method, mixing):
    constants = dict(steps=STEPS, lr=LR, schedule=(tuple(range(SIZE)),), sizes=SIZES.tolist())
    p, sampler = testing.quadratic(CURVATURES, CENTERS, START, **constants), arrivals()
    p = p._replace(solve=dataclasses.replace(p.solve, lr=exponential(LR, 0.02)))
    draws = [sampler.cohort(0, step) for step in range(50)]
    longest = sampling.greatest_staleness(sampler, (0,), 50)
    assert longest == max(int(draw.staleness.max()) for draw in draws) > 5
    server = ASYNCHRONOUS.build(f"buffer:concurrency={CONCURRENCY},mixing={'none' if mixing is None else mixing}", SIZE)
    algorithm = asynchronous(p.build(method), server, lambda: longest)
    step = jax.jit(functools.partial(engine.one_round, algorithm, {}, Strategy(1), p.n_max))
    run, models = p.start(algorithm), []
    for draw in draws:
        run, _ = step(run, p.store, Cohort.of(draw.ids, staleness=draw.staleness))
        models.append(run.params["x"])
    np.testing.assert_allclose(models, Reference(method.partition(":")[0], mixing).run(50), rtol=2e-4, atol=2e-5)


def test_a_hinge_bends_after_b():
    weight = STALENESS.build("hinge:a=2,b=3")
    np.testing.assert_allclose([weight(staleness) for staleness in (0, 3, 5)], [1, 1, 1 / 5])


DATA = dict(partition="dirichlet:alpha=0.3", val_fraction=0.2, num_rounds=8, checkpoint_every=4)
SMALL = small(**DATA, clock="exponential:mean=1.0", asynchronous="buffer:size=3,concurrency=8")
whole = finished_run(dataclasses.replace(SMALL, seeds=[0, 1]))


def trained(directory, seed=0, **changes):
    run_in(SMALL, directory, **changes)
    return fedwin.load(directory, seed=seed).run


@pytest.mark.parametrize("algorithm", ["fedavg", pytest.param("scaffold", marks=pytest.mark.slow)])
def test_equal_times_are_synchronous_rounds_to_the_bit(tmp_path, algorithm):
    times = tmp_path / "clock.csv"
    times.write_text("client,up,down,compute\n" + "".join(f"{i},1e6,1e6,0\n" for i in range(20)))
    both = dict(clock=f"file:path={times}", algorithm=algorithm, clients_per_round=5)
    ours = trained(tmp_path / "ours", asynchronous="buffer:concurrency=5", **both)
    theirs = trained(tmp_path / "theirs", asynchronous="", **both)
    jax.tree.map(np.testing.assert_array_equal, (ours.params, ours.table), (theirs.params, theirs.table))
    mine, other = lines(tmp_path / "ours")[-1], lines(tmp_path / "theirs")[-1]
    assert mine["simulated_seconds"] == pytest.approx(other["simulated_seconds"])
    assert all(mine[name] == value for name, value in other.items() if name != "simulated_seconds")
    assert mine["mean_staleness"] == mine["greatest_staleness"] == mine["dropped_updates"] == 0


def test_what_an_evaluation_tells(whole):
    found, sampler = lines(whole[0], seed=0)[1:], prepare(SMALL).setting.sampling
    draws = [sampler.cohort(0, step) for step in range(8)]
    for number, line in enumerate(found):
        since, sofar = draws[2 * number : 2 * number + 2], draws[: 2 * number + 2]
        staleness = np.concatenate([draw.staleness for draw in since])
        assert (line["mean_staleness"], line["greatest_staleness"]) == (staleness.mean(), staleness.max())
        assert line["simulated_seconds"] == pytest.approx(sum(draw.seconds for draw in sofar))
    model = 4 * (64 * 10 + 10)
    assert line["bytes_up"] == 8 * 3 * model and line["bytes_down"] == model * sum(draw.received for draw in draws)
    # All but those that are still in training, and those that start after the last step, have arrived.
    assert 0 < sum(draw.received for draw in draws) - 8 * 3 <= 8


def test_a_fork_goes_on_with_the_clients_in_training(whole, tmp_path):
    """Of other seeds and rounds, with which rings have other lengths; a synchronous run leaves them."""
    lengths = [resized_ring(np.arange(4, 8), length, 7).tolist() for length in (3, 6)]
    assert lengths == [[6, 7, 5], [6, 7, 0, 0, 4, 5]]  # the broadcast of round n at n mod L
    both = dict(seeds=[1], num_rounds=11)
    longer, forked = trained(tmp_path / "longer", 1, **both), tmp_path / "forked"
    continued = trained(forked, 1, fork_from=f"{whole[0]}@8", **both)
    jax.tree.map(np.testing.assert_array_equal, longer.params, continued.params)
    assert lines(forked)[-1] == lines(tmp_path / "longer")[-1]
    synchronous = dict(asynchronous="", clients_per_round=3, fork_from=f"{forked}@11", seeds=[1], num_rounds=12)
    assert trained(tmp_path / "synchronous", 1, **synchronous).state == ()
    assert lines(tmp_path / "synchronous")[0]["model"] == lines(forked)[-1]["model"]


@pytest.mark.parametrize(
    "changes, others, message",
    [
        (dict(asynchronous="buffer:size=3,concurrency=9"), {}, "the same --asynchronous, --clock and --dropout"),
        (dict(clock="exponential:mean=2.0"), {}, "the same --asynchronous, --clock and --dropout, or start anew"),
        ({}, dict(seconds=9.0), "the same flags on which the seconds of clients depend"),
        ({}, dict(staleness=np.array([7])), "has the model of round 1, and the checkpoint only the last"),
    ],
    ids=str,
)
def test_a_fork_with_other_clients_in_training_is_refused(whole, changes, others, message):
    config = dataclasses.replace(SMALL, fork_from=f"{whole[0]}@8", num_rounds=9, **changes)
    prepared = prepare(config)
    draw = prepared.setting.sampling.cohort
    sampler = dataclasses.replace(prepared.setting.sampling, draw=lambda *at: draw(*at)._replace(**others))
    refused(message, check_fork, config, prepared.start, sampler)


@pytest.mark.parametrize(
    "changes, message",
    [
        (dict(clock=""), "needs the seconds of clients; set --clock"),
        (dict(asynchronous="", over_selection=1.5, clock=""), "over_selection=1.5 needs the seconds of clients"),
        (dict(deadline=2.0), "deadline and asynchronous exclude each other"),
        (dict(clients_per_round=4), "clients_per_round=4 and asynchronous=.* both set the updates"),
        (dict(asynchronous="buffer:size=4,concurrency=18"), "up to 21 clients are in training.* has 20"),
        (dict(asynchronous="buffer:size=21,concurrency=1"), "up to 21 clients are in training.* has 20"),
        (dict(num_clients=9), "up to 10 clients are in training.* has 9"),
        (dict(asynchronous="buffer:size=4"), "needs concurrency="),
        (dict(asynchronous="buffer:concurrency=4,staleness=quadratic"), "unknown staleness 'quadratic'"),
        (dict(asynchronous="buffer:staleness=hinge:a=1,b=2"), 'is quoted: staleness="hinge:a=1,b=..."'),
        (dict(asynchronous="", deadline=1e-9), "deadline=1e-09: nobody arrives in time in any round; raise it"),
        (dict(algorithm="mime"), "'mime' is not known to work with updates from several models; choose one of fedacg"),
        (dict(sampling="weighted"), "draws the next client of all that are free; omit --sampling=weighted"),
        (dict(sampling="poisson", asynchronous="", deadline=2.0), "sampling=poisson may draw more clients than it"),
        (dict(asynchronous="", over_selection=4, clients_per_round=6), "draws 24 clients, and the federation has 20"),
        (dict(aggregate="median"), "shortens stale steps, which aggregate=median compares; set staleness=constant"),
        (dict(model="resnet18:norm=bn"), "BatchNorm's statistics are those of one model"),
        (dict(wrap=["ima:window=2,start=1,schedule=epoch"]), "drops local epochs from round to round"),
        (dict(wrap=["dp:clip=1,noise=1"]), "--wrap=dp can't account"),
    ],
)
def test_what_does_not_go_together_is_refused(changes, message):
    config = dataclasses.replace(SMALL, **changes)
    refused(message, lambda: check_deadline(config, prepare(config).setting.sampling))


@pytest.mark.parametrize(
    "changes, participants", [({}, 3), (dict(asynchronous="", clients_per_round=4, over_selection=1.5), 2.875)]
)
def test_the_participation_is_that_of_the_clients_that_the_server_waits_for(changes, participants):
    """The mean of min(4, N) is 2.875 for N ~ Binomial(6, 1/2)."""
    prepared = prepare(dataclasses.replace(SMALL, algorithm="ghb", dropout=0.5, num_rounds=99, **changes))
    assert prepared.setting.participation == pytest.approx(participants / 20)
    init = lambda key: prepared.algorithm.init(prepared.model.init(key).params, key)
    state = jax.tree.leaves(jax.eval_shape(init, jax.random.key(0)))
    assert 7 in [leaf.shape[0] for leaf in state if leaf.ndim]  # tau = 1 / C, rounded


def test_a_deadline_leaves_out_who_is_late_and_nobody_else(tmp_path):
    (tmp_path / "trace").write_text("client,start,end\n" + "".join(f"{client},0,8\n" for client in range(5)))
    everyone = dict(sampling=f"file:path={tmp_path / 'trace'},everyone=true", clients_per_round=2, asynchronous="")
    timed = prepare(dataclasses.replace(SMALL, deadline=1e9, **everyone)).setting.sampling
    assert sorted(timed.cohort(0, 0).ids.tolist()) == [0, 1, 2, 3, 4]
    refused("clients than it is asked for; omit", prepare, dataclasses.replace(SMALL, over_selection=2, **everyone))


def test_updates_that_are_too_old_are_dropped_and_their_clients_replaced():
    limited = arrivals(1, 8, most=3)
    draws = [limited.cohort(0, step) for step in range(200)]
    assert sampling.greatest_staleness(limited, (0,), 200) == 3 < sampling.greatest_staleness(arrivals(1, 8), (0,), 200)
    dropped, received = (sum(getattr(draw, name) for draw in draws) for name in ("dropped", "received"))
    # 8 are in training when the last step is made; it is one of them that makes it.
    assert dropped > 20 and received == 200 + dropped + 7


def test_clients_that_drop_out_hold_their_place_until_they_would_have_arrived():
    draws = [*map(functools.partial(arrivals(1, 8, dropout=0.5).cohort, 0), range(2000))]
    # The mean of Exp(2) is 2, and that of its maximum with the timeout of 2 is 2 + 2 / e.
    assert sum(draw.seconds for draw in draws) == pytest.approx(2000 * (2 + (2 + 2 / np.e)) / 8, rel=0.05)
    assert not any(draw.dropped for draw in draws)
    assert sum(draw.received for draw in draws) == pytest.approx(4000, rel=0.05)


@pytest.mark.parametrize("deadline", [0.0, 1.5])
@pytest.mark.parametrize(
    "choice, dropout, mean",
    [("uniform", 0, 4), ("uniform", 0.4, 3.320064), ("diurnal:period=2,zones=1", 0, 2), ("cyclic:groups=5", 0.4, 2.4)],
)
def test_the_first_to_arrive_take_part(choice, deadline, dropout, mean):
    drawing = sampling.make_sampler(choice, sampling.Population(K, 6, 40, (3,), lambda seed: SIZES), dropout)
    own = lambda *at: sampling.Draw(ids := drawing.draw(*at), work=ids / K)
    sampler = sampling.first_to_arrive(dataclasses.replace(drawing, draw=own), 4, deadline, TIMEOUT, jobs)
    assert sampler.expected == pytest.approx(mean)
    for round in range(40):
        drawn, draw = drawing.cohort(3, round), sampler.cohort(3, round)
        seconds = dict(zip(drawn.ids.tolist(), jobs(3, round, drawn.ids).seconds.tolist()))
        come = [i for i in drawn.participants.tolist() if seconds[i] <= (deadline or np.inf)]
        first = sorted(come, key=seconds.get)[:4]
        assert sorted(draw.ids.tolist()) == sorted(first) and draw.received == len(seconds)
        np.testing.assert_array_equal(draw.work, draw.ids / K)
        last = max((seconds[i] for i in first), default=0)
        # Of fewer the server can't know that nobody else comes.
        assert draw.seconds == (last if len(first) == min(4, len(seconds)) else deadline or max(TIMEOUT, last))
    assert sampler.varies == bool(deadline or dropout or drawing.smallest < 4)


def test_a_seed_is_loaded_with_the_old_models_of_all_seeds(whole):
    """The greatest staleness of any seed decides how many are kept."""
    longest = [sampling.greatest_staleness(prepare(SMALL).setting.sampling, (0,), 8)]
    both = prepare(dataclasses.replace(SMALL, seeds=[0, 1]))
    longest.append(sampling.greatest_staleness(both.setting.sampling, (1,), 8))
    for seed in (0, 1):
        kept = jax.tree.leaves(fedwin.load(whole[0], seed=seed).run.state.own)
        assert {len(leaf) for leaf in kept} == {max(longest) + 1}
    assert longest[0] != longest[1]
    needed = make_plan(both, Strategy()).requirements
    assert needed.device["old models"] == (max(longest) + 1) * 4 * (64 * 10 + 10)
    assert needed.remedies["old models"].startswith("set --window=")


def test_old_models_elsewhere_have_the_bits_of_the_device(whole, tmp_path, monkeypatch):
    """In a file, which is not read as a whole, and then on the host, from a checkpoint that refers to the file."""
    monkeypatch.setattr("fedwin.runs.plan.WINDOW_BYTES", 0)  # one round per dispatch
    expected, copy = leaves(whole[0], 8), tmp_path / "run"
    slots = len(jax.tree.leaves(fedwin.load(whole[0]).run.state.own)[0])
    for place in ("file", "host"):
        own, found = trained(copy, seeds=[0, 1], window=place).state.own, leaves(copy, 8)
        assert {len(leaf) for leaf in jax.tree.leaves(own)} == ({1, slots} if place == "file" else {slots})
        assert lines(copy, seed=0) == lines(whole[0], seed=0) and found.keys() == expected.keys()
        jax.tree.map(np.testing.assert_array_equal, found, expected)
        models = (fedwin.client_models(directory, [3]) for directory in (copy, whole[0]))
        jax.tree.map(np.testing.assert_array_equal, *models)
        interrupted(copy, 4)


@pytest.mark.slow
@pytest.mark.parametrize(
    "changes",
    [
        {"strategy": "vmapped"},
        {"strategy": "sharded:devices=2"},
        {"seeds": [1, 0], "seeds_at_once": 2, "strategy": "vmapped"},
        {"examples": "stream", "eval_clients": "all", "personalize": ["finetune"]},
        {"rounds_per_dispatch": 3},
    ],
    ids=str,
)
def test_ways_to_compute_agree(whole, tmp_path, changes):
    trained(tmp_path / "other", **changes)
    assert_same_to_rounding(tmp_path / "other", whole[0], 0, rtol=1e-4, accuracy=0.01)
