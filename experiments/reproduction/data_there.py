"""Which data sets a run needs, and whether they are there."""

import functools

from fedwin import data
from fedwin.errors import UserError


@functools.cache
def missing(dataset: str, data_dir: str) -> str:
    """Returns why a data set can't be read, in fedwin's words; '' where it can.

    Args:
      dataset: its text, as in --dataset.
      data_dir: folder of its files.
    """
    try:
        data.load(dataset, data_dir)
    except UserError as error:
        return str(error)
    return ""
