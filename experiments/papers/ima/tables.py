"""IMA, Tables I to III: eight methods with and without IMA, rounds to a target, learning-rate schedules."""

from ..items import Variation
from ..measures import RoundsTo, Speedup
from . import settings

ACCURACY = ("metric", "mean_test_accuracy_last10_pct")

# Table I
WITH_AND_WITHOUT = (
    Variation("base", printed=(("variant", "base"), ACCURACY)),
    settings.averaging("ima", "+ IMA", printed=(("variant", "+ima_P5"), ACCURACY)),
    # Read off the base run: an average that the clients never see.
    Variation("wima", "WIMA read-out", read="wima:window=50", trend_read="wima:window=20", ours=True),
)

TABLE1 = settings.item(
    name="ima/table1",
    rows=settings.METHODS,
    columns=settings.COLUMNS,
    variants=WITH_AND_WITHOUT,
    overrides=(*settings.SPECIAL, *settings.before_adaptive_servers(WITH_AND_WITHOUT)),
    table=("ima", "I"),
)

# Table II
# First averaged round of 400 -> its share of the rounds.
STARTS = {150: 0.375, 200: 0.5, 250: 0.625, 300: 0.75}
# The paper's target is lost; FedAvg without IMA reaches both of these in the last rounds, as in the printed table.
TARGET, TREND_TARGET = 61.5, 44.0
MEASURES = (
    ("rounds", "rounds_to_target", RoundsTo(percent=TARGET, trend=TREND_TARGET)),
    ("speedup", "speedup_vs_base", Speedup(percent=TARGET, trend=TREND_TARGET, same_method=True)),
)


def _start_variants():
    """Yields the variants of Table II: rounds and speed-up for every start of the averaging, and without it."""
    for short, metric, measure in MEASURES:
        for start, share in STARTS.items():
            keys = (("variant", f"+ima_start{start}"), ("metric", metric))
            name = f"start{start}_{short}"
            yield settings.averaging(name, f"from {start}, {short}", start=share, printed=keys, measure=measure)
        keys = (("variant", "base"), ("metric", metric))
        yield Variation(f"base_{short}", f"without IMA, {short}", printed=keys, measure=measure)


START_VARIANTS = tuple(_start_variants())
SHOWN = ("fedavg", "fedprox", "fedfa", "fedadam", "fedyogi", "fedgma")

TABLE2 = settings.item(
    name="ima/table2",
    base=settings.BASE.merged(eval_every=1),
    rows=tuple(row for row in settings.METHODS if row.name in SHOWN),
    columns=(settings.CNN_DIRICHLET,),
    variants=START_VARIANTS,
    overrides=settings.before_adaptive_servers(START_VARIANTS),
    table=("ima", "II"),
)

# Table III
# Schedule of the wrapper -> (label, variant of the printed cells). Exponential decay is the wrapper's default, and
# Table I's.
SCHEDULES = {
    "exp": ("exponential", "+ima_P5_exp_decay"),
    "const": ("constant", "+ima_P5_const_lr*"),
    "cyclic": ("cyclic", "+ima_P5_cyclic_lr*"),
    "epoch": ("fewer epochs", "+ima_P5_epoch_decay"),
    "none": ("none", "+ima_P5_no_extra_decay*"),
}
SCHEDULE_VARIANTS = tuple(
    settings.averaging(
        name, label, more="" if name == "exp" else f",schedule={name}", printed=(("variant", text), ACCURACY)
    )
    for name, (label, text) in SCHEDULES.items()
)

TABLE3 = settings.item(
    name="ima/table3",
    rows=settings.METHODS,
    columns=(settings.CNN_DIRICHLET,),
    variants=SCHEDULE_VARIANTS,
    overrides=settings.before_adaptive_servers(SCHEDULE_VARIANTS),
    table=("ima", "III"),
)
