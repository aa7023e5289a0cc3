"""Contestant: products of two matrices, whose speed is the peak that the rows' shares refer to."""

import cases
import jax
import jax.numpy as jnp
import serve


def prepare(request):
    """Returns the function that computes n products with the device and precision of the other contestants."""
    low = request["precision"] == "bfloat16"
    x = jax.random.normal(jax.random.key(0), (cases.SIDE, cases.SIDE), jnp.bfloat16 if low else jnp.float32)
    precision = "default" if request["precision"] == "tf32" else "highest"
    product = jax.jit(lambda y: jnp.matmul(x, y, precision=precision))

    def run(rounds):
        for _ in range(rounds):
            y = product(x)
        jax.block_until_ready(y)

    return run


if __name__ == "__main__":
    serve.serve(f"jax {jax.__version__}, {jax.default_backend()}", prepare)
