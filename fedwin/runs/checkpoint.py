"""Checkpoints: the states of a run on disk, written by orbax, with a checksum.

A checkpoint has the items `run` (small arrays by name), `about` (JSON data: round, shapes of large arrays, references
to records that are in files already, checksum) and `large` (bytes of large arrays, one file each, read on access).
"""

import contextlib
import dataclasses
import gc
import hashlib
import json
import logging
import os
import pathlib
import re
import shutil
import sys
import time
from collections.abc import Callable, Iterator, Sequence
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np
import orbax.checkpoint as ocp

from fedwin import multi_process, tree, window
from fedwin.errors import UserError
from fedwin.files import failure_reason, json_value, writing
from fedwin.residence.blockwise import Stored, blocks, write
from fedwin.residence.saved import SnapshotRing, resolve
from fedwin.residence.store import Reference
from fedwin.runs.metrics_log import Line
from fedwin.runs.schedule import Schedule
from fedwin.tree import PyTree

# Name -> array of a state, or a Lazy array that is read on access.
Leaves = dict[str, Any]
# Small JSON data that a checkpoint stores next to the leaves.
Extra = dict[str, Any]

FORMAT = 1
# Larger arrays are stored in separate files: orbax would hold up to three copies of each in memory.
LARGE_BYTES = 4 << 20
# The folder of these files in a checkpoint.
LARGE = "large"


class Checkpoints:
    """The checkpoints of one seed, or of a group of vmapped seeds, in one directory.

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
        self.directory = self.path.absolute()
        self.keep, self.keep_rounds = keep, rounds
        self._manager: ocp.CheckpointManager | None = None

    def rounds(self) -> list[int]:
        """Returns the rounds that have a checkpoint, in ascending order, without opening any."""
        if not self.directory.is_dir():
            return []
        return sorted(int(p.name) for p in self.directory.iterdir() if p.name.isdecimal())

    def about(self, round: int) -> Extra:
        """Returns the JSON data of a checkpoint as it is in its file; {} if it can't be read, which `load` refuses."""
        with contextlib.suppress(OSError, ValueError):
            return json.loads((self.directory / str(round) / "about" / "metadata").read_bytes())
        return {}

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

    def save(self, round: int, state: PyTree, extra: Extra) -> None:
        """Saves the state after some completed rounds and removes old checkpoints; StorageError if the disk is full."""
        if not multi_process.is_first():
            return  # process 0 saves the state of all
        leaves = named_leaves(state)
        references = {name: leaf for name, leaf in leaves.items() if isinstance(leaf, Reference)}
        arrays = {name: leaf for name, leaf in leaves.items() if name not in references}
        large = {name: value for name, value in arrays.items() if is_large(value)}
        # orbax rejects arrays without elements; their shapes are enough.
        empty = {name: value for name, value in arrays.items() if name not in large and not tree.nbytes(value)}
        small = {name: np.array(value) for name, value in arrays.items() if name not in large and name not in empty}
        about = {
            "format": FORMAT,
            "round": round,
            "empty": _shapes(empty),
            "large": _shapes(large),
            "references": {name: dataclasses.asdict(reference) for name, reference in references.items()},
            **json_value(extra),
        }
        about["checksum"] = checksum(arrays, about)
        items = {"run": ocp.args.StandardSave(small), "about": ocp.args.JsonSave(about), LARGE: LargeSave(large)}
        with writing(self.path), quiet_orbax():
            try:
                self._writer().save(round, args=ocp.args.Composite(**items), force=True)
                self._writer().wait_until_finished()
            except Exception as error:  # tensorstore raises other errors for a full disk
                for _ in range(10):  # tensorstore's threads still write, and create the folders that they miss
                    for unfinished in self.directory.glob("*.orbax-checkpoint-tmp"):
                        shutil.rmtree(unfinished, ignore_errors=True)
                    time.sleep(0.02)
                raise OSError(None, getattr(error, "strerror", None) or failure_reason(error)) from error

    def load(self, round: int) -> tuple[Leaves, Extra]:
        """Returns (name -> leaf, extra), large leaves as blockwise.Stored; UserError for a damaged or other format."""
        where, folder = self.path / str(round), self.directory / str(round)
        wanted = ocp.args.Composite(run=ocp.args.StandardRestore(), about=ocp.args.JsonRestore())
        single = _multiprocessing_options()
        try:
            handler = ocp.CompositeCheckpointHandler(
                composite_options=ocp.CompositeOptions(multiprocessing_options=single)
            )
            with quiet_orbax(), ocp.Checkpointer(handler, multiprocessing_options=single) as reader:
                items = reader.restore(folder, args=wanted)
            about = dict(items["about"])
            leaves: Leaves = {name: np.array(value) for name, value in items["run"].items()}
            leaves |= {name: np.zeros(shape, dtype) for name, (shape, dtype) in about["empty"].items()}
            for number, (name, (shape, dtype)) in enumerate(about[LARGE].items()):
                leaves[name] = Stored(folder / LARGE / f"{number}.bin", tuple(shape), np.dtype(dtype))
                if leaves[name].path.stat().st_size != tree.nbytes(leaves[name]):
                    raise OSError("a file has the wrong length")
            intact = checksum(leaves, about) == about["checksum"] and about["format"] == FORMAT
        except Exception as error:  # orbax and tensorstore raise many types, all for the same reason
            raise UserError(f"checkpoint {where} can't be read ({type(error).__name__}); delete it.") from error
        if not intact:
            raise UserError(f"checkpoint {where} is damaged (its checksum differs); delete it.")
        try:
            for name, reference in about["references"].items():
                leaves |= resolve(name, reference, self.directory)
        except UserError as error:
            raise UserError(f"checkpoint {where} can't be used: {str(error).rstrip('.')}; delete it.") from error
        return leaves, about

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
                line = f"warning: {reason} Falling back to the checkpoint of round {round}."
                print(line, file=sys.stderr, flush=True)
                target = self.directory / f"damaged_{damaged}"  # not deleted: no data of the user is lost silently
                while target.exists():
                    target = target.with_name(f"{target.name}_again")
                (self.directory / str(damaged)).rename(target)
                self.close()
            return leaves, extra
        if skipped:
            raise UserError(f"{next(iter(skipped.values()))} No other checkpoint in {self.path} can be used either.")
        return None

    def close(self) -> None:
        """Closes the orbax manager."""
        if self._manager is not None:
            self._manager.close()
            self._manager = None


