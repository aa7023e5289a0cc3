"""MNIST and its relatives in IDX files: MNIST, Fashion-MNIST, EMNIST, USPS, and MNIST by writer."""

import pathlib
import warnings

import numpy as np

from fedwin.data import files, idx
from fedwin.data.catalog import DATASETS
from fedwin.data.dataset import Dataset, Examples, Partition
from fedwin.errors import UserError

FASHION_NAMES = tuple("T-shirt/top,Trouser,Pullover,Dress,Coat,Sandal,Shirt,Sneaker,Bag,Ankle boot".split(","))
DIGITS = tuple("0123456789")
LETTERS = tuple("ABCDEFGHIJKLMNOPQRSTUVWXYZ")
CHARACTERS = DIGITS + LETTERS + tuple("abcdefghijklmnopqrstuvwxyz")

# sha256 of the decoded IDX files (MNIST) and md5 of the compressed ones (Fashion-MNIST).
MNIST_SHA256 = {
    "train-images-idx3-ubyte": "ba891046e6505d7aadcbbe25680a0738ad16aec93bde7f9b65e87a2fc25776db",
    "train-labels-idx1-ubyte": "65a50cbbf4e906d70832878ad85ccda5333a97f0f4c3dd2ef09a8a9eef7101c5",
    "t10k-images-idx3-ubyte": "0fa7898d509279e482958e8ce81c8e77db3f2f8254e26661ceb7762c4d494ce7",
    "t10k-labels-idx1-ubyte": "ff7bcfd416de33731a308c3f266cc351222c34898ecbeaf847f06e48f7ec33f2",
}
FASHION_MD5 = {
    "train-images-idx3-ubyte": "8d4fb7e6c68d591d4c3dfef9ec88bf0d",
    "train-labels-idx1-ubyte": "25c81989df183df01b3e8a0aad5dffbe",
    "t10k-images-idx3-ubyte": "bef4ecab320f06d8554ea6380940ec79",
    "t10k-labels-idx1-ubyte": "bb300cfdad3c16e7a12a480ee83cd310",
}

# Classes of each EMNIST split; the labels of `letters` start at 1.
EMNIST_NAMES = {
    "byclass": CHARACTERS,
    "bymerge": DIGITS + LETTERS + tuple("abdefghnqrt"),
    "balanced": DIGITS + LETTERS + tuple("abdefghnqrt"),
    "letters": LETTERS,
    "digits": DIGITS,
    "mnist": DIGITS,
}


def names(prefix: str = "", test: str = "t10k", kind: str = "ubyte") -> tuple[str, str, str, str]:
    """Returns the file names of training images, training labels, test images and test labels."""
    return tuple(
        f"{prefix}{split}-{what}" for split in ("train", test) for what in (f"images-idx3-{kind}", "labels-idx1-ubyte")
    )


def read(dataset: str, data_dir, patterns, wanted, source: str) -> tuple[dict[str, np.ndarray], dict[str, object]]:
    """Returns name -> array and name -> file of the IDX files wanted, from one folder or archive.

    Raises:
      UserError: not found, damaged, or images and labels of different numbers.
    """
    for folder in files.folders(data_dir, *patterns):
        if folder.is_dir() and all(files.locate(folder, name) for name in wanted):
            found = {name: files.locate(folder, name) for name in wanted}
            break
        archives = [folder] if folder.is_file() else [*folder.glob("*.zip")]
        held = next((held for held in map(files.entries, archives) if all(name in held for name in wanted)), None)
        if held:
            found = {name: held[name] for name in wanted}
            break
    else:
        raise files.missing(dataset, data_dir, f"{', '.join(wanted)} (plain, .gz, .xz or .bz2)", source)
    arrays = {name: idx.parse(files.content(entry), place(found, name)) for name, entry in found.items()}
    for images, labels in (wanted[:2], wanted[2:4]):
        if len(arrays[images]) != len(arrays[labels]):
            raise UserError(
                f"{place(found, labels)}: {len(arrays[labels])} labels for {len(arrays[images])} images in {images}."
            )
    return arrays, found


def place(found: dict, name: str):
    """Returns what to call a file in an error line: its path, or its name inside an archive."""
    return name if isinstance(found[name], bytes) else found[name]


def pack(arrays, wanted) -> tuple[Examples, Examples]:
    """Returns train and test features, images with a channel axis, labels int32."""
    pair = lambda images, labels: {"x": arrays[images][..., None], "y": arrays[labels].astype(np.int32)}
    return pair(*wanted[:2]), pair(*wanted[2:4])


def verify(found: dict, dataset: str, decoded: dict[str, str], stored: dict[str, str]) -> bool:
    """Returns whether every file has its decoded sha256 or its stored md5; warns 'unverified' otherwise."""

    def right(name, entry):
        if decoded.get(name) and files.digest(files.content(entry), "sha256") == decoded[name]:
            return True
        return bool(stored.get(name)) and isinstance(entry, pathlib.Path) and files.digest(entry) == stored[name]

    wrong = [name for name, entry in found.items() if not right(name, entry)]
    if wrong:
        warnings.warn(
            f"{dataset}: unverified, the checksums of {', '.join(wrong)} are not the original's.", stacklevel=3
        )
    return not wrong


@DATASETS.register("mnist")
def mnist(data_dir) -> Dataset:
    """MNIST, LeCun et al. 1998: x uint8 [N, 28, 28, 1], ink 255, y in 0..9; 60,000 and 10,000 images."""
    wanted = names()
    arrays, found = read("mnist", data_dir, ("mnist*",), wanted, "http://yann.lecun.com/exdb/mnist")
    train, test = pack(arrays, wanted)
    verified = verify(found, "mnist", MNIST_SHA256, {})
    return Dataset("mnist", train, test, 10, mean=(0.1307,), std=(0.3081,), class_names=DIGITS, verified=verified)


