"""Programs that jax's persistent compilation cache must not contain."""

import math

import jax
import jax.numpy as jnp
import pytest

from fedwin.models.convolution import program_cache


def least_seconds():
    return jax.config.jax_persistent_cache_min_compile_time_secs


@pytest.fixture
def folder(tmp_path):
    """A cache of its own for the length of a test."""
    before = jax.config.jax_compilation_cache_dir
    jax.config.update("jax_compilation_cache_dir", str(tmp_path))
    jax.experimental.compilation_cache.compilation_cache.reset_cache()
    yield tmp_path
    jax.config.update("jax_compilation_cache_dir", before)
    jax.experimental.compilation_cache.compilation_cache.reset_cache()


def test_with_a_cache_programs_stay_uncached_only_where_it_is_allowed(folder):
    assert not program_cache.uncached_allowed()
    with program_cache.allow_uncached():
        assert program_cache.uncached_allowed()
    jax.config.update("jax_compilation_cache_dir", None)
    assert program_cache.uncached_allowed()


def test_nothing_is_cached_after_do_not_cache_until_the_context_ends(folder):
    def said(x):
        program_cache.do_not_cache()
        return x * 3

    usual = least_seconds()
    with program_cache.allow_uncached():
        with program_cache.allow_uncached():
            jax.jit(lambda x: x * 2)(jnp.ones(3))
            cached = set(folder.iterdir())
            assert cached and least_seconds() == usual
        jax.jit(said)(jnp.ones(3))
        assert least_seconds() == math.inf
    assert least_seconds() == usual and set(folder.iterdir()) == cached
    program_cache.allow_uncached()(jax.jit(lambda x: x * 5))(jnp.ones(3))
    assert set(folder.iterdir()) > cached
