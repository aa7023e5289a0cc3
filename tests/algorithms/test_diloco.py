"""DiLoCo and its fragments against NumPy."""

import dataclasses

import jax
import numpy as np
import optax
import pytest

from fedwin import sampling, testing, tree
from fedwin.algorithms.diloco import fragments_of
from fedwin.engine.communication import communication
from fedwin.schedules import cosine
from tests.algorithms import numpy_clients as clients
from tests.refusals import refused

B1, B2, EPS, DECAY, ROUNDS = 0.8, 0.95, 1e-3, 0.3, 7
INNER = f"b1={B1},b2={B2},eps={EPS}"
# The model is [w, b], the layers 'classifier' (b) and 'features' (w), in this order.
PLACES = {1: [[0, 1]], 2: [[1], [0]]}
ALL, SOME = ((0, 1, 2),), clients.SCHEDULE


def problem(schedule=ALL, weight_decay=DECAY, **changes):
    p = clients.problem(weight_decay=weight_decay, **changes)._replace(schedule=schedule)
    solve = dataclasses.replace(p.solve, lr=cosine(0.1, 2 * ROUNDS))
    return p._replace(solve=solve, setting=p.setting._replace(clients_per_round=len(schedule[0])))


def rate(round):
    return 0.1 * (1 + np.cos(np.pi * round / (2 * ROUNDS))) / 2


def adamw(theta, adam, i, lr, merge, delay):
    """A worker's AdamW on its batches of a round, with a merge after `delay` steps or after its last one."""
    batches = list(clients.batches(i))
    for step, batch in enumerate(batches):
        theta = merge(theta) if step == delay else theta
        theta = theta - lr * (adam(clients.gradient(theta, batch)) + DECAY * theta)
    return merge(theta) if delay >= len(batches) else theta


class Nesterov:
    """Outer SGD with Nesterov's momentum, as the paper writes it."""

    def __init__(self):
        self.m = 0.0

    def __call__(self, x, delta):
        self.m = 0.9 * self.m + delta
        return x - 0.7 * (delta + 0.9 * self.m)


def outer_adam():
    adam = clients.Adam(0.6, 0.7, 0.1)
    return lambda x, delta: x - 0.2 * adam(delta)


def by_hand(schedule, outer, fragments=1, weights=(1, 1, 1), delay=0, mixing=0.0, restart=ROUNDS):
    """The server models, and the workers' optimizers and parameters after the last round."""
    x, places = clients.START, PLACES[fragments]
    servers = [outer() for _ in places]
    own, last, models = {}, {}, []
    adams = [clients.Adam(B1, B2, EPS) for _ in range(3)]
    for t in range(ROUNDS):
        cohort, active = schedule[t % len(schedule)], places[t % fragments]
        for i in cohort:
            start = own.get(i, x).copy()
            before = last.get(i, t)
            present = before == t - 1 and bool(delay or mixing)  # what was sent last is still on its way
            for s in range(before, t - present):  # what was synchronized since its last round
                start[places[s % fragments]] = x[places[s % fragments]]
            arriving = places[(t - 1) % fragments] if present else []

            def merge(theta, at=arriving, x=x):
                theta = theta.copy()
                theta[at] = mixing * theta[at] + (1 - mixing) * x[at]
                return theta

            own[i] = adamw(start, adams[i], i, rate(t), merge, delay)
            last[i] = t
        shares = np.array([weights[i] for i in cohort], float)
        delta = sum(w * (x - own[i]) for w, i in zip(shares / shares.sum(), cohort, strict=True))
        x = x.copy()
        if t // fragments % restart == 0:
            servers[t % fragments] = outer()
        x[active] = servers[t % fragments](x[active], delta[active])
        models.append(x)
    return models, adams, own


def trajectory(p, choice):
    return testing.trajectory(p, p.build(choice), ROUNDS)


ADAM = ",optimizer=adam,server_lr=0.2,server_b1=0.6,server_b2=0.7,server_eps=0.1"
# Client 1 has two steps, the others four.
OVERLAP = dict(delay=3, mixing=0.3, restart=2)
CASES = [
    (SOME, ",weighting=samples", Nesterov, 1, dict(weights=clients.SIZES)),
    (SOME, f",fragments=2{ADAM}", outer_adam, 2, {}),
    (SOME, "", Nesterov, 2, OVERLAP),
    (ALL, "", Nesterov, 1, dict(mixing=0.4)),
    pytest.param(SOME, ADAM, outer_adam, 1, {}, marks=pytest.mark.slow),
    pytest.param(ALL, ADAM, outer_adam, 1, OVERLAP, marks=pytest.mark.slow),
]


@pytest.mark.usefixtures("double")
@pytest.mark.parametrize("schedule, options, outer, fragments, more", CASES)
def test_server_models_and_workers_are_those_of_numpy(schedule, options, outer, fragments, more):
    options += "".join(f",{name}={value}" for name, value in more.items() if name != "weights")
    options += "" if "fragments" in options else f",fragments={fragments}"
    runs = trajectory(problem(schedule), f"diloco:{INNER}{options}")
    models, adams, own = by_hand(schedule, outer, fragments, **more)
    np.testing.assert_allclose([clients.vector(run.params) for run in runs], models, rtol=1e-12)
    table = runs[-1].table
    whole = fragments == 1 and "mixing" not in more
    adam = (table if whole else table.optimizer)[0]
    for i in range(3):
        np.testing.assert_allclose(clients.row(adam.mu, i), adams[i].m, rtol=1e-11)
        np.testing.assert_allclose(clients.row(adam.nu, i), adams[i].v, rtol=1e-11)
        assert int(adam.count[i]) == adams[i].count
        if not whole:
            np.testing.assert_allclose(clients.row(table.params, i), own[i], rtol=1e-12)


def test_fragments_cut_the_bytes_if_every_worker_takes_part():
    for schedule, sampler, down in ((ALL, None, 4), (SOME, None, 8), (ALL, sampling.Sampler(len, 3, 3, 0, 3.0), 8)):
        p = problem(schedule)
        p = p._replace(setting=p.setting._replace(sampling=sampler))
        assert communication(p.build("diloco:fragments=2"), p.variables.params, p.store, p.n_max) == (down, 4)


def test_a_fragment_is_used_within_the_next_round():
    p = problem()
    p = p._replace(solve=dataclasses.replace(p.solve, steps=3))
    p.build("diloco:delay=2")
    refused("delay=3 must be below the local steps of a round, --local_steps=3", p.build, "diloco:delay=3")


def test_layers_are_dealt_to_fragments():
    params = {f"block{i}": {"a": 0.0, "b": 0.0} for i in (10, 2, 1)} | {"norm": 0.0}
    by_name = lambda pattern: dict(
        zip(
            [path[0].key for path, _ in jax.tree_util.tree_leaves_with_path(params)],
            fragments_of(params, 2, pattern),
            strict=True,
        )
    )
    assert by_name("strided") == {"block1": 0, "block2": 1, "block10": 0, "norm": 1}
    assert by_name("sequential") == {"block1": 0, "block2": 0, "block10": 1, "norm": 1}
    words = ["fragments=5, but the model has 4 layers (block1, block2, block10, norm)"]
    refused(words, fragments_of, params, 5, "strided")


def test_another_local_optimizer_trains_where_it_is_said_to():
    p = problem(optimizer=optax.adam(1.0))
    moved = tree.sub(trajectory(p, "diloco:inner=client_optimizer")[-1].params, p.variables.params)
    assert float(tree.norm(moved)) > 0.1
