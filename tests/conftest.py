"""Every test process sees two CPU devices, so that sharding is exercised on any machine."""

import pathlib
import sys

import jax

from fedwin import devices

devices.be_patient()
jax.config.update("jax_num_cpu_devices", 2)
# Helpers that several tests share (toy, ...) stand beside them.
sys.path.insert(0, str(pathlib.Path(__file__).parent))


def pytest_configure(config):
    # Many tests compile the same small programs: a cache for the length of the session saves most of that.
    import tempfile

    config.fedwin_cache = tempfile.TemporaryDirectory(prefix="fedwin-jit-")
    jax.config.update("jax_compilation_cache_dir", config.fedwin_cache.name)
    jax.config.update("jax_persistent_cache_min_compile_time_secs", 0)
    jax.config.update("jax_persistent_cache_min_entry_size_bytes", -1)


def pytest_unconfigure(config):
    config.fedwin_cache.cleanup()
