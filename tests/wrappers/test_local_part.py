"""Parts of the model that stay with the client."""

import types

import jax
import numpy as np
import optax
import pytest

from fedwin import core, testing
from fedwin.engine.communication import communication
from fedwin.wrappers import build_all
from fedwin.wrappers.local_part import part_mask
from tests.algorithms import numpy_clients as plain
from tests.refusals import refused


def built(p, algorithm="fedavg", part="classifier", *outer):
    return p.build(algorithm, *build_all([f"local:part={part}", *outer], p.setting))


def test_the_local_part_is_not_transmitted():
    p = testing.classification()
    count = lambda a: communication(a, p.variables.params, p.store, p.n_max, p.variables.stats)
    whole, classifier, features = (count(a) for a in (p.build("fedavg"), built(p), built(p, part="features")))
    # 8 numbers in the hidden layer, 15 in the last one, 4 statistics.
    assert whole == (4 * 27, 4 * 27) and classifier == (4 * 12, 4 * 12) and features == (4 * 19, 4 * 19)
    assert count(built(p, "fedcm")) == (4 * 20, 4 * 12)  # and momentum


def test_norms_are_the_layers_with_a_scale():
    params = {"bn1": {"bias": 1, "scale": 1}, "conv_norm": {"conv": {"kernel": 1}, "norm": {"scale": 1}}}
    expected = {"bn1": {"bias": True, "scale": True}, "conv_norm": {"conv": {"kernel": False}, "norm": {"scale": True}}}
    assert part_mask(params, "norm", None) == expected


def test_noise_of_an_outer_wrapper_does_not_reach_the_servers_part():
    p = testing.classification()
    params = p.variables.params
    noise = core.MeanStep(jax.tree.map(lambda x: x + 1.0, params), 1.0 * np.ones(()))
    moved, momentum = built(p, "fedcm").phases[0].server(params, params, {"delta": noise}, 0)
    jax.tree.map(np.testing.assert_array_equal, moved["last"], params["last"])
    assert not any(map(np.any, jax.tree.leaves(momentum["last"])))
    assert np.abs(moved["hidden"]["kernel"] - params["hidden"]["kernel"]).min() > 0.1


def fedrep_rounds(share, decay, momentum):
    """Server model and the clients' own classifiers (the second number) after every round."""
    x, own, out = plain.START, dict.fromkeys(range(3), plain.START[1]), []
    for cohort in plain.SCHEDULE:
        bodies = []
        for i in cohort:
            y, velocity, batches = np.array([x[0], own[i]]), np.zeros(2), list(plain.batches(i))
            for j, batch in enumerate(batches):
                trained = [0, 1] if share is None else [int(j < np.ceil(share * len(batches)))]
                velocity[trained] = (momentum * velocity + plain.gradient(y, batch) + decay * y)[trained]
                y[trained] -= plain.LR * velocity[trained]
            own[i] = y[1]
            bodies.append(plain.SIZES[i] * y[0])
        x = np.array([sum(bodies) / sum(plain.SIZES[i] for i in cohort), x[1]])
        out.append((x, [own[i] for i in range(3)]))
    return out


@pytest.mark.parametrize("share", [None, 0.6, 0.25])  # 0.6 of two steps are both
def test_fedrep_trains_the_classifier_first_and_then_the_rest(share, double):
    p = plain.problem(weight_decay=0.1, optimizer=optax.sgd(1.0, 0.9))
    p = p._replace(setting=p.setting._replace(model=types.SimpleNamespace(classifier_path=("classifier",))))
    part = f"classifier,alternate={share}" if share else "classifier"
    runs = testing.trajectory(p, built(p, part=part), len(plain.SCHEDULE))
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
