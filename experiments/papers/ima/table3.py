"""IMA, Table III: how the learning rate is treated while IMA averages."""

from ..claims import Claim
from ..items import Entry, Item, Override
from .settings import (
    ASSUMED,
    BASE,
    CNN_DIRICHLET,
    METHODS,
    SEEDS,
    STANDIN,
    TREND_SEEDS,
    averaging,
    before_adaptive_servers,
)

# Schedule of the wrapper -> (label, the printed cells' variant); exponential decay is its default, and Table I's.
SCHEDULES = {
    "exp": ("exponential", "+ima_P5_exp_decay"),
    "const": ("constant", "+ima_P5_const_lr*"),
    "cyclic": ("cyclic", "+ima_P5_cyclic_lr*"),
    "epoch": ("fewer epochs", "+ima_P5_epoch_decay"),
    "none": ("none", "+ima_P5_no_extra_decay*"),
}
VARIANTS = tuple(
    averaging(
        name,
        label,
        more="" if name == "exp" else f",schedule={name}",
        printed=(("variant", text), ("metric", "mean_test_accuracy_last10_pct")),
    )
    for name, (label, text) in SCHEDULES.items()
)
# It is FedAvg within noise, and time is short.
WITHOUT_GMA = Override(
    Entry("fewer", absent="FedGMA, as run here, is FedAvg, and seven methods fill five minutes"), ("fedgma",)
)

ITEM = Item(
    name="ima/table3",
    title="IMA with five treatments of the learning rate while it averages",
    base=BASE,
    rows=METHODS,
    columns=(CNN_DIRICHLET,),
    variants=VARIANTS,
    overrides=(*before_adaptive_servers(VARIANTS), WITHOUT_GMA),
    table=("ima", "III"),
    seeds=SEEDS,
    trend_seeds=TREND_SEEDS,
    claims=(
        Claim("Exponential decay is better than no extra decay.", (("variant", "exp"),), (("variant", "none"),)),
        Claim("Exponential decay is better than fewer epochs.", (("variant", "exp"),), (("variant", "epoch"),)),
    ),
    assumed=(
        *ASSUMED,
        "The columns' order is that of the text: exponential, constant, cyclic, epoch, none.",
        "The constant rate is 5e-5, the code's; the cyclic one falls from the rate at the start to 5e-5 in 20 rounds, "
        "while the code's rises above it.",
        "With fewer epochs the rate goes on falling; the code restarts it for all methods but FedFA (lr_restart=true), "
        "which is why that column is the lowest there.",
    ),
    standin=f"{STANDIN}.",
    cost="Table I's runs, and four more forks of each: CIFAR-10, CNN, the last 100 of 400 rounds",
)
