"""Lines, planes, factors of the loss, CKA, forgetting, curves: keys g12 to g16 of golden_ima_wsm.json, and identities."""

import jax
import jax.numpy as jnp
import numpy as np
import pytest
from flax import linen as nn

from fedwin import analysis, losses, models, testing
from fedwin.core import Variables
from fedwin.errors import UserError
from fedwin.models import layers
from tests import golden_problems as golden

DATA = golden.load("golden_ima_wsm.json")
RANDOM = np.random.default_rng


@pytest.fixture(params=["float64", "float32"])
def same(request):
    """Compares with the file, jax in the precision of that name."""
    # The file rounds to 12 digits.
    tolerance = dict(rtol=1e-9, atol=1e-11) if request.param == "float64" else dict(rtol=1e-5, atol=1e-6)
    with jax.enable_x64(request.param == "float64"):
        yield lambda ours, theirs: np.testing.assert_allclose(np.asarray(ours), theirs, **tolerance)


def array(x):
    return jnp.asarray(x, float)


def network(seed, scale=1.0, dtype=np.float32):
    """A model of two leaves with a running statistic."""
    draw = RANDOM(seed).standard_normal
    kernel, bias, mean = (jnp.asarray(scale * draw(shape), dtype) for shape in ((3, 4), (4,), (4,)))
    return Variables({"kernel": kernel, "bias": bias}, {"mean": mean})


def bitwise(a, b):
    jax.tree.map(np.testing.assert_array_equal, a, b)


# --------------------------------------------------------------------------------------------------- line and plane


def bowl(model):
    """What g12 measures: ||w - (1.5, 1.5, 1, 0)||^2."""
    return jnp.sum((model["w"] - array([1.5, 1.5, 1.0, 0.0])) ** 2)


def test_golden_g12_line(same):
    g = DATA["g12_landscape"]
    first, second, _ = ({"w": array(w)} for w in g["w"])
    s, loss = analysis.line(first, second, bowl, g["line_alphas"])
    same(s, g["line_alphas"])
    same(loss, g["line_loss"])


def test_golden_g12_plane(same):
    g = DATA["g12_landscape"]
    three = [{"w": array(w)} for w in g["w"]]
    plane = analysis.plane(*three)
    same(plane.u, g["u_hat"])
    same(plane.v, g["v_hat"])
    same(analysis.corners(plane), g["coords"])
    same(analysis.place(plane, analysis.mix([1 / 3] * 3, three))[:2], g["coords_of_mean"])
    inside = analysis.point(plane, 0.3, 0.7)
    same(inside["w"], g["model_at_0p3_0p7"])
    same(analysis.landscape(plane, bowl, [0.3], [0.7]), [[g["loss_at_0p3_0p7"]]])
    a, b, residual = analysis.place(plane, {"w": array(g["projection"]["model"])})
    same([a, b], g["projection"]["coords"])
    same(residual, g["projection"]["residual"])


def test_a_line_ends_at_its_models():
    first, second, seen = network(0), network(1), []
    s, values = analysis.line(first, second, lambda m: seen.append(m) or {"loss": m.params["bias"].sum(), "error": 0.5})
    assert len(s) == 41 and s[0] == -0.5 and s[-1] == 1.5
    assert values["loss"].shape == values["error"].shape == (41,)
    (zero,), (one,) = np.flatnonzero(s == 0), np.flatnonzero(s == 1)
    bitwise(seen[zero], first)
    bitwise(seen[one], second)
    # Statistics move with the parameters, and dtypes stay.
    half = seen[int(np.flatnonzero(s == 0.5)[0])]
    np.testing.assert_allclose(half.stats["mean"], (first.stats["mean"] + second.stats["mean"]) / 2, rtol=1e-6)
    assert half.params["kernel"].dtype == jnp.float32


