"""The published checksums of original files, for downloads and for files that were put in place by hand."""

import pathlib
import warnings

from fedwin.data.formats import files

# Data set -> file -> (kind, checksum). A name with a compression suffix is that of the file as it is distributed, one
# without it is that of the decoded content, however it lies on the disk.
CHECKSUMS: dict[str, dict[str, tuple[str, str]]] = {
    "cifar10": {
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
    },
    # No checksum of the binary members is published, only that of the whole archive.
    "cifar100": {
        "cifar-100-binary.tar.gz": ("sha256", "58a81ae192c23a4be8b1804d68e518ed807d710a4eb253b1f2a199162a40d8ec"),
        "cifar-100-python.tar.gz": ("md5", "eb9058c3a382ffc7106e4002c42a8d85"),
        "train": ("md5", "16019d7e3df5f24257cddd939b257f8d"),
        "test": ("md5", "f0ef6b0ae62326f3e7ffdfab6717acfc"),
    },
    "cifar100_pam": {
        "cifar100.sqlite.lzma": ("sha256", "23d3916c9caa33395737ee560cc7cb77bbd05fc7b73647ee7be3a7e764172939"),
        "federated_cifar100_train.sqlite": (
            "sha256",
            "a4dc2f4ac4c9b6e7bd5234a1b568389384c00c903dcd34001c3cf50a4a81c713",
        ),
        "federated_cifar100_test.sqlite": (
            "sha256",
            "74416c6ee8f41b1086f0e0e3c5289ac6df5a641100df48e8b583411a55de891f",
        ),
    },
    "femnist": {
        "fed_emnist.tar.bz2": ("sha256", "fe1ed5a502cea3a952eb105920bff8cffb32836b5173cb18a57a32c3606f3ea0"),
    },
    "femnist_digits": {
        "fed_emnist_digitsonly.tar.bz2": (
            "sha256",
            "55333deb8546765427c385710ca5e7301e16f4ed8b60c1dc5ae224b42bd5b14b",
        ),
    },
    "stackoverflow": {
        "stackoverflow.word_count.tar.bz2": (
            "sha256",
            "1dc00256d6e527c54b9756d968118378ae14e6692c0b3b6cad470cdd3f0c519c",
        ),
    },
    "shakespeare_leaf": {"pg100.txt": ("md5", "036d0f9cf7296f41165c2e6da1e52a0e")},
    "mnist": {
        "train-images-idx3-ubyte.gz": ("md5", "f68b3c2dcbeaaa9fbdd348bbdeb94873"),
        "train-labels-idx1-ubyte.gz": ("md5", "d53e105ee54ea40749a09fcbcd1e9432"),
        "t10k-images-idx3-ubyte.gz": ("md5", "9fb629c4189551a2d022fa330f9573f3"),
        "t10k-labels-idx1-ubyte.gz": ("md5", "ec29112dd5afa0611ce80d1b7f02629c"),
        "train-images-idx3-ubyte": ("sha256", "ba891046e6505d7aadcbbe25680a0738ad16aec93bde7f9b65e87a2fc25776db"),
        "train-labels-idx1-ubyte": ("sha256", "65a50cbbf4e906d70832878ad85ccda5333a97f0f4c3dd2ef09a8a9eef7101c5"),
        "t10k-images-idx3-ubyte": ("sha256", "0fa7898d509279e482958e8ce81c8e77db3f2f8254e26661ceb7762c4d494ce7"),
        "t10k-labels-idx1-ubyte": ("sha256", "ff7bcfd416de33731a308c3f266cc351222c34898ecbeaf847f06e48f7ec33f2"),
    },
    "fmnist": {
        "train-images-idx3-ubyte.gz": ("sha256", "3aede38d61863908ad78613f6a32ed271626dd12800ba2636569512369268a84"),
        "train-labels-idx1-ubyte.gz": ("sha256", "a04f17134ac03560a47e3764e11b92fc97de4d1bfaf8ba1a3aa29af54cc90845"),
        "t10k-images-idx3-ubyte.gz": ("sha256", "346e55b948d973a97e58d2351dde16a484bd415d4595297633bb08f03db6a073"),
        "t10k-labels-idx1-ubyte.gz": ("sha256", "67da17c76eaffca5446c3361aaab5c3cd6d1c2608764d35dfb1850b086bf8dd5"),
    },
    "landmarks": {
        "landmarks-user-160k.zip": ("md5", "53c36bd7d5fc12f927af2820b7e4a57c"),
        "mini_gld_train_split.csv": ("md5", "9fd62cf79a67046fdd673d3a0ac52841"),
        "mini_gld_test.csv": ("md5", "298e9d19d66357236f66fe8e22920933"),
    },
    "inaturalist": {
        "iNaturalist_train.csv": ("md5", "63d5a41699434bc2b13f5853f3764c18"),
        "iNaturalist_test.csv": ("md5", "bcf08a5a740ee76dac4e5af668081891"),
        "train_val_images.tar.gz": ("md5", "7c784ea5e424efaec655bd392f87301f"),
        "test2017.tar.gz": ("md5", "7d9b096fa1cd94d67a0fa779ea301234"),
    },
}


def known(dataset: str, name: str) -> tuple[str, str] | tuple[None, None]:
    """Returns (kind, checksum) of a file, (None, None) where none is published."""
    return CHECKSUMS.get(dataset, {}).get(name, (None, None))


def matches(dataset: str, name: str, content) -> bool:
    """Whether bytes, or the bytes of a file, have the published checksum of `name`."""
    kind, checksum = known(dataset, name)
    return kind is not None and content is not None and files.digest(content, kind) == checksum


def verify(dataset: str, items) -> bool:
    """Returns whether each file has its published checksum; where one is published and not met, warns 'unverified'.

    Args:
      items: (name, the file as it is distributed or None, its decoded content as a file, as bytes or None).
    """
    wrong = [
        name
        for name, stored, decoded in items
        if not matches(dataset, pathlib.Path(name).name, stored)
        and not matches(dataset, files.plain(str(name)), decoded)
    ]
    published = {files.plain(name) for name in CHECKSUMS.get(dataset, {})}
    doubtful = [str(name) for name in wrong if files.plain(str(name)) in published]
    if doubtful:
        warnings.warn(
            f"{dataset}: unverified, the checksums of {', '.join(doubtful)} are not the original's.", stacklevel=4
        )
    return not wrong


def expect(dataset: str, where, found: int, original: int) -> None:
    """Warns 'unverified' where files of which no checksum is published hold another number of clients."""
    if found != original:
        warnings.warn(
            f"{where}: unverified, {found:,} clients, but the original {dataset} has {original:,}.", stacklevel=4
        )
