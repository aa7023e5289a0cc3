"""Parts of the model that stay with the client."""

import types

import jax
import numpy as np
import optax
import pytest

from fedwin import core, testing
from fedwin.engine.communication import communication
from fedwin.wrappers import build_all
from fedwin.wrappers.local_part import part_mask, with_leaves
from tests.algorithms import numpy_clients as plain
from tests.refusals import refused


def built(p, algorithm="fedavg", part="classifier", *outer):
    return p.build(algorithm, *build_all([f"local:part={part}", *outer], p.setting))


def row(run, i):
    return jax.tree.map(lambda leaf: leaf[i], run.table)


def close(a, b):
    jax.tree.map(lambda x, y: np.testing.assert_allclose(x, y, rtol=1e-5, atol=1e-6), a, b)


def test_clients_continue_from_their_own_part():
    p = testing.classification(schedule=((0, 1), (1, 2)), shuffle=False)
    first, second = testing.trajectory(p, built(p), 2)
    mask = part_mask(p.variables.params, "classifier", p.setting)
    trained = {}
    for i in (1, 2):
        # Client 2 has not taken part before: it starts from the initial classifier.
        part = first.table.part if i == 1 else None
        own = p.variables.params if part is None else with_leaves(mask, p.variables.params, [x[i] for x in part])
        start = first.params | {"last": own["last"]}
        trained[i] = p.solve(start, p.client(i, round=1)._replace(stats=first.stats)).params
        close([x[i] for x in second.table.part], [trained[i]["last"]["bias"], trained[i]["last"]["kernel"]])
    sizes = {1: 2, 2: 3}
    mean = sum(sizes[i] * trained[i]["hidden"]["kernel"] for i in (1, 2)) / 5
    close(second.params["hidden"]["kernel"], mean)
    # Absent clients keep theirs.
    jax.tree.map(np.testing.assert_array_equal, row(first, 0), row(second, 0))


def test_the_local_part_is_not_transmitted():
    p = testing.classification()
    count = lambda a: communication(a, p.variables.params, p.store, p.n_max, p.variables.stats)
    whole, classifier, features = (count(a) for a in (p.build("fedavg"), built(p), built(p, part="features")))
    # 8 numbers in the hidden layer, 15 in the last one, 4 statistics.
    assert whole == (4 * 27, 4 * 27) and classifier == (4 * 12, 4 * 12) and features == (4 * 19, 4 * 19)


def test_noise_of_an_outer_wrapper_does_not_reach_the_servers_part():
    p = testing.classification()
    params = p.variables.params
    noise = core.MeanStep(jax.tree.map(lambda x: x + 1.0, params), 1.0 * np.ones(()))
    moved, _ = built(p).phases[0].server(params, (), {"delta": noise}, 0)
    jax.tree.map(np.testing.assert_array_equal, moved["last"], params["last"])
    assert np.abs(moved["hidden"]["kernel"] - params["hidden"]["kernel"]).min() > 0.1


def fedrep_rounds(share, decay, momentum):
    """Server model and the clients' own classifiers (the second number) after every round."""
    x, own, out = plain.START, dict.fromkeys(range(3), plain.START[1]), []
    for cohort in plain.SCHEDULE:
        bodies = []
        for i in cohort:
            y, velocity, batches = np.array([x[0], own[i]]), np.zeros(2), list(plain.batches(i))
            for j, batch in enumerate(batches):
                part = int(j < np.ceil(share * len(batches)))
                velocity[part] = momentum * velocity[part] + plain.gradient(y, batch)[part] + decay * y[part]
                y[part] -= plain.LR * velocity[part]
            own[i] = y[1]
            bodies.append(plain.SIZES[i] * y[0])
        x = np.array([sum(bodies) / sum(plain.SIZES[i] for i in cohort), x[1]])
        out.append((x, [own[i] for i in range(3)]))
    return out


@pytest.mark.parametrize("share", [0.6, 0.25])  # 0.6 of two steps are both
def test_fedrep_trains_the_classifier_first_and_then_the_rest(share, double):
    p = plain.problem(weight_decay=0.1, optimizer=optax.sgd(1.0, 0.9))
    p = p._replace(setting=p.setting._replace(model=types.SimpleNamespace(classifier_path=("classifier",))))
    runs = testing.trajectory(p, built(p, part=f"classifier,alternate={share}"), len(plain.SCHEDULE))
    for run, (x, own) in zip(runs, fedrep_rounds(share, 0.1, 0.9), strict=True):
        np.testing.assert_allclose(plain.vector(run.params), x, rtol=1e-12)
        np.testing.assert_allclose(run.table.part[0], own, rtol=1e-12)


def test_two_wrappers_do_not_take_turns(double):
    texts, p = ["local:part=classifier,alternate=0.5", "local:part=features"], plain.problem()
    refused("wrapper 'local' is given twice", build_all, texts, p.setting)
    (own,) = build_all(texts[:1], p.setting)
    refused("local: another wrapper freezes parameters already", own.solver, own.solver(p.solve))


@pytest.mark.parametrize("first", ["topk:share=0.5", "quantize:bits=8", "feedback", "primal", "schedule_free"])
def test_the_part_is_not_read_from_a_message_that_another_wrapper_has_changed(first):
    setting = testing.classification().setting
    refused(f"wrap={first.partition(':')[0]}: before --wrap=local", build_all, [first, "local"], setting)
    assert len(build_all(["local", first], setting)) == 2
    assert len(build_all(["topk:share=1", "local"], setting)) == 2  # which sends everything
