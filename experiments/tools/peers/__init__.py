"""The simulators of the benchmark: each trains rounds on request, in a separate process."""
