"""oneDNN's convolutions equal products of patches; where it cannot be called, one clause says why."""

import os
import sys
import unittest.mock

import jax
import jax.numpy as jnp
import numpy as np
import pytest
from jax import lax

from fedwin import files
from fedwin.models.convolution import conv_general_dilated, dense_conv, onednn
from fedwin.models.convolution.im2col import Geometry
from fedwin.models.convolution.onednn import cpu_features
from tests.programs import output_of
from tests.refusals import disk_is_full, refused

NONE = ((0, 0), (0, 0))
# images [B, H, W, C], window and channels of y, strides, padding, dilation
CASES = {
    "uneven, stride 2": ((4, 13, 12, 8), (3, 2, 16), (2, 1), ((0, 2), (1, 0))),
    "wide": ((3, 13, 12, 5), (5, 4, 6), (1, 1), NONE),
    "one image, one channel": ((1, 6, 6, 1), (3, 3, 1), (2, 2), ((1, 0), (0, 1))),
    "padding wider than the window": ((2, 5, 5, 2), (3, 3, 3), (1, 1), ((3, 3), (4, 0))),
    "dilated": ((4, 15, 14, 3), (3, 2, 5), (2, 1), ((1, 2), (0, 1)), (2, 3)),
}
QUICK = ("uneven, stride 2", "dilated", "one image, one channel", "padding wider than the window")
EACH = [pytest.param(name, marks=[pytest.mark.slow] * (name not in QUICK)) for name in CASES]


def problem(name):
    """Returns (geometry, x, K, dy) of a case."""
    image, (*window, outputs), strides, padding, *dilation = CASES[name]
    g = Geometry(image[1:3], tuple(window), strides, padding, (1, 1), dilation[0] if dilation else (1, 1), None)
    generator = np.random.default_rng(0)
    shapes = image, (*window, image[-1], outputs), (image[0], *g.out, outputs)
    return g, *(jnp.asarray(generator.standard_normal(shape), jnp.float32) for shape in shapes)


FACES = (
    (onednn.values, dense_conv._plain_values),
    (onednn.input_gradient, dense_conv._plain_input_gradient),
    (onednn.kernel_gradient, dense_conv._plain_kernel_gradient),
)


@pytest.mark.parametrize("name", EACH)
@pytest.mark.parametrize("threads", [1, 2])
def test_values_and_derivatives_equal_products_of_patches(name, threads, use_onednn, monkeypatch):
    monkeypatch.setattr(onednn, "threads", lambda: threads)
    g, x, kernel, dy = problem(name)
    for (called, patches), operands in zip(FACES, ((x, kernel), (dy, kernel), (x, dy)), strict=True):
        actual, expected = (jax.jit(lambda *pair, f=f: f(*pair, g))(*operands) for f in (called, patches))
        np.testing.assert_allclose(actual, expected, rtol=2e-5, atol=5e-5)


def test_bfloat16(use_onednn):
    """The gradient of the kernel is summed in float32, so that it does not depend on how the batch is divided."""
    if "avx512_bf16" not in cpu_features():
        pytest.skip("the processor has no bfloat16")
    g, x, kernel, dy = problem("uneven, stride 2")
    low = lambda *arrays: [a.astype(jnp.bfloat16) for a in arrays]
    for (called, patches), operands in zip(FACES, ((x, kernel), (dy, kernel), (x, dy)), strict=True):
        actual, expected = jax.jit(lambda a, b, f=called: f(a, b, g))(*low(*operands)), patches(*operands, g)
        assert actual.dtype == jnp.bfloat16
        np.testing.assert_allclose(actual.astype(jnp.float32), expected, rtol=0.03, atol=0.03 * np.abs(expected).max())


@pytest.mark.parametrize("name", EACH)
def test_the_gradient_of_the_image_is_the_transpose(name, monkeypatch):
    """<y(x, K), dy> = <x, dx>, without oneDNN, too; XLA is wrong about padding that cuts off (jaxlib 0.10)."""
    monkeypatch.setenv(onednn.SWITCH, "off")
    g, x, kernel, dy = problem(name)
    forward = jax.jit(lambda x: dense_conv._plain_values(x, kernel, g))(x)
    back = jax.jit(lambda dy: dense_conv._fast_input_gradient(dy, kernel, g))(dy)
    np.testing.assert_allclose(jnp.vdot(forward, dy), jnp.vdot(x, back), rtol=1e-4)


def lowered() -> str:
    x, kernel = jnp.ones((30, 20, 20, 8)), jnp.ones((3, 3, 8, 8))
    return jax.jit(lambda x: dense_conv.convolve(x, kernel, (1, 1), NONE, (1, 1), (1, 1), None)).lower(x).as_text()


