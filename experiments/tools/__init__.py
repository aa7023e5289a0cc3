"""Commands of a checkout that are not part of the wheel: checks, documentation, benchmarks, fault injection."""
