"""
Jumps from round to round
=========================

The round-to-round standard deviation of the accuracy of the model, its means over 5 and 20 rounds, and its EMA.
"""

import fedwin
from fedwin.experiments.figures import smoothness, sources

config = fedwin.Config(
    partition="dirichlet:alpha=0",
    clients_per_round=5,
    model="digits_mlp",
    local_epochs=2,
    batch_size=7,
    client_lr=0.05,
    num_rounds=80,
    eval_every=1,
    observe=["wima:window=5", "wima:window=20", "ema:decay=0.9"],
    out_dir="runs/smoothness",
)
fedwin.run(config, quiet=True)

result = smoothness.compute(sources.series(["runs/smoothness"], labels=["FedAvg"]), last=40)
figure = smoothness.draw(result, None, "Digits, one class per client")
