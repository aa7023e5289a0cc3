"""
Accuracy against simulated time
===============================

A simulated clock computes the seconds of a round from bytes and local steps; the slowest client determines them. With
four times the local epochs, a round takes longer, but fewer rounds are needed.
"""

import dataclasses

import fedwin
from fedwin.experiments.figures import curves, sources

config = fedwin.Config(
    partition="dirichlet:alpha=0.3",
    model="digits_mlp",
    batch_size=10,
    client_lr=0.05,
    eval_every=2,
    clock="bandwidth:up=1e5,down=1e6,compute=0.02,spread=0.5",
)
rounds_of = {1: 80, 4: 30}
for epochs, rounds in rounds_of.items():
    changed = dataclasses.replace(config, local_epochs=epochs, num_rounds=rounds, out_dir=f"runs/epochs_{epochs}")
    fedwin.run(changed, quiet=True)

names = [f"{epochs} local epoch{'s' * (epochs > 1)}" for epochs in rounds_of]
runs = sources.series([f"runs/epochs_{epochs}" for epochs in rounds_of], labels=names)
figure = curves.draw(curves.compute(runs, x="simulated_seconds"), None, "Digits, clients of different speed")
