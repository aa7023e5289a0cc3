"""MobileNetV2: blocks and convolution weights."""

import functools

import jax
import jax.numpy as jnp
import numpy as np
import pytest

from fedwin.models import build
from fedwin.models.networks import mobilenet
from fedwin.testing import compile_options
from tests.models.networks.common import abstract, batch_of
from tests.refusals import refused


def test_mobilenet_block_is_depthwise_and_keeps_examples_apart():
    block = mobilenet.InvertedResidual(2, 8, 1, 4)
    x = batch_of((5, 5, 8), 2)["x"]
    variables = jax.jit(block.init, compiler_options=compile_options())(jax.random.key(0), x)
    assert variables["params"]["depthwise"]["kernel"].shape == (3, 3, 1, 16)
    apply = jax.jit(block.apply, compiler_options=compile_options())
    y = apply(variables, x)
    zeros = jax.tree.map(jnp.zeros_like, variables["params"]["project_norm"])
    zeroed = {"params": variables["params"] | {"project_norm": zeros}}
    np.testing.assert_array_equal(apply(zeroed, x), x)
    np.testing.assert_allclose(apply(variables, x.at[1].set(0))[0], y[0], rtol=1e-5, atol=1e-6)


@pytest.mark.slow
def test_mobilenet_reads_convolution_weights(tmp_path):
    scratch = build("mobilenetv2", (32, 32, 3), 5)
    assert scratch.name.endswith("from_scratch")
    shapes = abstract(scratch).params
    wanted = mobilenet.kernel_shapes(scratch, (32, 32, 3))
    names = ["/".join(name[:-1]) for name in wanted]
    assert len(names) == 52 and names[:4] == ["stem", "block1/depthwise", "block1/project", "block2/expand"]
    assert names[-1] == "last"
    leaf = lambda params, name: functools.reduce(lambda tree, key: tree[key], name, params)
    generator = np.random.default_rng(0)
    kernels = {name: generator.standard_normal(like.shape).astype(np.float32) for name, like in wanted.items()}
    ours, torch_like = tmp_path / "ours.npz", tmp_path / "torch.npz"
    np.savez(ours, **{"/".join(name): kernel for name, kernel in kernels.items()})
    as_torch = {f"features.{i}": kernel.transpose(3, 2, 0, 1) for i, kernel in enumerate(kernels.values())}
    np.savez(torch_like, **as_torch, bias=np.zeros(3))
    zeros = jax.tree.map(lambda s: np.zeros(s.shape, np.float32), shapes)
    for file in (ours, torch_like):
        assert build(f"mobilenetv2:weights={file}", (32, 32, 3), 5).name == "mobilenetv2"
        params = mobilenet.with_kernels(zeros, mobilenet.read_weights(str(file), wanted))
        assert all((leaf(params, name) == kernel).all() for name, kernel in kernels.items())
        assert not params["classifier"]["kernel"].any()
    np.savez(ours, **{"/".join(name): kernel for name, kernel in list(kernels.items())[:-1]})
    refused("last/kernel' is missing", build, f"mobilenetv2:weights={ours}", (32, 32, 3), 5)
    ours.write_bytes(b"junk")
    refused("not a readable .npz", build, f"mobilenetv2:weights={ours}", (32, 32, 3), 5)
