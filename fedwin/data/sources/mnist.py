"""MNIST and its relatives in IDX files: MNIST, MNIST by writer, Fashion-MNIST, EMNIST and USPS."""

from typing import Literal

import numpy as np

from fedwin.data.dataset import DATASETS, Dataset, FullSize, Partition, offsets
from fedwin.data.formats import values
from fedwin.data.formats.idx import IdxFile, file_names, pack, read, verify
from fedwin.errors import UserError

FASHION_NAMES = tuple("T-shirt/top,Trouser,Pullover,Dress,Coat,Sandal,Shirt,Sneaker,Bag,Ankle boot".split(","))
DIGITS = tuple("0123456789")
LETTERS = tuple("ABCDEFGHIJKLMNOPQRSTUVWXYZ")
CHARACTERS = DIGITS + LETTERS + tuple("abcdefghijklmnopqrstuvwxyz")

# Per-channel (mean, std): of MNIST, and of images that are scaled to [0, 1].
MOMENTS, UNIT = ((0.1307,), (0.3081,)), ((0.0,), (1.0,))
MERGED = DIGITS + LETTERS + tuple("abdefghnqrt")
# EMNIST split -> (classes, training images, test images); the labels of `letters` start at 1.
EMNIST = {
    "byclass": (CHARACTERS, 697_932, 116_323),
    "bymerge": (MERGED, 697_932, 116_323),
    "balanced": (MERGED, 112_800, 18_800),
    "letters": (LETTERS, 124_800, 20_800),
    "digits": (DIGITS, 240_000, 40_000),
    "mnist": (DIGITS, 60_000, 10_000),
}

MNIST = "https://ossci-datasets.s3.amazonaws.com/mnist/"
QMNIST = "https://raw.githubusercontent.com/facebookresearch/qmnist/main/"
CHECKSUMS = {
    "train-images-idx3-ubyte.gz": ("md5", "f68b3c2dcbeaaa9fbdd348bbdeb94873"),
    "train-labels-idx1-ubyte.gz": ("md5", "d53e105ee54ea40749a09fcbcd1e9432"),
    "t10k-images-idx3-ubyte.gz": ("md5", "9fb629c4189551a2d022fa330f9573f3"),
    "t10k-labels-idx1-ubyte.gz": ("md5", "ec29112dd5afa0611ce80d1b7f02629c"),
    "train-images-idx3-ubyte": ("sha256", "ba891046e6505d7aadcbbe25680a0738ad16aec93bde7f9b65e87a2fc25776db"),
    "train-labels-idx1-ubyte": ("sha256", "65a50cbbf4e906d70832878ad85ccda5333a97f0f4c3dd2ef09a8a9eef7101c5"),
    "t10k-images-idx3-ubyte": ("sha256", "0fa7898d509279e482958e8ce81c8e77db3f2f8254e26661ceb7762c4d494ce7"),
    "t10k-labels-idx1-ubyte": ("sha256", "ff7bcfd416de33731a308c3f266cc351222c34898ecbeaf847f06e48f7ec33f2"),
}
DOWNLOADS = tuple(f"{MNIST}{name}.gz" for name in file_names())


def load(
    name: str, data_dir, patterns, source: str, *, wanted=file_names(), names=DIGITS, moments=UNIT, **form
) -> Dataset:
    """Loads images of the classes `names`, with (mean, std) `moments`; otherwise as for `idx.read` and `idx.pack`."""
    found = read(name, data_dir, patterns, wanted, source)
    train, test = pack(found, wanted, len(names), **form)
    described = {"mean": moments[0], "std": moments[1], "class_names": names, "verified": verify(found.values(), name)}
    return Dataset(name, train, test, len(names), **described)


@DATASETS.register("mnist", full=FullSize(60_000, 10_000), classes=10, downloads=DOWNLOADS, checksums=CHECKSUMS)
def mnist(data_dir) -> Dataset:
    """MNIST, LeCun et al. 1998: x uint8 [N, 28, 28, 1], ink 255, y in 0..9; 60,000 training and 10,000 test images."""
    return load("mnist", data_dir, ("mnist*",), "http://yann.lecun.com/exdb/mnist", moments=MOMENTS)


@DATASETS.register(
    "mnist_writers",
    like="mnist",
    full=FullSize(60_000, 10_000, 539),
    downloads=(*DOWNLOADS, *(f"{QMNIST}qmnist-{side}-labels-idx2-int.gz" for side in ("train", "test"))),
)
def mnist_writers(data_dir) -> Dataset:
    """MNIST with its 539 training writers as clients, by QMNIST's labels, https://arxiv.org/abs/1905.10498.

    The test images are by 297 other writers, the clients `test_natural`.

    Args:
      data_dir: folder of the four MNIST files and `qmnist-{train,test}-labels-idx2-int`, or a parent of it.

    Raises:
      UserError: missing or damaged files, or label files that disagree about an image.
    """
    wanted = (*file_names(), "qmnist-train-labels-idx2-int", "qmnist-test-labels-idx2-int")
    source = "https://github.com/facebookresearch/qmnist"
    found = read("mnist_writers", data_dir, ("mnist*", "qmnist*"), wanted, source)
    train, test = pack(found, wanted, 10)
    verified = verify([found[name] for name in wanted[:4]], "mnist")
    natural, test_natural = (by_writer(found[name], features["y"]) for name, features in zip(wanted[4:], (train, test)))
    described: dict = {"mean": MOMENTS[0], "std": MOMENTS[1], "class_names": DIGITS, "verified": verified}
    return Dataset("mnist_writers", train, test, 10, natural=natural, test_natural=test_natural, **described)


