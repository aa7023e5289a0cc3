"""Keeping orbax and tensorstore from telling at length what a run tells in one line."""

import contextlib
import dataclasses
import hashlib
import logging
import math
import pathlib
import shutil
import sys
import traceback
from collections.abc import Sequence
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np
import orbax.checkpoint as ocp

from fedwin import multi_process, tree
from fedwin.errors import UserError
from fedwin.files import reason_of, sealed, writing
from fedwin.residence.blockwise import Stored, blocks, nbytes, write
from fedwin.runs.checkpoint_format import fitted, has_rings, has_rows, migrated, read_on_access
from fedwin.runs.consistency import alone

# Those that orbax's threads and asyncio's tasks write to.
LOGGERS = ("absl", "asyncio")


@contextlib.contextmanager
def quiet():
    """Keeps orbax from logging tracebacks of what is reported in one line."""
    before = logging.root.manager.disable
    logging.disable(logging.CRITICAL)
    try:
        yield
    finally:
        logging.disable(before)


@contextlib.contextmanager
def abandoned_saves_muted():
    """Keeps what a failed save leaves behind from being told a second time.

    tensorstore's threads report to an event loop that is gone, and threads and tasks of orbax that nobody waits for any
    more end with the same error. Both may happen later still: after a failure the hook and the filters stay.
    """
    show = sys.unraisablehook

    def shown(unraisable):
        error = unraisable.exc_value
        if not (isinstance(error, RuntimeError) and str(error) == "Event loop is closed"):
            show(unraisable)

    sys.unraisablehook = shown
    for name in LOGGERS:
        logging.getLogger(name).addFilter(not_of_orbax)
    yield
    sys.unraisablehook = show
    for name in LOGGERS:
        logging.getLogger(name).removeFilter(not_of_orbax)


def not_of_orbax(record: logging.LogRecord) -> bool:
    """Whether a logged error was raised by other code than orbax's."""
    trace = record.exc_info[2] if record.exc_info else None
    return not any("orbax" in frame.f_code.co_filename for frame, _ in traceback.walk_tb(trace))


# Arrays of more bytes have files of their own: orbax would hold each of them up to three times.
LARGE_BYTES = 4 << 20
# The folder of a checkpoint that holds them.
LARGE = "large"


def is_large(array) -> bool:
    """Whether an array has a file of its own."""
    return nbytes(array) > LARGE_BYTES


def _file(directory, number: int) -> pathlib.Path:
    return pathlib.Path(directory) / f"{number}.bin"


def described(arrays: dict[str, Any]) -> dict[str, Any]:
    """Returns, as JSON, the names of arrays in the order of their files, with shapes and dtypes."""
    return {name: [list(arrays[name].shape), np.dtype(arrays[name].dtype).name] for name in sorted(arrays)}


def stored(checkpoint, said: dict[str, Any]) -> dict[str, Stored]:
    """Returns the large arrays of a checkpoint, unread.

    Args:
      checkpoint: its directory.
      said: what `described` said of them.

    Raises:
      OSError: a file is missing or has another length.
    """
    found = {}
    for number, name in enumerate(sorted(said)):
        shape, dtype = tuple(said[name][0]), np.dtype(said[name][1])
        path = _file(pathlib.Path(checkpoint) / LARGE, number)
        if path.stat().st_size != math.prod(shape) * dtype.itemsize:
            raise OSError(f"{path} has another length")
        found[name] = Stored(path, shape, dtype)
    return found


class LargeHandler(ocp.CheckpointHandler):
    """Writes arrays into the folder that orbax gives it, and renames when all is written."""

    def save(self, directory, args: "LargeSave") -> None:  # type: ignore[override]
        """Writes the arrays.

        Args:
          directory: an empty folder.
          args: what to write.
        """
        for number, name in enumerate(sorted(args.item)):
            write(_file(directory, number), args.item[name])

    def restore(self, directory, args: Any = None) -> None:  # type: ignore[override]
        """Reads nothing: `stored` knows where everything is."""


@ocp.args.register_with_handler(LargeHandler, for_save=True, for_restore=True)
@dataclasses.dataclass
class LargeSave(ocp.args.CheckpointArgs):
    """What LargeHandler saves.

    Attributes:
      item: name -> array.
    """

    item: dict[str, Any]


