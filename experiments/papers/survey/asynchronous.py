"""Windows over asynchronous trajectories: three levels of staleness."""

import dataclasses
import pathlib

from .. import standin
from ..items import Item, Variation, of_cells, searched
from ..measures import AfterSeconds
from ..trajectories import Fields
from ..wima.settings import BASE
from .cifar16 import IMA, WINDOWS

# Up to 200 clients train at once, so there are 250, with 40 images each; a client's time is exponential.
FEDERATION = standin.CIFAR16 | Fields.of(
    "num_clients=250 clients_per_round=10 clock=exponential:mean=1 eval_examples=2000 eval_every=25"
)
PARTITIONS = {
    "alpha0": ("one class per client", "dirichlet:alpha=0"),
    "alpha03": ("alpha = 0.3", "dirichlet:alpha=0.3"),
}
CONCURRENCY = (10, 50, 200)
METHODS = {"fedavg": "fedavg", "fedavgm": "fedavgm:beta=0.9,server_lr=0.3", "fedhbm": "fedhbm:beta=1"}
ROWS = tuple(Variation(name, standin.LABELS[name], Fields(algorithm=algorithm)) for name, algorithm in METHODS.items())
COLUMNS = tuple(
    Variation(
        f"{name}_c{concurrency}",
        f"{title}, {concurrency} at once",
        Fields(partition=partition, asynchronous=f"buffer:size=10,concurrency={concurrency}"),
    )
    for name, (title, partition) in PARTITIONS.items()
    for concurrency in CONCURRENCY
)
# Simulated seconds of a run with 200 clients at once, nearly: a server step of size s takes s / concurrency of them.
SECONDS = 45.0

TABLE7 = Item(
    name="survey/table7",
    base=Variation("asynchronous", paper=BASE.fields("trend") | FEDERATION),
    rows=ROWS,
    columns=COLUMNS,
    variants=(*WINDOWS, IMA),
    # The best rates of those that were tried, by the model's accuracy (%) on held-out examples.
    overrides=of_cells(searched(pathlib.Path(__file__).with_suffix(".csv"))),
    paired=True,
)
TABLE8 = dataclasses.replace(
    TABLE7,
    name="survey/table8",
    base=dataclasses.replace(TABLE7.base, measure=AfterSeconds(seconds=SECONDS)),
    variants=WINDOWS,
)
