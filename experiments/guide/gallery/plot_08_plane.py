"""
Loss in the plane of three models
=================================

The models of three rounds lie on the sides of a valley, their mean further down: why averages over rounds help.
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
    keep_checkpoints=3,
    out_dir="runs/plane",
)
fedwin.run(config, quiet=True)

addresses = [models.address(f"runs/plane@{number}") for number in (50, 55, 60)]
addresses.append(models.address("runs/plane:wima20"))
trained = models.loaded(addresses)
named = list(models.variables(models.labelled(addresses, trained)).items())
result = plane.compute(trained[0], dict(named[:3]), dict(named[3:]), points=15)
figure = plane.draw(result, None, "Digits, one class per client: three rounds of FedAvg")
