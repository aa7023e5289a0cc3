"""
Accuracy against communication
==============================

Quantizing the steps to 4 bits, or sending only 5 % of their entries with error feedback, gives a similar accuracy with
fewer bytes.
"""

import dataclasses

import fedwin
from fedwin.experiments.figures import curves, sources

config = fedwin.Config(
    partition="dirichlet:alpha=0.3",
    model="digits_mlp",
    local_epochs=2,
    batch_size=10,
    client_lr=0.05,
    num_rounds=40,
    eval_every=2,
)
wrappers = {"FedAvg": [], "4 bits": ["quantize:bits=4"], "5 % of the entries": ["topk:share=0.05"]}
directories = [f"runs/bytes_{number}" for number in range(len(wrappers))]
for directory, wrap in zip(directories, wrappers.values(), strict=True):
    fedwin.run(dataclasses.replace(config, wrap=wrap, out_dir=directory), quiet=True)

runs = sources.series(directories, labels=list(wrappers))
figure = curves.draw(curves.compute(runs, x="bytes"), None, "Digits, Dirichlet 0.3")
