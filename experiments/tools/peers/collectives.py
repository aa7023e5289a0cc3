"""Collectives of a round, counted in the compiled program, and a model of the round's time on many devices.

A round of C clients on D devices, one client after the other on each, is modeled as

    seconds(C, D) = client_seconds ceil(C / D) + sum over collectives (latency hops(D) + wire bytes / bandwidth)

with rings: an all-reduce of n bytes puts 2 n (D - 1) / D on every device's wire in 2 (D - 1) hops, an all-gather into n
bytes half of both.
"""

import functools
import math
import re
from typing import NamedTuple

import jax
import jax.numpy as jnp
import numpy as np

from fedwin import engine, tree
from fedwin.engine.placement import replicated
from fedwin.engine.strategy import Strategy, make_mesh
from fedwin.runs.config import Config
from fedwin.runs.prepare import prepare

# Operations of XLA that move data between devices; an asynchronous one is counted where it starts.
_OPERATION = re.compile(
    r"= (?P<shapes>\(.*?\)|\S+) (?P<kind>all-reduce|all-gather|reduce-scatter|all-to-all|collective-permute)(-start)?\("
)
_ARRAY = re.compile(r"(?P<type>[a-z]+\d+|pred)\[(?P<shape>[\d,]*)\]")
# Factor of n (D - 1) / D bytes on the wire of each device, and of D - 1 hops, in a ring.
RING = {"all-reduce": 2, "all-gather": 1, "reduce-scatter": 1, "all-to-all": 1, "collective-permute": 1}


class Collective(NamedTuple):
    """One collective operation.

    Attributes:
      kind: name of the operation in XLA.
      nbytes: of its result on one device.
    """

    kind: str
    nbytes: int

    def wire(self, devices: int) -> float:
        """Returns the bytes on the wire of each of `devices` devices."""
        return RING[self.kind] * self.nbytes * (devices - 1) / devices

    def seconds(self, devices: int, bandwidth: float, latency: float) -> float:
        """Returns its modeled seconds; bandwidth in bytes per second and device, latency in seconds per hop."""
        return RING[self.kind] * latency * (devices - 1) + self.wire(devices) / bandwidth


def _nbytes(kind: str, shape: str) -> int:
    bits = 8 if kind == "pred" else int(re.sub(r"\D", "", kind))
    return math.prod(int(size) for size in shape.split(",") if size) * bits // 8


def found_in(program: str) -> list[Collective]:
    """Returns the collectives of a compiled program's text."""
    return [
        Collective(match["kind"], sum(_nbytes(*array) for array in _ARRAY.findall(match["shapes"])))
        for match in _OPERATION.finditer(program)
    ]


def of_round(config: Config, devices: int) -> list[Collective]:
    """Returns the collectives of a round of a Config; the program is compiled, but not run.

    Args:
      config: of the run.
      devices: number of devices that share the cohort.
    """
    prepared = prepare(config)
    strategy = Strategy(1, make_mesh(devices))
    federation = prepared.federations[config.seeds[0]]
    run = jax.eval_shape(functools.partial(prepared.start, config.seeds[0], federation.num_clients))
    placed = lambda leaf, sharding: jax.ShapeDtypeStruct(leaf.shape, leaf.dtype, sharding=sharding)
    run = jax.tree.map(placed, run, strategy.placement(run))
    store = tree.map(lambda leaf: placed(leaf, replicated(strategy.mesh)), federation.shapes())
    ids = np.zeros((1, strategy.multiple(config.clients_per_round)), np.int32)
    dispatch = engine.Dispatch(prepared.algorithm, prepared.observers, strategy)
    rounds = functools.partial(dispatch.rounds, n_max=federation.buckets[-1])
    whole = replicated(strategy.mesh)
    program = jax.jit(rounds, donate_argnums=0, out_shardings=(strategy.placement(run), whole, whole))
    lowered = program.lower(run, store, engine.Cohorts(ids, ids, ids), (), jnp.int32(1), np.zeros(1, bool))
    return found_in(lowered.compile().as_text() or "")


def round_seconds(
    collectives: list[Collective], clients: int, devices: int, client_seconds: float, bandwidth: float, latency: float
) -> float:
    """Returns the modeled seconds of a round, see the formula above.

    Args:
      collectives: of the round.
      clients: of the cohort.
      devices: that share the cohort.
      client_seconds: of a client's local training.
      bandwidth: of a device, in bytes per second.
      latency: of a hop, in seconds.
    """
    exchanged = sum(collective.seconds(devices, bandwidth, latency) for collective in collectives)
    return client_seconds * -(-clients // devices) + exchanged
