"""All stored results in one compressed file, which the wheel contains instead of the folder `experiments/results`.

Only the standard library is imported: setup.py executes this module without installing anything.
"""

import functools
import gzip
import json
import lzma
import pathlib

# Name of the archive, in the folder of the results.
NAME = "stored.jsonl.xz"
SUFFIX = ".gz"


def pack(folder: pathlib.Path, path: pathlib.Path) -> None:
    """Writes the archive of a folder of results: a line of JSON per file, [path in the folder, text].

    Args:
      folder: with a folder per scale, of files `*.gz`.
      path: of the archive.
    """
    files = sorted(file for file in folder.glob(f"*/*{SUFFIX}") if file.is_file())
    rows = [[file.relative_to(folder).as_posix(), gzip.decompress(file.read_bytes()).decode()] for file in files]
    text = "".join(json.dumps(row) + "\n" for row in rows)
    path.parent.mkdir(parents=True, exist_ok=True)
    path.write_bytes(lzma.compress(text.encode(), preset=9 | lzma.PRESET_EXTREME))


@functools.cache
def contents(folder: pathlib.Path) -> dict[str, str]:
    """Returns path in the folder -> text, of all files in a folder's archive; empty without an archive.

    Raises:
      OSError, ValueError, lzma.LZMAError, EOFError: the archive is damaged.
    """
    path = folder / NAME
    if not path.is_file():
        return {}
    with lzma.open(path, "rt", encoding="utf-8") as lines:
        return dict(json.loads(line) for line in lines)
