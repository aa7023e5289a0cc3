"""Saves and loads the states of one seed, with orbax and with one file per large array."""

import contextlib
import dataclasses
import hashlib
import logging
import math
import os
import pathlib
import shutil
import sys
import traceback
from collections.abc import Callable, Iterator, Sequence
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np
import orbax.checkpoint as ocp

from fedwin import multi_process, tree
from fedwin.errors import UserError
from fedwin.files import failure_reason, sealed, writing
from fedwin.residence.blockwise import Stored, blocks, nbytes, write
from fedwin.runs.checkpoint_format import Leaves, has_rings, has_rows, migrate, read_on_access, resize_rings

# Small JSON data that a checkpoint stores next to the leaves.
Extra = dict[str, Any]

# Formats of a checkpoint. 1: no format number. 2: with the number. 3: windows record non-finite vectors. 4: client rows
# may be in a file. 5: large arrays may be in separate files. 6: windows may be in a file. A checkpoint is written in
# the lowest format that has what it needs, so that older versions can read it.
FORMAT = 6
WITH_LARGE = 5
WITH_ROWS = 4
WITHOUT_FILES = 3

# Larger arrays are stored in separate files: orbax would hold up to three copies of each in memory.
LARGE_BYTES = 4 << 20
# The folder of these files in a checkpoint.
LARGE = "large"

# Loggers that orbax's threads and asyncio's tasks write to.
LOGGERS = ("absl", "asyncio")


class Checkpoints:
    """The checkpoints of one seed in one directory.

    Args:
      directory: created on the first save; reading does not change it.
      keep: number of newest checkpoints that are kept.
      rounds: rounds whose checkpoints are also kept.

    Attributes:
      path: the directory as given, for messages.
      directory: its absolute path.
    """

    def __init__(self, directory: str | os.PathLike, keep: int = 3, rounds: Sequence[int] = ()):
        self.path = pathlib.Path(directory)
        self.directory = self.path.absolute()  # orbax requires it
        self.keep, self.keep_rounds = keep, tuple(rounds)
        self._manager: ocp.CheckpointManager | None = None

    def _writer(self) -> ocp.CheckpointManager:
        if self._manager is None:
            policies = ocp.checkpoint_managers
            kept = policies.AnyPreservationPolicy([policies.LatestN(self.keep), policies.CustomSteps(self.keep_rounds)])
            self.directory.mkdir(parents=True, exist_ok=True)
            options = ocp.CheckpointManagerOptions(
                preservation_policy=kept,
                create=multi_process.count() == 1,
                cleanup_tmp_directories=True,
                enable_async_checkpointing=False,
                multiprocessing_options=_multiprocessing_options(),
            )
            self._manager = ocp.CheckpointManager(self.directory, options=options)
        return self._manager

    def rounds(self) -> list[int]:
        """Returns the rounds that have a checkpoint, in ascending order, without opening any."""
        if not self.directory.is_dir():
            return []
        return sorted(int(p.name) for p in self.directory.iterdir() if p.name.isdigit())

    def save(self, round: int, run: Any, extra: Extra) -> None:
        """Saves a state.

        Args:
          round: completed rounds.
          run: the state, a pytree.
          extra: small JSON data to store with it.

        Raises:
          StorageError: the disk is full or can't be written.
        """
        leaves = named_leaves(run)
        large = {name: value for name, value in leaves.items() if is_large(value)}
        small = {name: np.array(value, copy=True) for name, value in leaves.items() if name not in large}
        # orbax rejects arrays without elements; their shapes are enough.
        empty = {name: [list(value.shape), value.dtype.str] for name, value in small.items() if not value.size}
        number = WITH_LARGE if large else WITH_ROWS if has_rows(leaves) else WITHOUT_FILES
        number = FORMAT if has_rings(leaves) else number
        about = {"format": number, "round": round, "digest": checksum(leaves), "empty": empty, **extra}
        about |= {"large": describe_large(large)} if large else {}
        nonempty = {name: value for name, value in small.items() if name not in empty}
        items = {"run": ocp.args.StandardSave(nonempty), "about": ocp.args.JsonSave(sealed(about))}
        items |= {LARGE: LargeSave(large)} if large else {}
        with writing(self.path), silence_logging(), silence_background_errors():
            try:
                self._writer().save(round, args=ocp.args.Composite(**items), force=True)
                self._writer().wait_until_finished()
            except Exception as error:  # tensorstore raises other errors for a full disk
                for unfinished in self.directory.glob("*.orbax-checkpoint-tmp"):
                    shutil.rmtree(unfinished, ignore_errors=True)
                reason = error.strerror if isinstance(error, OSError) else None
                raise OSError(None, reason or failure_reason(error)) from error

    def load(self, round: int) -> tuple[Leaves, Extra]:
        """Returns (name -> leaf, extra) of one checkpoint; large leaves stay in their files (blockwise.Stored).

        Args:
          round: the checkpoint's round.

        Raises:
          UserError: it can't be read, is damaged, or was written by a later version.
        """
        where = self.path / str(round)
        wanted = ocp.args.Composite(run=ocp.args.StandardRestore(), about=ocp.args.JsonRestore())
        try:
            handler = ocp.CompositeCheckpointHandler(
                composite_options=ocp.CompositeOptions(multiprocessing_options=_multiprocessing_options())
            )
            with (
                silence_logging(),
                silence_background_errors(),
                ocp.Checkpointer(handler, multiprocessing_options=_multiprocessing_options()) as reader,
            ):
                items = reader.restore(self.directory / str(round), args=wanted)
            leaves: Leaves = {name: np.array(value, copy=True) for name, value in items["run"].items()}
            about = dict(items["about"])
            leaves |= {name: np.zeros(shape, dtype) for name, (shape, dtype) in about["empty"].items()}
            leaves |= open_large(self.directory / str(round), about.get("large", {}))
        except Exception as error:  # orbax and tensorstore raise many types, all for the same reason
            raise UserError(f"checkpoint {where} can't be read ({type(error).__name__}); delete it.") from error
        if about.get("format", 1) > FORMAT:
            raise UserError(
                f"checkpoint {where} was written by a later version (format {about['format']}); update fedwin."
            )
        if about.get("digest") != checksum(leaves) or ("seal" in about and about != sealed(about)):
            raise UserError(f"checkpoint {where} is damaged (its checksum differs); delete it.")
        try:
            return read_on_access(migrate(leaves, about.get("format", 1), FORMAT), self.directory), about
        except UserError as error:
            raise UserError(f"checkpoint {where} can't be used: {str(error).rstrip('.')}; delete it.") from error

    def latest(self, check: Callable[[int, Extra], None] = lambda round, extra: None) -> tuple[Leaves, Extra] | None:
        """Returns (name -> leaf, extra) of the newest usable checkpoint, or None if there are no checkpoints.

        Newer checkpoints that can't be used are renamed to `damaged_...`, with a warning.

        Args:
          check: (round, extra) -> None; raises UserError for a checkpoint that must not be used.

        Raises:
          UserError: there are checkpoints and none can be used; then nothing is renamed.
        """
        skipped: dict[int, UserError] = {}
        for round in reversed(self.rounds()):
            try:
                leaves, extra = self.load(round)
                check(round, extra)
            except UserError as error:
                skipped[round] = error
                continue
            for damaged, reason in skipped.items():
                _warn(f"{reason} Falling back to the checkpoint of round {round}.")
                self._set_aside(damaged)
            return leaves, extra
        if skipped:
            raise UserError(f"{next(iter(skipped.values()))} No other checkpoint in {self.path} can be used either.")
        return None

    def _set_aside(self, round: int) -> None:
        """Renames a checkpoint; it is not deleted, so that no data of the user is lost silently."""
        damaged = self.directory / str(round)
        target = self.directory / f"damaged_{round}"
        number = 1
        while target.exists():
            target = self.directory / f"damaged_{round}_{number}"
            number += 1
        damaged.rename(target)
        self.close()

    def close(self) -> None:
        """Closes the orbax manager."""
        if self._manager is not None:
            self._manager.close()
            self._manager = None


