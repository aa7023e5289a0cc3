"""The benchmark's contestants: each simulator trains rounds on request, in a process of its own."""
