"""Contestant: FedJAX's own algorithms on its jit backend."""

import importlib.metadata
import time

import cases
import jax
import serve

# FedJAX still uses what jax has removed; only this process gets it back.
if not hasattr(jax, "tree_map"):
    vars(jax)["tree_map"] = jax.tree.map
if not hasattr(jax.numpy, "NINF"):
    clip = jax.numpy.clip
    vars(jax.numpy)["NINF"] = -jax.numpy.inf
    renamed = {"a_min": "min", "a_max": "max"}
    vars(jax.numpy)["clip"] = lambda x, *bounds, **rest: clip(
        x, *bounds, **{renamed.get(name, name): value for name, value in rest.items()}
    )

import fedjax
import fedjax_nets
from fedjax.algorithms import apfl
from fedjax.core import for_each_client


def built(case: cases.Case, model: fedjax.Model) -> fedjax.FederatedAlgorithm:
    """Returns FedAvg, FedAvg with Adam on the server (fedopt:...), or APFL."""
    gradient, sgd = fedjax.model_grad(model), fedjax.optimizers.sgd
    batches = fedjax.ShuffleRepeatBatchHParams(batch_size=case.batch, num_epochs=case.epochs)
    if case.algorithm == "apfl":
        return apfl.adaptive_personalized_federated_learning(gradient, sgd(case.lr), sgd(1.0), batches, 0.5)
    server = fedjax.optimizers.adam(0.01) if case.algorithm.startswith("fedopt") else sgd(1.0)
    return fedjax.algorithms.fed_avg.federated_averaging(gradient, sgd(case.lr), server, batches)


def prepare(request):
    """Returns the function that trains n rounds; drawing the cohorts is not counted."""
    case = cases.case_of(request["case"])
    jax.config.update("jax_default_matmul_precision", "default" if request["precision"] == "tf32" else "highest")
    x, y = cases.examples(case)
    clients = fedjax.InMemoryFederatedData({f"{k:06d}".encode(): {"x": x[k], "y": y[k]} for k in range(case.total)})
    model = fedjax_nets.build(case.model, case.shape, case.classes)
    algorithm = built(case, model)
    sampler = fedjax.client_samplers.UniformGetClientSampler(clients, case.clients, seed=0)
    state = algorithm.init(model.init(jax.random.PRNGKey(0)))

    def run(rounds):
        nonlocal state
        seconds = 0.0
        for _ in range(rounds):
            cohort = sampler.sample()
            started = time.perf_counter()
            state, _ = algorithm.apply(state, cohort)
            jax.block_until_ready(state.params)
            seconds += time.perf_counter() - started
        return seconds

    return run


if __name__ == "__main__":
    for_each_client.set_for_each_client_backend("jit")
    serve.serve(f"fedjax {importlib.metadata.version('fedjax')}, jax {jax.__version__}", prepare)
