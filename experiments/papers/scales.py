"""Scales of every experiment: `paper` as printed, `trend` in minutes on a laptop, `smoke` in seconds."""

from collections.abc import Mapping
from typing import Any

from fedwin.registry.choices import parse

from .trajectories import Fields

SCALES = ("smoke", "trend", "paper")

# The main job of `fedwin train`: few clients a round and one class each, where momentum over one round fails.
MAIN_JOB = Fields.of(
    "dataset=digits partition=dirichlet:alpha=0 num_clients=100 clients_per_round=3 model=cnn "
    "num_rounds=400 local_epochs=3 batch_size=10 client_lr=0.05 final_evals=100"
)
# Every smoke run: a few rounds of a tiny network on the digits that come with scikit-learn.
SMOKE = Fields.of(
    "dataset=digits data_dir= model=digits_mlp:hidden=8 num_rounds=8 local_epochs=1 batch_size=16 batching=epoch "
    "augment=none eval_every=2 final_evals=2 eval_examples=0 client_lr=0.05"
)
SMOKE_CLIENTS, SMOKE_COHORT = 20, 4
# The digits have neither natural clients nor domains: this replaces the partitions that need them.
SMOKE_PARTITION = "dirichlet:alpha=0.3"
OWN_CLIENTS = ("natural", "pachinko", "domain", "csv")
# Largest window, and latest start or largest tau of a method, that fit into the rounds of a smoke run.
SMOKE_WINDOW, SMOKE_TAU = 4, 4


def shrunk(fields: Mapping[str, Any]) -> Fields:
    """Returns the fields of an experiment at smoke scale: the same method on a tiny task."""
    clients = min(fields.get("num_clients") or 100, SMOKE_CLIENTS)
    full = fields.get("clients_per_round", 10) == fields.get("num_clients")
    cohort = clients if full else min(fields.get("clients_per_round", 10), SMOKE_COHORT)
    partition = fields.get("partition", "iid") or "natural"
    if parse(partition).name in OWN_CLIENTS:
        partition = SMOKE_PARTITION
    small = SMOKE | {"num_clients": clients, "clients_per_round": cohort, "partition": partition}
    algorithm = parse(fields.get("algorithm", "fedavg"))
    late = {"start", "tau"} if algorithm.name == "ghb" else {"start"}
    if fitting := {name: min(value, SMOKE_TAU) for name, value in algorithm.params.items() if name in late and value}:
        small |= {"algorithm": str(algorithm.with_params(**fitting))}
    small |= {name: list(map(shrunk_swa, fields[name])) for name in ("wrap", "observe") if name in fields}
    return Fields(fields) | small


def shrunk_swa(text: str) -> str:
    """Returns an observer or a wrapper whose SWA, if it is one, collects within the few rounds of a smoke run."""
    return str(parse(text).with_params(cycle=1)) if parse(text).name == "swa" else text


def shrunk_wrap(fields: Mapping[str, Any]) -> Fields:
    """Returns the fields of a fork, with windows that fit into the few rounds of a smoke run."""
    fitting = lambda c: c.with_params(window=min(c.params["window"], SMOKE_TAU)) if "window" in c.params else c
    small = [shrunk_swa(str(fitting(parse(text)))) for text in fields.get("wrap", [])]
    return Fields(fields) | ({"wrap": small} if small else {})


def shrunk_read(read: str) -> str:
    """Returns a read-out at smoke scale, with a window that fits into its few rounds."""
    if not read or parse(read).name != "wima":
        return read and shrunk_swa(read)
    choice = parse(read)
    return str(choice.with_params(window=max(2, min(choice.params["window"] // 50, SMOKE_WINDOW))))
