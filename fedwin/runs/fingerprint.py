"""Identity and fingerprint of a run: hashes of everything that decides its results, the same in all processes."""

import contextlib
import dataclasses
import hashlib
import json
import os
import pathlib
import platform
from typing import Any

import flax
import jax
import jaxlib
import numpy as np
import optax

from fedwin import __version__, jax_config, multi_process
from fedwin.data import Dataset
from fedwin.data.example_source import feature_digest
from fedwin.data.federation import Federation
from fedwin.errors import UserError
from fedwin.files import read_bytes
from fedwin.models.convolution import onednn
from fedwin.registry import parse
from fedwin.runs.config import Config, default_of

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
# Beginnings of XLA's flags that change no numbers: how long devices wait, how many there are, what is logged.
HARMLESS_XLA_FLAGS = (
    "xla_cpu_collective_call_terminate_timeout",
    "xla_cpu_collective_call_warn_stuck_timeout",
    "xla_dump",
    "xla_force_host_platform_device_count",
    "xla_gpu_cuda_data_dir",
    "xla_hlo_profile",
)
# Flags that may differ between processes: paths on their hosts.
HOST_PATHS = ("data_dir", "out_dir", "imports")


def hash_of(value: object, size: int = 8) -> str:
    """Returns the hash of JSON data in hexadecimal; `size` is its number of bytes."""
    return hashlib.blake2b(json.dumps(value, sort_keys=True, default=str).encode(), digest_size=size).hexdigest()


def jsonable(value: Any) -> Any:
    """Returns a value as it comes back from a JSON file."""
    return json.loads(json.dumps(value))


def set_fields(decisive: dict[str, Any]) -> dict[str, Any]:
    """Returns the fields that hashes include: a new field at its default changes no hash."""
    omitted = {field.name: default_of(field) for field in dataclasses.fields(Config)} | {"final_evals": 100}
    return {name: value for name, value in decisive.items() if value != omitted.get(name)}


def data_hashes(federations: dict[int, Federation]) -> dict[str, str]:
    """Returns seed -> hash of the examples and of their partition among clients."""
    examples = _examples_hash(next(iter(federations.values())).dataset)
    return {str(seed): _partition_hash(examples.copy(), federation) for seed, federation in federations.items()}


def file_hashes(config: Config) -> dict[str, str]:
    """Returns flag -> hash of the file of its choice (path=), '' without one: of --local_work and --clock."""
    choices = {flag: parse(getattr(config, flag)) for flag in ("local_work", "clock") if getattr(config, flag)}
    files = {flag: choice.params.get("path") for flag, choice in choices.items()}
    return {
        flag: hashlib.blake2b(read_bytes(path), digest_size=8).hexdigest() if isinstance(path, str) else ""
        for flag, path in files.items()
    }


def _examples_hash(dataset: Dataset):
    h = hashlib.blake2b(digest_size=8)
    for split in (dataset.train, dataset.test):
        for name in sorted(split):
            h.update(name.encode() + feature_digest(split[name]))
    return h


def _partition_hash(h, federation: Federation) -> str:
    for part in (federation.partition, federation.validation):
        if part is not None:
            h.update(np.ascontiguousarray(part.order).data)
            h.update(np.ascontiguousarray(part.offset).data)
    return h.hexdigest()


@dataclasses.dataclass(frozen=True)
class Identity:
    """Everything that decides a run's results.

    Attributes:
      config: the decisive fields.
      data: seed -> hash of examples and partition.
      jax: version of jax.
      device: platform and kind of the device.
      strategy: how cohorts are executed.
      imports: imported file or module -> hash of its content.
      initial: seed -> hash of the parameters from another run (--init_from).
      environment: environment that affects results, from `environment`.
    """

    config: dict[str, Any]
    data: dict[str, str]
    jax: str
    device: str
    strategy: str
    imports: dict[str, str]
    initial: dict[str, str]
    environment: dict[str, str]

    @property
    def fingerprint(self) -> str:
        """A hash of the identity: runs with the same fingerprint have the same results."""
        parts = [set_fields(self.config), self.data, self.jax, self.device, self.strategy, self.imports]
        return hash_of([*parts, self.initial, self.environment])

    def differences(self, previous: "Identity") -> str:
        """Returns a message that names the differences from a previous identity."""
        changed = []
        for name in ("jax", "device", "strategy"):
            then, now = getattr(previous, name), getattr(self, name)
            if then != now:
                changed.append(f"{name} was {then} and is {now}")
        for name in sorted(previous.environment.keys() | self.environment.keys()):
            then, now = previous.environment.get(name), self.environment.get(name)
            if then != now:
                changed.append(f"{name} was {then or 'not set'} and is {now or 'not set'}")
        for name in sorted(previous.imports.keys() | self.imports.keys()):
            if previous.imports.get(name) != self.imports.get(name):
                changed.append(f"the code of {name} has changed")
        return "; ".join(changed)


