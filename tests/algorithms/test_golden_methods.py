"""Golden values of golden_ima_wsm.json: IMA, server optimizers, FedProx, SAM, WSM, averaged statistics (g01 to g11)."""

import jax
import jax.numpy as jnp
import numpy as np
import optax
import pytest

from fedwin import core, local, losses, testing, wrappers
from fedwin.algorithms.fedsam import perturbation
from tests import golden_problems as golden
from tests.golden_problems import array
from tests.problems import built

pytestmark = pytest.mark.usefixtures("precision")

DATA = golden.load("golden_ima_wsm.json")


def quick(function, *args):
    """function(*args), compiled as one program."""
    return jax.jit(function, compiler_options=testing.compile_options())(*args)


class Given:
    """Local training whose result is known: the client returns `target(params, client)`."""

    optimizer = optax.sgd(1.0)

    def __init__(self, target, stats=lambda c: ()):
        self.target, self.stats = target, stats

    def __call__(self, params, c, rule=None, **kwargs):
        y = {"x": self.target(params["x"], c)}
        one = jnp.ones(())
        return local.Local(y, one, one, (), (), self.stats(c), {})


def given(start, target, sizes=(1,), num_rounds=100, **kwargs):
    """A problem whose clients return `target(x, client)`; every client takes part in every round."""
    everyone = (tuple(range(len(sizes))),)
    p = testing.quadratic(
        [0.0] * len(sizes), [0.0] * len(sizes), start, steps=1, lr=1.0, schedule=everyone, sizes=sizes
    )
    return p._replace(solve=Given(target, **kwargs), setting=p.setting._replace(num_rounds=num_rounds))


def xs(runs):
    return np.stack([np.asarray(run.params["x"]) for run in runs])


DRIVE = [[1.0, 0.0], [0.0, 1.0], [1.0, 1.0], [-1.0, 2.0], [2.0, 0.0], [0.5, 0.5], [0.0, -1.0]]


def test_golden_g01_ima(same):
    g = DATA["g01_ima"]
    drive = array(DRIVE)
    p = given([4.0, -4.0], lambda x, c: 0.5 * x + drive[c.round], num_rounds=g["R"])
    ima = f"ima:window={g['P']},start={g['t_s']},schedule=none"
    averaged = xs(testing.trajectory(p, built(p, "fedavg", ima), g["R"]))
    same(averaged, g["broadcast_after_round"])
    same(xs(testing.trajectory(p, p.build("fedavg"), g["R"])), g["broadcast_without_ima"])
    # The window holds a_t = x_t / 2 + drive_t, not what was broadcast.
    before = np.concatenate([[[4.0, -4.0]], averaged[:-1]])
    same(0.5 * before + np.asarray(DRIVE), g["fma"])
    wrong = np.asarray(g["broadcast_if_window_held_ima_models"])
    assert np.abs(averaged[4] - wrong[4]).max() > 0.1


@pytest.mark.parametrize("mode", list(DATA["g02_schedule"]["lr"]))
def test_golden_g02_schedule(mode, precision):
    g = DATA["g02_schedule"]
    setting = core.Setting(100, 10, 400)
    schedule, _, restart = mode.partition("_restart")
    text = f"ima:schedule={schedule}" + (",lr_restart=true" if "restart" in mode else "")
    ima = wrappers.WRAPPERS.build(text, setting)
    rounds = jnp.asarray(g["rounds"], jnp.int32)
    rates = jax.vmap(ima.rate(local.exponential(0.01, 0.01)))(rounds)
    # A power of 400 in float32 leaves 2e-5.
    np.testing.assert_allclose(rates, g["lr"][mode], rtol=1e-9 if precision == "float64" else 5e-5)
    if mode in g["local_epochs"]:
        assert jax.vmap(ima.epochs(lambda t: 5))(rounds).tolist() == g["local_epochs"][mode]
    else:
        assert ima.epochs is wrappers.unchanged


@pytest.mark.parametrize("name", ["fedadam", "fedyogi", "fedadagrad"])
def test_golden_g03_server_opt(name, same):
    g, key = DATA["g03_server_opt"], name.removeprefix("fed")
    offsets = array(g["offsets"])
    p = given(g["x0"], lambda x, c: x + offsets[c.round])
    runs = testing.trajectory(p, p.build(name), len(g[key]))
    for run, expected in zip(runs, g[key]):
        # x + offset - x loses a digit before it is squared, and m / sqrt(v) divides small numbers.
        same(run.params["x"], expected["x"], rtol=1e-4)
        same(run.state.m["x"], expected["m"])
        same(run.state.v["x"], expected["v"], rtol=1e-4)


@pytest.mark.parametrize("reset", ["none", "at_start", "one_round_only"])
def test_golden_g03_adam_with_ima_before_the_optimizer(reset, same):
    g = DATA["g03_server_opt"]["adam_ima_pre"]
    averages = array(g["client_averages"])
    p = given([0.0], lambda x, c: averages[c.round] + 0 * x, num_rounds=5)
    text = f"ima:window={g['P']},start={g['t_s']},schedule=none,placement=pre,reset={reset}"
    runs = testing.trajectory(p, built(p, "fedadam", text), 5)
    same(xs(runs)[:, 0], g["x_after_round"][reset])


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
