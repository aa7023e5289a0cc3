"""Identities between methods: what must be equal is equal, what must differ differs (float64)."""

import functools

import jax
import jax.numpy as jnp
import numpy as np
import optax
import pytest

from fedwin import core, engine, local, losses, observers, testing, tree, wrappers
from fedwin.algorithms.fednova import counter
from fedwin.algorithms.fedsam import perturbation
from fedwin.engine.strategy import Strategy
from tests import golden_problems as golden

# Never FEDWIN_GOLDEN_DIR's: schedules and sizes below fit this problem.
META = golden.load("golden_wima_ghb.json", golden.HERE)["problem_B"]
T = 12
FULL, CYCLIC = [[0, 1, 2]], [[0], [1], [2]]
VARIANTS = {
    "partial": {},
    "full": dict(schedule=FULL),
    "equal": dict(equal=True),
    "equal full": dict(equal=True, schedule=FULL),
    "one step": dict(epochs=1, batch_size=4),
    "one step full": dict(epochs=1, batch_size=4, schedule=FULL),
    "one step equal full": dict(epochs=1, batch_size=4, equal=True, schedule=FULL),
    "cyclic": dict(schedule=CYCLIC),
    "slow": dict(lr=0.4 * META["lr"]),
    "lonely": dict(schedule=[[0]]),
}


@pytest.fixture(autouse=True)
def double():
    with jax.enable_x64(True):
        yield


def problem(variant):
    return golden.problem_b(META, **VARIANTS[variant])


@functools.cache
def runs(choice, variant="partial", rounds=T):
    p = problem(variant)
    return testing.trajectory(p, p.build(choice), rounds)


def models(choice, variant="partial", rounds=T):
    return np.stack([golden.vector(run.params) for run in runs(choice, variant, rounds)])


def same(a, b, tolerance=1e-11):
    np.testing.assert_allclose(a, b, rtol=0, atol=tolerance)


def differ(a, b, least=1e-3):
    assert np.abs(np.asarray(a) - np.asarray(b)).max() > least


# ------------------------------------------------------------------------------------------- limits and equalities


# The setting that a registry entry names is compared in the contract suite; these are other ways to the same end.
@pytest.mark.parametrize(
    "choice",
    ["ghb:tau=50", "fedgma:threshold=0,mode=hard", "fedopt:optimizer=momentum,momentum=0", "fedadc:beta_global=0"],
)
def test_a_degenerate_setting_is_fedavg(choice):
    same(models(choice), models("fedavg"))


EQUAL = [
    # any mu, where clients take one step
    ("fedprox:mu=0.7", "fedavg", "one step"),
    ("fedacg:lam=0,beta=0.5", "fedprox:mu=0.5", "partial"),
    ("fedadc:beta_global=0.6", "ghb:tau=1,beta=0.6", "partial"),
    ("ghb:tau=1,beta=0.6", "fedavgm:beta=0.6", "one step"),
    ("adabest:mu=0,beta=0.8", "fedavgm:beta=0.8,nesterov=true", "partial"),
    ("adabest:mu=0,beta=0.8", "fedopt:optimizer=momentum,momentum=0.8,nesterov=true", "partial"),
    ("fedavgm:beta=0.9", "fedopt:optimizer=momentum", "partial"),
    ("scaffold:option=I", "scaffold:option=II", "one step"),
    ("scaffold", "fedavg", "one step equal full"),
    ("scaffold:weighting=uniform", "fedavg:weighting=uniform", "one step full"),
    ("scaffold:control_weighting=samples", "fedavg", "one step full"),
    ("mime", "fedavg", "one step"),
    ("mime:beta=0.9", "fedavgm:beta=0.9", "one step"),
    ("mime:beta=0.9", "mimelite:beta=0.9", "one step"),
    ("local_ghb:beta=0.9", "ghb:tau=1,beta=0.9", "full"),
    ("local_ghb:beta=0.9", "ghb:tau=3,beta=0.9", "cyclic"),
    ("local_ghb:beta=0.9", "local_ghb:beta=0.9,scale=tau_i", "cyclic"),
    ("fedhbm", "fedavg", "one step full"),
    ("fedhbm:first=shared", "fedhbm", "full"),
    ("fedhbm:first=random", "fedhbm:first=shared", "partial"),  # the initialiser returns x^0 here
    ("fedhbm:first=pretrained", "fedhbm:first=shared", "partial"),
    ("fednova", "fedavg", "equal"),
    ("fednova", "fedavg", "lonely"),
    ("fednova:mu=0.3", "fedprox:mu=0.3", "equal"),
    ("fednova:tau_eff=steps", "fednova", "partial"),
    ("fedgma:threshold=0.9", "fedavg", "lonely"),
]


