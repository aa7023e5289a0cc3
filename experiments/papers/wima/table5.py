"""WIMA, Table 5: the window's classifier alone, its features alone, all of it; batches of 20."""

from ..claims import Claim
from ..items import Entry, Item
from ..trajectories import Fields
from .settings import BASE, CIFAR10_0, CIFAR10_005, CIFAR100_0, CIFAR100_05


def _part(name: str, part: str, label: str, printed: str) -> Entry:
    choice = "" if part == "all" else f",part={part}"
    return Entry(
        name,
        label,
        printed=(("variant", f"+wima_W100_{printed}_B20"), ("metric", "test_accuracy_pct")),
        read=f"wima:window=100{choice}",
        trend_read=f"wima:window=20{choice}",
    )


ITEM = Item(
    name="wima/table5",
    title="FedAvg with the window's classifier, its features, or both",
    base=BASE,
    rows=(
        Entry(
            "fedavg", "FedAvg", Fields(algorithm="fedavg", batch_size=20), Fields(), printed=(("algorithm", "FedAvg"),)
        ),
    ),
    columns=(CIFAR10_0, CIFAR10_005, CIFAR100_0, CIFAR100_05),
    variants=(
        _part("classifier", "classifier", "classifier", "clf_only"),
        _part("features", "features", "features", "feat_only"),
        _part("all", "all", "all", "all"),
    ),
    table=("wima", "5"),
    trend_seeds=(0, 1, 2),
    claims=(
        Claim(
            "Averaging everything is best: better than the classifier alone.",
            (("variant", "all"),),
            (("variant", "classifier"),),
        ),
        Claim(
            "Averaging everything is better than the features alone.", (("variant", "all"),), (("variant", "features"),)
        ),
        Claim(
            "The features matter more than the classifier.", (("variant", "features"),), (("variant", "classifier"),)
        ),
    ),
    assumed=("CIFAR-100 with alpha = 0 prints 27.91 both here (B = 20) and in Table 2 (B = 100).",),
    standin="Digits and Fashion-MNIST as in Table 2, with their own batches; W = 20.",
    cost="3 seeds x 10,000 rounds of ResNet-20 per column, apart from Table 2's because of the batches: for a GPU",
)