@pytest.mark.parametrize("scale", [1e-3, 1.0, 1e3])
def test_a_plane_goes_through_its_models(scale):
    # Close together far from the origin, as the models of successive rounds are.
    base = network(9)
    three = [analysis.mix([1, 0.01 * scale], [base, network(i)]) for i in range(3)]
    plane = analysis.plane(*three)
    np.testing.assert_allclose([plane.u @ plane.u, plane.v @ plane.v, plane.u @ plane.v], [1, 1, 0], atol=1e-12)
    places = np.array([analysis.place(plane, model)[:2] for model in three])
    np.testing.assert_allclose(places, analysis.corners(plane), rtol=1e-9, atol=1e-9 * plane.a2)
    for model, (a, b) in zip(three, analysis.corners(plane)):
        bitwise(analysis.point(plane, a, b), model)
    mean = analysis.place(plane, analysis.mix([1 / 3] * 3, three))
    # The mean is a float32 model.
    rounding = 1e-6 * np.linalg.norm(plane.origin)
    np.testing.assert_allclose(mean[:2], analysis.corners(plane).mean(0), atol=rounding)
    assert mean.residual < rounding
    a, b, _ = analysis.place(plane, analysis.point(plane, 0.3 * plane.a2, -0.7 * plane.b3))
    np.testing.assert_allclose([a, b], [0.3 * plane.a2, -0.7 * plane.b3], atol=rounding)


def test_permuted_models_span_the_same_plane():
    three = [network(i) for i in range(3)]
    one, other = analysis.plane(*three), analysis.plane(three[2], three[0], three[1])
    span = lambda p: np.outer(p.u, p.u) + np.outer(p.v, p.v)
    np.testing.assert_allclose(span(one), span(other), atol=1e-12)


def test_a_model_off_the_plane_knows_its_distance():
    plane = analysis.plane(*(network(i) for i in range(3)))
    normal = RANDOM(3).standard_normal(plane.u.size)
    normal -= (normal @ plane.u) * plane.u + (normal @ plane.v) * plane.v
    params = plane.origin + 2 * plane.u - 3 * plane.v + 5 * normal / np.linalg.norm(normal)
    # Leaves are in the order of jax: bias before kernel.
    model = Variables({"bias": params[:4], "kernel": params[4:].reshape(3, 4)}, {"mean": np.zeros(4)})
    np.testing.assert_allclose(analysis.place(plane, model), [2, -3, 5], rtol=1e-10)


def test_the_grid_surrounds_the_models():
    three = [network(i) for i in range(3)]
    plane = analysis.plane(*three)
    a, b = analysis.grid(plane)
    assert len(a) == len(b) == 21
    low, high = analysis.corners(plane).min(0), analysis.corners(plane).max(0)
    np.testing.assert_allclose([a[0], a[-1]], [low[0] - 0.2 * plane.a2, high[0] + 0.2 * plane.a2])
    np.testing.assert_allclose([b[0], b[-1]], [low[1] - 0.2 * plane.b3, high[1] + 0.2 * plane.b3])
    a, b = analysis.grid(plane, points=4)
    there = analysis.landscape(plane, lambda m: analysis.place(plane, m), a, b[:3])
    np.testing.assert_allclose(there.a, np.broadcast_to(a, (3, 4)), atol=1e-5)
    np.testing.assert_allclose(there.b, np.broadcast_to(b[:3, None], (3, 4)), atol=1e-5)


def test_mixing_keeps_counters_and_dtypes():
    mixed = lambda count, value: {"count": jnp.int32(count), "w": jnp.full(2, value, jnp.bfloat16)}
    out = analysis.mix([0.25, 0.75], [mixed(3, 1.0), mixed(5, 2.0)])
    assert int(out["count"]) == 3 and out["w"].dtype == jnp.bfloat16 and float(out["w"][0]) == 1.75


# ---------------------------------------------------------------------------------------------- BatchNorm statistics


def test_recomputed_statistics_are_those_of_the_data():
    model = testing.classification().setting.model
    variables = model.init(jax.random.key(3))
    x = RANDOM(0).standard_normal((10, 2)).astype(np.float32)
    y, mask = np.zeros(4, np.int32), np.array([1, 1, 0, 0], np.float32)
    padded = np.concatenate([x[8:], np.zeros((2, 2), np.float32)])
    batches = [{"x": x[:4], "y": y}, {"x": x[4:8], "y": y}, {"x": padded, "y": y, "mask": mask}]
    batches += [{"x": padded, "y": y, "mask": 0 * mask}]
    out = analysis.recomputed(model, variables._replace(stats={"mean": jnp.full(4, 7.0)}), batches)
    np.testing.assert_allclose(out.stats["mean"], np.tanh(x @ variables.params["hidden"]["kernel"]).mean(0), atol=2e-6)
    bitwise(out.params, variables.params)


