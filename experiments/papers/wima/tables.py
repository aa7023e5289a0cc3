"""WIMA, Tables 2 to 5: eleven methods read through a window, Landmarks, window sizes, parts of the window."""

from ..items import Variation
from ..measures import Gain
from . import settings

ACCURACY = ("metric", "test_accuracy_pct")

# Table 2
WITH_WINDOW = ("variant", "+wima_W100")
TABLE2 = settings.item(
    name="wima/table2",
    rows=settings.METHODS,
    columns=(
        settings.CIFAR10_0,
        settings.CIFAR10_005,
        settings.CIFAR100_0,
        settings.CIFAR100_05,
        settings.PAM,
        settings.FEMNIST,
        settings.SHAKESPEARE,
    ),
    variants=(
        Variation("base", "base", printed=(("variant", "base"), ACCURACY)),
        settings.windowed("wima", "+ WIMA", WITH_WINDOW, ACCURACY),
        settings.windowed("gain", "gain", WITH_WINDOW, ("metric", "printed_gain_pp"), measure=Gain()),
    ),
    table=("wima", "2"),
)

# Table 3
TABLE3 = settings.item(
    name="wima/table3",
    rows=tuple(row for row in settings.METHODS if row.name in ("fedavg", "scaffold")),
    columns=(settings.LANDMARKS,),
    variants=(
        Variation("base", printed=(("variant", "base"), ACCURACY)),
        settings.windowed("wima", "+ WIMA", ("variant", "+wima_W370"), ACCURACY, size=370),
    ),
    table=("wima", "3"),
)

# Table 4
# Window sizes of the paper, and those that fit a run of 100 rounds.
WINDOWS = {5: 2, 10: 5, 50: 10, 100: 20, 200: 40}
TABLE4 = settings.item(
    name="wima/table4",
    rows=settings.METHODS[:1],
    columns=(settings.CIFAR10_0, settings.CIFAR100_0),
    variants=tuple(
        settings.windowed(f"w{size}", f"W = {size}", ("variant", f"+wima_W{size}"), ACCURACY, size=size, small=small)
        for size, small in WINDOWS.items()
    ),
    table=("wima", "4"),
)


# Table 5
def _part(part: str, printed: str) -> Variation:
    """Returns the variant that averages a part of the parameters."""
    choice = "" if part == "all" else f",part={part}"
    return settings.windowed(part, part, ("variant", f"+wima_W100_{printed}_B20"), ACCURACY, more=choice)


TABLE5_ROWS = (settings.METHODS[0].merged(batch_size=20),)
CIFAR100_0 = settings.cifar("cifar100_alpha0", "100", "0", settings.FASHION)
CIFAR100_05 = settings.cifar("cifar100_alpha05", "100", "0.5", settings.FASHION)
TABLE5 = settings.item(
    name="wima/table5",
    rows=TABLE5_ROWS,
    columns=(settings.CIFAR10_0, settings.CIFAR10_005, CIFAR100_0, CIFAR100_05),
    variants=(_part("classifier", "clf_only"), _part("features", "feat_only"), _part("all", "all")),
    table=("wima", "5"),
)
