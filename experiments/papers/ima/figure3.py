"""IMA, Figure 3: locality of clients' models, and the test loss of their mean."""

from .factors import factors

ITEM = factors(
    3,
    "Locality of clients' models, and the test loss of their mean, with and without decay of the rate",
    r"locality $\|w_k - w\|_2$",
    "test loss of the mean",
)