def by_writer(file: IdxFile, labels: np.ndarray) -> Partition:
    """Groups images by their writers in QMNIST's labels (column 2), in ascending order; ids such as `f0017` are NIST's.

    Raises:
      UserError: rows of images are missing or of other classes (column 0) than the labels [N].
    """
    rows = file.array[: len(labels)]
    if rows.ndim != 2 or rows.shape[1] < 3 or len(rows) < len(labels):
        raise UserError(f"{file.where}: shape {file.array.shape} lacks writer data of some images.")
    if (other := rows[:, 0] != labels).any():
        row = int(other.argmax())
        raise UserError(f"{file.where}, record {row}: class {rows[row, 0]}, but the image's label is {labels[row]}.")
    ids, sizes = np.unique(rows[:, 2], return_counts=True)
    order = np.argsort(rows[:, 2], kind="stable").astype(np.int32)
    return Partition(order, offsets(sizes), ids=np.array([f"f{number:04d}" for number in ids]))


FASHION = "http://fashion-mnist.s3-website.eu-central-1.amazonaws.com/"
FASHION_SUMS = {
    "train-images-idx3-ubyte.gz": ("sha256", "3aede38d61863908ad78613f6a32ed271626dd12800ba2636569512369268a84"),
    "train-labels-idx1-ubyte.gz": ("sha256", "a04f17134ac03560a47e3764e11b92fc97de4d1bfaf8ba1a3aa29af54cc90845"),
    "t10k-images-idx3-ubyte.gz": ("sha256", "346e55b948d973a97e58d2351dde16a484bd415d4595297633bb08f03db6a073"),
    "t10k-labels-idx1-ubyte.gz": ("sha256", "67da17c76eaffca5446c3361aaab5c3cd6d1c2608764d35dfb1850b086bf8dd5"),
}


@DATASETS.register(
    "fmnist",
    like="mnist",
    downloads=tuple(f"{FASHION}{name}.gz" for name in file_names()),
    checksums=FASHION_SUMS,
)
def fmnist(data_dir) -> Dataset:
    """Fashion-MNIST, Xiao et al. 2017, https://arxiv.org/abs/1708.07747: x uint8 [N, 28, 28, 1], scaled to [0, 1]."""
    return load("fmnist", data_dir, ("fashion*", "fmnist*"), FASHION, names=FASHION_NAMES)


@DATASETS.register(
    "emnist",
    full=lambda params: FullSize(*EMNIST[params["split"]][1:]),
    by_hand="gzip.zip from https://www.nist.gov/itl/products-and-services/emnist-dataset",
)
def emnist(
    data_dir, *, split: Literal["byclass", "bymerge", "balanced", "letters", "digits", "mnist"] = "byclass"
) -> Dataset:
    """EMNIST, Cohen et al. 2017, https://arxiv.org/abs/1702.05373, from `emnist-<split>-*` IDX files.

    The files contain transposed images; x is upright, uint8 [N, 28, 28, 1]. They do not name the writers; see
    `femnist`.

    Args:
      data_dir: folder of the IDX files or of `gzip.zip`, or a parent of it.
      split: byclass (62 classes), bymerge (47), balanced (47), letters (26), digits or mnist (10).
    """
    return load(
        "emnist",
        data_dir,
        ("emnist*", "gzip"),
        "https://www.nist.gov/itl/products-and-services/emnist-dataset",
        wanted=file_names(f"emnist-{split}-", "test"),
        names=EMNIST[split][0],
        convert=lambda images: np.ascontiguousarray(images.swapaxes(1, 2)),
        first=int(split == "letters"),
    )


def usps_pixels(gray: np.ndarray) -> np.ndarray:
    """Converts gray values v in -1000..1000 to uint8 255 (v + 1000) / 2000; ValueError for others."""
    gray = values.within(gray, -1000, 1000, "gray value").astype(np.float32)
    return np.rint((gray + 1000) * (255 / 2000)).astype(np.uint8)


@DATASETS.register(
    "usps",
    full=FullSize(7_291, 2_007),
    by_hand="USPS converted to usps-{train,test}-{images-idx3-short,labels-idx1-ubyte}",
)
def usps(data_dir) -> Dataset:
    """USPS digits, Hull 1994, from int16 IDX files, v in -1000..1000: x uint8 [N, 16, 16, 1], 255 (v + 1000) / 2000."""
    wanted = tuple(f"usps-{name}" for name in file_names("", "test", "short"))
    source = "any copy of USPS, converted to these IDX files"
    return load("usps", data_dir, ("usps*",), source, wanted=wanted, convert=usps_pixels)
