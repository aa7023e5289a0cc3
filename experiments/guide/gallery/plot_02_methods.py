"""
Methods on the same cohorts, with a band over seeds
===================================================

A seed determines the partition, the initial model and the cohorts, so differences between methods are paired. The bands
show the standard deviation over three seeds.
"""

import dataclasses

import fedwin
from fedwin.experiments.figures import curves, sources

config = fedwin.Config(
    partition="dirichlet:alpha=0.1",
    clients_per_round=5,
    model="digits_mlp",
    local_epochs=2,
    batch_size=10,
    client_lr=0.05,
    num_rounds=60,
    eval_every=3,
    seeds=[0, 1, 2],
)
methods = {"FedAvg": "fedavg", "SCAFFOLD": "scaffold", "FedHBM": "fedhbm"}
for algorithm in methods.values():
    fedwin.run(dataclasses.replace(config, algorithm=algorithm, out_dir=f"runs/{algorithm}"), quiet=True)

runs = sources.series([f"runs/{algorithm}" for algorithm in methods.values()], labels=list(methods))
figure = curves.draw(curves.compute(runs), None, "Digits, Dirichlet 0.1, three seeds")
