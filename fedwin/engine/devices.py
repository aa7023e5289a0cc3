"""Making every core of a CPU a device of its own; must happen before jax starts its backend."""

import os

import jax

# More devices than this would only replicate the model more often.
MOST_CPU_DEVICES = 8
# A device that waits for another one's clients for 40 seconds makes XLA:CPU abort the process; a day is long enough.
_PATIENCE = {
    "xla_cpu_collective_call_warn_stuck_timeout_seconds": 86400,
    "xla_cpu_collective_call_terminate_timeout_seconds": 86400,
}


def use_every_core(most: int = MOST_CPU_DEVICES) -> None:
    """Gives jax one CPU device per core and makes devices wait for each other; GPU and TPU are left alone.

    Has no effect on devices that exist already: call it before the first computation.

    Args:
      most: the most devices; an environment variable JAX_NUM_CPU_DEVICES takes precedence.
    """
    set_collective_timeouts()
    if os.environ.get("JAX_NUM_CPU_DEVICES"):
        return  # the user said how many
    try:
        jax.config.update("jax_num_cpu_devices", min(num_cores(), most))
    except RuntimeError:
        pass  # the backend is running: its devices stay as they are


def num_cores() -> int:
    """Returns the cores that this process may use."""
    allowed = getattr(os, "sched_getaffinity", None)  # Linux only
    return len(allowed(0)) if allowed else os.cpu_count() or 1


def set_collective_timeouts() -> None:
    """Lets XLA:CPU devices wait for each other as long as it takes; read when the backend starts."""
    flags = os.environ.get("XLA_FLAGS", "")
    more = [f"--{name}={seconds}" for name, seconds in _PATIENCE.items() if name not in flags]
    os.environ["XLA_FLAGS"] = " ".join([flags, *more]).strip()
