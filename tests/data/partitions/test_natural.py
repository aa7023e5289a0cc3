"""Partitioner `natural`: the data set's own clients."""

import numpy as np
import pytest

from experiments import partition as partition_binary
from fedwin import data
from fedwin.data.dataset import Partition
from fedwin.errors import UserError
from tests.data.files import labeled


def test_natural_clients_and_a_seeded_choice_of_them():
    lists = [np.arange(k * 3, k * 3 + 3) for k in range(10)]
    natural = Partition.from_lists(lists, ids=np.array([f"w{9 - k}" for k in range(10)]))
    dataset = labeled(np.arange(30) % 10, 10)
    dataset = data.Dataset("own", dataset.train, dataset.test, 10, natural=natural)
    assert data.make_partition(dataset, None, None, 0).ids.tolist() == natural.ids.tolist()
    chosen = data.make_partition(dataset, "natural", 4, 0)
    assert chosen.num_clients == 4 and chosen.report["chosen_from"] == 10
    for k in range(4):
        source = natural.ids.tolist().index(chosen.ids[k])
        np.testing.assert_array_equal(chosen.client(k), natural.client(source))
    assert set(data.make_partition(dataset, "natural", 4, 1).ids) != set(chosen.ids)
    assert "clients            4 of 10 clients\n" in partition_binary.describe(chosen)
    assert "clients            10\n" in partition_binary.describe(data.make_partition(dataset, None, None, 0))
    with pytest.raises(UserError, match="10 natural clients; set --num_clients"):
        data.make_partition(dataset, "natural", 11, 0)
