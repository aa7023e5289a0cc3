"""WIMA, Table 4: sizes of the window."""

from ..claims import Claim
from ..items import Entry, Item
from .settings import BASE, CIFAR10_0, CIFAR100_0, METHODS

# Window sizes of the paper, and those that fit a run of 100 or 150 rounds.
WINDOWS = {5: 2, 10: 5, 50: 10, 100: 20, 200: 40}

ITEM = Item(
    name="wima/table4",
    title="FedAvg read through windows of five sizes, one class per client",
    base=BASE,
    rows=METHODS[:1],
    columns=(CIFAR10_0, CIFAR100_0),
    variants=tuple(
        Entry(
            f"w{size}",
            f"W = {size}",
            printed=(("variant", f"+wima_W{size}"), ("metric", "test_accuracy_pct")),
            read=f"wima:window={size}",
            trend_read=f"wima:window={small}",
        )
        for size, small in WINDOWS.items()
    ),
    table=("wima", "4"),
    trend_seeds=(0, 1, 2),
    claims=(
        Claim("A window of 100 is better than one of 5.", (("variant", "w100"),), (("variant", "w5"),)),
        Claim("A window of 100 is better than one of 10.", (("variant", "w100"),), (("variant", "w10"),)),
    ),
    assumed=("The model itself is the FedAvg row of Table 2.",),
    standin=f"Digits and Fashion-MNIST as in Table 2; windows of {', '.join(map(str, WINDOWS.values()))}.",
    cost="read off Table 2's FedAvg runs",
)