class NoCheckpoints(Checkpoints):
    """The checkpoints of a process that does not write: process 0 saves the state of all."""

    def rounds(self) -> list[int]:
        """Returns an empty list."""
        return []

    def save(self, round: int, run: Any, extra: Extra) -> None:
        """Does nothing."""


def _multiprocessing_options() -> ocp.options.MultiprocessingOptions:
    """Returns options with which orbax reads and writes in this process alone, also in a multi-process run."""
    if multi_process.count() == 1:
        return ocp.options.MultiprocessingOptions()
    process = jax.process_index()
    return ocp.options.MultiprocessingOptions(primary_host=process, active_processes={process})


def leaf_name(path: tuple[Any, ...]) -> str:
    """Returns the name in checkpoints of the leaf at a path (jax.tree_util key path) of a tree."""
    return jax.tree_util.keystr(path, simple=True, separator=".") or "value"


def named_leaves(run: Any) -> Leaves:
    """Returns name -> leaf of a state, without copying; PRNG keys as their integer data."""
    plain = lambda leaf: jax.random.key_data(leaf) if isinstance(leaf, jax.Array) and tree.is_key(leaf) else leaf
    return {leaf_name(path): plain(leaf) for path, leaf in jax.tree_util.tree_leaves_with_path(run)}


def leaves_of(run: Any) -> dict[str, np.ndarray]:
    """Returns name -> copy of the leaf of a state.

    Copies, because a NumPy view of a device buffer prevents its donation, which doubles the memory of the next rounds.
    """
    return {name: np.array(leaf, copy=True) for name, leaf in named_leaves(run).items()}


