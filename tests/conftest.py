"""Every test process sees two CPU devices, so that sharding is exercised on any machine."""

import jax

jax.config.update("jax_num_cpu_devices", 2)
