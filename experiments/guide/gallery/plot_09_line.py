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

addresses = [models.address("runs/line"), models.address("runs/line:wima20")]
trained = models.loaded(addresses)
ends = models.variables(models.labelled(addresses, trained))
figure = line.draw(line.compute(trained[0], ends), None, "From the last model to the mean of 20")
