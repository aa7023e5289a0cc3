"""Partitioner `domain`: clients of one domain."""

import numpy as np
import pytest

from fedwin import data
from tests.data.files import labeled


def domains(num_domains, per_domain):
    n = num_domains * per_domain
    dataset = labeled(np.arange(n) % 10, 10, domain=np.repeat(np.arange(num_domains, dtype=np.int32), per_domain))
    return dataset


@pytest.mark.parametrize("inner", ["shards", "yurochkin:alpha=0.5;min_size=2", "quantity:classes=2", "iid"])
def test_domain_clients_hold_one_domain_and_domains_are_complete(inner):
    dataset = domains(5, 800)
    part = data.make_partition(dataset, f"domain:inner={inner}", 100, 0)
    of_example = dataset.train["domain"]
    assert np.bincount(part.domain).tolist() == [20] * 5
    for k in range(100):
        assert (of_example[part.client(k)] == part.domain[k]).all()
    assert part.report["left_out"] == 0
    assert not (np.sort(part.domain) == part.domain).all()  # the order of the clients does not reveal the domain
