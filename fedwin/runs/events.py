"""Evaluations as TensorBoard events."""

import math
import pathlib
import shutil
import time
from typing import Any

from tensorboardX.event_file_writer import EventsWriter
from tensorboardX.proto.event_pb2 import Event
from tensorboardX.summary import scalar

from fedwin.runs.storage import writing


class Events:
    """The event file of one seed.

    Written by this thread: tensorboardX's SummaryWriter has one of its own, and waits for it for ever once it has died
    of a full disk.

    Args:
      directory: created on the first event.
    """

    def __init__(self, directory):
        self.directory = pathlib.Path(directory)
        self._writer: EventsWriter | None = None

    def rewrite(self, lines: list[dict[str, Any]]) -> None:
        """Replaces all events; event files can't be cut in place."""
        self.close()
        shutil.rmtree(self.directory, ignore_errors=True)
        for line in lines:
            self.write(line)

    def write(self, line: dict[str, Any]) -> None:
        """Writes a line of metrics.jsonl as scalars `model/accuracy` ..."""
        with writing(self.directory):
            if self._writer is None:
                self.directory.mkdir(parents=True, exist_ok=True)
                self._writer = EventsWriter(str(self.directory / "events"))
            for tag, value in _scalars(line):
                event = Event(wall_time=time.time(), step=line["round"], summary=scalar(tag, value))
                self._writer.write_event(event)

    def flush(self) -> None:
        """Brings the events to the disk."""
        if self._writer is not None:
            with writing(self.directory):
                self._writer.flush()

    def close(self) -> None:
        """Closes the file."""
        writer, self._writer = self._writer, None
        if writer is not None:
            with writing(self.directory):
                writer.close()


def _scalars(line: dict[str, Any]):
    for key, value in line.items():
        for tag, number in (
            ((f"{key}/{m}", v) for m, v in value.items()) if isinstance(value, dict) else ((key, value),)
        ):
            # TensorBoard can't draw NaN and inf; metrics.jsonl keeps them.
            if key not in ("seed", "round") and number is not None and math.isfinite(float(number)):
                yield tag, float(number)