def test_the_switch(use_onednn, monkeypatch):
    assert "fedwin_onednn" in lowered()
    monkeypatch.setenv(onednn.SWITCH, "off")
    assert "onednn" not in lowered()


def test_a_kernel_per_client_stays_a_product_of_patches(use_onednn):
    x, kernels = jnp.ones((2, 30, 20, 20, 8)), jnp.ones((2, 3, 3, 8, 8))
    convolve = lambda x, kernel: dense_conv.convolve(x, kernel, (1, 1), NONE, (1, 1), (1, 1), None)
    assert "onednn" not in jax.jit(jax.vmap(convolve)).lower(x, kernels).as_text()


def unfound():
    raise onednn.Missing("there is no C++ compiler (install g++)")


def test_without_a_compiler_nothing_is_missing_once_the_library_exists(use_onednn, monkeypatch, tmp_path):
    monkeypatch.setattr(onednn, "find_compiler", unfound)
    assert onednn.missing() is None
    monkeypatch.setenv("FEDWIN_CACHE_DIR", str(tmp_path))
    assert onednn.missing() == "there is no C++ compiler (install g++)"


@pytest.mark.filterwarnings("ignore:convolutions and LSTMs are XLA's")
@pytest.mark.parametrize(
    "broken, reason",
    [
        (dict(find_onednn=lambda: (_ for _ in ()).throw(onednn.Missing("oneDNN 3 is not installed"))), "not installed"),
        (dict(find_compiler=unfound), "no C"),
        (dict(find_compiler=lambda: "false"), "fails to compile"),
    ],
)
def test_what_is_missing_is_a_reason_and_xla_convolves(broken, reason, use_onednn, monkeypatch, tmp_path):
    monkeypatch.setenv("FEDWIN_CACHE_DIR", str(tmp_path))
    for name, value in broken.items():
        monkeypatch.setattr(onednn, name, value)
    monkeypatch.setattr(onednn, "_load", onednn._load.__wrapped__)
    monkeypatch.setattr(onednn, "_status", onednn._status.__wrapped__)
    assert reason in onednn.status()
    assert "onednn" not in lowered()


def test_a_library_for_another_jax_is_a_reason(use_onednn, monkeypatch):
    refuse = unittest.mock.Mock(side_effect=RuntimeError("the API version (99.0) is incompatible"))
    monkeypatch.setattr(jax.ffi, "register_ffi_target", refuse)
    refused("can't be loaded .the API version", onednn._load.__wrapped__, "on", error=onednn.Unavailable)


def test_nothing_is_compiled_unless_asked(monkeypatch, tmp_path):
    monkeypatch.setenv("FEDWIN_CACHE_DIR", str(tmp_path))
    monkeypatch.setattr(onednn, "compile_library", lambda *paths: pytest.fail("compiles"))
    for switch in ("off", "cached"):
        with pytest.raises(onednn.Unavailable):
            onednn._load.__wrapped__(switch)


@pytest.fixture
def native(monkeypatch, tmp_path):
    """Returns a function that sets the body of a compiler, a shell script; the library's path is $last."""
    monkeypatch.setenv("FEDWIN_CACHE_DIR", str(tmp_path))
    library = tmp_path / "native/onednn.so"
    for name, value in (("find_onednn", lambda: (tmp_path, tmp_path)), ("library_path", lambda onednn: library)):
        monkeypatch.setattr(onednn, name, value)
    monkeypatch.setattr(onednn.platform, "machine", lambda: "x86_64")

    def use(body):
        (tmp_path / "c++").write_text(f"#!/bin/sh\nfor last; do :; done\n{body}\n")
        (tmp_path / "c++").chmod(0o755)
        monkeypatch.setattr(onednn, "find_compiler", lambda: str(tmp_path / "c++"))
        return onednn.locate("on")

    return use


def test_a_damaged_library_is_compiled_anew_and_an_exposed_one_refused(native):
    paths = native('echo a library > "$last"; touch "$TMPDIR/temporary"')
    library = paths[2]
    left = library.parent / "tmpleft"
    left.mkdir(parents=True)
    os.utime(left, (0, 0))
    onednn.compile_library(*paths)
    whole = library.read_bytes()
    assert whole.startswith(b"a library\n") and list(library.parent.iterdir()) == [library]
    for contents in (whole[:20], whole[:-1], b"", b"another" + whole, b"a library\n"):
        library.write_bytes(contents)
        assert not onednn.is_intact(library)
        refused("damaged, and FEDWIN_ONEDNN=cached", onednn.locate, "cached", error=onednn.Unavailable)
    onednn.compile_library(*paths)
    assert onednn.is_intact(library) and library.read_bytes() == whole
    library.parent.chmod(0o777)
    refused("library is refused: others may write to", onednn.locate, "on", error=onednn.Unavailable)


