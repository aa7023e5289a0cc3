"""
Who trains when
===============

An asynchronous server steps whenever five of thirty clients have arrived; the others keep training from the model that
they started from. Fast clients send fresh updates (dark), slow ones send old updates (light), which count less.
"""

import fedwin
from fedwin.experiments.figures import staleness

config = fedwin.Config(
    partition="dirichlet:alpha=0.3",
    model="logistic",
    num_rounds=200,
    clock="bandwidth:compute=0.1,spread=0.7",
    asynchronous="buffer:size=5,concurrency=30",
    out_dir="runs/asynchronous",
)
fedwin.run(config, quiet=True)

sampler = fedwin.load("runs/asynchronous").prepared.setting.sampling
figure = staleness.draw(staleness.compute(sampler, 0, config.num_rounds), None, "Digits, thirty clients in training")
