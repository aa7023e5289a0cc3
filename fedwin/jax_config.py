"""JAX's configuration: devices, processes and cache before its backend starts; precision and random numbers of runs."""

import contextlib
import os
from collections.abc import Iterator

import jax

from fedwin.errors import UserError

# More devices would only replicate the model more often.
MAX_CPU_DEVICES = 8
_DEVICES = "xla_force_host_platform_device_count"
# By default XLA:CPU aborts the process when a device waits for another one for 40 seconds; a day is long enough.
_TIMEOUTS = {
    "xla_cpu_collective_call_warn_stuck_timeout_seconds": 86400,
    "xla_cpu_collective_call_terminate_timeout_seconds": 86400,
}


def use_every_core(most: int = MAX_CPU_DEVICES) -> None:
    """Gives JAX a CPU device per core, at most 8, and makes devices wait for each other; does not affect GPUs and TPUs.

    Has no effect on devices that exist already: call it before the first computation.

    Args:
      most: upper bound on the devices; a number in JAX_NUM_CPU_DEVICES or XLA_FLAGS takes precedence.
    """
    set_collective_timeouts()
    if os.environ.get("JAX_NUM_CPU_DEVICES") or _DEVICES in os.environ["XLA_FLAGS"]:
        return  # set by the user
    try:
        jax.config.update("jax_num_cpu_devices", min(num_cores(), most))
    except RuntimeError:
        pass  # the backend has started: its devices stay as they are


def use_cpu_alone() -> None:
    """Leaves GPUs and TPUs to other processes; call it before the first computation."""
    jax.config.update("jax_platforms", "cpu")


def unused_cores() -> int:
    """Returns the cores of a machine on which jax has one CPU device because nobody asked for more; else 0."""
    asked = jax.config.values["jax_num_cpu_devices"] > 0 or _DEVICES in os.environ.get("XLA_FLAGS", "")
    usual = jax.default_backend() == "cpu" and jax.device_count() == 1 and not asked
    return num_cores() if usual and num_cores() > 1 else 0


def num_cores() -> int:
    """Returns the cores that this process may use."""
    allowed = getattr(os, "sched_getaffinity", None)  # Linux only
    return len(allowed(0)) if allowed else os.cpu_count() or 1


def set_collective_timeouts() -> None:
    """Lets XLA:CPU devices wait for each other without a time limit; read when the backend starts."""
    flags = os.environ.get("XLA_FLAGS", "")
    more = [f"--{name}={seconds}" for name, seconds in _TIMEOUTS.items() if name not in flags]
    os.environ["XLA_FLAGS"] = " ".join([flags, *more]).strip()


def set_up_processes() -> None:
    """Prepares JAX for several processes; call it before they join."""
    # The service would take SIGTERM from fedwin.runs.signals and exit without saving.
    jax.config.update("jax_enable_preemption_service", False)
    # The default on a CPU supports a single process only.
    jax.config.update("jax_cpu_collectives_implementation", "gloo")


def use_cache(directory: str | os.PathLike) -> None:
    """Stores compiled programs in a directory, even those that compile fast: a run has dozens of them."""
    jax.config.update("jax_compilation_cache_dir", str(directory))
    if "JAX_PERSISTENT_CACHE_MIN_COMPILE_TIME_SECS" not in os.environ:
        jax.config.update("jax_persistent_cache_min_compile_time_secs", 0.0)


def is_traced() -> bool:
    """Returns whether the caller is traced, as a part of another program."""
    return isinstance(jax.numpy.zeros(()), jax.core.Tracer)


def compiler_options() -> dict[str, bool | int | str]:
    """Returns the options with which a run's programs are compiled, from the first draw of parameters on.

    On a GPU, XLA times kernels and takes the fastest of that moment, and adds in the order in which threads arrive: the
    last bits would differ from process to process, and a resumed run from an uninterrupted one.
    """
    return {} if jax.default_backend() != "gpu" or is_traced() else {"xla_gpu_deterministic_ops": True}


def check_backend() -> None:
    """Starts JAX's backend; raises UserError if there is none of $JAX_PLATFORMS."""
    try:
        jax.default_backend()
    except (RuntimeError, AssertionError) as error:  # an AssertionError without text for cuda without a GPU
        reason = (str(error) or "no such device is visible").partition("\n")[0]
        raise UserError(
            f"JAX_PLATFORMS={jax.config.values['jax_platforms']}: {reason}; unset it, or set cpu."
        ) from error


@contextlib.contextmanager
def settings(precision: str) -> Iterator[None]:
    """Computes the body with the precision and the random numbers of a run, in this thread alone.

    Products of float32 are exact float32 on every device, except with 'tf32'. Random numbers are the same under all
    environment variables and options of the user. JAX's checks for NaN, infinities and promotions are off: a run has
    NaN in place of what it does not compute, and finds a loss that is not finite by itself.
    """
    check_backend()
    options = (
        jax.enable_x64(precision == "float64"),
        jax.default_matmul_precision(None if precision == "tf32" else "highest"),
        jax.threefry_partitionable(True),
        jax.default_prng_impl("threefry2x32"),
        jax.numpy_dtype_promotion("standard"),
        jax.numpy_rank_promotion("allow"),
        jax.debug_nans(False),
        jax.debug_infs(False),
    )
    offset = jax.config.values["jax_random_seed_offset"]
    with contextlib.ExitStack() as entered:
        if offset:  # the only one that holds in all threads
            entered.callback(jax.config.update, "jax_random_seed_offset", offset)
            jax.config.update("jax_random_seed_offset", 0)
        for option in options:
            entered.enter_context(option)
        yield
