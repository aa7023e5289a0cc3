"""FEMNIST: EMNIST characters by writer, in the four formats in which it is published.

FedJAX SQLite, TFF SQLite (.lzma), TFF HDF5 (Cohen et al. 2017, https://arxiv.org/abs/1702.05373; Reddi et al. 2021) and
LEAF JSON (Caldas et al. 2018). Labels are 0-9, A-Z, a-z. The files store paper as 1 and ink as 0; here ink is 255, as
in FedJAX's x = 1 - pixels.
"""

import functools

import numpy as np

from fedwin.data.dataset import DATASETS, Dataset, Examples, FullSize, Partition
from fedwin.data.formats import checksums, clients, fedjax_sqlite, files, forms, leaf, tff, values
from fedwin.data.sources.mnist import CHARACTERS, DIGITS
from fedwin.errors import UserError

SOURCE = "https://storage.googleapis.com/gresearch/fedjax/emnist/federated_emnist_{train,test}.sqlite"
DOMAINS = ("high_school", "census")
SIDES = ("train", "test")
# Writers in TFF's and FedJAX's files.
WRITERS = {"femnist": 3400, "femnist_digits": 3383}


def quantize(pixels, paper: int) -> np.ndarray:
    """Converts pixels, bytes divided by 255 in the files, to uint8 [N, 28, 28, 1] = 255 |pixel - paper|.

    Args:
      pixels: the pixels [N * 784].
      paper: value of paper in the file, 0 or 1.

    Raises:
      ValueError: not images of 784 numbers in [0, 1].
    """
    pixels = np.asarray(pixels)
    if pixels.dtype.kind not in "biuf":
        raise ValueError("pixels are not rows of 784 numbers")
    if pixels.size % 784 or not pixels.size:
        raise ValueError(f"{pixels.size} pixels are not whole images of 784")
    rows = pixels.reshape(-1, 784).astype(np.float32, copy=False)
    if not (rows.min() >= -1e-4 and rows.max() <= 1.0001):  # false for NaN as well
        inside = (rows.min(1) >= -1e-4) & (rows.max(1) <= 1.0001)
        raise ValueError(f"record {int(inside.argmin())}: a pixel is NaN or outside 0..1")
    ink = 255 * np.abs(rows - np.float32(paper))  # at most 255.03, which rounds to 255
    return np.rint(ink).astype(np.uint8).reshape(-1, 28, 28, 1)


def convert(paper: int, num_classes: int, features: dict) -> Examples:
    """Converts a client's arrays 'pixels' and 'label' to x and y.

    Args:
      paper: value of paper in the file, 0 or 1.
      num_classes: number of classes.
      features: the arrays.
    """
    labels = values.labels(np.asarray(features["label"]).reshape(-1), num_classes)
    return {"x": quantize(features["pixels"], paper), "y": labels}


def single_example(paper: int, num_classes: int, features: dict) -> Examples:
    """Converts one parsed example to x and y without the example axis; arguments as for `convert`."""
    examples = convert(paper, num_classes, features)
    if len(examples["x"]) != 1 or len(examples["y"]) != 1:
        raise ValueError(f"{len(examples['y'])} labels and {len(examples['x'])} images, not one of each")
    return {key: value[0] for key, value in examples.items()}


def from_leaf(folders, to_examples):
    """Returns the streams of clients in LEAF's train and test folder."""

    def stream(folder):
        for path, user, x, y in leaf.read(folder):
            with values.naming(f"{path}, client '{user}'"):
                features = to_examples({"pixels": x, "label": y})
            yield user, features

    return [stream(folder) for folder in folders]


def domains(natural: Partition) -> Partition:
    """Adds the domain of each writer `...fNNNN_NN`: 0, high school, for writers 2100-2599, else 1, census."""
    numbers = []
    for client in natural.ids if natural.ids is not None else ():
        name = clients.text(client).rsplit(":", 1)[-1]
        if not (name[:1] == "f" and name[1:5].isdigit()):
            return natural
        numbers.append(int(name[1:5]))
    writer = np.array(numbers)
    return natural._replace(domain=np.where((writer >= 2100) & (writer <= 2599), 0, 1).astype(np.int32))


