"""fedwin on an accelerator, or on one CPU device in a trial: one precision and one task, which peak memory belongs to.

Arguments: platform, precision as in `fedwin train --precision`, what `--import` named.
"""

import hashlib
import pathlib
import sys
import time

import jax
import jax.numpy as jnp
import numpy as np

import fedwin
from fedwin import core, engine, local, losses, models, plugins, tree
from fedwin.algorithms import ALGORITHMS
from fedwin.engine import sampling
from fedwin.runs.build import set_precision
from fedwin.runs.strategy_choice import resolve

from . import cases, fedwin_peer, products, worker

# Rounds of a dispatch, as of `fedwin train`.
ROUNDS = 50


def _problem(request):
    """Returns (case, solver, algorithm, start): start(seed) is the state before the first round."""
    case = cases.from_fields(request["case"])
    model = models.build(case.model, case.shape, case.classes)
    solver = local.Solver(
        losses.cross_entropy(model), case.lr, case.batch, case.epochs, batching="repeat", equal_size=case.examples
    )
    setting = core.Setting(case.total, case.clients, 1000, init_fn=lambda key: model.init(key).params, model=model)
    algorithm = ALGORITHMS.build("fedavg", setting, solver)

    def start(seed):
        init, run = jax.random.split(jax.random.key(seed))
        return engine.init(algorithm, {}, model.init(init), case.total, run, init)

    return case, solver, algorithm, start


def prepare_seeds(request):
    """Several seeds of a case in one program, a round is one of each: fields case, strategy, seeds."""
    case, _, algorithm, start = _problem(request)
    strategy, seeds = resolve(request["strategy"]), range(request["seeds"])
    dispatch = engine.Lockstep(algorithm, {}, strategy, apart=False)
    held = [jax.jit(jax.vmap(start))(jnp.arange(len(seeds)))]
    store = strategy.place(fedwin_peer.store_of(*cases.examples(case), case.classes))
    width, flags = strategy.multiple(case.clients), np.zeros(ROUNDS, bool)
    facts = {"strategy": str(strategy), "rounds": 0, "dispatches": 0, "traces": 0, "compiled_later": 0}
    facts["parameters"] = sum(p.size for p in jax.tree.leaves(held[0].params)) // len(seeds)

    def cohorts(count):
        ids = np.full((ROUNDS, len(seeds), width), -1, np.int32)
        for seed in seeds:
            drawn = sampling.cohorts(seed, facts["rounds"], count, case.total, case.clients)
            ids[:count, seed, : case.clients] = drawn
        slots = np.where(ids >= 0, ids, case.total).astype(np.int32)
        return engine.Cohorts(ids, np.maximum(ids, 0), slots)

    def rounds(n):
        begun = time.perf_counter()
        for first in range(0, n, ROUNDS):
            count = min(ROUNDS, n - first)
            before = len(fedwin_peer.compilations)
            held[0], _, _ = dispatch(held[0], store, cohorts(count), (), count, flags, n_max=case.examples)
            facts["compiled_later"] += len(fedwin_peer.compilations) - before if facts["dispatches"] else 0
            facts["rounds"] += count
            facts["dispatches"] += 1
        jax.block_until_ready(held[0])
        seconds = time.perf_counter() - begun
        facts["traces"] = len(dispatch.traces)
        return seconds

    return rounds, facts


def round_flops(request) -> int:
    """Returns the operations of the matrix products of a case's round, gradients included; nothing is computed."""
    case, solver, _, start = _problem(request)
    params = jax.eval_shape(start, 0).params
    kind = jnp.int32 if case.vocabulary else jnp.float32
    shape = lambda shape, dtype: jax.ShapeDtypeStruct(shape, dtype)
    batch = {"x": shape((case.batch, *case.shape), kind), "y": shape((case.batch,), jnp.int32)}

    def step(params, batch):
        loss = lambda p: solver.loss(p, (), batch, jax.random.key(0), {})[0]
        return tree.axpy(-case.lr, jax.grad(loss)(params), params)

    one = jax.tree.map(lambda leaf: shape((1, *leaf.shape), leaf.dtype), params)
    return case.clients * case.steps * products.flops(jax.vmap(step, (0, None)), one, batch)


def prepare_product(request):
    """A matrix product: a round is one of [size, size] matrices; fields size, case, whose operations are counted."""
    size = request["size"]
    dtype = jnp.bfloat16 if sys.argv[2] == "bfloat16" else jnp.float32
    product = jax.jit(jnp.matmul)
    a = jax.random.normal(jax.random.key(0), (size, size), dtype)

    def rounds(n):
        begun = time.perf_counter()
        before = found = product(a, a)
        for _ in range(n - 1):  # one is always waiting, so that the device never does, and no more than that
            before, found = found, product(a, a)
            before.block_until_ready()
        found.block_until_ready()
        return time.perf_counter() - begun

    return rounds, {"flops": 2.0 * size**3, "round_flops": round_flops(request)}


def memory(name: str) -> int | None:
    """Returns what jax tells of the first device's memory, in bytes; None where it tells nothing."""
    return (jax.local_devices()[0].memory_stats() or {}).get(name)


def watched(prepared):
    """Returns a prepared task whose facts hold the device's peak memory so far."""
    run, facts = prepared

    def rounds(n):
        seconds = run(n)
        facts["device_peak_bytes"] = memory("peak_bytes_in_use")
        return seconds

    return rounds, facts


def sources() -> str:
    """Returns a hash of fedwin's sources: what was measured is told apart from what the code has become."""
    folder, found = pathlib.Path(fedwin.__file__).parent, hashlib.blake2b(digest_size=4)
    for path in sorted(folder.rglob("*.py")):
        if "experiments" not in path.relative_to(folder).parts:  # installed, they are below
            found.update(path.read_bytes())
    return found.hexdigest()


KINDS = {"rounds": fedwin_peer.prepare_rounds, "seeds": prepare_seeds, "product": prepare_product}


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
