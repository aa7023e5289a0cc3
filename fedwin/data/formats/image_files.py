"""Image files in folders and archives, found by name without decoding any."""

import os
import pathlib
import tarfile
from collections.abc import Mapping

from fedwin.data.formats import files
from fedwin.data.reader import Span
from fedwin.errors import UserError

SUFFIXES = (".jpg", ".jpeg", ".png", ".bmp", ".webp")


def _unlistable(error: OSError) -> None:
    # os.walk would pass over the folder, and its images would be said to be missing.
    raise UserError(f"{error.filename}: cannot be listed ({error.strerror}); check --data_dir.") from error


def images_below(place) -> Mapping[str, str | Span | bytes]:
    """Returns relative name -> image of every image file in a folder or in a tar or zip archive, without decoding any.

    Members of an uncompressed tar are read in place; those of other archives are kept as bytes.

    Raises:
      UserError: a folder that can't be listed, or no archive.
    """
    place = pathlib.Path(place)
    if place.is_dir():
        found = {}
        for folder, _, names in os.walk(place, onerror=_unlistable):
            for name in names:
                if name.lower().endswith(SUFFIXES):
                    path = os.path.join(folder, name)
                    found[os.path.relpath(path, place).replace(os.sep, "/")] = path
        return found
    wanted = lambda name: name.lower().endswith(SUFFIXES)
    try:
        with tarfile.open(place, "r:") as archive:
            return {
                entry.name: Span(str(place), entry.offset_data, entry.size)
                for entry in archive
                if entry.isfile() and wanted(entry.name)
            }
    except (tarfile.TarError, EOFError, OSError):
        return files.members(place, wanted)


def by_name(images, wanted: set[str]) -> dict[str, list[str]]:
    """Returns what a list may call an image -> the image files that this fits.

    A list names the file by its path below the folder or, where that fits none, by its bare name, each with or without
    suffix.

    Args:
      images: (folder or archive, path in it) of the image files.
      wanted: what the lists say; nothing else is indexed.
    """
    paths: dict[str, list[str]] = {}
    bare: dict[str, list[str]] = {}
    for place, name in sorted(images):
        for table, text in ((paths, name), (bare, name.rsplit("/", 1)[-1])):
            for key in {text, text.rsplit(".", 1)[0]} & wanted:
                table.setdefault(key, []).append(os.path.join(place, name))
    return {**bare, **paths}
