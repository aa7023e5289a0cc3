"""IMA, Figure 2: bias and error of clients' models on their own and on others' data."""

from .factors import factors

ITEM = factors(
    2,
    "Bias and error of clients' models on their own and on others' data, with and without decay of the rate",
    "bias (squared error)",
    "error (%)",
)
