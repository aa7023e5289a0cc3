"""
Loss and accuracy on the line between two models
================================================

From the model of a round to the mean of the last 20 models, and past it.
"""

import fedwin
from fedwin.experiments.figures import line, models

config = fedwin.Config(
    partition="dirichlet:alpha=0",
    clients_per_round=5,
    model="digits_mlp",
    local_epochs=2,
    batch_size=7,
    client_lr=0.05,
    num_rounds=60,
    observe=["wima:window=20"],
    out_dir="runs/line",
)
fedwin.run(config, quiet=True)

trained, ends = models.named(["runs/line", "runs/line:wima20"])
figure = line.draw(line.compute(trained, ends), None, "From the last model to the mean of 20")