def identity(
    config: Config,
    hashes: dict[str, str],
    strategy: str,
    imports: dict[str, str],
    initial: dict[str, str],
    dataset: Dataset,
) -> Identity:
    """Returns the identity of a run on this machine.

    Args:
      config: the flags.
      hashes: seed -> hash of the data, from `data_hashes`.
      strategy: how cohorts are executed.
      imports: imported file or module -> hash of its content.
      initial: seed -> hash of the parameters from another run.
      dataset: whose normalization is recorded.
    """
    device = jax.devices()[0]
    kind = f"{device.platform} {device.device_kind}"
    normalisation = {"normalisation": f"mean {_numbers(dataset.mean)}, std {_numbers(dataset.std)}"}
    recorded = environment(device.platform) | normalisation
    return Identity(jsonable(config.decisive()), hashes, jax.__version__, kind, strategy, imports, initial, recorded)


def _numbers(values: Any) -> str:
    return "none" if values is None else " ".join(repr(float(value)) for value in np.ravel(values))


def environment(platform_name: str) -> dict[str, str]:
    """Returns the environment that affects results: library versions, processor, variables.

    On a CPU the number of cores counts: sums are split among them, and the parts are rounded.

    Args:
      platform_name: the device's platform, such as cpu or gpu.

    Returns:
      name -> value, '' for a variable that is not set.
    """
    libraries = {"fedwin": __version__, "jaxlib": jaxlib.__version__, "flax": flax.__version__}
    libraries |= {"optax": optax.__version__, "numpy": np.__version__}
    settings = jax.config.values
    options = {name: str(getattr(jax.config, name, settings[name])) for name in JAX_OPTIONS if name in settings}
    variables = {name: os.environ.get(name, "") for name in VARIABLES}
    recorded = libraries | options | variables | {"XLA_FLAGS": _xla_flags(os.environ.get("XLA_FLAGS", ""))}
    if platform_name == "cpu":
        recorded |= {"processor": _processor(), "cores": str(jax_config.num_cores()), "oneDNN": _onednn()}
    return recorded


def _xla_flags(text: str) -> str:
    """Returns the flags without those that change no numbers, in a fixed order."""
    return " ".join(sorted(flag for flag in text.split() if not flag.lstrip("-").startswith(HARMLESS_XLA_FLAGS)))


def _processor() -> str:
    """Returns the processor's name and a hash of its instruction sets."""
    names = [f"{platform.machine()} {platform.processor()}".strip()]
    with contextlib.suppress(OSError):
        for line in pathlib.Path("/proc/cpuinfo").read_text().split("\n\n")[0].splitlines():
            name, _, value = line.partition(":")
            if name.strip() in ("vendor_id", "cpu family", "model"):
                names.append(value.strip())
    return f"{' '.join(names)} ({hash_of(sorted(onednn.cpu_features()), size=4)})"


def _onednn() -> str:
    """Returns which library computes larger convolutions, and with how many threads; compiles nothing."""
    try:
        _, library, _ = onednn.locate(os.environ.get(onednn.SWITCH) or "on")
    except onednn.Unavailable:
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


def check_flags(config: Config) -> None:
    """Raises UserError in all processes unless all have the same flags; a collective operation."""
    if multi_process.count() == 1:
        return
    flags = {name: value for name, value in dataclasses.asdict(config).items() if name not in HOST_PATHS}
    of_processes = [json.loads(text) for text in multi_process.all_gather_text(json.dumps(flags, default=str))]
    for process, other in enumerate(of_processes):
        for name, value in other.items():
            if value != of_processes[0][name]:
                raise UserError(
                    f"process {process} has --{name}={value}, process 0 has {of_processes[0][name]}; give all "
                    f"processes the same flags."
                )


def check_identity(fingerprint: str) -> None:
    """Raises UserError in all processes unless all have the same data and code; a collective operation."""
    of_processes = multi_process.all_gather_text(fingerprint)
    for process, other in enumerate(of_processes):
        if other != of_processes[0]:
            raise UserError(
                f"process {process} has other data, another version of jax or another device than process 0; give all "
                f"processes the same data in --data_dir and the same environment."
            )
