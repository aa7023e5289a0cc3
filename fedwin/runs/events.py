"""Evaluations as TensorBoard events."""

import math
import pathlib
import shutil
import socket
import struct
import time
from typing import Any

from tensorboardX.proto.event_pb2 import Event
from tensorboardX.record_writer import masked_crc32c
from tensorboardX.summary import scalar

from fedwin.runs.storage import Growing, writing


class Events:
    """The event file of one seed.

    Written by the calling thread: tensorboardX's SummaryWriter has a thread of its own, and waits for it for ever once
    that has died of a full disk.

    Args:
      directory: created on the first event.
    """

    def __init__(self, directory):
        self.directory = pathlib.Path(directory)
        self._file: Growing | None = None

    def rewrite(self, lines: list[dict[str, Any]]) -> None:
        """Replaces all events; event files can't be cut in place."""
        self.close()
        shutil.rmtree(self.directory, ignore_errors=True)
        for line in lines:
            self.write(line)

    def write(self, line: dict[str, Any]) -> None:
        """Writes a line of metrics.jsonl as scalars `model/accuracy` ..."""
        now = time.time()
        if self._file is None:
            with writing(self.directory):
                self.directory.mkdir(parents=True, exist_ok=True)
            self._file = Growing(self.directory / f"events.out.tfevents.{int(now)}.{socket.gethostname()}")
            self._file.write(_record(Event(wall_time=now, file_version="brain.Event:2")))
        for tag, value in _scalars(line):
            self._file.write(_record(Event(wall_time=now, step=line["round"], summary=scalar(tag, value))))

    def flush(self) -> None:
        """Brings the events to the disk."""
        if self._file is not None:
            self._file.flush()

    def close(self) -> None:
        """Closes the file."""
        file, self._file = self._file, None
        if file is not None:
            file.close()


def _record(event: Event) -> bytes:
    """Returns an event as it stands in a file: its length, the event, a checksum of each."""
    data = event.SerializeToString()
    length = struct.pack("<Q", len(data))
    return length + struct.pack("<I", masked_crc32c(length)) + data + struct.pack("<I", masked_crc32c(data))


def _scalars(line: dict[str, Any]):
    for key, value in line.items():
        for tag, number in (
            ((f"{key}/{m}", v) for m, v in value.items()) if isinstance(value, dict) else ((key, value),)
        ):
            # TensorBoard can't draw NaN and inf; metrics.jsonl keeps them.
            if key not in ("seed", "round") and number is not None and math.isfinite(float(number)):
                yield tag, float(number)
