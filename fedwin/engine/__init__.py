"""Rounds: the complete state of a run, one round of it, and many rounds in one dispatch."""

from fedwin.data.store import Store
from fedwin.engine.rounds import Cohorts, RunState, init, init_rows, make_rounds, one_round, read_out

__all__ = ["Cohorts", "RunState", "Store", "init", "init_rows", "make_rounds", "one_round", "read_out"]
