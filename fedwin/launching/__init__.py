"""Launchers: where many runs are executed, and the work of a job on its machine."""
