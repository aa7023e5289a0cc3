"""Rounds: the complete state of a run, one round of it, and many rounds in one dispatch."""

from fedwin.core import Cohort
from fedwin.data.federation import Store
from fedwin.engine.dispatch import Dispatch, VmappedDispatch
from fedwin.engine.rounds import RunState, init, one_round, read_out

__all__ = ["Cohort", "Dispatch", "VmappedDispatch", "RunState", "Store", "init", "one_round", "read_out"]
