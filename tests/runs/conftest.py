"""A finished run of two seeds that several modules read, copy and alter."""

import shutil

import pytest

from tests.small_runs import finished_run, small

RUN = small(
    partition="shards:per_client=2",
    model="digits_mlp:hidden=8",
    algorithm="scaffold",
    wrap=["ima:window=2,start=8"],
    observe=["wima:window=3", "wima:window=2,part=classifier", "ema"],
    num_rounds=12,
    clients_per_round=4,
    batch_size=16,
    eval_every=4,
    final_evals=2,
    checkpoint_every=4,
    seeds=[0, 1],
)
finished = finished_run(RUN, scope="session")


@pytest.fixture
def copied(finished, tmp_path):
    """A copy of the run's directory."""
    return shutil.copytree(finished[0], tmp_path / "run")
