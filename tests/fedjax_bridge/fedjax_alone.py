"""Runs FedJAX's own algorithms in a separate process and writes their parameters after every round to an npz file.

Arguments: the file; the names of the algorithms.
"""

import sys

import jax

# A function that jax has removed and FedJAX still calls; nothing but this process gets it back.
jax.tree_map = jax.tree_util.tree_map

import fedjax  # noqa: E402
import numpy as np  # noqa: E402

from tests.fedjax_bridge import problem  # noqa: E402


def algorithms(network):
    batches = fedjax.ShuffleRepeatBatchHParams(problem.BATCH, num_epochs=problem.EPOCHS, skip_shuffle=True)
    whole = fedjax.PaddedBatchHParams(problem.BATCH)
    sgd, momentum = fedjax.optimizers.sgd(problem.LR), fedjax.optimizers.sgd(problem.LR, 0.9)
    gradient, losses = fedjax.model_grad(network), fedjax.model_per_example_loss(network)
    own = fedjax.algorithms
    return {
        "fedavg": own.fed_avg.federated_averaging(gradient, sgd, fedjax.optimizers.sgd(0.7), batches),
        "fedprox": own.fed_prox.fed_prox(losses, sgd, fedjax.optimizers.sgd(1.0), batches, 0.5),
        "mime": own.mime.mime(losses, momentum, batches, whole, 0.8),
        "mimelite": own.mime_lite.mime_lite(losses, momentum, batches, whole, 0.8),
    }


def agnostic():
    """Parameters after every round of agnostic FedAvg on problem.DOMAINS."""

    def loss(params, batch, key):
        return 0.5 * (params["w"] * batch["x"] + params["b"] - batch["y"]) ** 2

    algorithm = fedjax.algorithms.agnostic_fed_avg.agnostic_federated_averaging(
        loss,
        fedjax.optimizers.sgd(problem.LR),
        fedjax.optimizers.sgd(0.8),
        fedjax.ShuffleRepeatBatchHParams(2, num_epochs=problem.EPOCHS, skip_shuffle=True),
        fedjax.PaddedBatchHParams(4),
        init_domain_weights=[0.5, 0.5],
        domain_learning_rate=problem.DOMAIN_LR,
        domain_window_size=problem.WINDOW,
        init_domain_window=[1.0, 1.0],
    )
    clients = [
        fedjax.ClientDataset({"x": np.float32(x), "y": np.float32(y), "domain_id": np.full(len(x), domain, np.int32)})
        for x, y, domain in problem.DOMAINS
    ]
    state = algorithm.init(dict(zip("wb", map(np.float32, problem.START))))
    rounds = []
    for cohort in problem.COHORTS:
        state, _ = algorithm.apply(state, [(b"%d" % i, clients[i], jax.random.PRNGKey(i)) for i in cohort])
        rounds.append(np.array([state.params["w"], state.params["b"], *state.domain_weights]))
    return np.stack(rounds)


def main():
    path, *names = sys.argv[1:]
    data, network = problem.federated_data(), problem.model()
    found = {"agnostic": agnostic()} if "agnostic" in names else {}
    for name, algorithm in algorithms(network).items():
        if name not in names:
            continue
        state, sampler = algorithm.init(problem.initial(network)), problem.sampler(data)
        rounds = []
        for _ in range(problem.ROUNDS):
            state, _ = algorithm.apply(state, sampler.sample())
            rounds.append(problem.flat(state.params))
        found[name] = np.stack(rounds)
    np.savez(path, **found)


if __name__ == "__main__":
    main()
