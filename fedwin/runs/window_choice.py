"""Where the models of a run's windows and delays live, and for how many rounds of a dispatch the device has room."""

from typing import Any, NamedTuple

import jax

from fedwin import ring_buffer as rings
from fedwin.residence.rows import HOST_SHARE, HOST_TABLE_BYTES
from fedwin.residence.windows import windows_of
from fedwin.runs.build import Trial
from fedwin.runs.memory import free_disk, total_memory

# What windows beyond the device may have there: the vectors of a dispatch.
DISPATCH_BYTES = 192 << 20
BEYOND = {"host": "set --window=file, or shorten the windows", "file": "choose a smaller --model"}


class WindowPlan(NamedTuple):
    """Where windows live.

    Attributes:
      kind: 'device', 'host' or 'file'.
      rounds: the most of a dispatch; None on the device, where there is no bound.
      ring_bytes: of all rings, in full.
      lent_bytes: of what a dispatch has on the device where they live elsewhere.
    """

    kind: str
    rounds: int | None
    ring_bytes: int
    lent_bytes: int

    @property
    def host_bytes(self) -> int:
        """What they take in main memory, beside what the device has."""
        # What is read ahead, and what is written back from devices with memory of their own.
        passing = self.lent_bytes
        return {"device": 0, "host": self.ring_bytes + passing, "file": passing}[self.kind]

    @property
    def disk_bytes(self) -> int:
        """What they take on the disk, without the models that only older checkpoints need."""
        return self.ring_bytes if self.kind == "file" else 0


def _lent_bytes(found: list[rings.Lent], rounds: int) -> int:
    # What is pushed is there twice: while a dispatch fills one, the other is written back.
    return sum((2 * rounds + rings.room(rounds, ring.ages)) * ring.shape[1] * ring.dtype.itemsize for ring in found)


def window_plan(trial: Trial, rounds: int) -> WindowPlan:
    """Returns where windows live; computes nothing.

    Args:
      trial: what runs.
      rounds: the most rounds that a dispatch would hold.
    """
    run: Any = jax.eval_shape(lambda: trial.start(trial.config.seeds[0], 1, window_rounds=1))
    found = [node.ring for node in windows_of(run).values()]
    size = sum(ring.shape[0] * ring.shape[1] * ring.dtype.itemsize for ring in found)
    kind = trial.config.window
    if kind == "auto":
        memory = total_memory()
        beyond = "file" if memory is not None and size > HOST_SHARE * memory else "host"
        kind = "device" if size <= HOST_TABLE_BYTES else beyond
        if kind == "file" and size > free_disk(trial.config.out_dir or "."):
            kind = "device"  # which refuses it, and says what to shorten
    if not found or kind == "device":
        return WindowPlan("device", None, size, 0)
    most = next((n for n in range(rounds, 1, -1) if _lent_bytes(found, n) <= DISPATCH_BYTES), 1)
    return WindowPlan(kind, most, size, _lent_bytes(found, most))


def remedies(trial: Trial, plan: WindowPlan) -> dict[str, str]:
    """Returns part of an estimate -> what makes windows smaller."""
    config = trial.config
    around = f"--algorithm={config.algorithm}" + "".join(f" or --wrap={text}" for text in config.wrap)
    # Devices of a CPU have no other memory than the host's.
    place = "file" if jax.default_backend() == "cpu" else "host"
    elsewhere = f"set --window={place}, or " if plan.kind == "device" and plan.ring_bytes else ""
    found = {"algorithm": f"{elsewhere}shorten the windows of {around}"}
    found["observers"] = f"{elsewhere}shorten the windows of --observe={','.join(config.observe)}"
    return found | ({"windows": BEYOND[plan.kind]} if plan.kind in BEYOND else {})
