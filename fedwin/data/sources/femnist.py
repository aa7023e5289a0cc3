"""FEMNIST: EMNIST characters by writer, in FedJAX's SQLite files or in LEAF's JSON.

Cohen et al. 2017, https://arxiv.org/abs/1702.05373; Caldas et al. 2018, https://arxiv.org/abs/1812.01097. Labels are
0-9, A-Z, a-z. The files store paper as 1 and ink as 0; here ink is 255, as in FedJAX's x = 1 - pixels.
"""

import functools
from collections.abc import Callable, Iterator
from typing import Literal

import numpy as np

from fedwin.data.dataset import DATASETS, Dataset, Examples, FullSize, Partition
from fedwin.data.formats import checksums, clients, files, leaf, sqlite, values
from fedwin.data.sources.mnist import CHARACTERS, DIGITS

FEDJAX = "https://storage.googleapis.com/gresearch/fedjax/emnist/"
DOMAINS = ("high_school", "census")
SIDES = ("train", "test")


def quantize(pixels, paper: int) -> np.ndarray:
    """Converts pixels [N * 784], bytes divided by 255 in the files, to uint8 [N, 28, 28, 1] = 255 |pixel - paper|.

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
    """Converts a client's arrays 'pixels' and 'label' to x and y; `paper` as for `quantize`."""
    labels = values.labels(np.asarray(features["label"]).reshape(-1), num_classes)
    return {"x": quantize(features["pixels"], paper), "y": labels}


def leaf_clients(folder, to_examples: Callable[[dict], Examples]) -> Iterator[tuple[str, Examples]]:
    """Yields the clients in one of LEAF's folders."""
    for path, user, x, y in leaf.read(leaf.parts(folder)):
        with files.reading(f"{path}, client '{user}'"):
            features = to_examples({"pixels": x, "label": y})
        yield user, features


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
    """Loads 'femnist' or 'femnist_digits' in the first form found below data_dir, or in the given one."""
    infix, names = ("emnist_digitsonly", DIGITS) if name == "femnist_digits" else ("emnist", CHARACTERS)
    to_examples = functools.partial(convert, paper, len(names))
    folders = files.folders(data_dir, "femnist*", "emnist*", "fed_emnist*")
    paths = files.locate_all(folders, *(f"federated_{infix}_{side}.sqlite" for side in SIDES))
    if form != "leaf" and paths:
        streams: list = [(sqlite.read(path, convert=to_examples), path) for path in paths]
    elif form != "fedjax" and (leaf_folders := leaf.find(data_dir, "femnist*")):
        streams = [(leaf_clients(folder, to_examples), folder) for folder in leaf_folders]
    elif form == "leaf":
        raise files.missing(name, data_dir, "LEAF JSON (train/ and test/)", "https://github.com/TalwalkarLab/leaf")
    else:
        wanted = f"federated_{infix}_{{train,test}}.sqlite (also compressed) or LEAF JSON"
        raise files.missing(name, data_dir, wanted, f"{FEDJAX}federated_{infix}_{{train,test}}.sqlite")
    sides = [clients.flatten(*stream) for stream in streams]
    if form != "leaf" and paths:
        checksums.check_num_clients(name, paths[0], sides[0][1].num_clients)
    held = [(examples, domains(natural)) for examples, natural in sides]
    described = {"mean": (0.0,), "std": (1.0,), "class_names": names, "domain_names": DOMAINS, "verified": False}
    return Dataset.of_clients(name, held, len(names), **described)


@DATASETS.register(
    "femnist",
    full=FullSize(671_585, 77_483, 3400),
    downloads=tuple(f"{FEDJAX}federated_emnist_{side}.sqlite" for side in SIDES),
    variants={"form=leaf": ()},
)
def femnist(data_dir, *, form: Literal["auto", "fedjax", "leaf"] = "auto", paper: Literal[0, 1] = 1) -> Dataset:
    """FEMNIST by writer: x uint8 [N, 28, 28, 1], ink 255, y in 0..61; 3,400 writers in FedJAX's files.

    Args:
      form: auto, fedjax (federated_emnist_{train,test}.sqlite) or leaf (train/ and test/ with JSON); both may be
        compressed.
      paper: value of paper in the files, 1 in all originals.
    """
    return load("femnist", data_dir, form, paper)


@DATASETS.register(
    "femnist_digits",
    like="femnist",
    full=FullSize(341_873, 40_832, 3383),
    downloads=tuple(f"{FEDJAX}federated_emnist_digitsonly_{side}.sqlite" for side in SIDES),
    variants={"form=leaf": ()},
)
def femnist_digits(data_dir, *, form: Literal["auto", "fedjax", "leaf"] = "auto", paper: Literal[0, 1] = 1) -> Dataset:
    """The digits of FEMNIST by writer, y in 0..9; 3,383 writers. Reads the `digitsonly` files."""
    return load("femnist_digits", data_dir, form, paper)
