"""Golden values of golden_ima_wsm.json: base methods (keys g04 to g08), WSM, averaged statistics (g09 to g11)."""

import dataclasses

import jax
import jax.numpy as jnp
import numpy as np
import optax
import pytest

from fedwin import local, losses, testing, tree
from fedwin.algorithms.fedfa import anchor_loss, calibration_loss, class_means, updated_anchors
from fedwin.algorithms.fedgma import agreement_mask
from fedwin.algorithms.fednova import counter
from fedwin.algorithms.fedsam import perturbation
from fedwin.local import Batches
from tests.algorithms.given_messages import DATA, array, given, quick, xs

pytestmark = pytest.mark.usefixtures("precision")


@dataclasses.dataclass(frozen=True)
class TwoSpeeds(Batches):
    """The client of one example takes taus[0] steps, the other taus[1]."""

    taus: tuple[int, int] = (0, 0)

    def steps(self, size, epochs):
        return jnp.where(size == 1, self.taus[0], self.taus[1])


@pytest.mark.parametrize("case", ["sgd", "momentum", "equal_steps"])
def test_golden_g04_fednova(case, same):
    g, e = DATA["g04_fednova"], DATA["g04_fednova"][case]
    p = testing.quadratic(
        g["curvatures"], g["centres"], g["x"], steps=5, lr=g["lr"], schedule=[[0, 1]], sizes=[1, 3],
        optimizer=optax.sgd(1.0, e["rho"] or None),
    )  # fmt: skip

    class Solver(local.Solver):
        @property
        def batches(self):
            return TwoSpeeds(self.batch_size, shuffle=self.shuffle, taus=tuple(e["tau"]))

    p = p._replace(solve=Solver(**{f.name: getattr(p.solve, f.name) for f in dataclasses.fields(local.Solver)}))
    algorithm = p.build("fednova")
    carry, on_step = counter(p.solve.optimizer)
    ys, norms = [], []
    for i in range(2):
        local_run = quick(lambda c: p.solve(p.variables.params, c, carry=carry, on_step=on_step), p.client(i))
        ys.append(local_run.params["x"])
        norms.append(-local_run.carry[0])
    same(ys, e["y"])
    same(norms, e["a_norm"])
    told = [algorithm.phases[0].client(p.variables.params, p.client(i)).message for i in range(2)]
    same(tree.add(*told)["norm"].value, e["tau_eff"])
    same(xs(testing.trajectory(p, algorithm, 1))[0], e["x_fednova"])
    same(xs(testing.trajectory(p, p.build("fedavg"), 1))[0], e["x_fedavg"])


def test_golden_g04_proximal_norm(same):
    step = local.Step(None, None, None, None, None, None, array(0.1), 0.0)
    carry, on_step = counter(optax.sgd(1.0), mu=1.1)
    for _ in range(5):
        carry, _ = on_step(carry, None, step, None)
    same(-carry[0], DATA["g04_fednova"]["a_norm_proximal_tau5_eta_mu_0.11"])


@pytest.mark.parametrize("case", [key for key in DATA["g05_fedgma"] if key.startswith(("soft", "hard"))])
def test_golden_g05_fedgma(case, same):
    g = DATA["g05_fedgma"]
    mode, threshold = case.split("_")
    ys, sizes = array(g["y"]), np.rint(10 * np.asarray(g["p"])).astype(int).tolist()
    p = given(g["x"], lambda x, c: ys[c.id], sizes=sizes)
    signs = jnp.sum(jnp.sign(ys - array(g["x"])), 0)
    same(jnp.abs(signs) / len(ys), g["agreement"])
    same(agreement_mask(signs, len(ys), float(threshold), mode), g[case]["mask"])
    (run,) = testing.trajectory(p, p.build("fedgma", threshold=float(threshold), mode=mode), 1)
    same(run.params["x"], g[case]["x_new"])
    if case == "soft_0.0":
        same(xs(testing.trajectory(p, p.build("fedavg"), 1))[0], g["fedavg"])
        (run,) = testing.trajectory(p, p.build("fedgma:mode=extra_step,threshold=0.8"), 1)
        # The mode is FedAvg but for a step of 1e-4.
        np.testing.assert_allclose(run.params["x"], g["fedavg"], atol=1e-4)


