"""Plug-ins of experiments: algorithms that a table needs and the package does not register (`--import`)."""
