"""Compares methods on N CPU devices with a plain loop, in a separate process (N is set once per process).

JAX_NUM_CPU_DEVICES=8 python -m tests.testing.sharded_worker 8 [CHOICE ...]

Without a choice all of the registry is run; MESH/CHOICE uses MESH of the devices.
"""

import sys

import jax

from fedwin import testing
from fedwin.algorithms import ALGORITHMS
from fedwin.engine import placement
from fedwin.engine.strategy import Strategy, make_mesh

WHOLE = placement.LARGE_TABLE_BYTES, placement.LONG_VECTOR


def main(devices, choices):
    assert jax.device_count() == devices
    schedule = (tuple(range(6)), tuple(range(7, 1, -1)))
    p = testing.classification((4, 2, 3, 5, 1, 2, 3, 2), schedule=schedule, shuffle=False)
    for text in choices or [entry.instances[0] for entry in ALGORITHMS.entries.values()]:
        fewer, slash, choice = text.rpartition("/")
        mesh = make_mesh(int(fewer) if slash else devices)
        bench = testing.Bench(choice, p, rounds=4)
        # 8 devices: two of them only see padding, tables and rings are split.
        # 4 devices: a chunk of one client at a time, tables and rings whole.
        placement.LARGE_TABLE_BYTES, placement.LONG_VECTOR = WHOLE if mesh.size == 4 else (0, 0)
        testing.check_strategy(bench, Strategy(1 if mesh.size == 4 else None, mesh))
        print(choice, "ok", flush=True)


if __name__ == "__main__":
    main(int(sys.argv[1]), sys.argv[2:])