def load(name: str, data_dir, form: str, paper: int) -> Dataset:
    """Loads FEMNIST in the first form found below data_dir, or in the given one.

    Args:
      name: 'femnist' or 'femnist_digits'.
      data_dir: the folder to search.
      form: 'auto', 'fedjax', 'tff', 'hdf5' or 'leaf'.
      paper: value of paper in the files, 0 or 1.

    Returns:
      The Dataset.

    Raises:
      UserError: as for `femnist`.
    """
    if form not in ("auto", "fedjax", "tff", "hdf5", "leaf"):
        raise UserError(f"{name}: form={form}; choose auto, fedjax, tff, hdf5 or leaf.")
    if paper not in (0, 1):
        raise UserError(f"{name}: paper={paper}; choose 0 or 1.")
    digits = name == "femnist_digits"
    infix, split, classes = ("emnist_digitsonly", "digits_only", 10) if digits else ("emnist", "all", 62)
    pair = lambda pattern: tuple(pattern.format(side) for side in SIDES)
    all_forms = (
        forms.Form("fedjax", pair(f"federated_{infix}_{{}}.sqlite")),
        forms.Form("tff", ("emnist_all.sqlite",)),
        forms.Form("hdf5", pair(f"fed_{infix}_{{}}.h5"), (f"fed_{infix}.tar.bz2",)),
    )
    to_examples, to_example = (functools.partial(function, paper, classes) for function in (convert, single_example))
    folders = files.folders(data_dir, "femnist*", "emnist*", "fed_emnist*")
    with forms.open_form(folders, [choice for choice in all_forms if form in ("auto", choice.name)]) as opened:
        if opened:
            where = opened.paths
            if opened.form == "fedjax":
                streams = [fedjax_sqlite.read_sqlite(path, convert=to_examples) for path in where]
            elif opened.form == "tff":
                streams = [tff.read_sqlite(where[0], f"{split}_{side}", to_example) for side in SIDES]
                where = [f"{where[0]} {split}_{side}" for side in SIDES]
            else:
                streams = [tff.read_hdf5(path, to_examples) for path in where]
            dataset = build(name, streams, where, opened.verified(name))
            assert dataset.natural is not None  # the writers
            checksums.check_num_clients(name, opened.origins[0], dataset.natural.num_clients, WRITERS[name])
            return dataset
    if form in ("auto", "leaf") and (leaf_folders := leaf.find(data_dir, "femnist*")):
        return build(name, from_leaf(leaf_folders, to_examples), leaf_folders, False)
    wanted = f"federated_{infix}_{{train,test}}.sqlite, emnist_all.sqlite, fed_{infix}_{{train,test}}.h5"
    raise files.missing(name, data_dir, f"{wanted} (also compressed, or in fed_{infix}.tar.bz2) or LEAF JSON", SOURCE)


def build(name: str, streams, where, verified: bool) -> Dataset:
    """Builds the data set from the streams of training and test clients, which are the same writers."""
    (train, natural), (test, test_natural) = (clients.flatten(*side) for side in zip(streams, where))
    names = DIGITS if name == "femnist_digits" else CHARACTERS
    return Dataset(
        name,
        train,
        test,
        len(names),
        mean=(0.0,),
        std=(1.0,),
        natural=domains(natural),
        class_names=names,
        domain_names=DOMAINS,
        verified=verified,
        test_natural=domains(test_natural),
    )


FEDJAX = "https://storage.googleapis.com/gresearch/fedjax/emnist/"
TFF = "https://storage.googleapis.com/tff-datasets-public/"


@DATASETS.register(
    "femnist",
    title="FEMNIST, 62 classes",
    how="downloads FedJAX's SQLite; reads TFF SQLite(.lzma), HDF5 (also in its `.tar.bz2`) and LEAF JSON too",
    sizes="3,400 / 671,585 / 77,483",
    full=FullSize(671_585, 77_483, WRITERS["femnist"]),
    prepared="not measured: file not available",
    downloads=tuple(f"{FEDJAX}federated_emnist_{side}.sqlite" for side in SIDES),
    variants={
        "form=leaf": (),
        "form=tff": (TFF + "emnist_all.sqlite.lzma",),
        "form=hdf5": (TFF + "fed_emnist.tar.bz2",),
    },
    checksums={"fed_emnist.tar.bz2": ("sha256", "fe1ed5a502cea3a952eb105920bff8cffb32836b5173cb18a57a32c3606f3ea0")},
)
def femnist(data_dir, *, form: str = "auto", paper: int = 1) -> Dataset:
    """FEMNIST by writer: x uint8 [N, 28, 28, 1], ink 255, y in 0..61; 3,400 writers in the TFF and FedJAX files.

    Args:
      data_dir: folder of the files, or a parent of it.
      form: auto, fedjax (federated_emnist_{train,test}.sqlite), tff (emnist_all.sqlite), hdf5
        (fed_emnist_{train,test}.h5 or fed_emnist.tar.bz2) or leaf (train/ and test/ with JSON); any may be compressed.
      paper: value of paper in the files, 1 in all originals.

    Returns:
      The Dataset.

    Raises:
      UserError: no files, damaged records, an empty client or an id that occurs twice.
    """
    return load("femnist", data_dir, form, paper)


@DATASETS.register(
    "femnist_digits",
    title="FEMNIST, digits",
    how="as `femnist`; LEAF JSON of MNIST writers with `:form=leaf,paper=0`",
    sizes="3,383 / 341,873 / 40,832; LEAF JSON of 20 writers: 20 / 1,710 / 435",
    full=FullSize(341_873, 40_832, WRITERS["femnist_digits"]),
    prepared="1.4 s (the 20 writers)",
    cache="1.6 MiB",
    downloads=tuple(f"{FEDJAX}federated_emnist_digitsonly_{side}.sqlite" for side in SIDES),
    variants={
        "form=leaf": (),
        "form=tff": (TFF + "emnist_all.sqlite.lzma",),
        "form=hdf5": (TFF + "fed_emnist_digitsonly.tar.bz2",),
    },
    checksums={
        "fed_emnist_digitsonly.tar.bz2": ("sha256", "55333deb8546765427c385710ca5e7301e16f4ed8b60c1dc5ae224b42bd5b14b")
    },
)
def femnist_digits(data_dir, *, form: str = "auto", paper: int = 1) -> Dataset:
    """The digits of FEMNIST by writer, y in 0..9; 3,383 writers. Reads the `digitsonly` files.

    Args:
      data_dir: folder of the files, or a parent of it.
      form: as for `femnist`.
      paper: value of paper in the files, 1 in all originals.

    Returns:
      The Dataset.

    Raises:
      UserError: as for `femnist`.
    """
    return load("femnist_digits", data_dir, form, paper)
