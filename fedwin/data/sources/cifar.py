"""CIFAR-10 and CIFAR-100 from the original archives, https://www.cs.toronto.edu/~kriz/cifar.html.

Training images keep the order of the archive, which published splits refer to.
"""

from typing import Annotated, Literal

import numpy as np

from fedwin.data.dataset import DATASETS, Dataset, FullSize
from fedwin.data.sources import cifar_names
from fedwin.data.sources.cifar_files import URL, read
from fedwin.registry.ranges import Range

# Per-channel (mean, std): cifar10 and cifar100 as in the code of the window-averaging and heavy-ball papers, ima as in
# the code of IMA.
CONSTANTS: dict[str | None, tuple[tuple[float, ...] | None, tuple[float, ...] | None]] = {
    "cifar10": ((0.4914, 0.4822, 0.4465), (0.2023, 0.1994, 0.2010)),
    "cifar100": ((0.5071, 0.4867, 0.4408), (0.2675, 0.2565, 0.2761)),
    "ima": ((0.491, 0.482, 0.447), (0.247, 0.243, 0.262)),
}
Constants = Literal["cifar10", "cifar100", "ima"]


def block_means(images: np.ndarray, size: int) -> np.ndarray:
    """Returns images uint8 [N, size, size, channels] whose pixels are the means of blocks of [N, S, S, channels].

    Means are rounded half up; S must be a multiple of `size`.
    """
    side = images.shape[1]
    if side == size:
        return images
    block = side // size
    blocks = images.reshape(len(images), size, block, size, block, images.shape[3])
    area = block * block
    return ((blocks.sum((2, 4), dtype=np.uint32) + area // 2) // area).astype(np.uint8)


CIFAR10 = {
    "cifar-10-binary.tar.gz": ("sha256", "c4a38c50a1bc5f3a1c5537f2155ab9d68f9f25eb1ed8d9ddda3db29a59bca1dd"),
    "cifar-10-python.tar.gz": ("md5", "c58f30108f718f92721af3b95e74349a"),
    "data_batch_1": ("md5", "c99cafc152244af753f735de768cd75f"),
    "data_batch_2": ("md5", "d4bba439e000b95fd0a9bffe97cbabec"),
    "data_batch_3": ("md5", "54ebc095f3ab1f0389bbae665268c751"),
    "data_batch_4": ("md5", "634d18415352ddfa80567beed471001a"),
    "data_batch_5": ("md5", "482c414d41f54cd18b22e5b47cb7c3cb"),
    "test_batch": ("md5", "40351d587109b95175f43aff81a1287e"),
    "data_batch_1.bin": ("sha256", "cee916563c9f80d84e3cc88e17fdc0941787f1244f00a67874d45b261883ada5"),
    "data_batch_2.bin": ("sha256", "a591ca11fa1708a91ee40f54b3da4784ccd871ecf2137de63f51ada8b3fa57ed"),
    "data_batch_3.bin": ("sha256", "bbe8596564c0f86427f876058170b84dac6670ddf06d79402899d93ceea26f67"),
    "data_batch_4.bin": ("sha256", "014e562d6e23c72197cc727519169a60359f5eccd8945ad5a09d710285ff4e48"),
    "data_batch_5.bin": ("sha256", "755304fc0b379caeae8c14f0dac912fbc7d6cd469eb67a1029a08a39453a9add"),
    "test_batch.bin": ("sha256", "8e2eb146ae340b09e24670f29cabc6326dba54da8789dab6768acf480273f65b"),
}


@DATASETS.register(
    "cifar10",
    full=lambda params: FullSize(10 * params["per_class"] or 50_000, 10_000),
    classes=10,
    downloads=(URL + "cifar-10-binary.tar.gz",),
    checksums=CIFAR10,
)
def cifar10(
    data_dir,
    *,
    constants: Constants = "cifar10",
    size: Literal[32, 16, 8] = 32,
    per_class: Annotated[int, Range(0, 5000)] = 0,
) -> Dataset:
    """CIFAR-10, Krizhevsky 2009: x uint8 [N, 32, 32, 3], y in 0..9; 50,000 training and 10,000 test images.

    Args:
      data_dir: a folder with the binary or the Python archive or its unpacked files (plain, .gz, .xz or .bz2), or a
        parent of it.
      size: side of the images, 32, 16 or 8: means of blocks of pixels.
      per_class: number of training images of each class, the first ones of the archive; 0: all.
    """
    mean, std = CONSTANTS[constants]
    train, test, verified = read("cifar10", data_dir)
    if per_class:
        kept = np.sort(np.concatenate([np.flatnonzero(train["y"] == label)[:per_class] for label in range(10)]))
        train = {name: value[kept] for name, value in train.items()}
    train, test = ({**features, "x": block_means(features["x"], size)} for features in (train, test))
    return Dataset("cifar10", train, test, 10, mean=mean, std=std, class_names=cifar_names.CIFAR10, verified=verified)


# Of the binary version only the archive's checksum is published.
CIFAR100 = {
    "cifar-100-binary.tar.gz": ("sha256", "58a81ae192c23a4be8b1804d68e518ed807d710a4eb253b1f2a199162a40d8ec"),
    "cifar-100-python.tar.gz": ("md5", "eb9058c3a382ffc7106e4002c42a8d85"),
    "train": ("md5", "16019d7e3df5f24257cddd939b257f8d"),
    "test": ("md5", "f0ef6b0ae62326f3e7ffdfab6717acfc"),
}


@DATASETS.register(
    "cifar100",
    full=FullSize(50_000, 10_000),
    classes=100,
    downloads=(URL + "cifar-100-binary.tar.gz",),
    checksums=CIFAR100,
)
def cifar100(data_dir, *, label: Literal["fine", "coarse"] = "fine", constants: Constants = "cifar100") -> Dataset:
    """CIFAR-100, Krizhevsky 2009: x uint8 [N, 32, 32, 3], y in 0..99 (fine) or 0..19 (coarse).

    Reads files as for cifar10. The label that is not y is available as feature 'coarse' or 'fine', for Pachinko
    allocation.
    """
    mean, std = CONSTANTS[constants]
    train, test, verified = read("cifar100", data_dir)
    names = cifar_names.FINE if label == "fine" else cifar_names.COARSE
    rename = lambda features: {("y" if key == label else key): value for key, value in features.items()}
    return Dataset(
        "cifar100", rename(train), rename(test), len(names), mean=mean, std=std, class_names=names, verified=verified
    )
