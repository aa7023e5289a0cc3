"""WIMA, Table 3: Landmarks, a window of 370."""

from ..claims import Claim
from ..items import Entry, Item
from ..trajectories import Fields
from .settings import BASE, FASHION, METHODS

ACCURACY = ("metric", "test_accuracy_pct")
LANDMARKS = Entry(
    "landmarks",
    "Landmarks-User-160k",
    Fields(
        dataset="landmarks",
        partition="natural",
        clients_per_round=10,
        model="mobilenetv2",
        augment="crop_flip:size=224",
        num_rounds=3000,
        local_epochs=5,
        batch_size=50,
        client_lr=0.1,
        weight_decay=4e-5,
    ),
    FASHION | {"partition": "dirichlet:alpha=0.05"},
    alone=True,
    printed=(
        ("dataset", "Landmarks-User-160k"),
        ("partition", "natural_authors;K=1262"),
        ("model", "MobileNetV2-GN"),
    ),
)

ITEM = Item(
    name="wima/table3",
    title="WIMA on Landmarks: FedAvg and SCAFFOLD read through a window of 370",
    base=BASE,
    rows=tuple(row for row in METHODS if row.name in ("fedavg", "scaffold")),
    columns=(LANDMARKS,),
    variants=(
        Entry("base", printed=(("variant", "base"), ACCURACY)),
        Entry(
            "wima",
            "+ WIMA",
            printed=(("variant", "+wima_W370"), ACCURACY),
            read="wima:window=370",
            trend_read="wima:window=20",
        ),
    ),
    table=("wima", "3"),
    claims=(
        Claim("WIMA is more accurate than the model that it averages.", (("variant", "wima"),), (("variant", "base"),)),
        Claim("SCAFFOLD is more accurate than FedAvg.", (("row", "scaffold"),), (("row", "fedavg"),)),
    ),
    assumed=("Rate 0.1, five local epochs (both from the GHB paper) and weight decay 4e-5 are not stated.",),
    standin="Fashion-MNIST with alpha = 0.05 and two layers of 200; 100 rounds, W = 20.",
    cost="3 seeds x 3,000 rounds of MobileNetV2 on 224 x 224 images: for a GPU with the data set (160 GB)",
)
