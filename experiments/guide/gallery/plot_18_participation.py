"""
Who takes part in which round
=============================

Samplers draw the cohort of each round: uniformly, from clients that come and go (a Markov chain), and from clients of
several time zones. Each dot is a client in a round.
"""

import matplotlib.pyplot as plt
import numpy as np

from fedwin import sampling

population = sampling.Population(40, 8, 72, (0,), lambda seed: np.ones(40, int))
figure, axes = plt.subplots(1, 3, figsize=(9, 3), sharey=True, layout="constrained")
for axis, choice in zip(axes, ("uniform", "markov:up=0.05,down=0.2", "diurnal:period=24,zones=4"), strict=True):
    sampler = sampling.make_sampler(choice, population)
    for number in range(population.num_rounds):
        ids = sampler.cohort(0, number).ids
        axis.plot(np.full(len(ids), number + 1), ids, ".", color="#0072B2", markersize=3)
    axis.set(title=choice, xlabel="round")
axes[0].set(ylabel="client")
