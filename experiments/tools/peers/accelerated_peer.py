"""Contestant: fedwin on an accelerator, or on a CPU device for tests, in one precision; measures its peak memory.

Arguments: platform, precision as in `fedwin train --precision`, values of `--import`.
"""

import functools
import hashlib
import math
import pathlib
import sys
import time

import jax
import jax.numpy as jnp
import numpy as np

import fedwin
from fedwin import engine, plugins
from fedwin.models.convolution.lowering import jaxprs_in
from fedwin.runs.prepare import set_precision
from fedwin.runs.strategy_choice import resolve_strategy

from . import cases, fedwin_peer, worker

# Rounds of a dispatch, as of `fedwin train`.
ROUNDS = 50


def _start(asked: fedwin_peer.CaseObjects, seed):
    """Returns the state of a seed before the first round."""
    init, run = jax.random.split(jax.random.key(seed))
    return engine.init(asked.algorithm, {}, asked.model.init(init), asked.case.total, run, init)


def prepare_seeds(request):
    """Vmapped seeds of a case, a round is one of each: fields case, strategy, seeds."""
    asked = fedwin_peer.problem(request)
    case, strategy, seeds = asked.case, resolve_strategy(request["strategy"]), range(request["seeds"])
    run = jax.jit(jax.vmap(functools.partial(_start, asked)))(jnp.arange(len(seeds)))
    store = strategy.place(fedwin_peer.store_of(*cases.examples(case), case.classes))
    width = strategy.multiple(case.clients)

    def ids_of(first, count):
        return np.stack([fedwin_peer.drawn(case, width, ROUNDS, first, count, seed) for seed in seeds], axis=1)

    dispatch = engine.VmappedDispatch(asked.algorithm, {}, strategy, apart=False)
    rounds, facts = fedwin_peer.counted(dispatch, run, store, ids_of, case, ROUNDS)
    facts["parameters"] = sum(p.size for p in jax.tree.leaves(run.params)) // len(seeds)
    return rounds, facts


def round_flops(request) -> int:
    """Returns the operations of the matrix products of a case's round, gradients included; nothing is computed."""
    asked = fedwin_peer.problem(request)
    step, shapes = fedwin_peer.mapped_step(asked, jax.eval_shape(functools.partial(_start, asked), 0).params)
    return asked.case.clients * asked.case.steps * flops(step, *shapes)


def prepare_product(request):
    """A matrix product: a round is one of [size, size] matrices; fields size, case, whose operations are counted."""
    size = request["size"]
    dtype = jnp.bfloat16 if sys.argv[2] == "bfloat16" else jnp.float32
    product = jax.jit(jnp.matmul)
    a = jax.random.normal(jax.random.key(0), (size, size), dtype)

    def rounds(n):
        started = time.perf_counter()
        previous = latest = product(a, a)
        for _ in range(n - 1):  # one is always waiting, so that the device never does, and no more than that
            previous, latest = latest, product(a, a)
            previous.block_until_ready()
        latest.block_until_ready()
        return time.perf_counter() - started

    return rounds, {"flops": 2.0 * size**3, "round_flops": round_flops(request)}


def memory(name: str) -> int | None:
    """Returns an entry of the first device's memory statistics, in bytes; None if it has none."""
    return (jax.local_devices()[0].memory_stats() or {}).get(name)


def watched(prepared):
    """Returns a prepared task whose facts contain the device's peak memory."""
    run, facts = prepared

    def rounds(n):
        seconds = run(n)
        facts["device_peak_bytes"] = memory("peak_bytes_in_use")
        return seconds

    return rounds, facts


def sources() -> str:
    """Returns a hash of fedwin's sources, which distinguishes records of different versions of the code."""
    folder, digest = pathlib.Path(fedwin.__file__).parent, hashlib.blake2b(digest_size=4)
    for path in sorted(folder.rglob("*.py")):
        if "experiments" not in path.relative_to(folder).parts:  # installed, they are below
            digest.update(path.read_bytes())
    return digest.hexdigest()


KINDS = {"rounds": fedwin_peer.prepare_rounds, "seeds": prepare_seeds, "product": prepare_product}


def _inside(eqn):
    """Yields (number of executions, jaxpr) for the jaxprs of an equation; of branches, the largest."""
    jaxprs = [jaxpr for _, jaxpr in jaxprs_in(eqn)]
    if eqn.primitive.name == "cond" and jaxprs:
        jaxprs = [max(jaxprs, key=_of)]
    times = eqn.params["length"] if eqn.primitive.name == "scan" else 1
    yield from ((times, item) for item in jaxprs)


def _of(jaxpr) -> int:
    total = 0
    for eqn in jaxpr.eqns:
        if eqn.primitive.name == "dot_general":
            (contracted, _), _ = eqn.params["dimension_numbers"]
            shape = eqn.invars[0].aval.shape
            total += 2 * eqn.outvars[0].aval.size * math.prod(shape[axis] for axis in contracted)
        elif eqn.primitive.name == "conv_general_dilated":
            raise ValueError("a convolution is not counted; map it over one client, which makes products of it")
        else:
            total += sum(times * _of(inside) for times, inside in _inside(eqn))
    return total


def flops(function, *args) -> int:
    """Returns two operations for every multiplication in the matrix products of a function; nothing is computed.

    >>> import jax.numpy as jnp
    >>> flops(lambda a: jnp.tanh(a @ a), jnp.zeros((3, 3)))
    54
    """
    return _of(jax.make_jaxpr(function)(*args).jaxpr)


if __name__ == "__main__":
    platform, precision, imports = sys.argv[1], sys.argv[2], sys.argv[3:]
    if platform == "cpu":
        jax.config.update("jax_platforms", "cpu")
        jax.config.update("jax_num_cpu_devices", 1)
    set_precision(precision)
    jax.monitoring.register_event_duration_secs_listener(fedwin_peer.count_compilations)
    plugins.load(imports)
    device = jax.devices()[0]
    about = {
        "version": f"fedwin {fedwin.__version__} ({sources()}), jax {jax.__version__}",
        "backend": jax.default_backend(),
        "device": device.device_kind,
        "devices": jax.local_device_count(),
        "memory_bytes": memory("bytes_limit"),
        "runtime": device.client.platform_version.splitlines()[-1],
    }
    worker.serve(lambda request: watched(KINDS[request["kind"]](request)), about)
