"""FEMNIST: EMNIST characters by writer, in the four formats that it is passed on in.

FedJAX SQLite, TFF SQLite (.lzma), TFF HDF5 (Cohen et al. 2017, https://arxiv.org/abs/1702.05373; Reddi et al. 2021)
and LEAF JSON (Caldas et al. 2018). Labels 0-9, A-Z, a-z. Files store paper as 1 and ink as 0; here ink is 255, as
FedJAX's x = 1 - pixels.
"""

import functools

import numpy as np

from fedwin.data import clients, fedjax_data, files, leaf, tff
from fedwin.data.catalog import DATASETS
from fedwin.data.dataset import Dataset, Examples, Partition
from fedwin.data.mnist import CHARACTERS, DIGITS
from fedwin.errors import UserError

SOURCE = "https://storage.googleapis.com/gresearch/fedjax/emnist/federated_emnist_{train,test}.sqlite"
DOMAINS = ("high_school", "census")


def quantised(pixels, paper: int, where) -> np.ndarray:
    """Returns uint8 [N, 28, 28, 1] = 255 |pixel - paper|: the files hold bytes divided by 255.

    Raises:
      UserError: pixels that are not numbers in [0, 1], or not 784 of them.
    """
    try:
        ink = np.abs(np.asarray(pixels, np.float32) - paper)
    except (ValueError, TypeError):
        raise UserError(f"{where}: pixels are not rows of 784 numbers.")
    if ink.size % 784 or not ink.size:
        raise UserError(f"{where}: {ink.size} pixels are not whole images of 784.")
    if not ink.max() <= 1.0001:  # false for NaN as well
        raise UserError(f"{where}: a pixel is NaN or outside 0..1.")
    return np.rint(np.minimum(ink, 1) * 255).astype(np.uint8).reshape(-1, 28, 28, 1)


def converted(where, paper: int, features: dict) -> Examples:
    """Turns 'pixels' and 'label' into x and y."""
    return {
        "x": quantised(features["pixels"], paper, where),
        "y": np.asarray(features["label"]).reshape(-1).astype(np.int32),
    }


def one(where, paper: int, features: dict) -> Examples:
    """Turns one parsed example into x and y without the example axis."""
    return {key: value[0] for key, value in converted(where, paper, features).items()}


def from_fedjax(train, test, paper: int):
    """Returns the streams of the two FedJAX files."""
    return [
        ((client, converted(path, paper, features)) for client, features in fedjax_data.read_sqlite(path))
        for path in (train, test)
    ]


def from_leaf(folders, paper: int):
    """Returns the streams of LEAF's train and test folder."""
    return [
        (
            (user, converted(f"{path}, client '{user}'", paper, {"pixels": x, "label": y}))
            for path, user, x, y in leaf.read(folder)
        )
        for folder in folders
    ]


def domains(natural: Partition) -> Partition:
    """Adds the domain of each writer `...fNNNN_NN`: 0, high school, for writers 2100-2599, else 1, census."""
    numbers = []
    for client in natural.ids:
        name = clients.text(client).rsplit(":", 1)[-1]
        if not (name[:1] == "f" and name[1:5].isdigit()):
            return natural
        numbers.append(int(name[1:5]))
    writer = np.array(numbers)
    return natural._replace(domain=np.where((writer >= 2100) & (writer <= 2599), 0, 1).astype(np.int32))


def load(name: str, data_dir, form: str, paper: int) -> Dataset:
    """Reads the first form found below data_dir, or the one named."""
    forms = ("fedjax", "tff", "hdf5", "leaf")
    if form not in ("auto", *forms):
        raise UserError(f"{name}: form={form}; it is auto, {', '.join(forms)}.")
    digits = name == "femnist_digits"
    infix = "emnist_digitsonly" if digits else "emnist"
    split = "digits_only" if digits else "all"
    for folder in files.folders(data_dir, "femnist*", "emnist*", "fed_emnist*"):
        if form in ("auto", "fedjax"):
            pair = [folder / f"federated_{infix}_{side}.sqlite" for side in ("train", "test")]
            if all(path.is_file() for path in pair):
                return build(name, from_fedjax(*pair, paper), pair)
        if form in ("auto", "tff") and (found := files.locate(folder, "emnist_all.sqlite")):
            with tff.unpacked(found) as path:
                convert = functools.partial(one, found, paper)
                streams = [tff.read_sqlite(path, f"{split}_{side}", convert) for side in ("train", "test")]
                return build(name, streams, [f"{found} {split}_train", f"{found} {split}_test"])
        if form in ("auto", "hdf5"):
            pair = [
                folder / f"fed_{'emnist_digitsonly' if digits else 'emnist'}_{side}.h5" for side in ("train", "test")
            ]
            if all(path.is_file() for path in pair):
                return build(
                    name, [tff.read_hdf5(path, functools.partial(converted, path, paper)) for path in pair], pair
                )
    if form in ("auto", "leaf") and (folders := leaf.find(data_dir, "femnist*")):
        return build(name, from_leaf(folders, paper), folders)
    raise files.missing(
        name, data_dir, f"federated_{infix}_{{train,test}}.sqlite, emnist_all.sqlite, .h5 or LEAF JSON", SOURCE
    )


def build(name: str, streams, where) -> Dataset:
    """Packs both streams; training and test clients are the same writers."""
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
        verified=False,
        test_natural=domains(test_natural),
    )


@DATASETS.register("femnist")
def femnist(data_dir, *, form: str = "auto", paper: int = 1) -> Dataset:
    """FEMNIST by writer: x uint8 [N, 28, 28, 1], ink 255, y in 0..61; 3,400 writers in the TFF and FedJAX files.

    Args:
      form: auto, fedjax (federated_emnist_{train,test}.sqlite), tff (emnist_all.sqlite, .lzma), hdf5
        (fed_emnist_{train,test}.h5) or leaf (train/ and test/ with JSON).
      paper: the value of paper in the files, 1 in all originals.

    Raises:
      UserError: nothing found, damaged records, an empty client or an id twice.
    """
    return load("femnist", data_dir, form, paper)


@DATASETS.register("femnist_digits")
def femnist_digits(data_dir, *, form: str = "auto", paper: int = 1) -> Dataset:
    """The digits of FEMNIST by writer, y in 0..9; 3,383 writers. The files are the `digitsonly` ones."""
    return load("femnist_digits", data_dir, form, paper)
