"""GHB, Table 2: rounds to a share of the centralised accuracy, CIFAR-10, one class per client."""

from ..items import Item
from .methods import METHODS
from .rounds import ASSUMED, OVERHEAD, STANDIN, columns, faster, variants
from .settings import BASE, LENET_DEVICE, LENET_SILO, SEEDS, TREND_SEEDS

# Per cent of the centralised accuracy -> the target.
TARGETS = {70: 60.5, 80: 69.2, 90: 77.8}
COLUMNS = columns(LENET_SILO[0], LENET_DEVICE[0], "CIFAR-10")

ITEM = Item(
    name="ghb/table2",
    title="Rounds to 70, 80 and 90 % of the centralised accuracy, CIFAR-10, one class per client, LeNet-5",
    base=BASE,
    rows=METHODS,
    columns=COLUMNS,
    variants=(*variants(TARGETS), OVERHEAD),
    table=("ghb", "2"),
    seeds=SEEDS,
    trend_seeds=TREND_SEEDS,
    claims=faster(METHODS, 70, COLUMNS[:2]),
    assumed=ASSUMED,
    standin=STANDIN,
    cost="read off the runs of Tables 3 and 4",
)
