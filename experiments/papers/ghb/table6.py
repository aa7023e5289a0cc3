"""GHB, Table 6: centralised training."""

from ..claims import Claim
from ..items import Entry, Item
from ..trajectories import Fields
from .settings import ACCURACY, DATA, LENET, RESNET, SEEDS, SHAKESPEARE, STACKOVERFLOW, TREND_SEEDS

# One client that holds all and keeps its momentum from epoch to epoch; a round is an epoch.
MOMENTUM, PLAIN = Fields(algorithm="local_momentum:momentum=0.9"), Fields(algorithm="fedavg")
ALONE = Fields(num_clients=1, clients_per_round=1, partition="iid", lr_schedule="cosine")
BASE = Entry(
    "centralised",
    paper=ALONE | {"final_evals": 1, "num_rounds": 150},
    trend=Fields(final_evals=1, num_rounds=30, eval_every=1),
)
DIGITS = MOMENTUM | {"dataset": "digits", "batch_size": 64, "client_lr": 0.05}
SMALL = MOMENTUM | {"dataset": "fmnist", "model": "mlp", "batch_size": 64, "client_lr": 0.01, "num_rounds": 10}
CENTRAL = (("partition", "centralized"), ("variant", "centralized"), ACCURACY)


def _column(name: str, label: str, fields: Fields, printed: tuple[str, str], trend: Fields | None, why="") -> Entry:
    keys = (("dataset", printed[0]), ("model", printed[1]), *CENTRAL)
    return Entry(name, label, fields, trend, absent=why, printed=keys)


def _images(classes: int, network: Fields, model: str, rate: float, trend: Fields | None, why: str = "") -> Entry:
    name = f"cifar{classes}_{network['model']}"
    fields = network | MOMENTUM | {"dataset": DATA[classes], "client_lr": rate}
    return _column(name, f"CIFAR-{classes}, {model}", fields, (f"CIFAR-{classes}", model), trend, why)


def _text(like: Entry, dataset: str, model: str, fields: Fields) -> Entry:
    kept = {name: like.paper[name] for name in ("dataset", "model", "batch_size")}
    return _column(like.name, like.label, PLAIN | kept | fields, (dataset, model), None, like.absent)


LENET_10 = _images(10, LENET, "LeNet-5", 0.01, DIGITS | {"model": "digits_mlp", "augment": "none"})
LENET_100 = _images(100, LENET, "LeNet-5", 0.01, SMALL | {"augment": "none"})

ITEM = Item(
    name="ghb/table6",
    title="Centralised training: accuracy at the end",
    base=BASE,
    rows=(Entry("sgd", "SGD", printed=(("algorithm", "SGD"),)),),
    columns=(
        LENET_10,
        _images(10, RESNET, "ResNet-20-GN", 0.1, DIGITS | {"model": "cnn", "augment": "none"}),
        LENET_100,
        _images(100, RESNET, "ResNet-20-GN", 0.1, None, "there is no small network better than the perceptron's"),
        _text(
            SHAKESPEARE[0],
            "Shakespeare-100x2000",
            "LSTM-2x100",
            Fields(client_lr=1.0, weight_decay=1e-4, num_rounds=75),
        ),
        # The rate is the square root of a tenth.
        _text(STACKOVERFLOW, "StackOverflow-40k", "LSTM-670", Fields(client_lr=10**-0.5, num_rounds=50)),
    ),
    table=("ghb", "6"),
    seeds=SEEDS,
    trend_seeds=TREND_SEEDS,
    claims=(
        Claim(
            "ResNet-20 is more accurate than LeNet-5, CIFAR-10.",
            (("column", "cifar10_resnet20"),),
            (("column", "cifar10_lenet5"),),
        ),
    ),
    assumed=(
        "Momentum 0.9 is read as that of the image networks, the cosine as that of all; the LSTMs are trained without "
        "momentum.",
        "Weight decay of the image networks is that of their federated runs; the accuracy is that of the last epoch.",
    ),
    standin="CIFAR-10: digits, a hidden layer of 64 for LeNet-5 and a CNN for ResNet-20, 30 epochs; CIFAR-100, "
    "LeNet-5: Fashion-MNIST, two layers of 200, 10 epochs.",
    cost="150 epochs of 50,000 images, 75 of 200,000 windows: for a GPU",
)
