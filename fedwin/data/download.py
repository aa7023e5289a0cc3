"""Fetching original files: resumed where they broke off, checked, and renamed when they are whole."""

import os
import pathlib
import urllib.error
import urllib.request

from fedwin.data import files
from fedwin.errors import UserError

CHUNK = 1 << 20
TIMEOUT = 30  # seconds without an answer

TORONTO = "https://www.cs.toronto.edu/~kriz/"
FEDJAX = "https://storage.googleapis.com/gresearch/fedjax/"
TFF = "https://storage.googleapis.com/tff-datasets-public/"
FASHION = "http://fashion-mnist.s3-website.eu-central-1.amazonaws.com/"
MNIST = "https://ossci-datasets.s3.amazonaws.com/mnist/"
QMNIST = "https://raw.githubusercontent.com/facebookresearch/qmnist/main/"

# Data set -> (address, checksum kind, checksum) of each of its files; None where none is published.
SOURCES: dict[str, tuple] = {
    "cifar10": (
        (
            TORONTO + "cifar-10-binary.tar.gz",
            "sha256",
            "c4a38c50a1bc5f3a1c5537f2155ab9d68f9f25eb1ed8d9ddda3db29a59bca1dd",
        ),
    ),
    "cifar100": (
        (
            TORONTO + "cifar-100-binary.tar.gz",
            "sha256",
            "58a81ae192c23a4be8b1804d68e518ed807d710a4eb253b1f2a199162a40d8ec",
        ),
    ),
    "cifar100_pam": (
        (TFF + "cifar100.sqlite.lzma", "sha256", "23d3916c9caa33395737ee560cc7cb77bbd05fc7b73647ee7be3a7e764172939"),
    ),
    "femnist": tuple((f"{FEDJAX}emnist/federated_emnist_{side}.sqlite", None, None) for side in ("train", "test")),
    "femnist_digits": tuple(
        (f"{FEDJAX}emnist/federated_emnist_digitsonly_{side}.sqlite", None, None) for side in ("train", "test")
    ),
    "shakespeare": tuple((f"{FEDJAX}shakespeare/shakespeare_{side}.sqlite", None, None) for side in ("train", "test")),
    "stackoverflow": (
        *((f"{FEDJAX}stackoverflow/stackoverflow_{side}.sqlite", None, None) for side in ("train", "test")),
        (
            TFF + "stackoverflow.word_count.tar.bz2",
            "sha256",
            "1dc00256d6e527c54b9756d968118378ae14e6692c0b3b6cad470cdd3f0c519c",
        ),
    ),
    "fmnist": (
        (FASHION + "train-images-idx3-ubyte.gz", "md5", "8d4fb7e6c68d591d4c3dfef9ec88bf0d"),
        (FASHION + "train-labels-idx1-ubyte.gz", "md5", "25c81989df183df01b3e8a0aad5dffbe"),
        (FASHION + "t10k-images-idx3-ubyte.gz", "md5", "bef4ecab320f06d8554ea6380940ec79"),
        (FASHION + "t10k-labels-idx1-ubyte.gz", "md5", "bb300cfdad3c16e7a12a480ee83cd310"),
    ),
    "mnist": (
        (MNIST + "train-images-idx3-ubyte.gz", "md5", "f68b3c2dcbeaaa9fbdd348bbdeb94873"),
        (MNIST + "train-labels-idx1-ubyte.gz", "md5", "d53e105ee54ea40749a09fcbcd1e9432"),
        (MNIST + "t10k-images-idx3-ubyte.gz", "md5", "9fb629c4189551a2d022fa330f9573f3"),
        (MNIST + "t10k-labels-idx1-ubyte.gz", "md5", "ec29112dd5afa0611ce80d1b7f02629c"),
    ),
    "landmarks": (
        (
            "http://storage.googleapis.com/gresearch/federated-vision-datasets/landmarks-user-160k.zip",
            "md5",
            "53c36bd7d5fc12f927af2820b7e4a57c",
        ),
    ),
}
SOURCES["mnist_writers"] = SOURCES["mnist"] + tuple(
    (f"{QMNIST}qmnist-{side}-labels-idx2-int.gz", None, None) for side in ("train", "test")
)

# What no program can fetch, and where a person can.
BY_HAND = {
    "emnist": "gzip.zip from https://www.nist.gov/itl/products-and-services/emnist-dataset",
    "usps": "USPS converted to usps-{train,test}-{images-idx3-short,labels-idx1-ubyte}",
    "shakespeare_leaf": "LEAF's Shakespeare JSON, made by https://github.com/TalwalkarLab/leaf, or plays in plain text",
    "landmarks": "the images <image_id>.jpg named in the lists, from "
    "https://s3.amazonaws.com/google-landmark/train/images_000.tar to _499",
    "inaturalist": "iNaturalist_{train,test}.csv, and train_val_images.tar.gz and test2017.tar.gz from "
    "https://ml-inat-competition-datasets.s3.amazonaws.com/2017/",
    "digit5": "digit_dataset.zip linked from https://github.com/med-air/FedBN",
    "pacs": "the folders photo, art_painting, cartoon and sketch from https://dali-dl.github.io/project_iccv2017.html",
}


def fetch(
    url: str, folder, kind: str | None = None, checksum: str | None = None, progress=lambda done, total: None
) -> pathlib.Path:
    """Downloads a file to `folder` unless it is there, going on where an earlier attempt broke off.

    Args:
      kind, checksum: 'md5' or 'sha256' and its hexadecimal value.
      progress: called with bytes done and the total, 0 if unknown.

    Returns:
      The path of the complete file.

    Raises:
      UserError: no network, an error of the server, or a wrong checksum (the partial file is removed then).
    """
    final = pathlib.Path(folder) / url.rsplit("/", 1)[-1]
    if final.is_file():
        return final
    partial = final.with_name(final.name + ".part")
    final.parent.mkdir(parents=True, exist_ok=True)
    done = total = partial.stat().st_size if partial.is_file() else 0
    request = urllib.request.Request(url, headers={"Range": f"bytes={done}-"} if done else {})
    try:
        with urllib.request.urlopen(request, timeout=TIMEOUT) as answer:
            if done and answer.status != 206:  # this server starts again from the beginning
                done = 0
            total = done + int(answer.headers.get("Content-Length") or 0)
            with open(partial, "ab" if done else "wb") as target:
                while chunk := answer.read(CHUNK):
                    target.write(chunk)
                    done += len(chunk)
                    progress(done, total)
    except urllib.error.HTTPError as error:
        if error.code != 416:  # 416: nothing is left to fetch
            raise UserError(f"{url}: the server answers {error.code} {error.reason}; fetch it by hand to {final}.")
    except OSError as error:  # of which the network's errors are kinds
        raise UserError(f"{url}: cannot be reached ({getattr(error, 'reason', error)}); fetch it by hand to {final}.")
    if done < total:
        raise UserError(f"{url}: broke off after {done} of {total} bytes; run the same command again to go on.")
    if checksum and files.digest(partial, kind) != checksum:
        found = files.digest(partial, kind)
        partial.unlink()
        raise UserError(f"{url}: {kind} {found}, not {checksum}; the file was removed, fetch it again.")
    os.replace(partial, final)
    return final