@pytest.mark.parametrize(
    "body, reason",
    [
        ("sleep 20 & sleep 20", "takes more than 0.4 s"),
        ("echo 'a.cc: fatal error: no room' >&2; exit 1", r"fails to compile onednn.cc \(a.cc: fatal error: no room"),
        ('echo 1 > "$last"', "can't be made .No space left on device"),
    ],
)
def test_a_compiler_that_hangs_or_fails_leaves_nothing(native, monkeypatch, capfd, body, reason):
    monkeypatch.setattr(onednn, "_COMPILE_SECONDS", 0.4)
    monkeypatch.setattr(onednn, "_SILENT_SECONDS", 0.1)
    monkeypatch.setattr(files.os, "fsync", disk_is_full)
    paths = native(body)
    refused(reason, onednn.compile_library, *paths, error=onednn.Unavailable)
    assert not list(paths[2].parent.iterdir())
    assert ("compiles onednn.cc, once" in capfd.readouterr().err) == ("sleep" in body)


@pytest.mark.parametrize(
    "change",
    [dict(images=2), dict(dtype=jnp.float64), dict(g=dict(inside=(2, 1))), dict(g=dict(padding=((0, 0), (-1, 0))))],
)
def test_small_and_cropped_convolutions_and_other_types_do_not_suit(change):
    g = Geometry((32, 32), (3, 3), (1, 1), NONE, (1, 1), (1, 1), None)
    told = dict(images=50, channels=(8, 8), g=g, dtype=jnp.float32)
    assert onednn.suits(**told)
    change = change | ({"g": g._replace(**change["g"])} if "g" in change else {})
    assert not onednn.suits(**told | change)


def test_padding_that_cuts_off_equals_lax_on_what_is_left():
    _, x, kernel, _ = problem("wide")
    numbers = ("NHWC", "HWIO", "NHWC")
    found = conv_general_dilated(x, kernel, (1, 1), ((-1, 0), (-2, 2)), dimension_numbers=numbers)
    wanted = lax.conv_general_dilated(x[:, 1:, 2:], kernel, (1, 1), ((0, 0), (0, 2)), dimension_numbers=numbers)
    np.testing.assert_allclose(found, wanted, rtol=2e-5, atol=2e-5)


def test_an_error_of_onednn_is_an_exception(use_onednn):
    _, x, kernel, _ = problem("wide")
    shape = jax.ShapeDtypeStruct((3, 9, 9, 6), jnp.float32)
    call = jax.ffi.ffi_call(onednn._load("on"), shape)  # of images that are smaller than the window
    window = np.zeros(8, np.int64)
    with pytest.raises(jax.errors.JaxRuntimeError, match="oneDNN: could not create"):
        jax.block_until_ready(
            jax.jit(lambda x: call(x[:, :3, :3], kernel, kind=np.int64(0), window=window, threads=np.int64(1)))(x)
        )


# Two processes, one after the other, with the same cache of programs: how many programs the second one compiles.
STARTS = """
import jax, jax.numpy as jnp
from fedwin.models.convolution import dense_conv
misses = []
jax.monitoring.register_event_listener(lambda name, **_: misses.append(name) if "cache_misses" in name else None)
x, kernel = jnp.ones((30, 20, 20, 8)), jnp.ones((3, 3, 8, 8))
f = lambda x, k: dense_conv.convolve(x, k, (1, 1), ((0, 0), (0, 0)), (1, 1), (1, 1), None)
step = jax.jit(jax.grad(lambda k: f(x, k).sum()))
assert "fedwin_onednn" in step.lower(kernel).as_text()
step(kernel).block_until_ready()
print(len(misses))
"""


@pytest.mark.slow
def test_programs_that_call_it_are_cached_across_starts(use_onednn, tmp_path):
    variables = {"JAX_COMPILATION_CACHE_DIR": str(tmp_path), "JAX_PLATFORMS": "cpu"}
    first, second = (int(output_of(sys.executable, "-c", STARTS, **variables)) for _ in range(2))
    assert first > 0 and second == 0


def test_other_processors_and_systems_do_without(monkeypatch):
    monkeypatch.setattr(onednn.platform, "machine", lambda: "aarch64")
    refused("x86-64 Linux only", onednn.locate, "on", error=onednn.Unavailable)
