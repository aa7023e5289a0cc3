"""Sets up CPU devices before JAX starts its backend: one per core, and collectives without a time limit."""

import os

import jax

# More devices would only replicate the model more often.
MAX_CPU_DEVICES = 8
# By default XLA:CPU aborts the process when a device waits for another one for 40 seconds; a day is long enough.
_TIMEOUTS = {
    "xla_cpu_collective_call_warn_stuck_timeout_seconds": 86400,
    "xla_cpu_collective_call_terminate_timeout_seconds": 86400,
}


def use_every_core(most: int = MAX_CPU_DEVICES) -> None:
    """Gives JAX one CPU device per core and makes devices wait for each other; does not affect GPUs and TPUs.

    Has no effect on devices that exist already: call it before the first computation.

    Args:
      most: upper bound on the devices; an environment variable JAX_NUM_CPU_DEVICES takes precedence.
    """
    set_collective_timeouts()
    if os.environ.get("JAX_NUM_CPU_DEVICES"):
        return  # set by the user
    try:
        jax.config.update("jax_num_cpu_devices", min(num_cores(), most))
    except RuntimeError:
        pass  # the backend has started: its devices stay as they are


def num_cores() -> int:
    """Returns the cores that this process may use."""
    allowed = getattr(os, "sched_getaffinity", None)  # Linux only
    return len(allowed(0)) if allowed else os.cpu_count() or 1


def set_collective_timeouts() -> None:
    """Lets XLA:CPU devices wait for each other without a time limit; read when the backend starts."""
    flags = os.environ.get("XLA_FLAGS", "")
    more = [f"--{name}={seconds}" for name, seconds in _TIMEOUTS.items() if name not in flags]
    os.environ["XLA_FLAGS"] = " ".join([flags, *more]).strip()
