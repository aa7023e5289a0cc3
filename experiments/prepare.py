"""Prepares a data set: downloads and checks its files, and writes a packed cache that is opened by memory map.

fedwin prepare --dataset=mnist_writers --data_dir=/data/mnist
fedwin train --dataset=mnist_writers --data_dir=/data/mnist     (reads the cache)
"""

import pathlib
import sys
import time

from absl import flags
from tqdm import tqdm

from fedwin import data
from fedwin.data import cache, download, integrity
from fedwin.data.formats import files
from fedwin.errors import UserError

from .cli import subcommand, unused


def original(text: str, data_dir, may_download: bool) -> data.Dataset:
    """Loads a data set from its original files, downloaded if they are missing; raises UserError if they can't be."""
    name = data.DATASETS.check(text).name
    sources = download.download_urls(text)
    if may_download and sources and data_dir and not pathlib.Path(data_dir).exists():
        try:
            pathlib.Path(data_dir).mkdir(parents=True)
        except OSError as error:
            raise UserError(
                f"{data_dir}: cannot be made ({error.strerror or error}); choose a folder that you can write to."
            ) from error
    try:
        return data.original(text, data_dir)
    except files.Missing as error:
        if not (may_download and sources and pathlib.Path(data_dir).is_dir()):
            instructions = data.DATASETS.entries[name].facts["by_hand"] or ", ".join(url for url, _, _ in sources)
            raise UserError(f"{error} By hand: put into {data_dir}: {instructions or 'its files'}.") from error
    for url, kind, checksum in sources:
        with tqdm(desc=url.rsplit("/", 1)[-1], unit="B", unit_scale=True, disable=not sys.stderr.isatty()) as bar:

            def progress(done, total, bar=bar):
                bar.total = total or None
                bar.update(done - bar.n)

            download.fetch(url, data_dir, kind, checksum, progress)
    return data.original(text, data_dir)


def prepare(text: str, data_dir, cache_dir=None, may_download: bool = True, force: bool = False) -> str:
    """Writes the cache of a data set; returns two lines about it.

    Args:
      data_dir: folder of the original files, or a parent of it.
      cache_dir: folder of the cache; None: the user's cache directory, where `load` finds it for this data_dir.

    Raises:
      UserError: files that are missing, damaged or inconsistent; no partial cache is left.
    """
    data.DATASETS.check(text)
    if not (data_dir or cache_dir):
        raise UserError("name the folder of the files, or of the cache, with --data_dir=FOLDER.")
    if cache_dir:
        if pathlib.Path(cache_dir).is_file():  # loaders take an archive as data_dir; the cache is written next to it
            cache_dir = pathlib.Path(cache_dir).parent
        folder = cache.path_in(text, cache_dir)
    elif (found := cache.find(text, data_dir)) is not None:
        folder = found
    else:
        cache.check_private(folder := cache.user_path(text, data_dir))
    start = time.perf_counter()
    if force or not folder.is_dir():
        cache.check_writable(folder.parent)
        cache.check_choice(folder, text)
        dataset = original(text, data_dir, may_download)
        rows = sum(len(value) for features in (dataset.train, dataset.test) for value in features.values())
        with tqdm(total=rows, desc=f"packing {dataset.name}", unit="rows", disable=not sys.stderr.isatty()) as bar:
            cache.write_to(folder, dataset, text, bar.update, data_dir, force)
        prepared = f"prepared in {time.perf_counter() - start:.1f} s"
    else:
        cache.check_origin(folder, data_dir)
        prepared = "prepared before (--force reads the files again)"
    start = time.perf_counter()
    try:
        dataset = cache.read(folder, text)
    except integrity.DamagedCache as error:
        raise UserError(f"{error} Write it again with --force.") from error
    opened = time.perf_counter() - start
    size = sum(path.stat().st_size for path in folder.iterdir()) / 2**20
    labels = "continuous labels" if dataset.task == "regression" else f"{dataset.num_classes} classes"
    clients = "no natural clients" if dataset.natural is None else f"{dataset.natural.num_clients} clients"
    return (
        f"{text}: {len(dataset.train['y']):,} training and {len(dataset.test['y']):,} test examples, "
        f"{labels}, {clients}, {'verified' if dataset.verified else 'checksums unverified'}\n"
        f"{folder}: {size:,.1f} MiB, {prepared}, opens in {opened * 1000:.0f} ms"
    )


def define_flags() -> dict[str, list[str]]:
    """Defines the flags; returns title -> names."""
    flags.DEFINE_string("dataset", None, "Data set to prepare, with parameters: cifar10, cifar100:label=coarse, ...")
    flags.DEFINE_string("data_dir", None, "Folder of the original files (or a parent of it); downloads go there.")
    flags.DEFINE_string(
        "cache_dir",
        None,
        "Folder of the cache, which later runs take as --data_dir. By default $FEDWIN_CACHE_DIR, else "
        "$XDG_CACHE_HOME/fedwin, else ~/.cache/fedwin, under a name made of the data set and the full path of "
        "data_dir: later runs with that --data_dir find it, and two data_dirs have two caches.",
    )
    flags.DEFINE_boolean("download", True, "Download missing files if their address is known.")
    flags.DEFINE_boolean("force", False, "Replace an existing cache.")
    flags.DEFINE_boolean("list", False, "List the data sets and how to obtain them, and stop.")
    return {"flags": ["dataset", "data_dir", "cache_dir", "download", "force", "list"]}


def main(argv: list[str]) -> None:
    """Prepares the data set that the flags name."""
    options = flags.FLAGS
    if options.list:
        unused.refuse(["dataset", "data_dir", "cache_dir", "download", "force"], "with --list")
        print(download.listing())
        return
    if not options.dataset:
        raise UserError("name a data set with --dataset=NAME; --list shows them.")
    print(prepare(options.dataset, options.data_dir, options.cache_dir, options.download, options.force))


if __name__ == "__main__":
    subcommand.run(main, define_flags)
