"""Convolutions lowered for GPU and TPU, on a machine that has neither."""

import re

import jax
import jax.numpy as jnp
import pytest
from jax import export

from fedwin.core import Variables
from fedwin.models import build

IMAGES, CLIENTS = 8, 3
# Two convolutions with their three products each; nobody asks for the gradient of the images.
TRAINED = 2 * 3 - 1


def programs(platform, clients=None, dtype="float32"):
    """Returns the lowered evaluation and gradient of a network, for several clients' own networks if asked."""
    model = build(f"digits_cnn:dtype={dtype}", (8, 8, 1), 10)
    variables = jax.eval_shape(model.init, jax.random.key(0))
    x = jax.ShapeDtypeStruct((IMAGES, 8, 8, 1), jnp.float32)
    logits = lambda params, x: model.apply(Variables(params, variables.stats), {"x": x}, jax.random.key(0), True).logits
    functions = logits, jax.grad(lambda params, x: logits(params, x).sum())
    arguments = variables.params, x
    if clients:
        functions = [jax.vmap(function) for function in functions]
        arguments = jax.tree.map(lambda a: jax.ShapeDtypeStruct((clients, *a.shape), a.dtype), arguments)
    return [export.export(jax.jit(f), platforms=[platform])(*arguments).mlir_module() for f in functions]


def convolutions(program):
    return len(re.findall(r"stablehlo\.convolution", program))


@pytest.mark.parametrize("dtype", ["float32", pytest.param("bfloat16", marks=pytest.mark.slow)])
@pytest.mark.parametrize("platform", ["cuda", "tpu"])
def test_one_network_has_the_vendors_convolutions_and_no_patches(platform, dtype):
    evaluated, trained = programs(platform, dtype=dtype)
    assert convolutions(evaluated) == 2 and convolutions(trained) == TRAINED
    assert "concatenate" not in evaluated + trained


@pytest.mark.parametrize("platform", ["cuda", "tpu"])
def test_networks_of_several_clients_have_batched_products_and_no_grouped_convolution(platform):
    for program in programs(platform, CLIENTS):
        assert not convolutions(program) and "batching_dims = [0] x [0]" in program


def test_a_small_convolution_on_a_cpu_is_a_product_of_patches():
    for program in programs("cpu"):
        assert "concatenate" in program and convolutions(program) <= 2
