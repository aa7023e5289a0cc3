"""This host: memory, disk space, and the environment that affects results."""

import contextlib
import hashlib
import json
import os
import pathlib
import platform
import shutil
from typing import NamedTuple

import flax
import jax
import jaxlib
import numpy as np
import optax
import psutil

from fedwin import __version__, jax_config
from fedwin.models.convolution import onednn

# Options of jax that change compiled programs, and that a user may set; those of random numbers are set by `prepare`.
JAX_OPTIONS = (
    "jax_disable_jit",
    "jax_disable_most_optimizations",
    "jax_enable_pgle",
    "jax_exec_time_optimization_effort",
    "jax_memory_fitting_effort",
    "jax_numpy_dtype_promotion",
    "jax_optimization_level",
    "jax_softmax_custom_jvp",
    "jax_use_shardy_partitioner",
)
# Environment variables that choose instructions or numbers of threads.
VARIABLES = (
    "DNNL_DEFAULT_FPMATH_MODE",
    "DNNL_MAX_CPU_ISA",
    "LIBTPU_INIT_ARGS",
    "NPROC",
    "NVIDIA_TF32_OVERRIDE",
    "ONEDNN_DEFAULT_FPMATH_MODE",
    "ONEDNN_MAX_CPU_ISA",
)
# Prefixes of XLA's flags that change no numbers: how long devices wait, how many there are, what is logged.
HARMLESS_XLA_FLAGS = (
    "xla_cpu_collective_call_terminate_timeout",
    "xla_cpu_collective_call_warn_stuck_timeout",
    "xla_dump",
    "xla_force_host_platform_device_count",
    "xla_gpu_cuda_data_dir",
    "xla_hlo_profile",
)
# Free bytes to assume on a disk without a limit.
UNLIMITED_BYTES = 1 << 62
_CGROUP = pathlib.Path("/sys/fs/cgroup")


class Memory(NamedTuple):
    """Available bytes.

    Attributes:
      host: main memory.
      device: memory of one accelerator; None if the devices are CPUs, which use main memory.
    """

    host: int
    device: int | None = None


def available() -> Memory:
    """Returns the memory that is available now: main memory, and that of the first device if it is an accelerator."""
    limits = (psutil.virtual_memory().available, _cgroup_memory())
    stats = None if jax.default_backend() == "cpu" else jax.local_devices()[0].memory_stats()
    device = stats["bytes_limit"] - stats["bytes_in_use"] if stats else None
    return Memory(min(limit for limit in limits if limit is not None), device)


def total_memory() -> int:
    """Returns the total main memory of this process in bytes, which does not change during a run."""
    limits = (psutil.virtual_memory().total, _integer(_CGROUP / "memory.max"))
    return min(limit for limit in limits if limit is not None)


def free_disk(directory: str | os.PathLike) -> int:
    """Returns the free bytes of the disk of a directory, which need not exist; UNLIMITED_BYTES if it has no limit."""
    path = pathlib.Path(directory).absolute()
    usage = shutil.disk_usage(next(folder for folder in (path, *path.parents) if os.path.exists(folder)))
    # A tmpfs without a limit reports no blocks at all.
    return usage.free if usage.total else UNLIMITED_BYTES


def _integer(path: pathlib.Path) -> int | None:
    try:
        return int(path.read_text())
    except (OSError, ValueError):  # "max": no limit
        return None


def _cgroup_memory(folder: pathlib.Path = _CGROUP) -> int | None:
    """Returns the bytes that a container (cgroup) may still allocate; its cached file pages count as available."""
    limit, used = _integer(folder / "memory.max"), _integer(folder / "memory.current")
    if limit is None or used is None:
        return None
    try:
        stat = dict(line.split() for line in (folder / "memory.stat").read_text().splitlines())
    except OSError:
        return None
    return max(limit - used + int(stat.get("inactive_file", 0)), 0)


def environment(platform_name: str, convolves: bool = False) -> dict[str, str]:
    """Returns the environment that affects results, name -> value: library versions, processor, variables or ''.

    On a CPU the number of cores counts: sums are split among them, and the parts are rounded.

    Args:
      platform_name: the device's platform, such as cpu or gpu.
      convolves: whether the network has convolutions or LSTMs, whose library may have to be compiled for the answer.
    """
    libraries = {name: version for name, version in versions().items() if name not in ("python", "jax")}
    settings = jax.config.values
    options = {name: str(getattr(jax.config, name, settings[name])) for name in JAX_OPTIONS if name in settings}
    variables = {name: os.environ.get(name, "") for name in VARIABLES}
    flags = os.environ.get("XLA_FLAGS", "").split()
    decisive = sorted(flag for flag in flags if not flag.lstrip("-").startswith(HARMLESS_XLA_FLAGS))
    recorded = libraries | options | variables | {"XLA_FLAGS": " ".join(decisive)}
    if platform_name == "cpu":
        recorded |= {"processor": _processor(), "cores": str(jax_config.num_cores()), "oneDNN": _onednn(convolves)}
    return recorded


def _processor() -> str:
    """Returns the processor's name and a hash of its instruction sets."""
    names = [f"{platform.machine()} {platform.processor()}".strip()]
    with contextlib.suppress(OSError):
        for line in pathlib.Path("/proc/cpuinfo").read_text().split("\n\n")[0].splitlines():
            name, _, value = line.partition(":")
            if name.strip() in ("vendor_id", "cpu family", "model"):
                names.append(value.strip())
    features = json.dumps(sorted(onednn.cpu_features()), sort_keys=True).encode()
    return f"{' '.join(names)} ({hashlib.blake2b(features, digest_size=4).hexdigest()})"


def _onednn(convolves: bool) -> str:
    """Returns which library computes larger convolutions and LSTMs, or would, and with how many threads."""
    try:
        _, library, _ = onednn.locate(os.environ.get(onednn.SWITCH) or "on")
    except onednn.Unavailable:
        return "not used"
    if convolves and onednn.status() is not None:
        return "not used"
    return f"{library.resolve().name} ({library.stat().st_size} bytes) with {onednn.threads()} threads"


def versions() -> dict[str, str]:
    """Returns name -> version of fedwin, Python and the libraries that compute."""
    return {
        "fedwin": __version__,
        "python": platform.python_version(),
        "jax": jax.__version__,
        "jaxlib": jaxlib.__version__,
        "flax": flax.__version__,
        "optax": optax.__version__,
        "numpy": np.__version__,
    }
