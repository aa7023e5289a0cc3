"""GHB, Figure 5: an illustration."""

from ..analyses import Sketch

ITEM = Sketch(
    name="ghb/figure5",
    title="How clients' updates enter the heavy-ball momentum",
    why="it is a drawing of the idea",
)
