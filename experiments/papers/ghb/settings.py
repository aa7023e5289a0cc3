"""Settings shared by the heavy-ball paper's tables and figures: federations and networks."""

from .. import standin
from ..items import Variation
from ..trajectories import Fields
from ..wima import settings as wima
from ..wima.settings import FASHION

SEEDS = (0, 1, 2, 3, 4)
# Mean of the last 100 rounds. Tables of rounds to a target read the same runs: an evaluation every five rounds.
BASE = Variation(
    "ghb",
    paper=Fields(eval_every=5, final_evals=100),
    trend=Fields(eval_every=5, final_evals=30),
)
CROSS_SILO, CROSS_DEVICE = ("variant", "cross_silo"), ("variant", "cross_device")
ACCURACY = ("metric", "test_accuracy_pct")

# The handwritten digits stand in for other data sets than CIFAR; 3 of 100 clients for cross-device.
DIGITS = wima.DIGITS
FEWER_CLIENTS = DIGITS | {"clients_per_round": 3}
LENET = Fields(model="lenet5", augment="crop_flip", batch_size=64, client_lr=0.01, weight_decay=0.001)
RESNET = Fields(model="resnet20", augment="crop_flip", batch_size=64, client_lr=0.01, weight_decay=1e-5)
SILO = Fields(num_clients=100, clients_per_round=10)
DEVICE = Fields(num_clients=500, clients_per_round=5)
# The released code normalizes CIFAR-100 with CIFAR-10's constants.
DATA = {10: "cifar10", 100: "cifar100:constants=cifar10"}
ROUNDS = {10: 10_000, 100: 20_000}
MODELS = {"lenet5": "LeNet-5", "resnet20": "ResNet-20-GN"}
IID = 10_000
TOO_FEW = "images of CIFAR-100 are too few here to be split among 100 clients"


def cifar(classes: int, alpha: float, network: Fields, setting: Fields, trend: Fields | None) -> Variation:
    """Returns the column of a CIFAR set.

    Args:
      classes: 10 or 100.
      alpha: of the Dirichlet shares.
      network: and its rates.
      setting: how many clients there are.
      trend: fields at trend scale; None: nothing stands in.
    """
    data_fields = Fields(dataset=DATA[classes], num_rounds=ROUNDS[classes], partition=f"dirichlet:alpha={alpha:g}")
    names = {0.0: "noniid", float(IID): "iid"}
    skew = names.get(alpha, f"alpha{alpha:g}".replace(".", ""))
    return Variation(
        f"cifar{classes}_{skew}",
        f"CIFAR-{classes}, " + ("iid" if alpha == IID else f"alpha = {alpha:g}"),
        network | setting | data_fields,
        None if trend is None else trend | {"partition": data_fields["partition"]},
        trend_replaces=True,
        absent="" if trend is not None else TOO_FEW,
        printed=(
            ("dataset", f"CIFAR-{classes}"),
            ("partition", f"hsu_dirichlet:alpha={alpha:g};K={setting['num_clients']}"),
            ("model", MODELS[network["model"]]),
        ),
    )


def cifars(
    network: Fields, setting: Fields, federations: tuple[str, str], other: Fields | None
) -> tuple[Variation, ...]:
    """Returns the four columns of a network: both CIFAR sets, one class per client and iid.

    Args:
      network: and its rates.
      setting: how many clients there are.
      federations: of the stand-in of CIFAR-10, one class per client and iid.
      other: stands in for CIFAR-100 with one class per client; None: nothing does.
    """
    one_class, iid = (standin.fields(federation) for federation in federations)
    return (
        cifar(10, 0, network, setting, one_class),
        cifar(10, IID, network, setting, iid),
        cifar(100, 0, network, setting, other),
        cifar(100, IID, network, setting, None),
    )


LENET_SILO = cifars(LENET, SILO, ("alpha0", "iid"), FASHION)
LENET_DEVICE = cifars(LENET, DEVICE, ("alpha0_m3", "iid_m3"), None)
RESNET_SILO = cifars(RESNET, SILO, ("alpha0", "iid"), FASHION)


def _text(name: str, label: str, dataset: str, partition: str) -> Variation:
    fields = Fields(
        dataset=dataset,
        partition="natural",
        clients_per_round=10,
        model="leaf_lstm",
        batch_size=100,
        client_lr=1.0,
        num_rounds=250,
    )
    keys = (("dataset", "Shakespeare-100x2000"), ("partition", partition), ("model", "LSTM-2x100"))
    return Variation(name, label, fields, absent="a round of its LSTMs takes seven seconds on two cores", printed=keys)


SHAKESPEARE = (
    _text("shakespeare_noniid", "Shakespeare", "shakespeare_leaf", "leaf_niid;K=100"),
    _text("shakespeare_iid", "Shakespeare, iid", "shakespeare_leaf:iid=true", "leaf_iid;K=100"),
)
STACKOVERFLOW = Variation(
    "stackoverflow",
    "Stack Overflow",
    Fields(
        dataset="stackoverflow",
        partition="natural",
        clients_per_round=50,
        model="stackoverflow_lstm",
        batch_size=16,
        client_lr=0.3,
        num_rounds=1500,
    ),
    absent="the data set is not available here",
    printed=(("dataset", "StackOverflow-40k"), ("partition", "natural_users;K=40000"), ("model", "LSTM-670")),
)

ASSUMED = (
    "The bold marks of Table 7's best values are lost; they were read off its spacing.",
    "beta of FedAvgM, MimeMom and MimeLiteMom is 0.99 by that reading and 0.9 in the released code: both are run.",
    "alpha > 0 (iid: 10,000) is split by the shares of each client as the text says; the code splits otherwise.",
    "All test images count; the code leaves 100 (CIFAR-100: 1,000) out.",
    "Eight local steps with ResNet-20, the last batch being short, as in Table 8; the code drops that batch.",
    "FedProx adds mu (w - x); the code adds half of it.",
    "AdaBest's beta is not stated: 0.8. The code's AdaBest is FedAvg, and so are the printed numbers.",
    "FedADC's momentum and rates are not stated: 0.9, and FedAvg's.",
)


def standin_text(columns: tuple[Variation, ...], rows: tuple[Variation, ...]) -> str:
    """Returns what stands in for a table's columns: `rows` are its methods."""
    return (
        f"{standin.described(columns, rows)} CIFAR-100 with one class per client: Fashion-MNIST, two layers of 200, "
        "100 rounds, rates from a coarse search on the digits; text and CIFAR-100 iid: nothing."
    )