@pytest.mark.parametrize("one,other,variant", EQUAL)
def test_equal(one, other, variant):
    same(models(one, variant), models(other, variant))


DIFFERENT = [
    ("fedadc:beta_global=0.6,beta_local=1", "ghb:tau=1,beta=0.6", "partial"),
    ("scaffold", "fedavg", "one step full"),
    ("feddyn:alpha=1e-12", "fedavg", "partial"),
    ("fedhbm", "fedavg", "full"),
    ("fedhbm:first=shared", "fedhbm", "partial"),
    ("fednova", "fedavg", "partial"),
    ("fedavg:weighting=uniform", "fedavg", "partial"),
]


@pytest.mark.parametrize("one,other,variant", DIFFERENT)
def test_different(one, other, variant):
    differ(models(one, variant), models(other, variant))


def test_fedcm_is_ghb_with_a_smaller_client_rate():
    same(models("fedcm:alpha=0.4"), models("ghb:tau=1,beta=0.6", "slow"))


def test_fedcm_is_ghb_at_a_server_rate_too():
    same(models("fedcm:alpha=0.4,server_lr=0.5"), models("ghb:tau=1,beta=1.2,server_lr=0.5", "slow"))


def test_scaffold_begins_as_fedavg():
    same(models("scaffold")[0], models("fedavg")[0])


def test_fedacg_is_adabest_seen_from_its_average():
    averages = np.stack([golden.vector(run.state.average) for run in runs("adabest:mu=0,beta=0.8")])
    same(models("fedacg:lam=0.8,beta=0"), averages)
    ahead = [golden.vector(tree.axpy(0.8, run.state, run.params)) for run in runs("fedacg:lam=0.8,beta=0")]
    same(np.stack(ahead), models("adabest:mu=0,beta=0.8"))


def test_momentum_off_the_server_rate_is_scaled_by_it():
    # GHB's recursion needs eta = 1; FedACG's m is the displacement that was made, whatever eta.
    first, last = runs("fedacg:lam=0.5,server_lr=0.5", rounds=2)
    same(golden.vector(tree.sub(last.params, first.params)), golden.vector(last.state))


# -------------------------------------------------------------------------------------------------------- SCAFFOLD


@pytest.mark.parametrize("choice", ["scaffold", "scaffold:option=I", "scaffold:control_weighting=samples"])
def test_scaffolds_control_is_the_mean_of_all_clients_controls(choice):
    p = problem("partial")
    share = np.asarray(p.store.weight) if "samples" in choice else np.full(3, 1 / 3)
    for run in runs(choice):
        mean = jax.tree.map(lambda leaf: np.tensordot(share, np.asarray(leaf), 1), run.table)
        same(golden.vector(run.state), golden.vector(mean))


@pytest.mark.parametrize("variant", ["cyclic", "partial", "full"])
def test_scaffold_two_is_the_papers_formula_and_the_mean_gradient_along_the_path(variant):
    lr, steps = META["lr"], META["J"]
    row = lambda table, i: golden.vector(jax.tree.map(lambda leaf: leaf[i], table))
    for before, run, paths in recorded_rounds("scaffold", variant):
        for i, path in paths.items():
            moved = path[0] - path[-1]
            formula = row(before.table, i) - golden.vector(before.state) + moved / (steps[i] * lr)
            same(row(run.table, i), formula)
            same(formula, np.mean([gradient(i, path[j], j) for j in range(steps[i])], axis=0))


# ------------------------------------------------------------------------------------------------- FedDyn, AdaBest


def test_feddyns_server_term_is_the_mean_of_the_clients_terms():
    for run in runs("feddyn:alpha=0.1"):
        same(golden.vector(run.state.s), golden.vector(jax.tree.map(lambda leaf: leaf.mean(0), run.table)))


