"""Survey: every method on one stand-in, and what its papers leave open, with tables and figures of our own."""
