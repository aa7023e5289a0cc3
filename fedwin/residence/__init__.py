"""Storage of training examples, client tables and windows during a run: on the device, on the host, in files.

`TrainingExamples`, `ClientTable` and `RecordStore` are the interfaces that each kind of storage implements.
"""

from fedwin.residence.examples import TrainingExamples
from fedwin.residence.rows import ClientTable
from fedwin.residence.store import RecordStore

__all__ = ["ClientTable", "TrainingExamples", "RecordStore"]