def test_feddyn_without_alpha_is_local_sgd_and_a_server_integrator():
    p = problem("partial")

    def client(params, c):
        y = p.solve(params, c)
        delta = tree.sub(y.params, params)
        return core.Update({"delta": core.mean(delta, c.size), "sum": delta})

    def server(params, s, total, round):
        s = tree.axpy(1 / p.setting.num_clients, total["sum"], s)
        return tree.add(params, tree.add(total["delta"].value, s)), s

    integrator = core.algorithm(client, server, init=tree.zeros_like)
    reference = [golden.vector(run.params) for run in testing.trajectory(p, integrator, T)]
    same(models("feddyn:alpha=1e-12"), reference, 1e-8)


def test_adabest_without_memory_loss_is_feddyn_at_full_participation():
    same(models("adabest:mu=0,beta=1", "equal full"), models("feddyn:alpha=1e-13", "equal full"), 1e-8)


@pytest.mark.parametrize("choice", ["feddyn:alpha=0.1", "adabest"])
def test_evaluating_the_average_leaves_training_alone(choice):
    average = choice + (",eval_model=average" if ":" in choice else ":eval_model=average")
    same(models(choice), models(average), 0)
    p = problem("partial")
    shown = engine.read_out(p.build(average), {}, runs(average)[-1])["model"].params
    differ(golden.vector(shown), models(choice)[-1])


# ------------------------------------------------------------------------------------------------------------ MIME


def test_mime_with_one_hessian_is_centralised_gradient_descent():
    centres, lr, steps = np.array([1.0, -1.0, 0.5]), 0.1, 3
    p = testing.quadratic([2.0] * 3, centres, [0.3], steps=steps, lr=lr, schedule=FULL)
    x = 0.3
    for run in testing.trajectory(p, p.build("mime"), T):
        for _ in range(steps):
            x = x - lr * 2 * (x - centres.mean())
        same(run.params["x"], [x])


# ------------------------------------------------------------------------------------------------------ heavy ball


class Recorder:
    """Local training that also reports the path of every client of the round, [K, J_max + 1, 2], as a metric."""

    def __init__(self, train, clients, most):
        self.train, self.shape = train, (clients, most + 1, 2)

    def __call__(self, params, c, rule=local.sgd, **kwargs):
        vector = lambda y: jnp.stack([y["features"]["kernel"], y["classifier"]["bias"]])

        def record(path, new, s, last):
            return path.at[c.id, s.j + 1].set(vector(new)), new

        path = jnp.zeros(self.shape).at[c.id, 0].set(vector(params))
        y = self.train(params, c, rule, carry=path, on_step=record, **kwargs)
        return y._replace(metrics={"path": core.Mean(y.carry, jnp.ones(()))})


def recorded_rounds(choice, variant):
    """Yields (run before, run after, client -> its path [J_i + 1, 2]) of every round."""
    p = problem(variant)
    recorded = p._replace(solve=Recorder(p.solve, p.setting.num_clients, max(META["J"])))
    algorithm = recorded.build(choice)
    one = jax.jit(functools.partial(engine.one_round, algorithm, {}, Strategy(1), p.n_max))
    before = p.start(algorithm)
    for t in range(T):
        ids = p.cohort(t)
        run, metrics = one(before, p.store, ids, ids, ids)
        paths = np.asarray(metrics["path"].total)
        yield before, run, {i: paths[i, : META["J"][i] + 1] for i in ids.tolist()}
        before = run