class TwoNorms(nn.Module):
    @nn.compact
    def __call__(self, x, train, mask=None):
        hidden = nn.Dense(5)(layers.BatchNorm()(x, train, mask))
        return nn.Dense(3)(jnp.tanh(layers.BatchNorm()(hidden, train, mask)))


def test_recomputed_statistics_of_batch_norm_layers():
    model = models.from_flax(TwoNorms(), (2,))
    variables = model.init(jax.random.key(0))
    x = 100 + 5 * RANDOM(0).standard_normal((16, 2)).astype(np.float32)
    stats = analysis.recomputed(model, variables, [{"x": x, "y": np.zeros(16, np.int32)}]).stats
    dense = variables.params["Dense_0"]
    hidden = (x - x.mean(0)) / np.sqrt(x.var(0) + 1e-5) @ dense["kernel"] + dense["bias"]
    for norm, values in zip(jax.tree.leaves(stats, is_leaf=lambda s: "mean" in s), (x, hidden)):
        np.testing.assert_allclose(norm["mean"], values.mean(0), rtol=1e-5, atol=1e-5)
        np.testing.assert_allclose(norm["var"], values.var(0, ddof=1), rtol=1e-4)


def test_without_statistics_there_is_nothing_to_recompute():
    variables = Variables({"w": jnp.ones(2)})
    assert analysis.recomputed(None, variables, []) is variables


# ------------------------------------------------------------------------------------------------------- factors


def test_golden_g13_factors(same):
    g = DATA["g13_decomposition"]
    f, y = array(g["f"]), array(g["y"])
    for weights in (None, g["p"], [40, 20, 40]):
        ours = analysis.factors(f, y, np.array(g["owner"]), weights)
        same(ours.bias_squared, g["bias_squared"])
        same(ours.variance, g["variance"])
        same(ours.covariance, g["covariance"])
        same(ours.ensemble_loss, g["wens_expected_loss"])
        same(ours.train_biases, g["train_bias_sq_per_client"])
        same(ours.heter_biases, g["heter_bias_sq_per_client"])
        same([ours.train_bias, ours.heter_bias], [g["train_bias"], g["heter_bias"]])
        same(ours.bound, g["jensen_bound"])
        assert not ours.plug_in


def test_golden_g13_lemma(same):
    g = DATA["g13_decomposition"]["lemma1"]
    clients = [{"w": array(w)} for w in g["w"]]
    centre = analysis.mix(g["p"], clients)
    output = lambda model: (np.asarray(model["w"], float) @ np.asarray(g["x"])) ** 2
    ensemble = np.dot(g["p"], [output(client) for client in clients])
    same(centre["w"], g["w_gm"])
    same(output(centre), g["gm_output"])
    same(ensemble, g["wens"])
    same(ensemble - output(centre), g["gap"])
    same(analysis.locality(clients, centre).max(), g["locality"])
    # The remainder of Lemma 1 is a square of the distances.
    away = [{"w": client["w"] - centre["w"]} for client in clients]
    same(np.dot(g["p"], [output(a) for a in away]), g["gap"])


def drawn(replicas=5, clients=4, examples=30, outputs=3, seed=0):
    random = RANDOM(seed)
    owner = random.permutation(np.concatenate([np.arange(clients), random.integers(0, clients, examples - clients)]))
    return (
        random.standard_normal((replicas, clients, examples, outputs)),
        random.standard_normal((examples, outputs)),
        owner,
    )


@pytest.mark.parametrize("weights", [None, (1, 2, 3, 4), (0, 0, 1, 0)])
def test_the_terms_add_up(weights):
    f, y, owner = drawn()
    ours = analysis.factors(f, y, owner, weights)
    total = ours.bias_squared + ours.variance + ours.covariance
    np.testing.assert_allclose(total, ours.ensemble_loss, rtol=1e-12)
    p = np.bincount(owner) if weights is None else np.array(weights)
    p = p / p.sum()
    cov = np.einsum("sknc,sjnc->kj", f - f.mean(0), f - f.mean(0)) / len(f) / len(y)
    np.testing.assert_allclose(ours.variance, np.sum(p**2 * np.diag(cov)), rtol=1e-12)
    np.testing.assert_allclose(ours.covariance, p @ cov @ p - np.sum(p**2 * np.diag(cov)), rtol=1e-9, atol=1e-14)
    assert ours.bias_squared <= ours.bound
    if weights is None:
        split = p @ (p * ours.train_biases + (1 - p) * ours.heter_biases)
        np.testing.assert_allclose(ours.bound, split, rtol=1e-12)


