"""The pieces of the suite: which case, in which precision, by whom.

The cohorts are those that the papers train: 10 of 100 clients with 500 images each, so eight batches of 64 (LeNet-5,
ResNet-20), FedJAX's own EMNIST setting of 10 clients, and 10 clients of Shakespeare with batches of 100, of which four
a round are enough: the step is the same. The aims are stated for the same cohorts.
"""

import dataclasses
from typing import Any

from ..peers.cases import CASES, Case, scaled

COHORTS = {"lenet5": "10x8x64", "resnet20": "10x8x64", "emnist_cnn": "10x20x10", "leaf_lstm": "10x4x100"}
# Of a trial, which is to show that everything works.
TINY = "2x1x4"
# In the order in which they are measured: what the aims are about comes first.
PRECISIONS = ("tf32", "float32", "bfloat16")
# As many seeds as the papers average over.
SEEDS, FEW_SEEDS = 5, 2
# Who, and how: a strategy and seeds at once, or a layout. FedJAX has no other precision than those of its products.
_BOTH = (
    ("fedwin", "vmapped", 1),
    ("fedjax", "", 1),
    ("torch", "", 1),
    ("fedwin", "chunked:k=1", 1),
    ("torch", "channels-last", 1),
)
_HALF = (("fedwin", "chunked:k=5", 1), ("fedwin", "vmapped", SEEDS))
CONTESTANTS = {
    "tf32": (*_BOTH, *_HALF),
    "float32": _BOTH,
    "bfloat16": tuple(one for one in _BOTH if one[0] != "fedjax"),
}


@dataclasses.dataclass(frozen=True)
class Piece:
    """One measurement.

    Attributes:
      case: what is trained.
      precision: float32, tf32 or bfloat16.
      who: fedwin, fedjax or torch.
      how: fedwin's strategy, or 'channels-last'.
      seeds: that are trained in one program.
    """

    case: Case
    precision: str
    who: str
    how: str = ""
    seeds: int = 1

    @property
    def label(self) -> str:
        """What tables call who measured it."""
        return " ".join([self.who, *([self.how] if self.how else [])]) + (
            f", {self.seeds} seeds" if self.seeds > 1 else ""
        )

    @property
    def title(self) -> str:
        """What lines call it."""
        return f"{self.case.name} {self.precision} {self.label}"

    @property
    def request(self) -> dict[str, Any]:
        """What its worker is asked to prepare."""
        fields = dataclasses.asdict(self.case)
        if self.who == "fedjax":
            return {"case": fields}
        if self.who == "torch":
            return {"case": fields, "precision": self.precision, "channels_last": bool(self.how)}
        if self.precision == "bfloat16":
            fields["model"] += ":dtype=bfloat16"
        kind = "seeds" if self.seeds > 1 else "rounds"
        return {"kind": kind, "case": fields, "strategy": self.how, "seeds": self.seeds}


def groups(names: list[str], peers: list[str], tiny: bool) -> list[list[Piece]]:
    """Returns the pieces that are measured in turn with each other, group by group.

    Args:
      names: of the cases.
      peers: that fedwin is compared with.
      tiny: whether cohorts are tiny.
    """
    found = []
    for precision in PRECISIONS:
        for name in names:
            case = scaled(CASES[name], TINY if tiny else COHORTS[name])
            group = []
            for who, how, seeds in CONTESTANTS[precision]:
                if who != "fedwin" and who not in peers:
                    continue
                if how == "channels-last" and len(case.shape) != 3:
                    continue
                group.append(Piece(case, precision, who, how, FEW_SEEDS if tiny and seeds > 1 else seeds))
            found.append(group)
    return found