class MemberCheckpoints(Checkpoints):
    """The checkpoints of one seed of a vmapped group; for reading.

    Args:
      directory: directory of the group, whose states have a leading axis of seeds.
      own: directory of the seed alone: its last state if a callback stopped it, in place of the group's from then on.
    """

    def __init__(self, directory: str | os.PathLike, seed: int, own: Checkpoints):
        super().__init__(directory)
        self.seed, self.own = seed, own

    def rounds(self) -> list[int]:
        """Returns the rounds that have a checkpoint, ascending; none after the seed ended."""
        group, last = super().rounds(), self.own.rounds()[-1:]
        newest = self.about(group[-1]) if group else {}
        diverged_at = newest.get("of_seed", {}).get(str(self.seed), {}).get("diverged_at")
        diverged = [diverged_at] if diverged_at is not None and newest.get("stop_on_divergence", True) else []
        return [round for round in group if all(round < end for end in (*last, *diverged))] + last

    def about(self, round: int) -> Extra:
        """Returns the JSON data of a checkpoint: the group's, unless the seed was stopped at that round."""
        return self.own.about(round) if round in self.own.rounds() else super().about(round)

    def load(self, round: int) -> tuple[Leaves, Extra]:
        """Returns (name -> leaf, extra) of the seed; see Checkpoints.load."""
        if round in self.own.rounds():
            return self.own.load(round)
        leaves, group = super().load(round)
        extra = group | group["of_seed"][str(self.seed)]
        at, shared = group["seeds"].index(self.seed), ("table.ids", "table.total")
        return {name: leaf if name in shared else np.array(leaf[at]) for name, leaf in leaves.items()}, extra


