"""
Loss in the plane of three models
=================================

The models of three rounds lie on the sides of a valley; their mean is lower. This is why averages over rounds help.
"""

import fedwin
from fedwin.experiments.figures import models, plane

config = fedwin.Config(
    partition="dirichlet:alpha=0",
    clients_per_round=5,
    model="digits_mlp",
    local_epochs=2,
    batch_size=7,
    client_lr=0.05,
    num_rounds=60,
    observe=["wima:window=20"],
    checkpoint_every=5,
    out_dir="runs/plane",
)
fedwin.run(config, quiet=True)

trained, named = models.named([*(f"runs/plane@{number}" for number in (50, 55, 60)), "runs/plane:wima20"])
items = list(named.items())
result = plane.compute(trained, dict(items[:3]), dict(items[3:]), points=15)
figure = plane.draw(result, None, "Digits, one class per client: three rounds of FedAvg")
