"""The forms that a data set is published in: which files belong together, and how they are unpacked."""

import contextlib
import pathlib
import tarfile
import tempfile
from typing import NamedTuple

from fedwin.data.formats import checksums, files
from fedwin.errors import UserError


class Form(NamedTuple):
    """One form of a data set.

    Attributes:
      name: of the form.
      files: names of the files that belong together.
      archives: names of archives that may hold them.
    """

    name: str
    files: tuple[str, ...]
    archives: tuple[str, ...] = ()


class OpenedForm(NamedTuple):
    """A form whose files were found.

    Attributes:
      form: its name.
      paths: its plain files, some of them perhaps temporary copies.
      origins: for each, the file that it comes from.
    """

    form: str
    paths: list[pathlib.Path]
    origins: list[pathlib.Path]

    def verified(self, dataset: str) -> bool:
        """Whether what was found has the published checksums; warns where it has others."""
        return checksums.verify(dataset, [(f"{o}", o, path) for o, path in dict(zip(self.origins, self.paths)).items()])


@contextlib.contextmanager
def open_form(folders, forms):
    """Yields the first form that was found, as `Found`, or None: plain or compressed files, or an archive of them.

    What has to be unpacked goes to a temporary folder for as long as the context lasts; error lines from inside name
    the original file.
    """
    place = next(filter(None, (locate(folder, form) for folder in folders for form in forms)), None)
    if place is None:
        yield None
        return
    form, origins = place
    with contextlib.ExitStack() as stack:
        paths, names = unpack(form, origins, stack)
        try:
            yield OpenedForm(form.name, paths, origins)
        except UserError as error:
            text = str(error)
            for path, name in zip(paths, names):
                text = text.replace(str(path), str(name))
            raise UserError(text) from None


def locate(folder: pathlib.Path, form: Form):
    """Returns the form and the file that holds each of its files, or None."""
    if folder.is_file():
        alone = len(form.files) == 1 and files.plain(folder.name) == form.files[0]
        return (form, [folder] * len(form.files)) if alone or folder.name in form.archives else None
    single = [files.locate(folder, name) for name in form.files]
    if all(single):
        return form, single
    archive = next((folder / name for name in form.archives if (folder / name).is_file()), None)
    return archive and (form, [archive] * len(form.files))


def unpack(form: Form, origins: list[pathlib.Path], stack) -> tuple[list[pathlib.Path], list[pathlib.Path]]:
    """Returns the plain files of a form and what to call each.

    Args:
      form: the form.
      origins: its files, or the archive that holds them, once per file.
      stack: contextlib.ExitStack that removes temporary files.
    """
    if origins[0].name in form.archives:
        folder = temporary(stack, origins[0])
        extract(origins[0], form.files, folder)
        return [folder / name for name in form.files], [origins[0] / name for name in form.files]
    paths = []
    for path, name in zip(origins, form.files):
        with open(path, "rb") as stream:
            function = files.opener(stream.read(6), path.name)
        if function is None:
            paths.append(path)
            continue
        paths.append(temporary(stack, path) / name)
        with function(path) as source:
            copy(source, paths[-1], path)
    return paths, origins


def temporary(stack, path) -> pathlib.Path:
    """Returns a new temporary folder to unpack `path` in."""
    try:
        return pathlib.Path(stack.enter_context(tempfile.TemporaryDirectory(prefix="fedwin-")))
    except OSError as error:
        raise UserError(
            f"{path}: no temporary folder to unpack it in ({error}); set TMPDIR to one that is yours."
        ) from error


def extract(archive: pathlib.Path, names, folder: pathlib.Path) -> None:
    """Writes some files of a tar archive to a folder, in one pass over it.

    Args:
      archive: the archive.
      names: of the files.
      folder: where they go.

    Raises:
      UserError: it can't be read, or lacks one of them.
    """
    missing = set(names)
    try:
        with tarfile.open(archive, "r:*") as source:
            for entry in source:
                name = entry.name.rsplit("/", 1)[-1]
                if entry.isfile() and name in missing:
                    copy(source.extractfile(entry), folder / name, archive)
                    missing.remove(name)
                if not missing:
                    return
    except files.BROKEN as error:
        raise UserError(f"{archive}: not a readable tar archive ({files.one_line(error)}); fetch it again.") from error
    raise UserError(f"{archive}: it holds no {' and no '.join(sorted(missing))}; fetch it again.")


def copy(source, target: pathlib.Path, path) -> None:
    """Writes a decoded stream to a file; errors of the stream and of the disk are told apart.

    Args:
      source: the stream.
      target: the new file.
      path: what the stream reads, for error lines.
    """

    def pieces():
        while True:
            try:
                piece = source.read(1 << 22)
            except Exception as error:  # each decompressor raises its own kinds
                raise UserError(
                    f"{path}: the compressed file is truncated or damaged ({error}); fetch it again."
                ) from error
            if not piece:
                return
            yield piece

    try:
        with open(target, "wb") as stream:
            for piece in pieces():
                stream.write(piece)
    except OSError as error:
        raise UserError(
            f"{path}: cannot be unpacked to {target.parent} ({error.strerror or error}); set TMPDIR to a folder with "
            f"more space."
        ) from error
