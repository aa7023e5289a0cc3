"""Convolution and pooling against lax: values and gradients."""

import jax
import jax.numpy as jnp
import numpy as np
import pytest
from flax import linen as nn
from jax import lax

from fedwin.models import convolution as conv
from fedwin.models.convolution.im2col import Geometry, without_idle_taps

NHWC = ("NHWC", "HWIO", "NHWC")
CASES = {
    "valid": dict(x=(2, 7, 6, 3), w=(3, 3, 3, 4), strides=(1, 1), padding="VALID"),
    "same": dict(x=(2, 7, 6, 3), w=(5, 3, 3, 4), strides=(1, 1), padding="SAME"),
    "same, stride 2": dict(x=(2, 8, 7, 3), w=(3, 3, 3, 4), strides=(2, 2), padding="SAME"),
    "explicit, uneven": dict(x=(2, 9, 8, 2), w=(3, 2, 2, 5), strides=(2, 1), padding=((1, 0), (0, 2))),
    "stride over the edge": dict(x=(2, 8, 8, 2), w=(3, 3, 2, 5), strides=(3, 3), padding="VALID"),
    "wide input": dict(x=(2, 6, 6, 16), w=(3, 3, 16, 8), strides=(1, 1), padding=((1, 1), (1, 1))),
    "wide input, stride 2": dict(x=(2, 6, 6, 16), w=(3, 3, 16, 8), strides=(2, 2), padding=((1, 1), (1, 1))),
    "1x1, stride 2": dict(x=(2, 5, 6, 3), w=(1, 1, 3, 4), strides=(2, 2), padding="VALID"),
    "depthwise": dict(x=(2, 7, 6, 4), w=(3, 3, 1, 4), strides=(1, 1), padding="SAME", groups=4),
    "depthwise, stride 2": dict(x=(2, 8, 8, 4), w=(3, 3, 1, 4), strides=(2, 2), padding=((1, 1), (1, 1)), groups=4),
    "depthwise, multiplier": dict(x=(2, 7, 6, 4), w=(3, 3, 1, 8), strides=(1, 1), padding="SAME", groups=4),
    "groups": dict(x=(2, 7, 6, 4), w=(3, 3, 2, 6), strides=(1, 1), padding="SAME", groups=2),
    "kernel dilation": dict(x=(2, 9, 9, 3), w=(3, 3, 3, 4), strides=(1, 1), padding="SAME", rhs_dilation=(2, 2)),
    "input dilation": dict(
        x=(2, 5, 5, 3), w=(3, 3, 3, 4), strides=(1, 1), padding=((1, 1), (2, 0)), lhs_dilation=(2, 2)
    ),
    "more padding than image": dict(x=(2, 1, 2, 3), w=(3, 7, 3, 4), strides=(1, 1), padding=((1, 1), (4, 2))),
    "large": dict(x=(4, 13, 12, 8), w=(5, 3, 8, 16), strides=(1, 1), padding="SAME"),
    "1-d": dict(x=(2, 9, 3), w=(3, 3, 4), strides=(2,), padding="SAME", numbers=("NHC", "HIO", "NHC")),
}


def arrays(*shapes):
    generator = np.random.default_rng(0)
    return [jnp.asarray(generator.standard_normal(shape), jnp.float32) for shape in shapes]


def both(case):
    options = dict(dimension_numbers=case.get("numbers", NHWC), feature_group_count=case.get("groups", 1))
    for name in ("lhs_dilation", "rhs_dilation"):
        if name in case:
            options[name] = case[name]
    pad = case["padding"]
    return tuple(
        lambda x, w, f=f: f(x, w, case["strides"], pad, **options)
        for f in (conv.conv_general_dilated, lax.conv_general_dilated)
    )


@pytest.mark.parametrize("name", CASES)
def test_convolution_equals_lax(name):
    ours, theirs = both(CASES[name])
    x, w = arrays(CASES[name]["x"], CASES[name]["w"])

    y = jax.eval_shape(theirs, x, w)
    (cotangent,) = arrays(y.shape)

    def value_and_gradients(f):
        def run(x, w, cotangent):
            y, vjp = jax.vjp(f, x, w)
            return y, *vjp(cotangent)

        return jax.jit(run)(x, w, cotangent)

    for a, b in zip(value_and_gradients(ours), value_and_gradients(theirs)):
        np.testing.assert_allclose(a, b, rtol=2e-5, atol=1e-6 * np.abs(b).max())


def test_sums_have_the_type_that_is_asked_for():
    x, w = jnp.full((1, 3, 3, 3), 100, jnp.int8), jnp.full((3, 3, 3, 1), 100, jnp.int8)
    options = dict(dimension_numbers=NHWC, preferred_element_type=jnp.int32)
    ours = jax.jit(lambda x, w: conv.conv_general_dilated(x, w, (1, 1), "VALID", **options))
    assert ours(x, w).tolist() == [[[[270_000]]]]
    assert "stablehlo.convolution" not in ours.trace(x, w).lower(lowering_platforms=("cuda",)).as_text()


