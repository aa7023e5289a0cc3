"""WSM, Figure 3.3: how long clients train."""

from ..items import Entry
from ..trajectories import Fields
from .sweeps import sweep

EPOCHS = (1, 3, 5, 10)

ITEM = sweep(
    "wsm/figure3_3c",
    "FedAvg with and without WSM, by local epochs, CIFAR-10",
    "local epochs",
    tuple(Entry(f"epochs{n}", f"E = {n}", Fields(local_epochs=n), x=float(n)) for n in EPOCHS),
    (f"The numbers of local epochs are not stated: {', '.join(map(str, EPOCHS))}.",),
)
