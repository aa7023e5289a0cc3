"""A small FedJAX problem: clients of different sizes, a haiku model, and FedJAX's sampler."""

import fedjax
import haiku as hk
import jax
import jax.numpy as jnp
import numpy as np

CLASSES = 3
FEATURES = 6
LR = 0.1
BATCH = 4
EPOCHS = 2
ROUNDS = 5


def federated_data(clients=12, most=17):
    """Clients of 5 to `most` examples around one linear rule; the stored feature is doubled by a preprocessor."""
    generator = np.random.default_rng(0)
    rule = generator.standard_normal((FEATURES, CLASSES))
    data = {}
    for k in range(clients):
        x = generator.standard_normal((generator.integers(5, most + 1), FEATURES)) + 0.3 * generator.standard_normal(
            FEATURES
        )
        data[f"client{k:03d}".encode()] = {"x": (x / 2).astype(np.float32), "y": (x @ rule).argmax(-1).astype(np.int32)}
    return fedjax.InMemoryFederatedData(data).preprocess_batch(lambda batch: batch | {"x": batch["x"] * 2})


def model():
    def forward(batch):
        return hk.nets.MLP([8, CLASSES])(batch["x"])

    return fedjax.create_model_from_haiku(
        hk.transform(forward),
        sample_batch(),
        lambda batch, logits: fedjax.metrics.unreduced_cross_entropy_loss(batch["y"], logits),
        {"accuracy": fedjax.metrics.Accuracy()},
    )


def sample_batch():
    return {"x": jnp.zeros((1, FEATURES)), "y": jnp.zeros(1, jnp.int32)}


def sampler(data, clients=4):
    return fedjax.client_samplers.UniformGetClientSampler(data, clients, seed=0)


def initial(network):
    return network.init(jax.random.PRNGKey(3))
