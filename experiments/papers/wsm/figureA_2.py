"""WSM, Figure A.2: forgetting after round 4,000."""

from .forgotten import forgetting

ITEM = forgetting("wsm/figureA_2", 4000)
