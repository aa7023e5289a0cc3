"""oneDNN's convolutions and derivatives against products of patches."""

import pathlib
import platform

import jax
import jax.numpy as jnp
import numpy as np
import pytest
from jax import lax

from fedwin.models.convolution import conv_general_dilated, dense_conv, onednn, program_cache
from fedwin.models.convolution.im2col import Geometry
from fedwin.models.convolution.onednn import cpu_features

needs_onednn = pytest.mark.skipif(not onednn.is_supported(), reason="needs jaxlib's oneDNN and AVX-512")
NONE = ((0, 0), (0, 0))
# images [B, H, W, C], window and channels of y, strides, padding
CASES = {
    "same": ((5, 9, 8, 3), (3, 3, 4), (1, 1), ((1, 1), (1, 1))),
    "uneven, stride 2": ((4, 13, 12, 8), (3, 2, 16), (2, 1), ((0, 2), (1, 0))),
    "wide": ((3, 13, 12, 5), (5, 4, 6), (1, 1), NONE),
    "as AlexNet's first": ((2, 23, 23, 3), (11, 11, 4), (4, 4), ((2, 2), (2, 2))),
    "one image, one channel": ((1, 6, 6, 1), (3, 3, 1), (2, 2), ((1, 0), (0, 1))),
    "stride over the edge": ((7, 6, 8, 1), (2, 2, 3), (3, 3), NONE),
    "padding wider than the window": ((2, 5, 5, 2), (3, 3, 3), (1, 1), ((3, 3), (4, 0))),
}
QUICK = ("uneven, stride 2", "one image, one channel", "padding wider than the window")
EACH = [pytest.param(name, marks=[pytest.mark.slow] * (name not in QUICK)) for name in CASES]


def problem(name):
    """Returns (geometry, x, K, dy) of a case."""
    image, (*window, outputs), strides, padding = CASES[name]
    g = Geometry(image[1:3], tuple(window), strides, padding, (1, 1), (1, 1), None)
    generator = np.random.default_rng(0)
    shapes = image, (*window, image[-1], outputs), (image[0], *g.out, outputs)
    return g, *(jnp.asarray(generator.standard_normal(shape), jnp.float32) for shape in shapes)


@needs_onednn
@pytest.mark.parametrize("name", EACH)
def test_values_and_derivatives_equal_products_of_patches(name):
    g, x, kernel, dy = problem(name)
    faces = (
        (onednn.values, dense_conv._plain_values, (x, kernel)),
        (onednn.input_gradient, dense_conv._plain_input_gradient, (dy, kernel)),
        (onednn.kernel_gradient, dense_conv._plain_kernel_gradient, (x, dy)),
    )
    with program_cache.allow_uncached():
        for called, patches, operands in faces:
            found, wanted = (jax.jit(lambda *pair, f=f: f(*pair, g))(*operands) for f in (called, patches))
            np.testing.assert_allclose(found, wanted, rtol=2e-5, atol=5e-5)


@pytest.mark.parametrize("name", EACH)
def test_the_gradient_of_the_image_is_the_transpose(name, monkeypatch):
    """<y(x, K), dy> = <x, dx>, without oneDNN, too; XLA is wrong about padding that cuts off (jaxlib 0.10)."""
    monkeypatch.setenv(onednn.SWITCH, "off")
    g, x, kernel, dy = problem(name)
    forward = jax.jit(lambda x: dense_conv._plain_values(x, kernel, g))(x)
    back = jax.jit(lambda dy: dense_conv._fast_input_gradient(dy, kernel, g))(dy)
    np.testing.assert_allclose(jnp.vdot(forward, dy), jnp.vdot(x, back), rtol=1e-4)


def test_padding_that_cuts_off_equals_lax_on_what_is_left():
    _, x, kernel, _ = problem("wide")
    numbers = ("NHWC", "HWIO", "NHWC")
    found = conv_general_dilated(x, kernel, (1, 1), ((-1, 0), (-2, 2)), dimension_numbers=numbers)
    wanted = lax.conv_general_dilated(x[:, 1:, 2:], kernel, (1, 1), ((0, 0), (0, 2)), dimension_numbers=numbers)
    np.testing.assert_allclose(found, wanted, rtol=2e-5, atol=2e-5)