def test_equal_clients_have_the_corollaries():
    f, y, owner = drawn()
    clients = f.shape[1]
    ours = analysis.factors(f, y, owner, np.ones(clients))
    spread = f - f.mean(0)
    cov = np.einsum("sknc,sjnc->kjn", spread, spread) / len(f)
    off = ~np.eye(clients, dtype=bool)
    np.testing.assert_allclose(ours.variance, cov[~off].mean() / clients, rtol=1e-12)
    np.testing.assert_allclose(ours.covariance, cov[off].mean() * (clients - 1) / clients, rtol=1e-9)
    assert ours.covariance >= (clients - 1) / clients * cov[off].min(0).mean()


def test_identical_clients_share_one_variance():
    f, y, owner = drawn(clients=1)
    many = np.repeat(f, 4, 1)
    ours = analysis.factors(many, y, np.arange(len(y)) % 4)
    np.testing.assert_allclose(ours.variance + ours.covariance, np.sum(f[:, 0].var(0), -1).mean(), rtol=1e-12)


def test_one_replica_is_a_plug_in_estimate():
    f, y, owner = drawn(replicas=1)
    ours = analysis.factors(f, y, owner)
    assert ours.plug_in and ours.variance == 0 and ours.covariance == 0
    np.testing.assert_allclose(ours.bias_squared, ours.ensemble_loss, rtol=1e-14)


def test_linear_models_equal_their_ensemble():
    random = RANDOM(0)
    kernels = [{"w": jnp.asarray(random.standard_normal((4, 2)))} for _ in range(3)]
    x, p = random.standard_normal((7, 4)), [0.5, 0.3, 0.2]
    outputs = np.stack([x @ np.asarray(k["w"]) for k in kernels])
    merged = x @ np.asarray(analysis.mix(p, kernels)["w"])
    np.testing.assert_allclose(np.einsum("k,knc->nc", p, outputs), merged, atol=1e-6)


def test_losses_of_clients_and_whose_examples_they_are():
    random = RANDOM(0)
    logits, labels, owner = 5 * random.standard_normal((3, 12, 4)), random.integers(0, 4, 12), np.arange(12) % 3
    ce = analysis.client_losses(logits, labels, "ce")
    for k in range(3):
        expected = losses.nll(jnp.asarray(logits[k], jnp.float32), jnp.asarray(labels))
        np.testing.assert_allclose(ce[k], expected, rtol=1e-5, atol=1e-6)
    own, others = analysis.by_ownership(ce, owner)
    np.testing.assert_allclose(own, [ce[k, owner == k].mean() for k in range(3)])
    np.testing.assert_allclose(others, [ce[k, owner != k].mean() for k in range(3)])
    mse = analysis.client_losses(logits, labels, "mse")
    targets = np.eye(4)[labels]
    outputs = np.asarray(jax.nn.softmax(jnp.asarray(logits, jnp.float32)))[None]
    ours = analysis.factors(outputs, targets, owner)
    np.testing.assert_allclose(analysis.by_ownership(mse, owner), [ours.train_biases, ours.heter_biases], rtol=1e-5)
    # A logit of a thousand is no overflow.
    assert np.isfinite(analysis.client_losses(1000 * logits, labels, "ce")).all()


# ------------------------------------------------------------------------------------------------------------ CKA


def test_golden_g14_cka(same):
    g = DATA["g14_cka"]
    x, y = array(g["X"]), array(g["Y"])
    same(analysis.linear_cka(x, y), g["cka"])
    same(analysis.mean_cka([x, y, x]), (2 * g["cka"] + 1) / 3)
    assert abs(analysis.linear_cka(x, y) - g["uncentered_wrong_value"]) > 0.01


