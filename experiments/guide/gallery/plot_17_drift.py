"""
Client drift
============

Eight clients train from the same model. The picture shows the cosine of the angle between their steps: clients with
different classes pull in different directions.
"""

import matplotlib.pyplot as plt
import numpy as np

import fedwin

figure, axes = plt.subplots(1, 2, figsize=(7, 3.2), layout="constrained")
for axis, partition in zip(axes, ("iid", "dirichlet:alpha=0"), strict=True):
    config = fedwin.Config(
        partition=partition, num_clients=20, model="digits_mlp", batch_size=10, num_rounds=5,
        out_dir=f"runs/drift_{partition[:3]}",
    )  # fmt: skip
    fedwin.run(config, quiet=True)
    received = fedwin.analysis.vector(fedwin.load(config.out_dir).variables)
    clients = fedwin.client_models(config.out_dir, list(range(8)))
    steps = np.stack([fedwin.analysis.vector(client) - received for client in clients])
    steps /= np.linalg.norm(steps, axis=1, keepdims=True)
    shown = axis.imshow(steps @ steps.T, vmin=-1, vmax=1, cmap="RdBu_r")
    axis.set(title=partition, xlabel="client", ylabel="client")
figure.colorbar(shown, ax=axes, label="cosine of two steps")