def seed_checkpoints(directory: str | os.PathLike, seed: int) -> Checkpoints:
    """Returns the checkpoints of one seed of a run, alone or in a group of vmapped seeds."""
    folder = pathlib.Path(directory) / "checkpoints"
    own = Checkpoints(folder / f"seed_{seed}")
    groups = (path for path in folder.glob("seeds_*") if str(seed) in path.name.removeprefix("seeds_").split(","))
    return next((MemberCheckpoints(path, seed, own) for path in groups), own)


def saved_seeds(directory: pathlib.Path) -> list[int]:
    """Returns the seeds of a run that have checkpoints, ascending; raises OSError if their folder can't be read."""
    names = (path.name for path in (directory / "checkpoints").iterdir())
    found = (match[1].split(",") for name in names if (match := re.fullmatch(r"seeds?_([0-9]+(?:,[0-9]+)*)", name)))
    return sorted({int(seed) for seeds in found for seed in seeds})


def _multiprocessing_options() -> ocp.options.MultiprocessingOptions:
    """Options with which orbax reads and writes in this process alone, even in a multi-process run."""
    if multi_process.count() == 1:
        return ocp.options.MultiprocessingOptions()
    process = jax.process_index()
    return ocp.options.MultiprocessingOptions(primary_host=process, active_processes={process})


@contextlib.contextmanager
def quiet_orbax() -> Iterator[None]:
    """Silences orbax's threads, and the tasks that they leave after a failure, which is reported in one line."""
    previous, hook = logging.root.manager.disable, sys.unraisablehook
    logging.disable(logging.CRITICAL)
    sys.unraisablehook = lambda unraisable: None
    try:
        yield
    except Exception:
        gc.collect()  # tasks that failed say so when they are collected
        raise
    finally:
        sys.unraisablehook = hook
        logging.disable(previous)


class LargeHandler(ocp.CheckpointHandler):
    """Writes large arrays into a folder of a checkpoint, block by block; `Checkpoints.load` opens the files."""

    def save(self, directory, args: "LargeSave") -> None:  # type: ignore[override]
        """Writes the arrays of `args` into an empty folder."""
        for number, array in enumerate(args.item.values()):
            write(directory / f"{number}.bin", array)

    def restore(self, directory, args: object = None) -> None:  # type: ignore[override]
        """Reads nothing."""


@ocp.args.register_with_handler(LargeHandler, for_save=True, for_restore=True)
@dataclasses.dataclass
class LargeSave(ocp.args.CheckpointArgs):
    """Arguments of LargeHandler.save: name -> array."""

    item: Leaves


def _shapes(arrays: Leaves) -> Extra:
    """Returns name -> [shape, dtype] of arrays as JSON data."""
    return {name: [list(value.shape), np.dtype(value.dtype).name] for name, value in arrays.items()}


def newest_checkpoint(
    checkpoints: Checkpoints, schedule: Schedule, lines: list[Line], seeds: Sequence[int], start: int
) -> tuple[Leaves, Extra] | None:
    """Returns (leaves, extra) of the newest checkpoint that is intact and has all its evaluations; else as `latest`.

    Args:
      seeds: the seed, or the group of vmapped seeds, whose checkpoints they are.
      start: first round of the run: 0, or the round of a fork.
    """
    written = {(line["seed"], line["round"]) for line in lines}

    def check(round: int, extra: Extra) -> None:
        path = checkpoints.path / str(round)
        of_seeds = extra.get("of_seed") or {str(extra.get("seed")): extra}
        if set(of_seeds) != set(map(str, seeds)):
            raise UserError(f"checkpoint {path} belongs to seed {', '.join(of_seeds)}; delete it.")
        if extra["round"] != round:
            raise UserError(f"checkpoint {path} is of round {extra['round']}; delete it.")
        for seed in seeds:
            ends = (of_seeds[str(seed)].get(name) for name in ("stopped_at", "diverged_at"))
            end = min([round, *(end for end in ends if end is not None)])
            evaluated = (r for r in range(start, end + 1) if r == start or schedule.evaluated(r))
            if missing := [r for r in evaluated if (seed, r) not in written]:
                raise UserError(
                    f"metrics.jsonl lacks {len(missing)} of seed {seed}'s evaluations up to round {end} (the first of "
                    f"round {missing[0]}); restore the file, or choose another --out_dir."
                )

    return checkpoints.latest(check)