@DATASETS.register("mnist_writers")
def mnist_writers(data_dir) -> Dataset:
    """MNIST with its 539 training writers as clients, by QMNIST's labels, https://arxiv.org/abs/1905.10498.

    Reads `qmnist-{train,test}-labels-idx2-int` beside the four MNIST files. The test images are by 297 other writers,
    kept as `test_natural`.

    Raises:
      UserError: files missing, or the two label files disagree about an image.
    """
    wanted = (*names(), "qmnist-train-labels-idx2-int", "qmnist-test-labels-idx2-int")
    arrays, found = read(
        "mnist_writers", data_dir, ("mnist*", "qmnist*"), wanted, "https://github.com/facebookresearch/qmnist"
    )
    train, test = pack(arrays, wanted)
    verified = verify({name: found[name] for name in wanted[:4]}, "mnist_writers", MNIST_SHA256, {})
    writers = []
    for name, features in zip(wanted[4:], (train, test)):
        rows = arrays[name][: len(features["y"])]
        if rows.ndim != 2 or rows.shape[1] < 3 or len(rows) < len(features["y"]):
            raise UserError(
                f"{place(found, name)}: shape {arrays[name].shape} has not a row of writer data for every image."
            )
        if (rows[:, 0] != features["y"]).any():
            row = int((rows[:, 0] != features["y"]).argmax())
            raise UserError(
                f"{place(found, name)}, record {row}: class {rows[row, 0]}, "
                f"but the image's label is {features['y'][row]}."
            )
        writers.append(by_writer(rows[:, 2]))
    return Dataset(
        "mnist_writers",
        train,
        test,
        10,
        mean=(0.1307,),
        std=(0.3081,),
        natural=writers[0],
        class_names=DIGITS,
        verified=verified,
        test_natural=writers[1],
    )


def by_writer(writer: np.ndarray) -> Partition:
    """Groups rows by the writer's number, in ascending order; ids are `f0000`-like, as NIST writes them."""
    ids, sizes = np.unique(writer, return_counts=True)
    order = np.argsort(writer, kind="stable").astype(np.int32)
    offset = np.concatenate([[0], np.cumsum(sizes)]).astype(np.int64)
    return Partition(order, offset, ids=np.array([f"f{number:04d}" for number in ids]))


@DATASETS.register("fmnist")
def fmnist(data_dir) -> Dataset:
    """Fashion-MNIST, Xiao et al. 2017, https://arxiv.org/abs/1708.07747: x uint8 [N, 28, 28, 1], scaled to [0, 1]."""
    wanted = names()
    source = "http://fashion-mnist.s3-website.eu-central-1.amazonaws.com/"
    arrays, found = read("fmnist", data_dir, ("fashion*", "fmnist*"), wanted, source)
    train, test = pack(arrays, wanted)
    verified = verify(found, "fmnist", {}, FASHION_MD5)
    return Dataset("fmnist", train, test, 10, mean=(0.0,), std=(1.0,), class_names=FASHION_NAMES, verified=verified)


@DATASETS.register("emnist")
def emnist(data_dir, *, split: str = "byclass") -> Dataset:
    """EMNIST, Cohen et al. 2017, https://arxiv.org/abs/1702.05373, from `emnist-<split>-*` IDX files.

    The files hold transposed images; x is upright, uint8 [N, 28, 28, 1]. There are no writers in them: see femnist.

    Args:
      split: byclass (62 classes), bymerge, balanced (47), letters (26), digits or mnist (10).
    """
    if split not in EMNIST_NAMES:
        raise UserError(f"emnist: split={split}; it is one of {', '.join(EMNIST_NAMES)}.")
    wanted = names(f"emnist-{split}-", "test")
    source = "https://www.nist.gov/itl/products-and-services/emnist-dataset"
    arrays, _ = read("emnist", data_dir, ("emnist*", "gzip"), wanted, source)
    for name in wanted[::2]:
        arrays[name] = np.ascontiguousarray(arrays[name].swapaxes(1, 2))
    for name in wanted[1::2]:
        arrays[name] = arrays[name].astype(np.int32) - (split == "letters")
    train, test = pack(arrays, wanted)
    classes = EMNIST_NAMES[split]
    return Dataset("emnist", train, test, len(classes), mean=(0.0,), std=(1.0,), class_names=classes, verified=False)


@DATASETS.register("usps")
def usps(data_dir) -> Dataset:
    """USPS digits, Hull 1994, from int16 IDX files, v in -1000..1000: uint8 [N, 16, 16, 1], 255 (v + 1000) / 2000."""
    wanted = tuple(f"usps-{name}" for name in names("", "test", "short"))
    arrays, found = read("usps", data_dir, ("usps*",), wanted, "any copy of USPS, converted to these IDX files")
    for name in wanted[::2]:
        values = arrays[name].astype(np.float32)
        if np.abs(values).max(initial=0) > 1000:
            row = int((np.abs(values).reshape(len(values), -1).max(1) > 1000).argmax())
            raise UserError(f"{place(found, name)}, record {row}: a value beyond 1000.")
        arrays[name] = np.rint((values + 1000) * (255 / 2000)).astype(np.uint8)
    train, test = pack(arrays, wanted)
    return Dataset("usps", train, test, 10, mean=(0.0,), std=(1.0,), class_names=DIGITS, verified=False)
