"""Programs that must stay out of jax's persistent compilation cache.

jaxlib fails to serialize a program with certain custom calls, in ways that can end the process, so jax must not even
try. A module that makes such calls asks `uncached_allowed` first and then calls `do_not_cache`. Whether it is allowed
is part of jax's own context: jit's caches distinguish a function traced inside `allow_uncached` from the same function traced
elsewhere, so that the two never share a program.
"""

import contextlib
import math
from collections.abc import Iterator

import jax

# jax caches programs whose compilation took at least this many seconds.
_LEAST_SECONDS = "jax_persistent_cache_min_compile_time_secs"

_uncached_allowed = jax.make_user_context(False)


@contextlib.contextmanager
def allow_uncached() -> Iterator[None]:
    """Lets programs be compiled that are not cached; after `do_not_cache`, nothing is cached until the context ends.

    Also a decorator: `allow_uncached()(jax.jit(function))`.
    """
    before = jax.config.values[_LEAST_SECONDS]
    try:
        with _uncached_allowed(True):
            yield
    finally:
        if jax.config.values[_LEAST_SECONDS] != before:
            jax.config.update(_LEAST_SECONDS, before)


def _cache_is_enabled() -> bool:
    options = jax.config.values
    return bool(options["jax_compilation_cache_dir"] and options["jax_enable_compilation_cache"])


def uncached_allowed() -> bool:
    """Whether the program being traced may stay uncached: inside `allow_uncached`, or without a persistent cache."""
    return bool(_uncached_allowed.value) or not _cache_is_enabled()


def do_not_cache() -> None:
    """Keeps the program being lowered out of the persistent cache; requires `uncached_allowed`."""
    if _cache_is_enabled():
        jax.config.update(_LEAST_SECONDS, math.inf)
