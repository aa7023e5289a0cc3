"""Pictures of finished runs, one kind per file.

Every kind has `compute(...)`, which returns a dict of plain lists and numbers, and `draw(found, path, title)`, which
needs nothing but that dict: a result that was kept as JSON is drawn again without checkpoints or training.
"""
