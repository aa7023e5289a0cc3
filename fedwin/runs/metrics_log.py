"""Writes and reads metrics.jsonl, and writes the same evaluations as TensorBoard events."""

import contextlib
import json
import os
import pathlib
import shutil
import socket
import struct
import time
from typing import BinaryIO

from tensorboardX.proto.event_pb2 import Event
from tensorboardX.record_writer import masked_crc32c
from tensorboardX.summary import scalar

from fedwin.callbacks.protocol import Line
from fedwin.callbacks.trackers import scalars
from fedwin.errors import UserError
from fedwin.files import SUMS, AppendFile, digest_of, json_value, parse_json, read_verified, replace_bytes, writing


def read_lines(path: str | os.PathLike) -> list[Line]:
    """Returns the lines of metrics.jsonl without an incomplete last one, [] without a file; UserError if damaged."""
    path = pathlib.Path(path)
    try:
        texts = read_verified(path.parent, path.name).split(b"\n")
    except FileNotFoundError:
        if (path.parent / SUMS).is_file():  # of a finished run
            raise UserError(f"{path} is gone; restore it, or run again in another --out_dir.") from None
        return []
    except OSError as error:
        raise UserError(f"{path} can't be read ({error.strerror}); restore it, or choose another --out_dir.") from error
    lines = []
    for number, text in enumerate(texts):
        if not text:
            continue
        try:
            if not _is_evaluation(line := parse_json(text)):
                raise ValueError
        except (ValueError, KeyError, TypeError, AttributeError) as error:
            if number == len(texts) - 1:  # the run was killed while writing: a complete line ends with a newline
                break
            raise UserError(
                f"{path}, line {number + 1}: not an evaluation; remove the line, or choose another --out_dir."
            ) from error
        lines.append(line)
    return lines


def _is_evaluation(line: Line) -> bool:
    """Whether JSON data have seed and round, and only numbers; raises KeyError, TypeError or AttributeError if not."""
    number = lambda value: isinstance(value, (int, float)) or value in ("nan", "inf", "-inf")
    items = lambda value: value if isinstance(value, list) else value.values() if isinstance(value, dict) else [value]
    values = [each for name in line.keys() - {"clients", "train_loss"} for each in items(line[name])]
    whole = isinstance(line["seed"], int) and isinstance(line["round"], int) and isinstance(line.get("model", {}), dict)
    return whole and line["round"] >= 0 and all(map(number, values))


def client_file(directory: pathlib.Path, seed: int, round: int) -> pathlib.Path:
    """Returns the file of the table of clients that were evaluated after a round."""
    return directory / "clients" / f"seed_{seed}" / f"round_{round}.npz"


class MetricsLog:
    """Appends the evaluations of all seeds to metrics.jsonl, one line each, and to tensorboard/seed_<s>/ as events."""

    def __init__(self, directory: str | os.PathLike):
        self.directory = pathlib.Path(directory)
        self.path = self.directory / "metrics.jsonl"
        self._file = AppendFile(self.path)
        self._events: dict[int, EventFile] = {}
        # The lines as they were read; None: they are not known.
        self._read: list[Line] | None = None

    def _written(self) -> list[Line]:
        """Returns all lines; the file is read once until a line is written."""
        if self._read is None:
            self._file.close()  # it may be replaced, and the next line opens it again
            self._read = read_lines(self.path)
        return self._read

    def _remove_summary(self) -> None:
        """Removes the files that describe other evaluations once these change; the run writes them at its end."""
        for name in (SUMS, "summary.json"):
            with writing(self.directory / name):
                (self.directory / name).unlink(missing_ok=True)

    def lines(self, seed: int) -> list[Line]:
        """Returns the evaluations of a seed that have been written."""
        return [line for line in self._written() if line["seed"] == seed]

    def truncate_after(self, seed: int, round: int) -> None:
        """Removes all evaluations and events of `seed` after `round` (-1: all), and an incomplete last line.

        The files of a finished run without such evaluations stay as they are.
        """
        written = self._written()
        lines = [line for line in written if line["seed"] != seed or line["round"] <= round]
        own = [line for line in lines if line["seed"] == seed]
        kept = {client_file(self.directory, seed, line["round"]): line["clients"] for line in own if "clients" in line}
        for path, digest in kept.items():
            with contextlib.suppress(OSError):
                if digest_of(path.read_bytes()) == digest:
                    continue
            raise UserError(f"{path} is gone or damaged; restore it, or run again in another --out_dir.")
        if len(lines) == len(written) and (self.directory / SUMS).is_file():
            return
        self._read = lines
        if len(lines) < len(written):
            self._remove_summary()
        for path in set(client_file(self.directory, seed, 0).parent.glob("*")).difference(kept):
            with writing(path):
                path.unlink()
        replace_bytes(self.path, "".join(json.dumps(line) + "\n" for line in lines).encode())
        self._events_of(seed).rewrite(own)

    def write_clients(self, seed: int, round: int, table: bytes) -> None:
        """Writes the table of the clients that were evaluated after a round, to disk at once."""
        path = client_file(self.directory, seed, round)
        with writing(path):
            path.parent.mkdir(parents=True, exist_ok=True)
        replace_bytes(path, table)

    def _events_of(self, seed: int) -> "EventFile":
        return self._events.setdefault(seed, EventFile(self.directory / "tensorboard" / f"seed_{seed}"))

    def write(self, line: Line) -> None:
        """Appends one evaluation, with its seed and round."""
        line, self._read = json_value(line), None
        self._remove_summary()
        self._file.write(json.dumps(line).encode() + b"\n")
        self._events_of(line["seed"]).add(line)

    def flush(self) -> None:
        """Flushes to disk; called before a checkpoint that relies on these evaluations."""
        for file in (self._file, *self._events.values()):
            file.flush()

    def close(self) -> None:
        """Closes all files, even if writing to one of them fails."""
        with contextlib.ExitStack() as stack:
            for file in (*self._events.values(), self._file):
                stack.callback(file.close)
            self._events = {}


class EventFile(AppendFile):
    """The TensorBoard event file of one seed, whose directory the first event creates.

    Events are written by the calling thread: the thread of tensorboardX's SummaryWriter dies when the disk is full, and
    the writer then waits for it forever.
    """

    def __init__(self, directory: str | os.PathLike):
        name = f"events.out.tfevents.{int(time.time())}.{socket.gethostname()}"
        super().__init__(pathlib.Path(directory) / name)

    def _opened(self) -> BinaryIO:
        self.path.parent.mkdir(parents=True, exist_ok=True)
        file = super()._opened()
        if not file.tell():
            file.write(_record(Event(wall_time=time.time(), file_version="brain.Event:2")))
        return file

    def rewrite(self, lines: list[Line]) -> None:
        """Replaces all events by those of `lines`; event files can't be truncated in place."""
        self.close()
        shutil.rmtree(self.path.parent, ignore_errors=True)
        for line in lines:
            self.add(line)

    def add(self, line: Line) -> None:
        """Writes a line of metrics.jsonl as scalars such as `model/accuracy`."""
        now = time.time()
        for tag, value in scalars(line):
            self.write(_record(Event(wall_time=now, step=line["round"], summary=scalar(tag, value))))


def _record(event: Event) -> bytes:
    """Returns the record of an event in a file: its length, the event, and a checksum of each."""
    data = event.SerializeToString()
    length = struct.pack("<Q", len(data))
    return length + struct.pack("<I", masked_crc32c(length)) + data + struct.pack("<I", masked_crc32c(data))
