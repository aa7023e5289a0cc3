"""IMA, Figure 4: variance of clients' models, and the covariance between them."""

from .factors import factors

ITEM = factors(
    4,
    "Variance of clients' models, and the covariance between them, with and without decay of the rate",
    "variance",
    "covariance (linear CKA)",
)
