"""
Accuracy under attack
=====================

A fifth of the clients send their step with the opposite sign, ten times as long. The mean fails; the coordinate-wise
median holds up.
"""

import dataclasses

import fedwin
from fedwin.experiments.figures import curves, sources

config = fedwin.Config(
    partition="iid",
    num_clients=50,
    clients_per_round=20,
    model="digits_mlp",
    batch_size=10,
    num_rounds=30,
    eval_every=2,
    attack="sign_flip:clients=0.2,scale=10",
    stop_on_divergence=False,
)
for aggregate in ("mean", "median"):
    fedwin.run(dataclasses.replace(config, aggregate=aggregate, out_dir=f"runs/attack_{aggregate}"), quiet=True)

runs = sources.series(["runs/attack_mean", "runs/attack_median"], labels=["mean", "median"])
figure = curves.draw(curves.compute(runs), None, "Digits, 20 % attackers")
