"""The benchmark's peers: every simulator runs in a process of its own and trains rounds on request."""
