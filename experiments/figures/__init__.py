"""Figures of finished runs, one module per kind.

Each has `compute(...)`, which returns a dict of plain lists and numbers, and `draw(result, path, title)`, which needs
nothing but that dict: a result that is stored as JSON can be drawn again without the runs. It returns the matplotlib
figure, which it saves unless the path is None.

Several kinds have arguments in common: `runs`, label -> directory; `trained`, a model of the run, for its network and
data set; `series`, curves as `sources.series` reads them, and `metric`, of their evaluations; `seed`, of the runs;
`data_dir`, folder of the data set's files, None: as in the run's configuration; `count`, number of examples, drawn
once, 0: all. BatchNorm's statistics are averaged as weights are.
"""