def named_leaves(state: PyTree) -> Leaves:
    """Returns name -> leaf of a state, without copying; PRNG keys as their integer data."""
    plain = lambda leaf: jax.random.key_data(leaf) if isinstance(leaf, jax.Array) and tree.is_key(leaf) else leaf
    return {name: plain(leaf) for name, leaf in tree.named(state).items()}


def from_leaves(leaves: Leaves, template: PyTree) -> PyTree:
    """Rebuilds a state from its leaves, like a template, a state or its shapes; UserError if these differ.

    Ring buffers are resized to the template's length where that loses nothing.
    """
    wanted = tree.named(template)
    if set(wanted) != set(leaves):
        name = sorted(set(wanted) ^ set(leaves))[0]
        problem = "lacks" if name in wanted else "has an unexpected"
        raise UserError(f"the checkpoint {problem} '{name}': it belongs to another model or algorithm.")
    leaves = with_resized_rings(leaves, template)
    values = []
    for name, like in wanted.items():
        value = leaves[name]
        expected = jax.eval_shape(jax.random.key_data, like) if tree.is_key(like) else like
        if value.shape != expected.shape or value.dtype != expected.dtype:
            raise UserError(
                f"the checkpoint's '{name}' is {value.dtype}{list(value.shape)}, the run's is "
                f"{expected.dtype}{list(expected.shape)}: it belongs to another model or algorithm."
            )
        values.append(jax.random.wrap_key_data(jnp.asarray(value)) if tree.is_key(like) else value)
    return jax.tree.unflatten(jax.tree.structure(template), values)


def with_resized_rings(leaves: Leaves, template: PyTree) -> Leaves:
    """Resizes ring buffers restored from a run with another number of rounds, where that loses nothing.

    A window or a delay that is longer than its run has slots for that run's models only. While none has left it, vector
    number n is in slot n - 1 for every length. The template is the run's own state, or a part with the same names.
    """
    changed: Leaves = {}
    for own, node in tree.named(template, window.is_window).items():
        name = f"{own}.ring"
        if not window.is_window(node) or name not in leaves:
            continue
        ring, wanted = leaves[name], tuple(node.ring.shape)
        if wanted == ring.shape or wanted[1:] != ring.shape[1:]:
            continue
        common = min(len(ring), wanted[0])
        # A delay line has one slot per round of delay; a window has one more, for the vector that leaves it.
        capacity = common if isinstance(node, window.Delay) else common - 1
        if np.any(leaves[f"{own}.count"] > capacity):
            continue
        if isinstance(ring, SnapshotRing):
            changed[name] = SnapshotRing((wanted[0], ring.shape[1]), ring.dtype, ring.snapshot)
        else:
            changed[name] = np.zeros(wanted, ring.dtype)
            changed[name][:common] = ring[:common]
    return leaves | changed


def checksum(leaves: Leaves, about: Extra | None = None) -> str:
    """Returns a hash of names, shapes, dtypes and contents of arrays, and of JSON data if given."""
    h = hashlib.blake2b(digest_size=16)
    for name in sorted(leaves):
        value = leaves[name]
        h.update(f"{name}{value.dtype}{value.shape or (1,)}".encode())
        for block in blocks(value):
            h.update(block.reshape(-1).view(np.uint8).data)
    if about is not None:
        h.update(json.dumps({**about, "checksum": ""}, sort_keys=True).encode())
    return h.hexdigest()


def is_large(array: Any) -> bool:
    """Returns whether an array (or its shape) is stored in a separate file of a checkpoint."""
    return tree.nbytes(array) > LARGE_BYTES