@pytest.mark.parametrize("shape", [(50, 4), (6, 40)], ids=["features", "gram"])
def test_cka_is_invariant(shape):
    random = RANDOM(0)
    x, y = random.standard_normal(shape), random.standard_normal((shape[0], 3))
    value = analysis.linear_cka(x, y)
    rotation, _ = np.linalg.qr(random.standard_normal((shape[1], shape[1])))
    shift = 10 * random.standard_normal(shape[1])
    assert 0 <= value <= 1
    for same_value in (analysis.linear_cka(y, x), analysis.linear_cka(7 * x @ rotation + shift, y)):
        np.testing.assert_allclose(same_value, value, rtol=1e-10)
    np.testing.assert_allclose(analysis.linear_cka(x, x @ rotation), 1, rtol=1e-12)
    # Columns of zeros change nothing but the form that is computed.
    wide = np.pad(x, ((0, 0), (0, 100)))
    np.testing.assert_allclose(analysis.linear_cka(wide, y), value, rtol=1e-10)
    # Axes beyond the first are coordinates.
    np.testing.assert_allclose(analysis.linear_cka(x.reshape(shape[0], 2, -1), y), value, rtol=1e-12)


def test_cka_of_constant_outputs_is_nan():
    x = RANDOM(0).standard_normal((5, 3))
    assert np.isnan(analysis.linear_cka(x, np.full((5, 3), 0.1))) and np.isnan(analysis.linear_cka(x[:1], x[:1]))


# ----------------------------------------------------------------------------------------------------- forgetting


def test_golden_g15_forgetting(same):
    g = DATA["g15_forgetting"]
    matrix = analysis.forgetting(array(g["pre"]), array(g["post"]))
    same(matrix, g["F_model_by_dataset"])
    same(-matrix, g["heatmap_post_minus_pre"])
    same(analysis.per_model(matrix), g["F_per_model"])
    same(analysis.per_model(matrix.T), g["F_per_dataset"])
    same(analysis.mean_forgetting(matrix), g["mean_forgetting"])


def test_a_one_class_client_forgets_nothing_under_wsm():
    random = RANDOM(0)
    counts = np.array([[6, 0, 0], [3, 3, 0], [0, 4, 8]])
    labels = [np.repeat(np.arange(3), row) for row in counts]
    xs = [jnp.asarray(np.eye(3)[y] + 0.1 * random.standard_normal((len(y), 3)), jnp.float32) for y in labels]
    start = jnp.asarray(random.standard_normal((3, 3)), jnp.float32)
    shares = lambda row: losses.class_proportions({"train": row}, "train")
    loss = lambda w, x, y, row: jnp.mean(losses.weighted_softmax_nll(x @ w, y, shares(row)))
    step = jax.jit(lambda w, *data: w - 2.0 * jax.grad(loss)(w, *data))

    def trained(k):
        w = start
        for _ in range(20):
            w = step(w, xs[k], jnp.asarray(labels[k]), jnp.asarray(counts[k]))
        return w

    accuracies = lambda w: [float(np.mean(np.argmax(x @ w, -1) == y)) for x, y in zip(xs, labels)]
    matrix = analysis.forgetting(accuracies(start), [accuracies(trained(k)) for k in range(3)])
    assert (matrix[0] == 0).all() and (np.diag(matrix)[1:] < 0).all()
    assert (analysis.forgetting(accuracies(start), [accuracies(start)] * 3) == 0).all()


# --------------------------------------------------------------------------------------------------------- curves


def test_golden_g16_metrics(same):
    g = DATA["g16_metrics"]
    rounds, baseline = (analysis.rounds_to_target(g[name], g["target"]) for name in ("acc", "base"))
    assert (rounds, baseline) == (g["rounds"], g["rounds_base"])
    assert analysis.rounds_to_target(g["base"], 0.7) is g["unreached"] is None
    same(analysis.speedup(baseline, rounds), g["speedup"])
    same(analysis.mean_last(g["acc"], 3), g["mean_last_3"])
    for (baseline, rounds), expected in zip(((394, 309), (394, 201), (392, 193)), g["table_speedups"].values()):
        same(analysis.speedup(baseline, rounds), expected)


def test_curves():
    # A dip below the target afterwards does not matter, nor does a NaN.
    assert analysis.rounds_to_target([0.1, np.nan, 0.5, 0.2], 0.5) == 3
    assert analysis.rounds_to_target([0.1, 0.4, 0.6], 0.5, rounds=[10, 20, 30]) == 30
    assert analysis.speedup(None, 3) is None and analysis.speedup(3, None) is None
    np.testing.assert_allclose(analysis.mean_last([[0, 0], [0.2, 0.4], [0.6, 0.8]], 2), 0.5)
    assert analysis.traffic((2, 1), rounds=400, clients_per_round=10) == 12_000


