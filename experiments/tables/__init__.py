"""Tables of the user's own runs: comparisons and sweeps, on the terminal and as CSV, Markdown and PNG files.

The tables of the papers are defined in `experiments/papers`, in the module `tables` of each paper.
"""
