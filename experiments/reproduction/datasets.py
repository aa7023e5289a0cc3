"""Data sets of runs: whether they can be read and are complete, and their checksums."""

import functools
from typing import Any

from fedwin import data
from fedwin.errors import UserError


@functools.cache
def missing(dataset: str, data_dir: str, scale: str = "") -> str:
    """Returns why a data set can't be used at a scale; '' if it can.

    Args:
      dataset: its text, as in --dataset.
      data_dir: folder of its files.
      scale: at 'paper' it must be complete: numbers of a subset are no reproduction of printed ones.
    """
    try:
        subset = data.describe_subset(dataset, data.load(dataset, data_dir))
    except UserError as error:
        return str(error)
    if scale != "paper" or not subset:
        return ""
    return f"--scale=paper needs the complete data set; {dataset} in --data_dir={data_dir} has {subset}."


@functools.cache
def provenance(dataset: str, data_dir: str) -> dict[str, Any]:
    """Returns what a stored result says about its data: numbers of examples, checksum, and whether it is a subset.

    Args:
      dataset: its text, as in --dataset.
      data_dir: folder of its files.

    Raises:
      UserError: it can't be read.
    """
    loaded = data.load(dataset, data_dir)
    return {
        "train": len(loaded.train["y"]),
        "test": len(loaded.test["y"]),
        "checksum": data.checksum(loaded),
        "subset": data.describe_subset(dataset, loaded),
    }
