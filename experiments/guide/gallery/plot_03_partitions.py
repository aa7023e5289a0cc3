"""
Label histograms of clients
===========================

Dirichlet partitions from nearly uniform to one class per client: each bar is a client, each color a class.
"""

import fedwin
from fedwin.experiments.figures import labels

dataset = fedwin.data.load("digits")
partitions = ["dirichlet:alpha=10", "dirichlet:alpha=0.3", "dirichlet:alpha=0"]
histograms = labels.of_partitions(dataset, partitions, num_clients=20)
figure = labels.draw(labels.compute(histograms, dataset.class_names), None, "Ten of 20 clients of digits")
