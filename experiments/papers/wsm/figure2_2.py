"""WSM, Figure 2.2: forgetting after round 2,800."""

from .forgotten import forgetting

ITEM = forgetting("wsm/figure2_2", 2800)
