"""Storage of training examples, client tables and windows during a run: on the device, on the host, in files.

Each kind of storage implements `examples.TrainingExamples`, `rows.ClientTable` or `store.RecordStore`.
"""
