"""What Figures 1 and 7 of the heavy-ball paper share: six methods on shares of different alpha."""

from ..items import Entry, Item
from ..measures import Measure
from .methods import picked
from .settings import ASSUMED, BASE, DIGITS, LENET, SEEDS, SILO, cifar

ALPHAS = (0, 0.05, 0.1, 0.2, 0.4, 0.6)
ROWS = picked("fedavg", "scaffold", "feddyn", "fedavgm", "mime_momentum", "fedhbm")


def _at(alpha: float) -> Entry:
    like = cifar(10, alpha, LENET, SILO, DIGITS)
    return Entry(like.name, like.label, like.paper, like.trend, alone=True, x=float(alpha))


COLUMNS = tuple(_at(alpha) for alpha in ALPHAS)


def over_alpha(name: str, title: str, measure: Measure, claims: tuple) -> Item:
    """Returns a sweep over alpha.

    Args:
      name: of the figure.
      title: what it shows.
      measure: what is read off.
      claims: what the paper says of it.
    """
    return Item(
        name=name,
        title=title,
        base=BASE,
        rows=ROWS,
        columns=COLUMNS,
        variants=(Entry("measured", "", measure=measure),),
        draw="sweep",
        axis="Dirichlet alpha",
        seeds=SEEDS,
        claims=claims,
        assumed=(
            *ASSUMED[1:4],
            f"The values of alpha are not stated: {', '.join(f'{alpha:g}' for alpha in ALPHAS)}.",
            "Which methods are drawn is not stated, nor that the setting is cross-silo; the numeric tables under "
            "Figure 7 are not in the text.",
        ),
        standin="Digits, a hidden layer of 64, 10 of 100 clients, 150 rounds, rates from a coarse search.",
        cost="six methods x six values x 5 seeds x 10,000 rounds of LeNet-5: for a GPU",
    )
