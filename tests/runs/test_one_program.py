"""All seeds share one compiled program; methods whose program depends on the seed are rejected."""

import dataclasses

import jax
import numpy as np
import pytest

from fedwin import core, tree
from fedwin.algorithms import ALGORITHMS
from fedwin.data import PARTITIONS, Partition
from fedwin.errors import UserError
from fedwin.runs.config import Config
from fedwin.runs.prepare import prepare
from fedwin.runs.run import run

SMALL = Config(
    dataset="digits",
    num_clients=20,
    model="digits_mlp:hidden=8",
    num_rounds=2,
    clients_per_round=4,
    strategy="chunked:k=1",
    seeds=[0, 1],
)


def noisy(setting, solve, *, scale=0.1):
    """A method that draws its noise when it is built: all seeds would get the first one's."""

    def client(params, c):
        y = solve(params, c)
        return y.update({"delta": core.mean_step(tree.sub(y.params, params), c.size)})

    noise = jax.random.normal(setting.key, ()) * scale

    def server(params, state, total, round):
        return tree.axpy(1.0 + noise, total["delta"].value, params), state

    return core.algorithm(client, server)


def test_a_method_that_draws_from_the_setting_is_refused_in_one_line(tmp_path):
    ALGORITHMS.register("noisy", noisy)
    try:
        with pytest.raises(UserError, match=r"setting\.key.*init\(params, key\)") as caught:
            run(dataclasses.replace(SMALL, algorithm="noisy", out_dir=str(tmp_path / "run")), quiet=True)
    finally:
        ALGORITHMS.pop("noisy")
    assert "\n" not in str(caught.value) and not (tmp_path / "run").exists()


def test_seeds_whose_partitions_differ_in_clients_are_refused_in_one_line():
    @PARTITIONS.register("by_seed")
    def by_seed(dataset, num_clients, seed):
        return Partition.from_lists(np.arange(60).reshape(6 + 4 * seed, -1))

    try:
        with pytest.raises(UserError, match="6 with seed 0, 10 with seed 1.*--partition_seed"):
            prepare(dataclasses.replace(SMALL, partition="by_seed"))
        assert prepare(dataclasses.replace(SMALL, partition="by_seed", partition_seed=1)).setting.num_clients == 10
    finally:
        PARTITIONS.pop("by_seed")


@pytest.mark.slow
@pytest.mark.parametrize("algorithm", ["fedhbm:first=random", "fedfa"])
def test_what_a_method_draws_differs_by_seed_and_the_program_does_not(tmp_path, algorithm):
    config = dataclasses.replace(SMALL, algorithm=algorithm)
    together = run(dataclasses.replace(config, out_dir=str(tmp_path / "together")), quiet=True)
    assert together["traces"] == 1
    alone = run(dataclasses.replace(config, seeds=[1], out_dir=str(tmp_path / "alone")), quiet=True)
    assert together["seeds"][1]["final"] == alone["seeds"][1]["final"]
    prepared = prepare(config)
    drawn = [prepared.start(seed, 20) for seed in (0, 1)]
    leaf = (lambda run: run.table.anchor["dense1"]["kernel"]) if "fedhbm" in algorithm else (lambda run: run.state)
    assert not np.array_equal(leaf(drawn[0]), leaf(drawn[1]))
