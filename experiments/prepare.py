"""Prepares a data set: downloads what it may, checks it and writes a packed cache that opens by memory map.

fedwin prepare --dataset=mnist_writers --data_dir=/data/mnist
fedwin train --dataset=mnist_writers --data_dir=/data/mnist     (reads the cache)
"""

import pathlib
import sys
import time

from absl import flags
from tqdm import tqdm

from fedwin import data
from fedwin.data import cache, download
from fedwin.data.formats import files
from fedwin.errors import UserError

from . import binary


def listing() -> str:
    """Returns a line per data set: name, parameters and where its files come from."""
    lines = []
    for name in sorted(data.DATASETS):
        if listed := download.sources(name):
            how = "downloads " + ", ".join(url.rsplit("/", 1)[-1] for url, _, _ in listed)
            how += f"; by hand: {download.BY_HAND[name]}" if name in download.BY_HAND else ""
        elif name in download.BY_HAND:
            how = f"by hand: {download.BY_HAND[name]}"
        else:
            how = "no files needed" if name == "digits" or name.endswith("_synthetic") else "your own files"
        options = ", ".join(data.DATASETS.options(name))
        lines.append(f"{name:28} {how}" + (f"  [{options}]" if options else ""))
    return "\n".join(lines)


def original(text: str, data_dir, may_download: bool) -> data.Dataset:
    """Loads the data set from its original files, fetching them first where they are missing."""
    name = data.DATASETS.check(text).name
    sources = download.sources(text)
    if may_download and sources and data_dir and not pathlib.Path(data_dir).exists():
        try:
            pathlib.Path(data_dir).mkdir(parents=True)
        except OSError as error:
            raise UserError(
                f"{data_dir}: cannot be made ({error.strerror or error}); choose a folder that is yours."
            ) from error
    try:
        return data.check(data.DATASETS.build(text, data_dir))
    except files.Missing as error:
        if not (may_download and sources and pathlib.Path(data_dir).is_dir()):
            hand = download.BY_HAND.get(name) or ", ".join(url for url, _, _ in sources)
            raise UserError(f"{error} By hand: put into {data_dir}: {hand or 'its files'}.") from error
    for url, kind, checksum in sources:
        with tqdm(desc=url.rsplit("/", 1)[-1], unit="B", unit_scale=True, disable=not sys.stderr.isatty()) as bar:

            def progress(done, total, bar=bar):
                bar.total = total or None
                bar.update(done - bar.n)

            download.fetch(url, data_dir, kind, checksum, progress)
    return data.check(data.DATASETS.build(text, data_dir))


def prepare(text: str, data_dir, cache_dir, may_download: bool = True, force: bool = False) -> str:
    """Writes the cache of one data set and returns a line about it.

    Raises:
      UserError: files that are missing, damaged or inconsistent; nothing half-written stays.
    """
    if not cache_dir:
        raise UserError("say where the files are, or where the cache shall go, with --data_dir=FOLDER.")
    if pathlib.Path(cache_dir).is_file():  # loaders take an archive as data_dir; the cache goes beside it
        cache_dir = pathlib.Path(cache_dir).parent
    folder = cache.folder_of(text, cache_dir)
    start = time.perf_counter()
    if force or not folder.is_dir():
        dataset = original(text, data_dir, may_download)
        rows = sum(len(value) for features in (dataset.train, dataset.test) for value in features.values())
        with tqdm(total=rows, desc=f"packing {dataset.name}", unit="rows", disable=not sys.stderr.isatty()) as bar:
            cache.write(dataset, text, cache_dir, bar.update)
    written = time.perf_counter() - start
    start = time.perf_counter()
    dataset = data.load(text, cache_dir)
    opened = time.perf_counter() - start
    size = sum(path.stat().st_size for path in folder.iterdir()) / 2**20
    clients = "no clients of its own" if dataset.natural is None else f"{dataset.natural.num_clients} clients"
    return (
        f"{text}: {len(dataset.train['y']):,} training and {len(dataset.test['y']):,} test examples, "
        f"{dataset.num_classes} classes, {clients}, {'verified' if dataset.verified else 'checksums unverified'}\n"
        f"{folder}: {size:,.1f} MiB, prepared in {written:.1f} s, opens in {opened * 1000:.0f} ms"
    )


def define_flags() -> dict[str, list[str]]:
    """Defines the flags; importing this file from a test or another binary defines none."""
    flags.DEFINE_string(
        "dataset", None, "Data set to prepare, with its parameters: cifar10, cifar100:label=coarse, ..."
    )
    flags.DEFINE_string("data_dir", None, "Folder of the original files (or a parent of it); downloads go there.")
    flags.DEFINE_string(
        "cache_dir", None, "Folder of the cache; data_dir by default. Later runs take it as --data_dir."
    )
    flags.DEFINE_boolean("download", True, "Fetch missing files where an address is known.")
    flags.DEFINE_boolean("force", False, "Write the cache again even if it is there.")
    flags.DEFINE_boolean("list", False, "List the data sets, and how each can be had, and stop.")
    return {"flags": ["dataset", "data_dir", "cache_dir", "download", "force", "list"]}


def main(argv: list[str]) -> None:
    """Prepares the data set that the flags name."""
    known = flags.FLAGS
    if known.list:
        print(listing())
        return
    if not known.dataset:
        raise UserError("say which data set with --dataset=NAME; --list shows them.")
    print(prepare(known.dataset, known.data_dir, known.cache_dir or known.data_dir, known.download, known.force))


if __name__ == "__main__":
    binary.run(main, define_flags)