@needs_onednn
def test_a_large_convolution_and_its_second_derivatives_equal_lax():
    numbers = dict(dimension_numbers=("NHWC", "HWIO", "NHWC"))
    generator = np.random.default_rng(0)
    x, kernel = (jnp.asarray(generator.standard_normal(s), jnp.float32) for s in ((12, 20, 18, 8), (3, 3, 8, 16)))
    ours, theirs = (
        jax.jit(jax.grad(lambda k, f=f: jnp.square(jax.grad(lambda x: jnp.tanh(f(x, k)).sum())(x)).sum()))
        for f in (
            lambda x, k: conv_general_dilated(x, k, (1, 1), "SAME", **numbers),
            lambda x, k: lax.conv_general_dilated(x, k, (1, 1), "SAME", **numbers),
        )
    )
    with program_cache.allow_uncached():
        found, text = ours(kernel), ours.lower(kernel).as_text()
    assert text.count("__onednn$convolution") >= 4 and "stablehlo.convolution" not in text
    wanted = theirs(kernel)
    np.testing.assert_allclose(found, wanted, rtol=1e-3, atol=1e-4 * np.abs(wanted).max())


@needs_onednn
def test_calls_are_made_where_the_program_may_stay_uncached_and_onednn_is_not_disabled(monkeypatch):
    x, kernel = jnp.ones((30, 20, 20, 8)), jnp.ones((3, 3, 8, 8))
    lowered = lambda: (
        jax.jit(lambda x: dense_conv.convolve(x, kernel, (1, 1), NONE, (1, 1), (1, 1), None)).lower(x).as_text()
    )
    assert "onednn" not in lowered()  # the tests cache their programs
    with program_cache.allow_uncached():
        assert "onednn" in lowered()
        monkeypatch.setenv(onednn.SWITCH, "off")
        assert "onednn" not in lowered()


@needs_onednn
def test_programs_of_an_accelerator_are_cached(monkeypatch):
    with program_cache.allow_uncached():
        assert onednn.is_available()
        monkeypatch.setattr(jax, "default_backend", lambda: "gpu")
        assert not onednn.is_available()


@pytest.mark.parametrize(
    "change",
    [
        dict(images=2),
        dict(images=5000, channels=(1, 8)),
        dict(dtype=jnp.bfloat16),
        dict(g=dict(dilation=(2, 2))),
        dict(g=dict(inside=(2, 1))),
        dict(g=dict(image=(1, 1))),
        dict(g=dict(padding=((0, 0), (-1, 0)))),
    ],
)
def test_small_dilated_and_cut_off_convolutions_and_other_types_do_not_suit(change):
    g = Geometry((32, 32), (3, 3), (1, 1), NONE, (1, 1), (1, 1), None)
    told = dict(images=50, channels=(8, 8), g=g, dtype=jnp.float32)
    assert onednn.suits(**told)
    change = change | ({"g": g._replace(**change["g"])} if "g" in change else {})
    assert not onednn.suits(**told | change)


@pytest.mark.parametrize(
    "version, known, machine, there",
    [
        ("0.10.2", ("avx512f",), "x86_64", True),
        ("0.12.0.1", ("avx512f",), "x86_64", True),
        ("0.8.0", ("avx512f",), "x86_64", False),
        ("0.12.1", ("avx512f",), "x86_64", False),
        ("0.10.2", ("avx2",), "x86_64", False),
        ("0.10.2", ("avx512f",), "aarch64", False),
    ],
)
def test_only_versions_and_machines_that_were_tried_are_trusted(version, known, machine, there, monkeypatch):
    monkeypatch.setattr(onednn.jaxlib_version, "__version__", version)
    monkeypatch.setattr(onednn, "cpu_features", lambda: known)
    monkeypatch.setattr(onednn.platform, "machine", lambda: machine)
    monkeypatch.setattr(onednn.sys, "platform", "linux")
    assert onednn.is_supported.__wrapped__() == there


LISTED = pathlib.Path("/proc/cpuinfo")


@pytest.mark.skipif(not LISTED.exists() or platform.machine() != "x86_64", reason="Linux on x86-64 lists them so")
def test_instruction_sets_are_those_that_linux_lists():
    assert "sse2" in cpu_features()
    assert all(f" {name}" in LISTED.read_text() for name in cpu_features())


def test_elsewhere_python_is_asked(monkeypatch):
    monkeypatch.setattr(pathlib.Path, "read_text", lambda path: (_ for _ in ()).throw(FileNotFoundError))
    monkeypatch.setattr(platform, "processor", lambda: "arm")
    assert cpu_features.__wrapped__() == ("arm",)