# ------------------------------------------------------------------------------------------------------ bad input

ONES = {"w": jnp.ones(2)}
SQUARE = np.zeros((1, 2, 2))


@pytest.mark.parametrize(
    "call, words",
    [
        (lambda: analysis.line(ONES, {"w": jnp.ones(3)}, bowl), "model 1 differs"),
        (lambda: analysis.line(ONES, ONES, bowl, [0, np.nan]), "NaN"),
        (lambda: analysis.line(ONES, ONES, bowl, []), "line: s"),
        (lambda: analysis.line({}, {}, bowl), "no model"),
        (lambda: analysis.mix([1.0], [ONES, ONES]), "1 coefficient"),
        (lambda: analysis.mix([], []), "mix: coefficients"),
        (lambda: analysis.plane(ONES, ONES, {"w": jnp.array([1.0, 2.0])}), "first two models are equal"),
        (lambda: analysis.plane(*({"w": i * jnp.ones(2)} for i in range(3))), "one line"),
        (lambda: analysis.plane(ONES, {"w": jnp.zeros(2)}, {"w": jnp.array([jnp.nan, 0])}), "not finite"),
        (lambda: analysis.grid(analysis.plane(*(network(i) for i in range(3))), margin=-1.0), "margin=-1.0"),
        (lambda: analysis.grid(analysis.plane(*(network(i) for i in range(3))), points=1), "points=1"),
        (lambda: analysis.place(analysis.plane(*(network(i) for i in range(3))), ONES), "model 1 differs"),
        (lambda: analysis.factors(np.zeros((1, 2, 3)), np.zeros(2), [0, 1]), "(1, 2, 3)"),
        (lambda: analysis.factors(SQUARE, np.zeros(2), [0, 2]), "0..1"),
        (lambda: analysis.factors(SQUARE, np.zeros(2), [0.0, 1.0]), "integers"),
        (lambda: analysis.factors(SQUARE, np.zeros(2), [0, 0]), "without examples"),
        (lambda: analysis.factors(SQUARE[:, :1], np.zeros(2), [0, 0]), "two are needed"),
        (lambda: analysis.factors(SQUARE, np.zeros(2), [0, 1], [1, -1]), "weights"),
        (lambda: analysis.client_losses(SQUARE, [0, 1], "hinge"), "'hinge'"),
        (lambda: analysis.client_losses(SQUARE, [0, 2]), "0..1"),
        (lambda: analysis.locality([], ONES), "no client"),
        (lambda: analysis.linear_cka(np.ones((3, 2)), np.ones((4, 2))), "3 and 4 examples"),
        (lambda: analysis.linear_cka([[1, 2], [3]], np.ones((2, 2))), "rectangular"),
        (lambda: analysis.mean_cka([np.ones((3, 2))]), "1 client"),
        (lambda: analysis.forgetting([0.1, 0.2], [[0.1, 0.2]]), "(1, 2)"),
        (lambda: analysis.per_model([[0.1]]), "K >= 2"),
        (lambda: analysis.rounds_to_target([0.1, 0.2], np.nan), "target=nan"),
        (lambda: analysis.rounds_to_target([0.1, 0.2], 0.1, rounds=[2, 1]), "growing"),
        (lambda: analysis.speedup(0, 3), "counted from 1"),
        (lambda: analysis.mean_last([0.1, 0.2], 3), "1..2"),
        (lambda: analysis.traffic((1, 1), -1, 2), "-1 rounds"),
        (lambda: analysis.recomputed(testing.classification().setting.model, network(0), []), "no batch"),
    ],
)
def test_bad_input_is_one_line(call, words):
    with pytest.raises(UserError) as error:
        call()
    assert words in str(error.value) and "\n" not in str(error.value)


def test_integer_statistics_are_refused():
    model = testing.classification().setting.model
    with pytest.raises(UserError, match="not all floats"):
        analysis.recomputed(model, Variables({}, {"count": jnp.zeros((), jnp.int32)}), [])
