"""
Accuracy of each client
=======================

A mean over a pooled test set hides the clients with rare data. The picture shows the accuracy on every client's own
held-out examples, before and after fine-tuning the classifier, in ascending order.
"""

import fedwin
from fedwin.experiments.figures import clients

config = fedwin.Config(
    partition="dirichlet:alpha=0.3",
    num_clients=30,
    model="digits_mlp",
    batch_size=10,
    local_epochs=2,
    num_rounds=20,
    val_fraction=0.3,
    eval_clients="all",
    personalize=["finetune:part=classifier"],
    out_dir="runs/clients",
)
fedwin.run(config, quiet=True)

table = fedwin.client_table("runs/clients")
figure = clients.draw(clients.compute({"FedAvg": table}), None, "Digits, Dirichlet 0.3: 30 clients")
