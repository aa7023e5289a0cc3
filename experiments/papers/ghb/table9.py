"""GHB, Table 9: rounds to a share of the centralised accuracy, CIFAR-100, one class per client."""

from ..items import Item
from .methods import METHODS
from .rounds import ASSUMED, OVERHEAD, columns, faster, variants
from .settings import BASE, LENET_DEVICE, LENET_SILO, SEEDS

TARGETS = {60: 34.2, 70: 39.9, 80: 45.6}
NOT_SHOWN = ("fedcm", "fedadc")
SHOWN = tuple(row for row in METHODS if row.name not in NOT_SHOWN)
COLUMNS = columns(LENET_SILO[2], LENET_DEVICE[2], "CIFAR-100")

ITEM = Item(
    name="ghb/table9",
    title="Rounds to 60, 70 and 80 % of the centralised accuracy, CIFAR-100, one class per client, LeNet-5",
    base=BASE,
    rows=SHOWN,
    columns=COLUMNS,
    variants=(*variants(TARGETS), OVERHEAD),
    table=("ghb", "9"),
    seeds=SEEDS,
    # FedDyn diverges there: no speed-up of it is printed.
    claims=faster(tuple(row for row in SHOWN if row.name != "feddyn"), 60, COLUMNS[:1]),
    assumed=ASSUMED,
    standin="Fashion-MNIST, two layers of 200, 100 rounds; cross-device: nothing.",
    cost="read off the runs of Tables 3 and 4",
)
