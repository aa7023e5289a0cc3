"""WSM, Figure A.1: forgetting after the first round."""

from .forgotten import forgetting

# A run of its own that ends there: the long one would have to keep a checkpoint of every round.
ITEM = forgetting("wsm/figureA_1", 1, rounds=1)
