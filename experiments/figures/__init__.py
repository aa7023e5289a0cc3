"""Figures of finished runs, one module per kind.

Each has `compute(...)`, which returns a dict of plain lists and numbers, and `draw(result, path, title)`, which needs
nothing but that dict: a result that is stored as JSON can be drawn again without the runs. It returns the matplotlib
figure, which it saves unless the path is None.
"""
