"""
Accuracy against heterogeneity
==============================

The smaller the parameter of the Dirichlet distribution, the fewer classes a client holds. The model suffers; its mean
over 10 rounds suffers less.
"""

import dataclasses

import fedwin
from fedwin.experiments.figures import sweeps

config = fedwin.Config(
    clients_per_round=5,
    model="digits_mlp",
    local_epochs=2,
    batch_size=10,
    client_lr=0.05,
    num_rounds=80,
    final_evals=20,
    observe=["wima:window=10"],
)
points: dict[str, dict] = {"FedAvg": {}, "FedAvg, mean of 10 models": {}}
for alpha in (0.01, 0.1, 1):
    changed = dataclasses.replace(config, partition=f"dirichlet:alpha={alpha}", out_dir=f"runs/alpha_{alpha}")
    over_seeds = fedwin.run(changed, quiet=True)["over_seeds"]
    for label, readout in zip(points, ("model", "wima10"), strict=True):
        points[label][alpha] = [over_seeds[readout]["accuracy"]["mean"]]

result = sweeps.compute(points, "alpha of the Dirichlet partition")
figure = sweeps.draw(result, None, "Digits: accuracy of the last 20 rounds")