def from_leaves(leaves: Leaves, template: Any) -> Any:
    """Rebuilds a state from its leaves.

    Args:
      leaves: name -> array.
      template: a state (or its shapes) with the same structure.

    Returns:
      A tree like `template`; ring buffers are resized to the template's length where that loses nothing.

    Raises:
      UserError: names, shapes or dtypes differ.
    """
    paths, treedef = jax.tree_util.tree_flatten_with_path(template)
    wanted = {leaf_name(path): leaf for path, leaf in paths}
    if set(wanted) != set(leaves):
        name = sorted(set(wanted) ^ set(leaves))[0]
        problem = "lacks" if name in wanted else "has an unexpected"
        raise UserError(f"the checkpoint {problem} '{name}': it belongs to another model or algorithm.")
    leaves = resize_rings(leaves, {name: like.shape for name, like in wanted.items()})
    values = []
    for name, like in wanted.items():
        value = leaves[name]
        expected = jax.random.key_data(like) if tree.is_key(like) else like
        if value.shape != expected.shape or value.dtype != expected.dtype:
            raise UserError(
                f"the checkpoint's '{name}' is {value.dtype}{list(value.shape)}, the run's is "
                f"{expected.dtype}{list(expected.shape)}: it belongs to another model or algorithm."
            )
        values.append(jax.random.wrap_key_data(jnp.asarray(value)) if tree.is_key(like) else value)
    return jax.tree.unflatten(treedef, values)


def checksum(leaves: Leaves) -> str:
    """Returns a hash of names, shapes, dtypes and contents of arrays."""
    h = hashlib.blake2b(digest_size=16)
    for name in sorted(leaves):
        value = leaves[name]
        h.update(f"{name}{value.dtype}{value.shape or (1,)}".encode())
        for block in blocks(value):
            h.update(block.reshape(-1).view(np.uint8).data)
    return h.hexdigest()


def is_large(array: Any) -> bool:
    """Returns whether an array (or its shape) is stored in a separate file of a checkpoint."""
    return nbytes(array) > LARGE_BYTES


def _large_file(directory: str | os.PathLike, number: int) -> pathlib.Path:
    return pathlib.Path(directory) / f"{number}.bin"


def describe_large(arrays: Leaves) -> Extra:
    """Returns name -> [shape, dtype] of arrays as JSON data, in the order of their files."""
    return {name: [list(arrays[name].shape), np.dtype(arrays[name].dtype).name] for name in sorted(arrays)}


def open_large(checkpoint: str | os.PathLike, description: Extra) -> dict[str, Stored]:
    """Returns name -> large array of a checkpoint; arrays are read on access.

    Args:
      checkpoint: directory of the checkpoint.
      description: the result of `describe_large` when it was saved.

    Raises:
      OSError: a file is missing or has another length.
    """
    arrays = {}
    for number, name in enumerate(sorted(description)):
        shape, dtype = tuple(description[name][0]), np.dtype(description[name][1])
        path = _large_file(pathlib.Path(checkpoint) / LARGE, number)
        if path.stat().st_size != math.prod(shape) * dtype.itemsize:
            raise OSError(f"{path} has a wrong length")
        arrays[name] = Stored(path, shape, dtype)
    return arrays


class LargeHandler(ocp.CheckpointHandler):
    """Writes large arrays into a folder of a checkpoint; orbax renames the checkpoint once everything is written."""

    def save(self, directory, args: "LargeSave") -> None:  # type: ignore[override]
        """Writes the arrays.

        Args:
          directory: an empty folder.
          args: what to write.
        """
        for number, name in enumerate(sorted(args.item)):
            write(_large_file(directory, number), args.item[name])

    def restore(self, directory, args: Any = None) -> None:  # type: ignore[override]
        """Reads nothing: `open_large` opens the files."""


@ocp.args.register_with_handler(LargeHandler, for_save=True, for_restore=True)
@dataclasses.dataclass
class LargeSave(ocp.args.CheckpointArgs):
    """Arguments of LargeHandler.save.

    Attributes:
      item: name -> array.
    """

    item: Leaves


@contextlib.contextmanager
def silence_logging() -> Iterator[None]:
    """Silences orbax's logs of errors that are already reported in one line."""
    previous = logging.root.manager.disable
    logging.disable(logging.CRITICAL)
    try:
        yield
    finally:
        logging.disable(previous)


@contextlib.contextmanager
def silence_background_errors() -> Iterator[None]:
    """Silences the errors that a failed save or load causes in background threads: it is already reported.

    tensorstore's threads report to a closed event loop, and orbax's remaining threads and tasks end with the same
    error. Both may happen later: after a failure the hook and the filters remain installed.
    """
    show = sys.unraisablehook

    def filtered(unraisable):
        error = unraisable.exc_value
        if not (isinstance(error, RuntimeError) and str(error) == "Event loop is closed"):
            show(unraisable)

    sys.unraisablehook = filtered
    for name in LOGGERS:
        logging.getLogger(name).addFilter(is_not_from_orbax)
    yield
    sys.unraisablehook = show
    for name in LOGGERS:
        logging.getLogger(name).removeFilter(is_not_from_orbax)


def is_not_from_orbax(record: logging.LogRecord) -> bool:
    """Returns whether a logged error was raised by code other than orbax's."""
    trace = record.exc_info[2] if record.exc_info else None
    return not any("orbax" in frame.f_code.co_filename for frame, _ in traceback.walk_tb(trace))


def _warn(line: str) -> None:
    print(f"warning: {line}", file=sys.stderr, flush=True)
