"""WSM, Figure 3.5: curves with one kind of norm, 8,000 rounds."""

from .norms import over_rounds

ITEM = over_rounds("wsm/figure3_5", 8000)
