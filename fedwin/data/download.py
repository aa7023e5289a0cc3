"""Fetching original files: resumed where they broke off, checked, and renamed when they are whole."""

import http.client
import os
import pathlib
import urllib.error
import urllib.request

from fedwin import registry
from fedwin.data.formats import checksums, files
from fedwin.data.sources import mnist
from fedwin.errors import UserError

CHUNK = 1 << 20
TIMEOUT = 30  # seconds without an answer

TORONTO = "https://www.cs.toronto.edu/~kriz/"
FEDJAX = "https://storage.googleapis.com/gresearch/fedjax/"
TFF = "https://storage.googleapis.com/tff-datasets-public/"
FASHION = "http://fashion-mnist.s3-website.eu-central-1.amazonaws.com/"
MNIST = "https://ossci-datasets.s3.amazonaws.com/mnist/"
QMNIST = "https://raw.githubusercontent.com/facebookresearch/qmnist/main/"

LISTS = "http://storage.googleapis.com/gresearch/federated-vision-datasets/"


def source(dataset: str, base: str, *names: str) -> tuple:
    """Returns (address, checksum kind, checksum) of each file; None where none is published."""
    return tuple((base + name, *checksums.known(dataset, name)) for name in names)


IDX = tuple(f"{name}.gz" for name in mnist.names())

# Data set, or a choice of its parameters -> (address, checksum kind, checksum) of each of its files.
SOURCES: dict[str, tuple] = {
    "cifar10": source("cifar10", TORONTO, "cifar-10-binary.tar.gz"),
    "cifar100": source("cifar100", TORONTO, "cifar-100-binary.tar.gz"),
    "cifar100_pam": source("cifar100_pam", TFF, "cifar100.sqlite.lzma"),
    "femnist": source("femnist", FEDJAX + "emnist/", "federated_emnist_train.sqlite", "federated_emnist_test.sqlite"),
    "femnist:form=leaf": (),
    "femnist:form=tff": source("femnist", TFF, "emnist_all.sqlite.lzma"),
    "femnist:form=hdf5": source("femnist", TFF, "fed_emnist.tar.bz2"),
    "femnist_digits": source(
        "femnist_digits",
        FEDJAX + "emnist/",
        "federated_emnist_digitsonly_train.sqlite",
        "federated_emnist_digitsonly_test.sqlite",
    ),
    "femnist_digits:form=leaf": (),
    "femnist_digits:form=tff": source("femnist_digits", TFF, "emnist_all.sqlite.lzma"),
    "femnist_digits:form=hdf5": source("femnist_digits", TFF, "fed_emnist_digitsonly.tar.bz2"),
    "shakespeare": source(
        "shakespeare", FEDJAX + "shakespeare/", "shakespeare_train.sqlite", "shakespeare_test.sqlite"
    ),
    "stackoverflow": source(
        "stackoverflow", FEDJAX + "stackoverflow/", "stackoverflow_train.sqlite", "stackoverflow_test.sqlite"
    )
    + source("stackoverflow", TFF, "stackoverflow.word_count.tar.bz2"),
    "fmnist": source("fmnist", FASHION, *IDX),
    "mnist": source("mnist", MNIST, *IDX),
    "mnist_writers": source("mnist", MNIST, *IDX)
    + source("mnist_writers", QMNIST, "qmnist-train-labels-idx2-int.gz", "qmnist-test-labels-idx2-int.gz"),
    "landmarks": source("landmarks", LISTS, "landmarks-user-160k.zip"),
    "landmarks:small=true": source("landmarks", TFF, "mini_gld_train_split.csv", "mini_gld_test.csv"),
}


def sources(text: str) -> tuple:
    """Returns the files of a choice such as `landmarks:small=true`; () where no program can fetch them."""
    wanted, best = registry.parse(text), ()
    for key, listed in SOURCES.items():
        name, params = registry.parse(key)
        if name == wanted.name and params.items() <= wanted.params.items():
            best = max(best, (len(params), listed), key=lambda pair: pair[:1])
    return best[1] if best else ()


# What no program can fetch, and where a person can.
BY_HAND = {
    "emnist": "gzip.zip from https://www.nist.gov/itl/products-and-services/emnist-dataset",
    "usps": "USPS converted to usps-{train,test}-{images-idx3-short,labels-idx1-ubyte}",
    "shakespeare_leaf": "LEAF's Shakespeare JSON, made by https://github.com/TalwalkarLab/leaf, or its source, pg100.txt of "
    "Project Gutenberg, or plays in plain text",
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
      UserError: no network, an error of the server, a full disk, or a wrong checksum (the partial file is removed
        then).
    """
    final = pathlib.Path(folder) / url.rsplit("/", 1)[-1]
    if final.is_file():
        return final
    partial = final.with_name(final.name + ".part")
    hand = f"fetch it by hand to {final}"
    try:
        final.parent.mkdir(parents=True, exist_ok=True)
        done = partial.stat().st_size if partial.is_file() else 0
        done, total = receive(url, partial, done, hand, progress)
        if done < total:
            raise UserError(f"{url}: broke off after {done} of {total} bytes; run the same command again to go on.")
        found = files.digest(partial, kind) if checksum else checksum
        if found != checksum:
            partial.unlink()
            raise UserError(f"{url}: {kind} {found}, not {checksum}; the file was removed, fetch it again.")
        os.replace(partial, final)
    except OSError as error:  # the network's errors have become UserErrors: this is the disk
        raise UserError(
            f"{final}: cannot be written ({error.strerror or error}); choose a folder with space that is yours and run the "
            f"same command again to go on."
        )
    return final


def receive(url: str, partial: pathlib.Path, done: int, hand: str, progress) -> tuple[int, int]:
    """Appends to `partial` what of the address lies beyond `done` bytes; returns bytes done and the total.

    Raises:
      UserError: the network or the server fails.
      OSError: the disk does.
    """
    request = urllib.request.Request(url, headers={"Range": f"bytes={done}-"} if done else {})
    try:
        answer = urllib.request.urlopen(request, timeout=TIMEOUT)
    except urllib.error.HTTPError as error:
        if error.code == 416:  # nothing is left to fetch
            return done, done
        raise UserError(f"{url}: the server answers {error.code} {error.reason}; {hand}.")
    except NETWORK as error:
        raise UserError(f"{url}: cannot be reached ({files.said(getattr(error, 'reason', error))}); {hand}.")
    with answer:
        if done and answer.status != 206:  # this server starts again from the beginning
            done = 0
        length = answer.headers.get("Content-Length", "")
        total = done + int(length) if length.isdecimal() else 0
        with open(partial, "ab" if done else "wb") as target:
            while True:
                try:
                    chunk = answer.read(CHUNK)
                except NETWORK as error:
                    raise UserError(
                        f"{url}: broke off after {done} bytes ({files.said(error)}); run the same command again to go on."
                    )
                if not chunk:
                    return done, total
                target.write(chunk)
                done += len(chunk)
                progress(done, total)


# What the network's side raises: its OSErrors and, from an answer that is not HTTP or ends too early, HTTPException.
NETWORK = (OSError, http.client.HTTPException)