# Format of a checkpoint; 1 had no number, 2 has it, in 3 windows know which of their vectors have no mean, in 4 rows of
# clients may be in a file, in 5 large arrays may have files of their own, in 6 windows may be in a file. A checkpoint
# without such files is written in the last format that had none, which older versions read.
FORMAT = 6
WITH_LARGE = 5
WITH_ROWS = 4
WITHOUT_FILES = 3


def _warn(line: str) -> None:
    print(f"warning: {line}", file=sys.stderr, flush=True)


def leaf_name(path) -> str:
    """Returns what checkpoints call the leaf at a path of a tree."""
    return jax.tree_util.keystr(path, simple=True, separator=".") or "value"


def named(run) -> dict[str, Any]:
    """Returns the leaves of a state by path, where they are."""
    plain = lambda leaf: jax.random.key_data(leaf) if isinstance(leaf, jax.Array) and tree.is_key(leaf) else leaf
    return {leaf_name(path): plain(leaf) for path, leaf in jax.tree_util.tree_leaves_with_path(run)}


def leaves_of(run) -> dict[str, np.ndarray]:
    """Returns the leaves of a state by path, copied.

    Copies, because a NumPy view of a device buffer cancels its donation and so doubles the memory of the next rounds.
    """
    return {name: np.array(leaf, copy=True) for name, leaf in named(run).items()}


def from_leaves(leaves: dict[str, np.ndarray], template):
    """Rebuilds a state like `template` from its leaves.

    Raises:
      UserError: names, shapes or dtypes differ.
    """
    paths, treedef = jax.tree_util.tree_flatten_with_path(template)
    wanted = {leaf_name(path): leaf for path, leaf in paths}
    if set(wanted) != set(leaves):
        odd = sorted(set(wanted) ^ set(leaves))[0]
        side = "lacks" if odd in wanted else "has an unexpected"
        raise UserError(f"the checkpoint {side} '{odd}': it belongs to another model or algorithm.")
    leaves = fitted(leaves, {name: like.shape for name, like in wanted.items()})
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


def checksum(leaves: dict[str, Any]) -> str:
    """Returns a hash over names, shapes, dtypes and bytes."""
    h = hashlib.blake2b(digest_size=16)
    for name in sorted(leaves):
        value = leaves[name]
        h.update(f"{name}{value.dtype}{value.shape or (1,)}".encode())
        for block in blocks(value):
            h.update(block.reshape(-1).view(np.uint8).data)
    return h.hexdigest()


