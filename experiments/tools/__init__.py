"""Commands of a checkout, which are no part of the wheel: checks, documentation, benchmarks, fault injection."""