@pytest.mark.parametrize("rho", [0.0, 0.9])
def test_golden_g06_fedprox(rho, same):
    p = testing.quadratic([1.0], [3.0], [1.0], steps=3, lr=0.1, schedule=[[0]], optimizer=optax.sgd(1.0, rho or None))

    @jax.jit
    def path(mu):
        def on_step(carry, params, s, last):
            return carry.at[s.j].set(params["x"][0]), params

        rule = local.proximal(mu)
        return p.solve(p.variables.params, p.client(0), rule, carry=jnp.zeros(3), on_step=on_step).carry

    for mu in (0.0, 0.01, 1.1):
        same(path(array(mu)), DATA["g06_fedprox"][f"momentum_{rho}_mu_{mu}"])


@pytest.mark.parametrize(
    "case,choice", [("asam_rho0.7_eta0.2", "fedasam:rho=0.7,eta=0.2"), ("sam_rho0.1", "fedsam:rho=0.1")]
)
def test_golden_g07_sharpness(case, choice, same):
    g, e = DATA["g07_asam"], DATA["g07_asam"][case]
    params = {"kernel": array(g["W"]), "bias": array(g["b"])}

    def loss(params, batch, key, info):
        error = batch["x"] @ params["kernel"].T + params["bias"] - batch["y"]
        return losses.masked_mean(0.5 * jnp.sum(error**2, -1), batch)

    p = testing.problem(params, [{"x": [g["x"]], "y": [g["y"]]}], loss, [[0]], lr=g["lr"], batch_size=1)
    gradient = {"kernel": array(g["grad_W"]), "bias": array(g["grad_b"])}
    eps = perturbation(params, gradient, *((0.7, 0.2) if "asam" in case else (0.1,)))
    same(eps["kernel"], e["eps_W"])
    same(eps["bias"], e["eps_b"])
    # T = 1 on the bias: eps = rho g / ||T g||.
    same((0.7 if "asam" in case else 0.1) * gradient["bias"] / eps["bias"], 2 * [e["scaled_norm"]])
    (run,) = testing.trajectory(p, p.build(choice), 1)
    same(run.params["kernel"], e["W_new"])
    same(run.params["bias"], e["b_new"])


def test_golden_g08_fedfa(same):
    g, lam = DATA["g08_fedfa"], 0.1
    anchors, features, labels = array(g["anchors"]), array(g["features"]), jnp.asarray(g["labels"])
    value, gradient = quick(jax.value_and_grad(lambda h: lam * anchor_loss(h, labels, anchors)), features)
    same(value, g["anchor_loss"])
    same(gradient, g["anchor_loss_grad"])
    # The content of padding changes nothing.
    padded = jnp.concatenate([features, jnp.full((2, 2), jnp.nan)])
    mask = jnp.asarray([1, 1, 1, 1, 0, 0], jnp.float32)
    masked = quick(lambda h: lam * anchor_loss(h, jnp.append(labels, jnp.array([2, 2])), anchors, mask), padded)
    same(masked, g["anchor_loss"])

    def epoch(first, second):
        batches = [class_means(first, labels, 3), class_means(second, jnp.zeros(2, int), 3)]
        sums, present = (sum(part) for part in zip(*batches))
        moved = [updated_anchors(anchors, sums, present, 2, 0.5, divide) for divide in ("all", "present")]
        return sums / 2, sums / jnp.maximum(present, 1)[:, None], *moved

    names = ("batch_mean_all_batches", "batch_mean_batches_with_class", "anchors_after_epoch")
    means = quick(epoch, features, array([[0.8, 0.1], [0.6, 0.3]]))
    for ours, name in zip(means, (*names, "anchors_after_epoch_if_batches_with_class")):
        same(ours, g[name])
    layer = {"W": array([[0.3, -0.1], [0.2, 0.4], [0.0, 0.1]]), "b": array([0.0, 0.1, -0.1])}
    classifier = lambda layer, h: h @ layer["W"].T + layer["b"]
    adam = optax.adam(1e-3)

    def calibrated(layer):
        loss, gradient = jax.value_and_grad(lambda layer: calibration_loss(classifier, layer, anchors))(layer)
        return loss, gradient, optax.apply_updates(layer, adam.update(gradient, adam.init(layer), layer)[0])

    loss, gradient, new = quick(calibrated, layer)
    e = g["calibration"]
    same(loss, e["loss"])
    same(gradient["W"], e["grad_W"])
    same(gradient["b"], e["grad_b"])
    same(new["W"], e["W_new"])
    same(new["b"], e["b_new"])


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
    (run,) = testing.trajectory(p, p.build("fedavg"), 1)
    same(run.stats["mean"], g["mean"])
    same(run.stats["var"], g["var_plain"])
    (run_of_equals,) = testing.trajectory(p, p.build("fedavg:weighting=uniform"), 1)
    same(run_of_equals.stats["mean"], np.mean(g["means"]))
    assert abs(float(run.stats["var"]) - g["var_pooled"]) > 0.5
