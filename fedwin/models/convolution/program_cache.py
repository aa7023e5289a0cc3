"""Compiled programs that jax's persistent cache must not keep.

jaxlib fails when it writes down a program with certain custom calls, in ways that could end the process, so jax must
not even try. A module that makes such calls asks `may_be_unkept` before it does, and says so with `do_not_keep`.
"""

import contextlib
import math

import jax

# jax keeps a program whose compilation took at least so many seconds.
_LEAST_SECONDS = "jax_persistent_cache_min_compile_time_secs"

_open = 0


@contextlib.contextmanager
def allow_uncached():
    """Within it a program may be compiled that is not kept; from `do_not_keep` to its end nothing is kept.

    Also a decorator: `unkept()(jax.jit(function))`.
    """
    global _open
    before = jax.config.values[_LEAST_SECONDS]
    _open += 1
    try:
        yield
    finally:
        _open -= 1
        if jax.config.values[_LEAST_SECONDS] != before:
            jax.config.update(_LEAST_SECONDS, before)


def _keeps() -> bool:
    known = jax.config.values
    return bool(known["jax_compilation_cache_dir"] and known["jax_enable_compilation_cache"])


def uncached_allowed() -> bool:
    """Whether the program that is being traced need not be kept: inside `unkept`, or where jax keeps none."""
    return _open > 0 or not _keeps()


def do_not_cache() -> None:
    """Has jax not keep the program that is being lowered; call it where `may_be_unkept` said yes."""
    if _keeps():
        jax.config.update(_LEAST_SECONDS, math.inf)