def gradient(i, theta, j):
    """The j-th mini-batch gradient of client i at theta = [w, b]."""
    size = META["batch"]
    batches = -(-len(META["x"][i]) // size)
    cut = slice((j % batches) * size, (j % batches + 1) * size)
    x, y = np.array(META["x"][i][cut]), np.array(META["y"][i][cut])
    error = theta[0] * x + theta[1] - y
    return np.array([np.mean(error * x), np.mean(error)])


@pytest.mark.parametrize("variant", ["cyclic", "partial", "full"])
def test_fedhbm_is_local_ghb_plus_a_local_correction(variant):
    participation, previous = problem(variant).setting.participation, {}
    for _, _, paths in recorded_rounds("fedhbm", variant):
        for i, path in paths.items():
            updates = path[:-1] - path[1:]
            for j in range(META["J"][i]):
                momentum = np.zeros(2)
                if i in previous:
                    received, before = previous[i]
                    momentum = (path[0] - received) + before.sum(0) - updates[:j].sum(0)
                step = participation / META["J"][i] * momentum - META["lr"] * gradient(i, path[j], j)
                same(path[j + 1], path[j] + step)
            previous[i] = path[0], updates
    assert len(previous) == len(META["J"])


def test_ghbs_momentum_obeys_the_papers_recursion():
    tau, beta, p = 3, 0.9, problem("equal")
    steps, lr = META["epochs"], META["lr"]
    trace = np.concatenate([[META["theta0"]], models(f"ghb:tau={tau},beta={beta}", "equal")])
    m = lambda t: (trace[t - tau] - trace[t]) / (lr * tau * steps) if t >= tau else np.zeros(2)
    mean_gradients = []
    for t in range(1, T + 1):
        ids, total = p.schedule[(t - 1) % len(p.schedule)], np.zeros(2)
        for i in ids:
            x = trace[t - 1].copy()
            for _ in range(steps):
                g = gradient(i, x, 0)
                total += g / steps / len(ids)
                x = x - lr * (g + beta * m(t - 1))
        mean_gradients.append(total)
    for t in range(tau, T + 1):
        same(m(t), sum(beta * m(v - 1) + mean_gradients[v - 1] for v in range(t - tau + 1, t + 1)) / tau)


# ------------------------------------------------------------------------------------------------------------ WIMA


@pytest.mark.parametrize(
    "base", ["fedavg", "fedavg:server_lr=0.5", "fedavgm:beta=0.9", "fedopt:optimizer=adam,server_lr=0.1"]
)
def test_wima_is_a_weighted_sum_of_server_steps(base):
    p, sizes = problem("partial"), (1, 2, 5)
    watch = {"wima": observers.wima(tuple(observers.Reading(f"w{size}", size) for size in sizes))}
    algorithm = p.build(base)
    reads = [engine.read_out(algorithm, watch, run) for run in testing.trajectory(p, algorithm, T, watch)]
    trace = np.concatenate([[META["theta0"]], models(base)])
    steps = trace[:-1] - trace[1:]
    for size in sizes:
        read = np.stack([golden.vector(r[f"w{size}"].params) for r in reads])
        for t in range(size, T + 1):
            coefficients = np.arange(size, 0, -1) / size
            same(read[t - 1], trace[t - size] - coefficients @ steps[t - size : t])
        for t in range(size + 1, T + 1):
            same(read[t - 1], read[t - 2] + (trace[t] - trace[t - size]) / size)


def test_both_parts_of_wima_are_wima_and_none_is_the_model():
    params, average = {"a": 1.0, "b": {"c": 2.0}}, {"a": 3.0, "b": {"c": 4.0}}
    mask = observers.classifier_mask(params, ("b",))
    rest = jax.tree.map(lambda m: not m, mask)
    assert observers.select(mask, average, params) == {"a": 1.0, "b": {"c": 4.0}}
    assert observers.select(rest, average, params) == {"a": 3.0, "b": {"c": 2.0}}
    assert observers.select(rest, average, observers.select(mask, average, params)) == average


# ------------------------------------------------------------------------------------------------------------- IMA


@functools.cache
def ima_run(text, base="fedavg", rounds=T):
    p = problem("partial")
    p = p._replace(setting=p.setting._replace(num_rounds=rounds))
    found = [wrappers.WRAPPERS.build(text, p.setting)] if text else []
    return [golden.vector(run.params) for run in testing.trajectory(p, p.build(base, *found), rounds)]


@pytest.mark.parametrize("placement", ["post", "pre,reset=none"])
def test_ima_of_one_model_is_the_base_method(placement):
    assert np.array_equal(ima_run(f"ima:window=1,start=0,schedule=none,placement={placement}"), ima_run(""))


@pytest.mark.parametrize("placement", ["post", "pre"])
def test_ima_that_never_starts_is_the_base_method(placement):
    assert np.array_equal(ima_run(f"ima:window=3,start={T},placement={placement}"), ima_run(""))


def test_ima_moves_by_the_change_of_its_window():
    window, start = 3, 5
    p = problem("partial")
    ima = wrappers.WRAPPERS.build(f"ima:window={window},start={start},schedule=none", p.setting)
    algorithm = p.build("fedavg", ima)
    plain = jax.jit(functools.partial(engine.one_round, p.build("fedavg"), {}, Strategy(1), p.n_max))
    x = testing.trajectory(p, algorithm, T)
    aggregates = []
    for t in range(T):
        # The aggregate of a round is what the base method makes of the same start.
        begin = p.start(p.build("fedavg")) if t == 0 else x[t - 1]._replace(state=())
        ids = p.cohort(t)
        aggregates.append(golden.vector(plain(begin, p.store, ids, ids, ids)[0].params))
    for t in range(T):
        now = golden.vector(x[t].params)
        if t < start:
            same(now, aggregates[t])
        else:
            same(now, np.mean(aggregates[t - window + 1 : t + 1], axis=0))
        if t > start:
            same(now, golden.vector(x[t - 1].params) + (aggregates[t] - aggregates[t - window]) / window)


def given_aggregates(values, window):
    """The last broadcast of IMA over a method whose aggregate in round t is values[t], whatever was broadcast."""
    # Curvature 1 at rate 1: one step leads to the centre.
    cycle = [[i] for i in range(len(values))]
    p = testing.quadratic([1.0] * len(values), values, np.zeros(len(values[0])), steps=1, lr=1.0, schedule=cycle)
    p = p._replace(setting=p.setting._replace(num_rounds=len(values)))
    ima = wrappers.WRAPPERS.build(f"ima:window={window},start=0,schedule=none", p.setting)
    return np.asarray(testing.trajectory(p, p.build("fedavg", ima), len(values))[-1].params["x"])


def test_imas_mean_of_equal_models_is_that_model():
    model = [0.1, -2.3, 1 / 3]
    for window in (2, 3, 5):
        same(given_aggregates([[7.0, 7.0, 7.0]] + window * [model], window), model, 1e-15)


def test_imas_window_does_not_care_for_the_order_of_its_models():
    a = np.random.default_rng(0).normal(size=(5, 3))
    for order in ([0, 1, 2, 3, 4], [4, 2, 0, 1, 3], [1, 0, 4, 3, 2]):
        same(given_aggregates([[9.0, 9.0, 9.0], *a[order]], 5), a.mean(0), 1e-15)


def test_rounds_before_imas_start_do_not_depend_on_the_window():
    short, long = (ima_run(f"ima:window={w},start=6") for w in (2, 5))
    assert np.array_equal(short[:6], long[:6])
    assert np.array_equal(short[:6], ima_run("")[:6])
    differ(short[6:], long[6:])


@pytest.mark.parametrize("schedule", wrappers.SCHEDULES)
def test_imas_schedules_agree_before_the_start(schedule):
    base = local.exponential(0.01, 0.01)
    ima = wrappers.WRAPPERS.build(f"ima:schedule={schedule},start=300", core.Setting(100, 10, 400))
    rounds = jnp.arange(300)
    same(jax.vmap(ima.rate(base))(rounds), jax.vmap(base)(rounds), 0)


def test_imas_exp_schedule_continues_the_base():
    base, setting = local.exponential(0.01, 0.01), core.Setting(100, 10, 400)
    exp = wrappers.WRAPPERS.build("ima:start=300", setting).rate(base)
    same(exp(jnp.asarray(300)), base(jnp.asarray(300)), 1e-18)
    as_base = wrappers.WRAPPERS.build("ima:start=300,decay=0.01", setting).rate(base)
    late = jnp.arange(290, 400)
    same(jax.vmap(as_base)(late), jax.vmap(base)(late), 1e-15)
    epoch = wrappers.WRAPPERS.build("ima:start=300,schedule=epoch", setting)
    same(jax.vmap(epoch.rate(base))(late), jax.vmap(base)(late), 0)


def test_swa_at_a_constant_rate_leaves_training_alone():
    assert np.array_equal(ima_run("swa:start=4,cycle=1"), ima_run(""))


# -------------------------------------------------------------------------------------- server optimisers and masks


def test_fedyogi_begins_as_fedadam():
    same(models("fedyogi")[0], models("fedadam")[0])
    differ(models("fedyogi")[-1], models("fedadam")[-1], 1e-9)


def test_fedadagrads_first_step_is_a_sign():
    moved = models("fedadagrad")[0] - META["theta0"]
    same(np.abs(moved), 0.1, 1e-7)
    same(np.sign(moved), np.sign(models("fedavg")[0] - META["theta0"]))


@pytest.mark.parametrize("choice", ["fedadam", "fedyogi", "fedadagrad"])
def test_an_adaptive_server_that_is_told_nothing_stays(choice):
    p = problem("partial")
    algorithm = p.build(choice)
    params = p.variables.params
    nothing = {"delta": core.mean(tree.zeros_like(params), 1.0)}
    new, _ = algorithm.phases[0].server(params, algorithm.init(params, jax.random.key(0)), nothing, 0)
    assert (golden.vector(new) == META["theta0"]).all()


@pytest.mark.parametrize("rho,mu", [(0.0, 0.0), (0.9, 0.0), (0.5, 0.0), (0.0, 1.1)])
@pytest.mark.parametrize("steps", [1, 2, 5])
def test_fednovas_norm_is_the_sum_of_the_coefficients_of_the_gradients(rho, mu, steps):
    # A linear loss whose j-th gradient is the j-th unit vector: (x - y) / lr is made of their coefficients.
    lr, optimizer = 0.1, optax.sgd(1.0, rho or None)
    loss = lambda params, batch, key, info: losses.masked_mean(batch["e"] @ params["x"], batch)
    p = testing.problem(
        {"x": jnp.ones(steps)},
        [{"e": np.eye(steps)}],
        loss,
        [[0]],
        lr=lr,
        batch_size=1,
        shuffle=False,
        optimizer=optimizer,
    )
    carry, on_step = counter(optimizer, mu)
    y = p.solve(p.variables.params, p.client(0), local.proximal(mu) if mu else local.sgd, carry=carry, on_step=on_step)
    coefficients = (p.variables.params["x"] - y.params["x"]) / lr
    later = np.arange(steps)[::-1]  # steps that come after the j-th
    same(coefficients, (1 - lr * mu) ** later if mu else [sum(rho**k for k in range(l + 1)) for l in later])
    same(-y.carry[0], np.abs(coefficients).sum())


def test_fedgma_keeps_only_what_all_agree_on():
    centres = [[2.0, 2.0], [2.0, -2.0]]
    p = testing.quadratic([1.0, 1.0], centres, [0.0, 0.0], steps=1, lr=0.1, schedule=[[0, 1]], sizes=[1, 2])
    (hard,) = testing.trajectory(p, p.build("fedgma:threshold=1.0,mode=hard"), 1)
    (mean,) = testing.trajectory(p, p.build("fedavg"), 1)
    same(hard.params["x"], [mean.params["x"][0], 0.0])
    twins = testing.quadratic([1.0, 1.0], [2.0, 2.0], [0.0], steps=2, lr=0.1, schedule=[[0, 1]])
    for choice in ("fedgma:threshold=1.0", "fedgma:threshold=0.7,mode=hard"):
        ours, plain = (testing.trajectory(twins, twins.build(name), 3)[-1].params["x"] for name in (choice, "fedavg"))
        same(ours, plain)


def test_fedproxs_gradient_is_finite_where_the_pull_is_zero():
    assert np.isfinite(models("fedprox:mu=1.1")).all()


def test_sams_perturbation_has_norm_rho_and_asam_without_weights_is_sam():
    g = {"bias": jnp.array([3.0, -4.0])}
    same(tree.norm(perturbation(g, g, 0.3)), 0.3)
    same(perturbation(g, g, 0.3, 0.2)["bias"], perturbation(g, g, 0.3)["bias"])
    w = {"scale": jnp.array([3.0, -4.0])}
    differ(perturbation(w, w, 0.3, 0.2)["scale"], perturbation(w, w, 0.3)["scale"])


# ----------------------------------------------------------------------------------------------------------- FedFA


def classifier_runs(choice, rounds=2, **kwargs):
    p = testing.classification(**kwargs)
    p = p._replace(setting=p.setting._replace(num_rounds=rounds))
    return p, testing.trajectory(p, p.build(choice), rounds)


def leaves(params):
    return np.concatenate([np.ravel(leaf) for leaf in jax.tree.leaves(params)])


def test_fedfa_without_its_losses_is_fedavg_and_frozen_anchors_stay():
    p, plain = classifier_runs("fedavg")
    _, ours = classifier_runs("fedfa:lam=0,beta=1,calibrate_from=2")
    same(leaves(ours[-1].params), leaves(plain[-1].params))
    assert (ours[-1].state == p.build("fedfa").init(p.variables.params, jax.random.key(0))).all()


def test_fedfas_calibration_moves_the_classifier_alone():
    # One step: a longer path would carry the difference into the features.
    kwargs = dict(sizes=(2, 2), epochs=1, schedule=((0, 1),))
    _, off = classifier_runs("fedfa:lam=0,calibrate_from=9", 1, **kwargs)
    _, on = classifier_runs("fedfa:lam=0,calibrate_from=0", 1, **kwargs)
    same(leaves(on[-1].params["hidden"]), leaves(off[-1].params["hidden"]), 0)
    differ(leaves(on[-1].params["last"]), leaves(off[-1].params["last"]), 1e-4)


def test_fedfas_anchors_of_absent_classes_stay():
    # Clients 0 and 3 with two examples each hold class 0 only.
    p, ours = classifier_runs("fedfa", 1, sizes=(2, 2, 2, 2), schedule=((0, 3),))
    start = p.build("fedfa").init(p.variables.params, jax.random.key(0))
    assert np.array_equal(ours[-1].state[1:], start[1:])
    differ(ours[-1].state[0], start[0])


# ------------------------------------------------------------------------------------------------------------- WSM


def wsm_terms(logits, labels, shares):
    loss = lambda f: jnp.sum(losses.weighted_softmax_nll(f, labels, shares))
    return losses.weighted_softmax_nll(logits, labels, shares), jax.grad(loss)(logits)


@pytest.mark.parametrize("seed", range(3))
@pytest.mark.parametrize("dtype", [jnp.float32, jnp.float64])
def test_wsm_properties(seed, dtype):
    random = np.random.default_rng(seed)
    logits = jnp.asarray(5 * random.normal(size=(6, 4)), dtype)
    shares = jnp.asarray(random.dirichlet(np.ones(4)), dtype).at[3].set(0)
    labels = jnp.asarray(random.integers(0, 3, 6))
    close = functools.partial(np.testing.assert_allclose, rtol=1e-4, atol=2e-5)

    @functools.partial(jax.jit, compiler_options=testing.compile_options())
    def everything(f):
        return {
            "wsm": wsm_terms(f, labels, shares),
            "uniform": wsm_terms(f, labels, jnp.full(4, 0.25, dtype)),
            "counts": wsm_terms(f, labels, 7 * shares),
            "other absent logit": wsm_terms(f.at[:, 3].add(50), labels, shares),
            "shifted": wsm_terms(f + 3, labels, shares),
            "mask": wsm_terms(f, labels, (shares > 0).astype(dtype)),
            "equally frequent": wsm_terms(f, labels, (shares > 0).astype(dtype) / 3),
            "one class": wsm_terms(f, jnp.full(6, 1), jnp.array([0, 1.0, 0, 0], dtype)),
            "ce": (losses.nll(f, labels), jax.grad(lambda f: jnp.sum(losses.nll(f, labels)))(f)),
            "moved": losses.nll((f + jnp.log(jnp.maximum(shares, 1e-30)))[:, :3], labels),
            "present": losses.nll(f[:, :3], labels),
        }

    r = everything(logits)
    loss, slope = r["wsm"]
    close(r["uniform"][0], r["ce"][0] - np.log(4))
    close(r["uniform"][1], r["ce"][1])
    assert (np.asarray(slope)[:, 3] == 0).all()
    close(np.sum(slope, 1), 0)
    for name in ("counts", "other absent logit", "shifted"):
        close(r[name][1], slope)
    close(r["counts"][0], loss + np.log(7))
    close(r["shifted"][0], loss)
    log_share = np.log(np.asarray(shares)[labels])
    assert (np.asarray(loss) >= log_share - 1e-5).all()
    close(r["moved"] + log_share, loss)
    # The NLL form of the released code is L - log a_y.
    close(r["uniform"][0] - np.log(1 / 4), r["ce"][0])
    assert (np.asarray(loss) - log_share >= -np.finfo(dtype).eps * 50).all()
    close(r["mask"][0], r["present"])
    close(r["equally frequent"][0], r["present"] - np.log(3))
    assert (np.asarray(r["one class"][0]) == 0).all() and (np.asarray(r["one class"][1]) == 0).all()


def test_class_proportions():
    info = {"train": jnp.array([3, 0, 1]), "validation": jnp.array([0, 4, 0])}
    same(losses.class_proportions(info, "train"), [0.75, 0, 0.25])
    same(losses.class_proportions(info, "train+val"), [0.375, 0.5, 0.125])
    same(losses.class_proportions(info, "train", mask=True), [1, 0, 1])
    same(losses.class_proportions(info, mask=True), [1, 1, 1])
    nobody = {name: 0 * counts for name, counts in info.items()}
    for source in ("train", "train+val"):
        same(losses.class_proportions(nobody, source), np.full(3, 1 / 3), 1e-7)
        same(losses.class_proportions(nobody, source, mask=True), [1, 1, 1])


def test_scaffold_with_a_one_class_client_under_wsm_moves_by_its_controls_alone():
    epochs, lr = 2, 0.3
    p = testing.classification((2, 2), schedule=((0,),), loss=losses.wsm, epochs=epochs, lr=lr)
    algorithm = p.build("scaffold")
    draw = lambda seed, like: jax.tree.map(lambda x: np.random.default_rng(seed).normal(size=x.shape), like)
    start = p.start(algorithm)
    start = start._replace(state=draw(1, start.state), table=draw(2, start.table))
    (run,) = testing.trajectory(p, algorithm, 1, run=start)
    c, c_0, x = leaves(start.state), leaves(jax.tree.map(lambda row: row[0], start.table)), leaves(p.variables.params)
    same(leaves(run.params), x - epochs * lr * (c - c_0))  # one step per epoch
    same(leaves(jax.tree.map(lambda row: row[0], run.table)), 0)
    same(leaves(jax.tree.map(lambda row: row[1], run.table)), leaves(jax.tree.map(lambda row: row[1], start.table)), 0)
    same(leaves(run.state), c - c_0 / 2)


def test_a_one_class_client_returns_what_it_got_under_wsm():
    kwargs = dict(sizes=(2, 2), schedule=((0,),), loss=losses.wsm)
    p, (run,) = classifier_runs("fedavg", 1, **kwargs)
    assert (leaves(run.params) == leaves(p.variables.params)).all()
    # Its running statistics move all the same.
    differ(run.stats["mean"], p.variables.stats["mean"], 1e-6)
    p, (run,) = classifier_runs("fedavg", 1, weight_decay=0.1, lr=0.5, **kwargs)
    # Two epochs of one batch: (1 - lr wd)^2 x.
    same(leaves(run.params), (1 - 0.5 * 0.1) ** 2 * leaves(p.variables.params))
    p, (run,) = classifier_runs("fedprox:mu=1.1", 1, **kwargs)
    assert (leaves(run.params) == leaves(p.variables.params)).all()


# ---------------------------------------------------------------------------------------------------------- weights


def test_the_server_rate_scales_the_step_of_fedavg():
    one, half = models("fedavg", rounds=1)[0], models("fedavg:server_lr=0.5", rounds=1)[0]
    same(half - META["theta0"], (one - META["theta0"]) / 2)


def test_client_optimisers_are_counted_by_fednova():
    p = golden.problem_b(META, optimizer=optax.sgd(1.0, 0.9), equal=True)
    ours, plain = (testing.trajectory(p, p.build(name), 4)[-1].params for name in ("fednova", "fedavg"))
    same(golden.vector(ours), golden.vector(plain))
