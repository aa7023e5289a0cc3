"""Counts of collectives in compiled programs, and the model of a round on many devices."""

import pytest

from experiments.tools.peers import collectives
from experiments.tools.peers.collectives import Collective
from fedwin.engine import placement
from fedwin.runs.config import Config

PROGRAM = """
  %all-reduce.13 = (f32[10]{0}, f32[], f32[192,10]{1,0}) all-reduce(%a, %b, %c), channel_id=1
  %all_gather.57 = f32[32,7]{1,0} all-gather(%d), channel_id=2, dimensions={0}
  %start = (bf16[4]{0}) all-reduce-start(%e), channel_id=3
  %done = bf16[4]{0} all-reduce-done(%start)
  %sum = f32[10]{0} add(%x, %y)
"""


def test_collectives_are_found_with_the_bytes_of_their_results():
    assert collectives.found_in(PROGRAM) == [
        Collective("all-reduce", 4 * (10 + 1 + 1920)), Collective("all-gather", 4 * 32 * 7), Collective("all-reduce", 8)
    ]  # fmt: skip


@pytest.mark.parametrize("algorithm, gathers", [pytest.param("fedavg", 0, marks=pytest.mark.slow), ("scaffold", 1)])
def test_a_round_of_a_small_model_exchanges_its_sums_once_and_its_rows_once(algorithm, gathers):
    config = Config(
        dataset="digits", model="digits_mlp", algorithm=algorithm, num_clients=8, clients_per_round=4, num_rounds=2
    )
    found = collectives.of_round(config, 2)
    kinds = [one.kind for one in found]
    assert sorted(kinds) == ["all-gather"] * gathers + ["all-reduce"]
    model = 4 * 4810
    for one in found:  # the loss and a few weights travel along
        assert 0 <= one.nbytes - model * (4 if one.kind == "all-gather" else 1 + gathers) <= 200


def test_the_model_of_a_round():
    reduced, gathered = Collective("all-reduce", 800), Collective("all-gather", 800)
    assert reduced.wire(8) == 2 * gathered.wire(8) == 1400
    assert reduced.seconds(8, bandwidth=100.0, latency=0.5) == pytest.approx(14 * 0.5 + 14)
    # 10 clients on 4 devices: one of them trains three.
    assert collectives.round_seconds([gathered], 10, 4, 2.0, 100.0, 0.5) == pytest.approx(6 + 1.5 + 6)


@pytest.mark.parametrize("algorithm, gathers", [pytest.param("fedavg", 0, marks=pytest.mark.slow), ("ghb:tau=2", 1)])
def test_windows_that_are_split_are_not_exchanged_leaf_by_leaf(algorithm, gathers, monkeypatch):
    monkeypatch.setattr(placement, "LONG_VECTOR", 0)
    config = Config(
        dataset="digits", model="digits_mlp", algorithm=algorithm, num_clients=8, clients_per_round=4, num_rounds=8,
        observe=["wima:window=5"],
    )  # fmt: skip
    kinds = [one.kind for one in collectives.of_round(config, 2)]
    assert sorted(kinds) == ["all-gather"] * gathers + ["all-reduce"]
