"""Golden values of golden_ima_wsm.json: WSM and normalization statistics (keys g09 to g11)."""

import jax
import jax.numpy as jnp
import numpy as np
import pytest

from fedwin import losses, testing
from tests.algorithms.given_messages import DATA, array, given, quick, visited

pytestmark = pytest.mark.usefixtures("precision")


def test_golden_g09_wsm(same):
    g = DATA["g09_wsm"]
    logits, labels, shares = array(g["logits"]), jnp.asarray(g["labels"]), array(g["alpha"])
    one_class = array([0.0, 1.0, 0.0, 0.0])
    mean = lambda f, a: jnp.mean(losses.nll(f, labels, a))
    plain = lambda f: jnp.mean(losses.nll(f, labels))

    def everything(f):
        value, gradient = jax.value_and_grad(mean)(f, shares)
        return {
            "eq15_mean": value,
            "grad": gradient,
            "nll_form_mean": value - jnp.mean(jnp.log(shares[labels])),
            "ce_mean": plain(f),
            "ce_grad": jax.grad(plain)(f),
            "uniform_eq15_mean": mean(f, jnp.full(4, 0.25)),
            "one_class_eq15": jnp.max(jnp.abs(losses.nll(f, jnp.ones(3, int), one_class))),
        }

    ours = quick(everything, logits)
    for name, value in ours.items():
        same(value, g[name])
    assert (np.asarray(ours["grad"])[:, 3] == 0).all() and float(ours["one_class_eq15"]) == 0
    e = g["huge_absent_logit"]
    far = lambda f: losses.nll(f[None], jnp.asarray([e["label"]]), array(e["alpha"]))[0]
    value, gradient = quick(jax.value_and_grad(far), array(e["logits"]))
    same(value, e["eq15"])
    same(gradient, e["grad"][0])


def test_golden_g10_scaffold_with_a_one_class_client(same):
    g = DATA["g10_scaffold_wsm_one_class"]
    # A one-class client has no gradient: curvature 0.
    p = testing.quadratic([0.0], [0.0], g["x"], steps=g["K"], lr=g["lr"], schedule=[[0]])
    algorithm = p.build("scaffold")
    start = p.start(algorithm)._replace(state={"x": array(g["c"])}, table={"x": array([g["c_i"]])})
    (run,) = testing.trajectory(p, algorithm, 1, run=start)
    same(run.params["x"], g["y"])
    same(run.table["x"][0], g["c_i_new"])


def test_golden_g11_averaged_statistics(same):
    g = DATA["g11_norm"]["averaged"]
    means, variances = array(g["means"]), array(g["vars"])
    sizes = np.rint(4 * np.asarray(g["p"])).astype(int).tolist()
    statistics = lambda c: {"mean": means[c.id], "var": variances[c.id]}
    p = given([0.0], lambda x, c: x, sizes=sizes, stats=statistics)
    p = p._replace(variables=p.variables._replace(stats={"mean": array(0.0), "var": array(1.0)}))
    (run,) = visited(p, p.build("fedavg"), 1)
    same(run.stats["mean"], g["mean"])
    same(run.stats["var"], g["var_plain"])
    assert abs(float(run.stats["var"]) - g["var_pooled"]) > 0.5
