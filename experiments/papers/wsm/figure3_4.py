"""WSM, Figure 3.4: curves with one kind of norm, 4,000 rounds."""

from .norms import over_rounds

ITEM = over_rounds("wsm/figure3_4", 4000)