def test_taps_that_meet_padding_alone_are_left_out():
    g = Geometry((1, 2), (3, 7), (1, 1), ((1, 1), (4, 2)), (1, 1), (1, 1), None)
    kernel, g = without_idle_taps(np.arange(21).reshape(3, 7, 1, 1), g)
    assert kernel.ravel().tolist() == [10, 11, 12] and (g.window, g.padding) == ((1, 3), ((0, 0), (1, 1)))


MAPPED = ("valid", "same, stride 2", "large", "wide input", "wide input, stride 2", "depthwise")
QUICK = ("same, stride 2", "large")


# Every kind of convolution with separate kernels; two with a shared kernel or input.
@pytest.mark.parametrize(
    "axes, name",
    [
        pytest.param(axes, name, marks=[pytest.mark.slow] * (axes != (0, 0) and name not in QUICK))
        for axes in ((0, 0), (0, None), (None, 0))
        for name in MAPPED
    ],
)
def test_convolution_under_vmap_equals_lax_and_is_no_grouped_convolution(name, axes):
    ours, theirs = both(CASES[name])
    x, w = arrays((3, *CASES[name]["x"]), (3, *CASES[name]["w"]))
    x, w = (a if axis == 0 else a[0] for a, axis in zip((x, w), axes))
    loss = lambda f: lambda x, w: jnp.square(f(x, w)).sum()
    mapped = lambda f: jax.jit(jax.vmap(jax.grad(loss(f), (0, 1)), axes))
    for a, b in zip(mapped(ours)(x, w), mapped(theirs)(x, w)):
        np.testing.assert_allclose(a, b, rtol=1e-4, atol=1e-3 if name == "large" else 1e-4)
    assert "convolution" not in mapped(ours).lower(x, w).as_text()


POOLS = [
    ((2, 2), (2, 2), "VALID", 7),
    ((3, 3), (2, 2), "VALID", 9),
    ((2, 2), (2, 2), "SAME", 7),
    ((3, 3), (1, 1), "SAME", 5),
]


@pytest.mark.parametrize(
    "kind, window, strides, padding, side", [("avg", *POOLS[1]), *(("max", *pool) for pool in POOLS)]
)
def test_pool_equals_flax(kind, window, strides, padding, side):
    theirs = lambda x: (nn.max_pool if kind == "max" else nn.avg_pool)(x, window, strides, padding)
    ours = lambda x: conv.avg_pool(x, window, strides) if kind == "avg" else conv.max_pool(x, window, strides, padding)
    (x,) = arrays((2, side, side, 3))
    both = lambda pool: jax.jit(lambda x: (pool(x), jax.grad(lambda x: jnp.sin(pool(x)).sum())(x)))(x)
    jax.tree.map(lambda a, b: np.testing.assert_allclose(a, b, rtol=1e-5, atol=1e-6), both(ours), both(theirs))


LARGE = 18, (5, 4), (1, 1)  # wide: three blocks of six


@pytest.mark.parametrize(
    "images, window, strides, switch",
    [(7, (3, 3), (2, 1), "off"), (*LARGE, "on"), pytest.param(*LARGE, "off", marks=pytest.mark.slow)],
)
def test_large_convolutions_and_their_second_derivatives_equal_lax(images, window, strides, switch, request):
    """Large enough for the path without patches; batches that don't divide evenly; forward and reverse over reverse."""
    if switch == "on":
        request.getfixturevalue("use_onednn")
    ours, theirs = both(dict(x=(), w=(), strides=strides, padding=((0, 2), (1, 0))))
    x, w, dx, dw = arrays(*[(images, 13, 12, 8), (*window, 8, 16)] * 2)
    assert "fedwin_convolution" in str(jax.make_jaxpr(ours)(x, w))
    loss = lambda f: lambda x, w: jnp.sum(jnp.tanh(f(x, w)))
    along = lambda f: jax.jit(lambda x, w: jax.jvp(jax.grad(loss(f), (0, 1)), (x, w), (dx, dw)))
    back = lambda f: jax.jit(
        jax.grad(lambda x, w: sum(jnp.vdot(a, b) for a, b in zip(jax.grad(loss(f), (0, 1))(x, w), (dx, dw))), (0, 1))
    )
    for way in (along, back):
        text = way(ours).lower(x, w).as_text()
        assert switch == "off" or text.count("fedwin_onednn") >= 4 and "stablehlo.convolution" not in text
        for a, b in zip(jax.tree.leaves(way(ours)(x, w)), jax.tree.leaves(way(theirs)(x, w)), strict=True):
            np.testing.assert_allclose(a, b, rtol=2e-4, atol=5e-5 * np.abs(b).max())
