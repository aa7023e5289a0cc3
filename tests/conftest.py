"""Configuration of all tests: two CPU devices in every process, so that sharding is always exercised."""

import functools
import gc
import os
import pathlib
import sys
import tempfile

import jax
import jaxlib.version
import numpy as np
import pytest

from fedwin import engine, jax_config
from fedwin.plugins import REGISTRIES

jax_config.set_collective_timeouts()
# Convolutions are XLA's, so that the tests compute the same on every machine and compile nothing but programs.
os.environ.setdefault("FEDWIN_ONEDNN", "off")
jax.config.update("jax_num_cpu_devices", 2)

# Tests that start processes take longest: they run first, so that no worker is left with one at the end.
LONGEST = (
    "test_processes.py",
    "test_signals.py",
    "test_bench.py",
    "test_run.py",
    "test_contract_sharded.py",
    "test_notebooks.py",
)

# The quick suite compiles unoptimized programs, in a third of the time. Tests that compare programs or their bits have
# the optimizations that users have; so do all tests if slow ones are selected.
OPTIMIZED = ("engine/test_lowering.py", "engine/test_rounds.py", "runs/test_arrivals.py", "runs/test_offloaded.py")
EMITTERS = jaxlib.version.__version_info__ < (0, 11, 2)  # XLA:CPU's fusion emitters, slow to compile, are an option
USERS = {"xla_cpu_use_fusion_emitters": True} if EMITTERS else {}


def pytest_configure(config):
    # Many tests, workers and child processes compile the same small programs: one cache for the length of the session,
    # or the directory that JAX_COMPILATION_CACHE_DIR names, for many sessions.
    if "JAX_COMPILATION_CACHE_DIR" not in os.environ:
        config.fedwin_cache = tempfile.TemporaryDirectory(prefix="fedwin-jit-")
        os.environ["JAX_COMPILATION_CACHE_DIR"] = config.fedwin_cache.name
    os.environ["JAX_PERSISTENT_CACHE_MIN_COMPILE_TIME_SECS"] = "0"
    os.environ["JAX_PERSISTENT_CACHE_MIN_ENTRY_SIZE_BYTES"] = "-1"
    jax.config.update("jax_compilation_cache_dir", os.environ["JAX_COMPILATION_CACHE_DIR"])
    jax.config.update("jax_persistent_cache_min_compile_time_secs", 0)
    jax.config.update("jax_persistent_cache_min_entry_size_bytes", -1)
    if config.option.markexpr == "not slow":
        if EMITTERS:
            os.environ["XLA_FLAGS"] += " --xla_cpu_use_fusion_emitters=false"  # read when the backend starts
        os.environ["JAX_DISABLE_MOST_OPTIMIZATIONS"] = "1"
        jax.config.update("jax_disable_most_optimizations", True)


def pytest_collection_finish():
    # Imported modules and collected tests live to the end: no later collection of garbage walks through them again, and
    # there are fewer of those, since tracing makes many objects that live for a moment.
    gc.collect()
    gc.freeze()
    gc.set_threshold(20_000, 10, 10)


def pytest_unconfigure(config):
    if hasattr(config, "fedwin_cache"):
        config.fedwin_cache.cleanup()


def pytest_collection_modifyitems(items):
    items.sort(key=lambda item: LONGEST.index(item.path.name) if item.path.name in LONGEST else len(LONGEST))


@pytest.fixture(scope="module", autouse=True)
def optimizations(request):
    """Compiles with the optimizations that users have where OPTIMIZED says so."""
    place = request.path.relative_to(pathlib.Path(__file__).parent)
    unoptimized = jax.config.values["jax_disable_most_optimizations"]
    if not unoptimized or not any(place.is_relative_to(one) for one in OPTIMIZED):
        yield
        return
    with pytest.MonkeyPatch.context() as patch:
        patch.setenv("JAX_DISABLE_MOST_OPTIMIZATIONS", "0")
        patch.setattr(engine, "Dispatch", functools.partial(engine.Dispatch, compiler_options=USERS))
        jax.config.update("jax_disable_most_optimizations", False)
        yield
    jax.config.update("jax_disable_most_optimizations", True)


@pytest.fixture(autouse=True)
def as_before(monkeypatch):
    """What a test registers, imports from its folder or adds to the path is forgotten after it."""
    known, modules = [set(registry) for registry in REGISTRIES.values()], set(sys.modules)
    monkeypatch.setattr(sys, "path", list(sys.path))
    yield
    own = [r.pop(name) for r, names in zip(REGISTRIES.values(), known) for name in r.keys() - names]
    registering = {getattr(builder, "__module__", "") for builder in own}
    for name in sys.modules.keys() - modules:
        if name in registering or "pytest-" in str(getattr(sys.modules[name], "__file__", "")):
            del sys.modules[name]


@pytest.fixture
def double():
    """Float64 for the length of a test."""
    with jax.enable_x64(True):
        yield


@pytest.fixture(params=["float64", pytest.param("float32", marks=pytest.mark.slow)])
def precision(request):
    with jax.enable_x64(request.param == "float64"), jax.default_matmul_precision("highest"):
        yield request.param


@pytest.fixture
def same(precision):
    """The comparison with golden values: same(ours, theirs, **tolerance of float32 where 1e-5 is too strict)."""

    def close(ours, theirs, **float32):
        # The file rounds to 12 digits.
        tolerance = dict(rtol=1e-9, atol=1e-11) if precision == "float64" else dict(rtol=1e-5, atol=1e-6) | float32
        np.testing.assert_allclose(np.asarray(ours), theirs, **tolerance)

    return close
