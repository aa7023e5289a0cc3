"""Golden values of golden_ima_wsm.json: WSM and normalization statistics (keys g09 to g11)."""

import jax
import jax.numpy as jnp
import numpy as np
import pytest
from flax import linen as nn

from fedwin import losses, models, testing
from fedwin.models import layers
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


@pytest.mark.parametrize("variance", ["unbiased", "biased"])
def test_golden_g11_running_statistics(variance):
    """Our layer keeps PyTorch's variance; flax's own layer, in a module given to models.from_flax, the biased one."""
    g = DATA["g11_norm"]

    class Normalized(nn.Module):
        @nn.compact
        def __call__(self, x, train):
            flax_layer = nn.BatchNorm(use_running_average=not train, momentum=0.9)
            return nn.Dense(2)(layers.BatchNorm()(x, train) if variance == "unbiased" else flax_layer(x))

    model = models.from_flax(Normalized(), (1,))
    batch = {"x": jnp.asarray(g["batch"], jnp.float32)[:, None]}
    (stats,) = model.apply(model.init(jax.random.key(0)), batch, jax.random.key(1), True).stats.values()
    # Both are float32 in every precision.
    np.testing.assert_allclose(stats["mean"], [g["running_mean_after"]], rtol=1e-6)
    np.testing.assert_allclose(stats["var"], [g[f"running_var_after_{variance}"]], rtol=1e-6)


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
