"""GHB, Figure 7: rounds to 70 % by heterogeneity."""

from ..measures import RoundsTo
from .heterogeneity import over_alpha

# Absolute, not a share of the centralised accuracy; digits are easier.
TARGET, TREND_TARGET = 70.0, 85.0

ITEM = over_alpha(
    "ghb/figure7",
    f"Rounds to {TARGET:g} % by the Dirichlet parameter, CIFAR-10, LeNet-5",
    RoundsTo(percent=TARGET, trend=TREND_TARGET),
    (),
)
