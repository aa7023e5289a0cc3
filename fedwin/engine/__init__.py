"""Rounds: the complete state of a run, one round of it, and many rounds in one dispatch."""

from fedwin.data.store import Store
from fedwin.engine.dispatch import Dispatch
from fedwin.engine.lockstep import Lockstep
from fedwin.engine.rounds import Cohorts, RunState, init, one_round, read_out
from fedwin.residence.first_rows import init_rows

__all__ = ["Cohorts", "Dispatch", "Lockstep", "RunState", "Store", "init", "init_rows", "one_round", "read_out"]
