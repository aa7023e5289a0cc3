"""What a run writes down: metrics.jsonl, TensorBoard events, small JSON files; consistent after a kill at any moment."""

import json
import math
import os
import pathlib
import shutil
import tempfile
from typing import Any


def plain(value: Any) -> Any:
    """Makes JSON of a value; NaN and infinities become the strings 'nan', 'inf', '-inf', which every parser reads."""
    if isinstance(value, dict):
        return {str(k): plain(v) for k, v in value.items()}
    if isinstance(value, (list, tuple)):
        return [plain(v) for v in value]
    if hasattr(value, "item") and getattr(value, "ndim", 0) == 0:
        value = value.item()
    if isinstance(value, float) and not math.isfinite(value):
        return "nan" if math.isnan(value) else ("inf" if value > 0 else "-inf")
    return value


def write_json(path, value: Any) -> None:
    """Writes a JSON file in one step: beside, then renamed."""
    path = pathlib.Path(path)
    handle, temporary = tempfile.mkstemp(dir=path.parent, prefix=f".{path.name}.")
    with os.fdopen(handle, "w") as file:
        json.dump(plain(value), file, indent=2)
        file.write("\n")
    os.chmod(temporary, 0o644)
    os.replace(temporary, path)


def read_lines(path) -> list[dict[str, Any]]:
    """Reads metrics.jsonl; a half-written last line is left out."""
    path = pathlib.Path(path)
    if not path.exists():
        return []
    lines = []
    for text in path.read_text().splitlines():
        try:
            lines.append(json.loads(text))
        except json.JSONDecodeError:
            break
    return lines


class Logbook:
    """Appends evaluations of one or several seeds to `directory`.

    metrics.jsonl holds one line per evaluation; tensorboard/seed_<s>/ the same as events.
    """

    def __init__(self, directory):
        self.directory = pathlib.Path(directory)
        self.path = self.directory / "metrics.jsonl"
        self._file = None
        self._writers: dict[int, Any] = {}

    def truncate_after(self, seed: int, round: int) -> None:
        """Removes everything of `seed` that lies after `round` (-1: all of it), events too, and any half-written line."""
        if self._file is not None:
            self._file.close()
            self._file = None
        lines = [line for line in read_lines(self.path) if line["seed"] != seed or line["round"] <= round]
        handle, temporary = tempfile.mkstemp(dir=self.directory, prefix=".metrics.")
        with os.fdopen(handle, "w") as file:
            file.writelines(json.dumps(line) + "\n" for line in lines)
        os.chmod(temporary, 0o644)
        os.replace(temporary, self.path)
        # Event files can't be cut in place: they are written again from the lines that stay.
        if seed in self._writers:
            self._writers.pop(seed).close()
        shutil.rmtree(self._events(seed), ignore_errors=True)
        for line in lines:
            if line["seed"] == seed:
                self._events_line(line)

    def _events(self, seed: int) -> pathlib.Path:
        return self.directory / "tensorboard" / f"seed_{seed}"

    def _events_line(self, line: dict[str, Any]) -> None:
        from tensorboardX import SummaryWriter

        seed = line["seed"]
        if seed not in self._writers:
            self._writers[seed] = SummaryWriter(str(self._events(seed)), flush_secs=30)
        scalars = {key: value for key, value in line.items() if key not in ("seed", "round")}
        for key, value in list(scalars.items()):
            if isinstance(value, dict):
                del scalars[key]
                scalars |= {f"{key}/{metric}": scalar for metric, scalar in value.items()}
        for key, value in scalars.items():
            # TensorBoard can't draw NaN and inf; metrics.jsonl keeps them.
            if value is not None and math.isfinite(float(value)):
                self._writers[seed].add_scalar(key, float(value), line["round"])

    def write(self, line: dict[str, Any]) -> None:
        """Appends one evaluation."""
        line = plain(line)
        if self._file is None:
            self._file = open(self.path, "a")
        self._file.write(json.dumps(line) + "\n")
        self._events_line(line)

    def flush(self) -> None:
        """Brings what was written to the disk; called before a checkpoint that counts on it."""
        if self._file is not None:
            self._file.flush()
            os.fsync(self._file.fileno())
        for writer in self._writers.values():
            writer.flush()

    def close(self) -> None:
        self.flush()
        if self._file is not None:
            self._file.close()
            self._file = None
        for writer in self._writers.values():
            writer.close()
        self._writers.clear()