class Checkpoints:
    """The checkpoints of one seed in one directory.

    Args:
      directory: created on the first save; reading changes nothing in it.
      keep: how many of the newest stay.
      rounds: those that stay besides.
    """

    def __init__(self, directory, keep: int = 3, rounds: Sequence[int] = ()):
        self.shown = pathlib.Path(directory)
        self.directory = self.shown.absolute()  # orbax demands it
        self.keep, self.stay = keep, tuple(rounds)
        self._manager: ocp.CheckpointManager | None = None

    def _writer(self) -> ocp.CheckpointManager:
        if self._manager is None:
            policies = ocp.checkpoint_managers
            stays = policies.AnyPreservationPolicy([policies.LatestN(self.keep), policies.CustomSteps(self.stay)])
            self.directory.mkdir(parents=True, exist_ok=True)
            options = ocp.CheckpointManagerOptions(
                preservation_policy=stays,
                create=multi_process.count() == 1,
                cleanup_tmp_directories=True,
                enable_async_checkpointing=False,
                multiprocessing_options=alone(),
            )
            self._manager = ocp.CheckpointManager(self.directory, options=options)
        return self._manager

    def rounds(self) -> list[int]:
        """Returns the rounds that were saved, oldest first, without opening anything."""
        if not self.directory.is_dir():
            return []
        return sorted(int(p.name) for p in self.directory.iterdir() if p.name.isdigit())

    def save(self, round: int, run, extra: dict[str, Any]) -> None:
        """Saves a state.

        Args:
          round: completed rounds.
          run: the state.
          extra: small JSON data that belongs to it.
        """
        leaves = named(run)
        large = {name: value for name, value in leaves.items() if is_large(value)}
        small = {name: np.array(value, copy=True) for name, value in leaves.items() if name not in large}
        # orbax refuses arrays without elements: their shapes say all.
        empty = {name: [list(value.shape), value.dtype.str] for name, value in small.items() if not value.size}
        number = WITH_LARGE if large else WITH_ROWS if has_rows(leaves) else WITHOUT_FILES
        number = FORMAT if has_rings(leaves) else number
        about = {"format": number, "round": round, "digest": checksum(leaves), "empty": empty, **extra}
        about |= {"large": described(large)} if large else {}
        kept = {name: value for name, value in small.items() if name not in empty}
        items = {"run": ocp.args.StandardSave(kept), "about": ocp.args.JsonSave(sealed(about))}
        items |= {LARGE: LargeSave(large)} if large else {}
        with writing(self.shown), quiet(), abandoned_saves_muted():
            try:
                self._writer().save(round, args=ocp.args.Composite(**items), force=True)
                self._writer().wait_until_finished()
            except Exception as error:  # tensorstore has errors of its own for a full disk
                for unfinished in self.directory.glob("*.orbax-checkpoint-tmp"):
                    shutil.rmtree(unfinished, ignore_errors=True)
                reason = error.strerror if isinstance(error, OSError) else None
                raise OSError(None, reason or reason_of(error)) from error

    def load(self, round: int) -> tuple[dict[str, Any], dict[str, Any]]:
        """Returns (leaves, extra) of one checkpoint; large leaves stay in their files (residence.lazy.Stored).

        Raises:
          UserError: it can't be read, was altered, or is of a later version.
        """
        where = self.shown / str(round)
        wanted = ocp.args.Composite(run=ocp.args.StandardRestore(), about=ocp.args.JsonRestore())
        try:
            handler = ocp.CompositeCheckpointHandler(
                composite_options=ocp.CompositeOptions(multiprocessing_options=alone())
            )
            with quiet(), ocp.Checkpointer(handler, multiprocessing_options=alone()) as reader:
                items = reader.restore(self.directory / str(round), args=wanted)
            leaves: dict[str, Any] = {name: np.array(value, copy=True) for name, value in items["run"].items()}
            about = dict(items["about"])
            leaves |= {name: np.zeros(shape, dtype) for name, (shape, dtype) in about["empty"].items()}
            leaves |= stored(self.directory / str(round), about.get("large", {}))
        except Exception as error:  # orbax and tensorstore raise many kinds; all mean the same here
            raise UserError(f"checkpoint {where} can't be read ({type(error).__name__}); delete it.") from error
        if about.get("format", 1) > FORMAT:
            raise UserError(
                f"checkpoint {where} was written by a later version (format {about['format']}); update fedwin."
            )
        if about.get("digest") != checksum(leaves) or ("seal" in about and about != sealed(about)):
            raise UserError(f"checkpoint {where} is damaged (its checksum differs); delete it.")
        try:
            return read_on_access(migrated(leaves, about.get("format", 1), FORMAT), self.directory), about
        except UserError as error:
            raise UserError(f"checkpoint {where} can't be used: {str(error).rstrip('.')}; delete it.") from error

    def latest(self, check=lambda round, about: None) -> tuple[dict[str, Any], dict[str, Any]] | None:
        """Returns the newest usable checkpoint, or None; warns about those that it skips and moves them aside.

        Args:
          check: (round, extra) -> None; raises UserError for a checkpoint that must not be used.

        Raises:
          UserError: there are checkpoints and none can be used; then nothing is moved.
        """
        skipped: dict[int, UserError] = {}
        for round in reversed(self.rounds()):
            try:
                found = self.load(round)
                check(round, found[1])
            except UserError as error:
                skipped[round] = error
                continue
            for bad, reason in skipped.items():
                _warn(f"{reason} Falling back to the checkpoint of round {round}.")
                self._discard(bad)
            return found
        if skipped:
            raise UserError(f"{next(iter(skipped.values()))} No other checkpoint in {self.shown} can be used either.")
        return None

    def _discard(self, round: int) -> None:
        # Moved aside, not deleted: nothing of a user's is lost silently.
        bad = self.directory / str(round)
        target = self.directory / f"damaged_{round}"
        number = 1
        while target.exists():
            target = self.directory / f"damaged_{round}_{number}"
            number += 1
        bad.rename(target)
        self.close()

    def close(self) -> None:
        """Releases what orbax holds."""
        if self._manager is not None:
            self._manager.close()
            self._manager = None
