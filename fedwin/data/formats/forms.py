"""Published forms of a data set: finds their files, and unpacks compressed ones and archives."""

import contextlib
import pathlib
import tarfile
import tempfile
from typing import NamedTuple

from fedwin.data.formats import checksums, files, limits
from fedwin.errors import UserError


class Form(NamedTuple):
    """A form in which a data set is published, such as SQLite files or an archive of HDF5 files.

    Attributes:
      name: name of the form.
      files: names of its files.
      archives: names of archives that may contain them.
    """

    name: str
    files: tuple[str, ...]
    archives: tuple[str, ...] = ()


class OpenedForm(NamedTuple):
    """A form whose files were found.

    Attributes:
      form: name of the form.
      paths: its decompressed files, possibly temporary copies.
      origins: for each the original file or archive.
    """

    form: str
    paths: list[pathlib.Path]
    origins: list[pathlib.Path]

    def verified(self, dataset: str) -> bool:
        """Returns whether the files have their published checksums; warns about those that differ."""
        return checksums.verify(
            dataset, [(f"{origin}", origin, path) for origin, path in dict(zip(self.origins, self.paths)).items()]
        )


@contextlib.contextmanager
def open_form(folders, forms):
    """Context manager that finds and unpacks the first available form.

    Files are unpacked to temporary folders, removed at the end. Errors raised inside the context name the original file
    instead of the temporary one.

    Args:
      folders: folders (or archives) to search.
      forms: the forms, in order of preference.

    Yields:
      The OpenedForm, or None if no form was found.
    """
    located = next(filter(None, (locate(folder, form) for folder in folders for form in forms)), None)
    if located is None:
        yield None
        return
    form, origins = located
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
    """Returns (form, path that contains each of its files) if a folder, or a file, has the form; else None."""
    if folder.is_file():
        alone = len(form.files) == 1 and files.plain(folder.name) == form.files[0]
        return (form, [folder] * len(form.files)) if alone or folder.name in form.archives else None
    paths = [files.locate(folder, name) for name in form.files]
    if all(paths):
        return form, paths
    archive = next((folder / name for name in form.archives if (folder / name).is_file()), None)
    return archive and (form, [archive] * len(form.files))


def unpack(form: Form, origins: list[pathlib.Path], stack) -> tuple[list[pathlib.Path], list[pathlib.Path]]:
    """Decompresses the files of a form where necessary.

    Args:
      form: the form.
      origins: for each file its path, or that of the archive that contains it.
      stack: contextlib.ExitStack that removes temporary folders.

    Returns:
      (paths of the decompressed files, paths to name in error messages).
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
    """Creates a temporary folder in which `path` will be unpacked."""
    try:
        return pathlib.Path(stack.enter_context(tempfile.TemporaryDirectory(prefix="fedwin-")))
    except OSError as error:
        raise UserError(
            f"{path}: no temporary folder to unpack it in ({error}); set TMPDIR to a writable folder."
        ) from error


def extract(archive: pathlib.Path, names, folder: pathlib.Path) -> None:
    """Extracts files from a tar archive in one pass.

    Args:
      archive: the archive.
      names: names of the files, without folders.
      folder: destination.

    Raises:
      UserError: the archive can't be read, or lacks one of the files.
    """
    missing = set(names)
    try:
        with tarfile.open(archive, "r:*") as source:
            for entry in source:
                limits.check(entry.offset_data + max(entry.size, 0), archive.stat().st_size, archive)
                name = entry.name.rsplit("/", 1)[-1]
                if entry.isfile() and name in missing:
                    copy(source.extractfile(entry), folder / name, archive)
                    missing.remove(name)
                if not missing:
                    return
    except files.ARCHIVE_ERRORS as error:
        if isinstance(error, UserError):
            raise
        raise UserError(f"{archive}: not a readable tar archive ({files.one_line(error)}); fetch it again.") from error
    raise UserError(f"{archive}: it contains no {' and no '.join(sorted(missing))}; fetch it again.")


def copy(source, target: pathlib.Path, path) -> None:
    """Writes a decompressed stream to a file, and distinguishes errors of the stream from those of the disk.

    Args:
      source: the stream.
      target: the new file.
      path: the compressed file, for error messages.

    Raises:
      UserError: the stream is damaged or expands beyond all bounds, or the file can't be written.
    """

    limit = limits.most_bytes(path.stat().st_size)

    def chunks():
        total = 0
        while True:
            try:
                chunk = source.read(1 << 22)
            except Exception as error:  # every decompressor has its own exceptions
                raise UserError(
                    f"{path}: the compressed file is truncated or damaged ({error}); fetch it again."
                ) from error
            if not chunk:
                return
            total += len(chunk)
            if total > limit:
                raise limits.too_large(path, limit)
            yield chunk

    try:
        with open(target, "wb") as stream:
            for chunk in chunks():
                stream.write(chunk)
    except OSError as error:
        raise UserError(
            f"{path}: cannot be unpacked to {target.parent} ({error.strerror or error}); set TMPDIR to a folder with "
            f"more space."
        ) from error
