"""SCAFFOLD with one class per client: which part of the rule, or of the setting, keeps it behind FedAvg."""

import pathlib
from typing import NamedTuple

from .. import standin
from ..items import Claim, Item, Variation
from ..remarks import rows_of
from ..trajectories import Fields
from ..wima.settings import BASE

# As survey/table3, a quarter of its rounds, and one rate for all.
SHORT = standin.fields("alpha0") | Fields(
    num_rounds=250, final_evals=25, eval_every=25, eval_examples=2000, client_lr=0.02
)
# The plug-in's module, under the name that this package has here.
IMPORT = f"{__name__.partition('.papers.')[0]}.plugins.scaffold_variants"
# Every client in every round: ten times the work of a round, so fewer of them, at a larger rate.
ALL = Fields(clients_per_round=100, num_rounds=40, final_evals=10, client_lr=0.1)
# One step of all its 100 images, or two; the rates make up for the missing steps.
ONE_STEP = Fields(batch_size=100, client_lr=0.1)
TWO_STEPS = Fields(batch_size=50, client_lr=0.05)
LAST_SHORT = TWO_STEPS | {"batch_size": 64}
SMALL_RATE = Fields(client_lr=0.005)
GROUP_NORM = Fields(model=f"{standin.CIFAR16['model']},groups=2")


def _row(name: str, label: str, algorithm: str, more: Fields = Fields()) -> Variation:
    """Returns a row: an algorithm, of fedwin or of the plug-in, in a setting."""
    plugin = {"imports": [IMPORT]} if algorithm.startswith("scaffold_variant") else {}
    return Variation(name, label, Fields(algorithm=algorithm) | plugin | more)


ROWS = (
    _row("fedavg", "FedAvg", "fedavg"),
    _row("scaffold", "SCAFFOLD", "scaffold"),
    _row("option_one", "SCAFFOLD, option I", "scaffold:option=I"),
    _row("small_rate", "SCAFFOLD, rate 0.005", "scaffold", SMALL_RATE),
    _row("server_rate", "SCAFFOLD, server rate 0.3", "scaffold:server_lr=0.3"),
    _row("late", "SCAFFOLD, no correction before round 60", "scaffold_variant:start=60"),
    _row("seen", "SCAFFOLD, no correction before a client has a control", "scaffold_variant:only_seen=true"),
    _row("norm", "SCAFFOLD, controls as long as the gradient", "scaffold_variant:control=norm"),
    _row("damped", "SCAFFOLD, 0.3 of the correction", "scaffold_variant:damping=0.3"),
    _row("sum", "SCAFFOLD, c a sum without 1/K, rate 0.005", "scaffold_variant:total=sum", SMALL_RATE),
    _row("fedavg_one", "FedAvg, one local step", "fedavg", ONE_STEP),
    _row("one", "SCAFFOLD, one local step", "scaffold", ONE_STEP),
    _row("two", "SCAFFOLD, batches of 50 and 50", "scaffold", TWO_STEPS),
    _row("short", "SCAFFOLD, batches of 64 and 36", "scaffold", LAST_SHORT),
    _row("fedavg_norm", "FedAvg, GroupNorm", "fedavg", GROUP_NORM),
    _row("scaffold_norm", "SCAFFOLD, GroupNorm", "scaffold", GROUP_NORM),
    _row("fedavg_all", "FedAvg, all clients, 40 rounds", "fedavg", ALL),
    _row("scaffold_all", "SCAFFOLD, all clients, 40 rounds", "scaffold", ALL),
)


class Hypothesis(NamedTuple):
    """A reason that was given for SCAFFOLD's accuracy with one class per client.

    Attributes:
      text: the reason.
      test: the observation to expect if it is the reason.
      better: row that then is more accurate.
      worse: row that it is compared with.
      earlier: accuracies (%) of earlier runs, whose curves are not stored; empty: there are none.
    """

    text: str
    test: str
    better: str
    worse: str
    earlier: str

    @property
    def claim(self) -> Claim:
        """The test as a claim about the table."""
        return Claim(self.test, (("row", self.better),), (("row", self.worse),))


HYPOTHESES = tuple(Hypothesis(*cells) for cells in rows_of(pathlib.Path(__file__).with_suffix(".md")))

TABLE5 = Item(
    name="survey/table5",
    base=Variation("cifar16", paper=BASE.fields("trend") | SHORT),
    rows=ROWS,
    columns=(Variation("alpha0", "CIFAR-10 at 16x16"),),
    variants=(Variation("base", "model"),),
    paired=True,
    stated=tuple(hypothesis.claim for hypothesis in HYPOTHESES),
    standin="The data, clients and network of survey/table3: 100 clients with 100 images of one class each, of which "
    "10 take part in each of 250 rounds, one epoch in batches of 20. The rate is 0.02, not searched, for all that name "
    "no other; 0.1 with all clients or one step in place of five, 0.05 with two steps. Accuracies of 2,000 "
    "test images.",
)

ITEMS = (TABLE5,)
