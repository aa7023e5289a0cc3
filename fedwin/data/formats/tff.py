"""TensorFlow Federated's files, https://storage.googleapis.com/tff-datasets-public/, read without TensorFlow.

SQLite: one row per example in `examples(split_name, client_id, serialized_example_proto)`, sizes in `client_metadata`.
HDF5: `examples/<client id>/<feature>`. Either may be compressed as a whole, the latter as a .tar.bz2 of both sides.
"""

import contextlib
import pathlib
import tarfile
import tempfile
from typing import NamedTuple

import numpy as np

from fedwin.data.formats import checksums, example_proto, fedjax_sqlite, files, values
from fedwin.errors import UserError


class Form(NamedTuple):
    """One form of a data set: the files that belong together, and archives that may hold them."""

    name: str
    files: tuple[str, ...]
    archives: tuple[str, ...] = ()


class Found(NamedTuple):
    """A form that is there.

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
def opened(folders, forms):
    """Gives the first form that is there, as `Found`, or None: plain or compressed files, or an archive of them.

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
            yield Found(form.name, paths, origins)
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
    """Returns the plain files of a form and what to call each; temporary ones are removed with the stack."""
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
    """Writes the files of those names in a tar archive to a folder, in one pass over it."""
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
        raise UserError(f"{archive}: not a readable tar archive ({files.said(error)}); fetch it again.") from error
    raise UserError(f"{archive}: it holds no {' and no '.join(sorted(missing))}; fetch it again.")


def copy(source, target: pathlib.Path, path) -> None:
    """Writes a decoded stream to a file; what the stream raises and what the disk raises are told apart."""

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


def sizes(path, split: str) -> dict[str, int]:
    """Returns client id -> number of examples of one split of a SQLite file."""
    sql = "SELECT client_id, num_examples FROM client_metadata WHERE split_name = ? ORDER BY rowid"
    found = fedjax_sqlite.counted(path, fedjax_sqlite.query(path, sql, (split,)))
    if not found:
        known = [name for (name,) in fedjax_sqlite.query(path, "SELECT DISTINCT split_name FROM client_metadata")]
        raise UserError(f"{path}: no split '{split}'; it has {', '.join(sorted(known)) or 'none'}.")
    return found


def read_sqlite(path, split: str, convert, chosen=None):
    """Yields (client id, features) of one split: all clients in order of first appearance, or the `chosen` in theirs.

    Args:
      convert: parsed example -> dict of small arrays, so that no decoded original is kept.
      chosen: client ids to keep.

    Raises:
      UserError: no such split, or a chosen client without examples.
    """
    # Lists by feature: a dict for each of a hundred million examples would outweigh them.
    held: dict[str, dict[str, list]] = {client: {} for client in chosen or ()}
    sql = "SELECT client_id, serialized_example_proto FROM examples WHERE split_name = ? ORDER BY rowid"
    for number, (client, blob) in enumerate(fedjax_sqlite.query(path, sql, (split,))):
        if chosen is not None and client not in held:
            continue
        with values.naming(f"{path}, split {split}, record {number} of client '{client}'"):
            example = convert(example_proto.parse(blob))
        columns = held.setdefault(client, {})
        for key, value in example.items():
            columns.setdefault(key, []).append(value)
    if not any(held.values()):
        sizes(path, split)  # says which splits there are
        raise UserError(f"{path}: split '{split}' has no examples.")
    if absent := next((client for client, columns in held.items() if not columns), None):
        raise UserError(f"{path}, split {split}: there is no example of client '{absent}'; fetch the file again.")
    for client in list(held):
        columns = held.pop(client)
        with values.naming(f"{path}, split {split}, client '{client}'"):
            features = {key: stack(column) for key, column in columns.items()}
        yield client, features


def stack(values: list) -> np.ndarray:
    """Stacks arrays; byte strings become an object array, because NumPy's own type drops trailing zeros."""
    if isinstance(values[0], bytes):
        result = np.empty(len(values), object)
        result[:] = values
        return result
    return np.stack(values)


@contextlib.contextmanager
def hdf5(path):
    """Gives the clients' groups of an HDF5 file: client id -> group of arrays."""
    try:
        import h5py
    except ImportError as error:
        raise UserError(f"{path}: HDF5 files need the package h5py; install it with `pip install h5py`.") from error
    try:
        source = h5py.File(path, "r")
    except OSError as error:
        raise UserError(f"{path}: not a readable HDF5 file ({error}); fetch it again.") from error
    with source:
        if not isinstance(source.get("examples"), h5py.Group):
            raise UserError(f"{path}: there is no group 'examples'; it is not a file of TensorFlow Federated.")
        try:
            yield source["examples"]
        except (OSError, RuntimeError) as error:  # h5py's words for damage inside
            raise UserError(f"{path}: not a readable HDF5 file ({files.said(error)}); fetch it again.") from error


def sizes_hdf5(path, feature: str) -> dict[str, int]:
    """Returns client id -> length of one feature, without reading it."""
    with hdf5(path) as groups, values.naming(path):
        return {client: len(group[feature]) for client, group in groups.items()}


def read_hdf5(path, convert, chosen=None):
    """Yields (client id, features) of an HDF5 file, all clients or those of the `chosen` ids.

    Args:
      convert: maps a client's arrays to features; what it raises is said with the file and the client.
    """
    with hdf5(path) as groups:
        for client in groups if chosen is None else chosen:
            with values.naming(f"{path}, client '{client}'"):
                features = convert({key: held[()] for key, held in groups[client].items()})
            yield client, features
