"""Finds and opens the splits of data sets that Hugging Face `datasets` has written to disk; never uses the network.

A folder holds a saved DatasetDict (dataset_dict.json), a saved Dataset (state.json), or Parquet or Arrow files whose
names or folders contain those of the splits, such as data/train-00000-of-00002.parquet.
"""

import importlib
import json
import os
import pathlib
import re

from fedwin.data.formats import files
from fedwin.errors import UserError

SUFFIXES = (".parquet", ".arrow")
LISTED = 6


def package():
    """Imports `datasets` in its offline mode.

    Raises:
      UserError: it is not installed.
    """
    os.environ.setdefault("HF_HUB_OFFLINE", "1")
    os.environ.setdefault("HF_DATASETS_OFFLINE", "1")
    try:
        return importlib.import_module("datasets")
    except ImportError as error:
        raise UserError(
            f"hf: data sets of Hugging Face need the package datasets ({files.one_line(error)}); install it with "
            f"`pip install 'fedwin[hf]'`."
        ) from error


def find(name: str, data_dir) -> pathlib.Path:
    """Returns the folder `name`, in data_dir or the current folder; raises UserError if there is none."""
    own = pathlib.Path(name).expanduser()
    candidates = [*([pathlib.Path(data_dir) / own] if data_dir else []), own]
    for path in candidates:
        if path.is_dir():
            return path
    searched = " or ".join(map(str, dict.fromkeys(candidates)))
    raise UserError(
        f"hf: there is no folder {searched}; data sets are read from disk and never downloaded: save it where there is "
        f"a network, datasets.load_dataset('{name}').save_to_disk('FOLDER'), and give name=FOLDER."
    )


def open_split(folder: pathlib.Path, split: str):
    """Opens a split of the data set in a folder as datasets.Dataset; Arrow files are memory-mapped.

    Raises:
      UserError: no such split, or files that can't be read.
    """
    datasets = package()
    with files.reading(f"hf: {folder}, {split}", "can't be read", "save it again"):
        if (folder / "dataset_dict.json").is_file():
            names = json.loads((folder / "dataset_dict.json").read_text())["splits"]
            if split not in names:
                raise _missing(folder, split, names)
            return datasets.load_from_disk(str(folder / split))
        if (folder / "state.json").is_file():
            name = json.loads((folder / "state.json").read_text()).get("_split") or "train"
            if split != name:
                raise _missing(folder, split, [name])
            return datasets.load_from_disk(str(folder))
        return datasets.concatenate_datasets([_open_file(datasets, path) for path in files_of(folder, split)])


def _open_file(datasets, path: pathlib.Path):
    if path.suffix == ".arrow":
        return datasets.Dataset.from_file(str(path))
    table = importlib.import_module("pyarrow.parquet").read_table(path)
    return datasets.Dataset(datasets.table.InMemoryTable(table))


def files_of(folder: pathlib.Path, split: str) -> list[pathlib.Path]:
    """Returns the Parquet or Arrow files of a split, up to two folders below, in the order of their names.

    Raises:
      UserError: there are none, or they lie in several folders.
    """
    found = [path for pattern in ("*", "*/*", "*/*/*") for path in folder.glob(pattern) if path.suffix in SUFFIXES]
    found = sorted(path for path in found if not path.name.startswith("cache-"))
    named = re.compile(rf"(?:^|[-_.]){re.escape(split)}(?:$|[-_.])")
    chosen = [path for path in found if named.search(path.stem) or split in path.relative_to(folder).parent.parts]
    if not chosen:
        raise _missing(folder, split, [str(path.relative_to(folder)) for path in found])
    parents = dict.fromkeys(path.parent for path in chosen)
    if len(parents) > 1:
        listed = ", ".join(str(parent.relative_to(folder)) for parent in parents)
        raise UserError(f"hf: {folder} has files of '{split}' in {listed}; give one of these folders as name=.")
    return chosen


def _missing(folder: pathlib.Path, split: str, available) -> UserError:
    shown = ", ".join(available[:LISTED]) + (" ..." if len(available) > LISTED else "")
    contents = f"it has {shown}" if available else "it has no saved data set, Parquet or Arrow files"
    return UserError(f"hf: {folder} has no split '{split}'; {contents}. Name the splits with train= and test=.")
