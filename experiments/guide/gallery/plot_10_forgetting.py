"""
What clients forget in a round
==============================

Accuracy after local training minus accuracy before: each row is the model that one client trained, each column the
data of one client. The weighted softmax (WSM) leaves absent classes alone.
"""

import dataclasses

import fedwin
from fedwin.experiments.figures import forgetting

config = fedwin.Config(
    partition="dirichlet:alpha=0.3",
    num_clients=20,
    clients_per_round=6,
    model="digits_mlp",
    local_epochs=3,
    batch_size=10,
    num_rounds=6,
    val_fraction=0.2,
    checkpoint_every=3,
    out_dir="runs/forget_fedavg",
)
fedwin.run(config, quiet=True)
fedwin.run(dataclasses.replace(config, loss="wsm", out_dir="runs/forget_wsm"), quiet=True)

result = forgetting.compute({"FedAvg": "runs/forget_fedavg", "FedAvg + WSM": "runs/forget_wsm"}, round=3)
figure = forgetting.draw(result, None, "Forgetting in one local training, after three rounds")
