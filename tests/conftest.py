"""Every test process sees two CPU devices, so that sharding is exercised on any machine."""

import pathlib
import sys

import jax

jax.config.update("jax_num_cpu_devices", 2)
# Helpers that several tests share (toy, ...) stand beside them.
sys.path.insert(0, str(pathlib.Path(__file__).parent))
