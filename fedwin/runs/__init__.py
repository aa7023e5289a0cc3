"""Runs: from a Config to numbers in a directory."""
