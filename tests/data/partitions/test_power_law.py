"""Partitioner `power_law`: few classes per client and log-normal sizes."""

import numpy as np

from fedwin import data
from tests.data.files import balanced


def test_counts_follow_the_definition():
    # The definition, client by client, from the same draws.
    clients, classes, least, sigma = 23, 3, 2, 1.5
    dataset = balanced(7, 1400)
    z = data.rng.generator(4, "power_law").lognormal(0.0, sigma, (clients, classes))
    weight = {(k, (k + j) % 7): z[k, j] for k in range(clients) for j in range(classes)}
    expected = np.zeros((clients, 7), int)
    for k, c in weight:
        total = sum(value for (_, other), value in weight.items() if other == c)
        holders = sum(other == c for _, other in weight)
        expected[k, c] = least + int(weight[k, c] / total * (200 - least * holders))
    part = data.make_partition(dataset, f"power_law:classes={classes},least={least},sigma={sigma}", clients, 4)
    np.testing.assert_array_equal(part.report["histogram"], expected)
    assert part.report["left_out"] == 1400 - expected.sum() < clients * classes


def test_the_usual_federation_has_the_published_spread():
    # FedML's MNIST has 69,035 examples on 1,000 clients of two neighboring digits.
    part = data.make_partition(balanced(10, 70_000), "power_law", 1000, 0)
    np.testing.assert_array_equal((part.report["histogram"] > 0).sum(1), 2)
    assert 10 == part.sizes.min() and part.sizes.max() > 500
    assert 68.9 < part.sizes.mean() < 69.2 and np.median(part.sizes) < 0.6 * part.sizes.mean()


def test_equal_shares_without_spread():
    part = data.make_partition(balanced(5, 500), "power_law:sigma=0,least=1", 10, 0)
    np.testing.assert_array_equal(part.sizes, 50)
