"""Trains on more images than the memory holds, and measures what that costs.

  fedwin stream_demo --dir=FOLDER --gigabytes=10               a packed cache, opened by memory map
  fedwin stream_demo --dir=FOLDER --gigabytes=0.5 --kind=jpeg  a folder of JPEG files, decoded when used

Runs `fedwin train` with the same flags three times: on a tiny federation, on one with clients of the same size that
fits into memory, and on the large one, whose examples are streamed. Reports the peak of anonymous memory (mapped file
pages, which the system can drop, do not count) and the rounds per second after the first dispatch.
"""

import csv
import json
import math
import os
import pathlib
import shutil
import subprocess
import sys
import time
from typing import Any

import numpy as np
from absl import flags

from fedwin import data
from fedwin.data import cache
from fedwin.data.example_source import Images
from fedwin.errors import UserError
from fedwin.models import MODELS
from fedwin.runs import signals

SIDE, PER_CLIENT, CLASSES, TESTS = 64, 200, 10, 500
CHOICE = f"image_folder:size={SIDE},resize={SIDE}"


class SyntheticImages(Images):
    """Images that are computed when they are written: a pattern of the class plus one of 64 noise images."""

    def __init__(self, labels: np.ndarray, seed: int):
        super().__init__(range(len(labels)), SIDE)
        rng = np.random.default_rng(0)
        grid = rng.integers(40, 216, (CLASSES, 4, 4, 3), np.int16)
        patterns = grid.repeat(SIDE // 4, 1).repeat(SIDE // 4, 2)[:, None]
        noise = rng.integers(-40, 40, (1, 64, SIDE, SIDE, 3), np.int16)
        self.bank = (patterns + noise).astype(np.uint8)
        self.labels, self.seed = labels, seed

    def image(self, item):
        return self.bank[self.labels[item], (item * 7 + self.seed) % 64]

    def decode_into(self, rows, out):
        out[:] = self.image(np.asarray(rows))


def federation(clients: int, per_client: int) -> data.Dataset:
    """Returns clients of equal size with two classes each, and test examples of all classes.

    Args:
      clients: number of clients.
      per_client: examples of a client.
    """
    client = np.repeat(np.arange(clients), per_client)
    label = ((client * 3 + np.arange(len(client)) % 2 * 5) % CLASSES).astype(np.int32)
    tests = (np.arange(TESTS) % CLASSES).astype(np.int32)
    natural = data.Partition(
        np.arange(len(client), dtype=np.int32),
        np.arange(clients + 1, dtype=np.int64) * per_client,
        ids=np.array([f"{k:06d}" for k in range(clients)]),
    )
    sides: list[Any] = [{"x": SyntheticImages(y, seed), "y": y} for seed, y in enumerate((label, tests))]
    train, test = sides
    return data.Dataset("image_folder", train, test, CLASSES, mean=(0.5,) * 3, std=(0.25,) * 3, natural=natural)


def write_jpegs(dataset: data.Dataset, folder: pathlib.Path) -> None:
    """Writes a folder of JPEG files with the lists train.csv and test.csv.

    Args:
      dataset: with natural clients.
      folder: is replaced.
    """
    from PIL import Image

    if dataset.natural is None:
        raise ValueError("the federation has no natural clients")

    shutil.rmtree(folder, ignore_errors=True)  # of an earlier call with --keep
    folder.mkdir(parents=True)
    client = np.repeat(np.arange(dataset.natural.num_clients), dataset.natural.sizes)
    for split, features in (("train", dataset.train), ("test", dataset.test)):
        with open(folder / f"{split}.csv", "w", newline="") as stream:
            writer = csv.writer(stream)
            writer.writerow((["user_id"] if split == "train" else []) + ["image_id", "class"])
            for row, label in enumerate(features["y"]):
                place = folder / split / f"{row // 1000:04d}"
                if row % 1000 == 0:
                    place.mkdir(parents=True)
                Image.fromarray(features["x"][row]).save(place / f"{split}{row}.jpg", quality=90)
                writer.writerow(([client[row]] if split == "train" else []) + [f"{split}{row}", label])


def peak_of(process: subprocess.Popen) -> int:
    """Waits for a process to end; returns its peak of anonymous memory in KiB."""
    peak = 0
    while process.poll() is None:
        try:
            status = pathlib.Path(f"/proc/{process.pid}/status").read_text()
            peak = max(peak, int(status.partition("RssAnon:")[2].split()[0]))
        except (OSError, IndexError):  # it has just ended
            pass
        time.sleep(0.05)
    return peak


def run(name: str, folder: pathlib.Path, examples: str) -> dict:
    """Trains in another process; returns its peak of anonymous memory in MiB, rounds/s and accuracy.

    Args:
      name: of the run.
      folder: of the data set.
      examples: value of --examples.
    """
    out = folder.parent / f"run_{name}"
    shutil.rmtree(out, ignore_errors=True)
    options = flags.FLAGS
    command = [
        sys.executable,
        "-m",
        f"{(__package__ or '').rpartition('.')[0]}.train",
        f"--dataset={CHOICE}",
        f"--data_dir={folder}",
    ]
    command += ["--num_clients=0", f"--clients_per_round={options.clients_per_round}", f"--model={options.model}"]
    command += [f"--num_rounds={options.rounds}", f"--eval_every={max(options.rounds // 5, 1)}", "--final_evals=1"]
    command += [f"--rounds_per_dispatch={max(options.rounds // 5, 1)}", "--batch_size=20", "--client_lr=0.02"]
    command += [f"--examples={examples}", "--checkpoint_every=0", f"--out_dir={out}"]
    # A pipe that is not read would block the run.
    with open(folder.parent / f"run_{name}.txt", "w+") as output:
        process = subprocess.Popen(command, stdout=output)
        signals.before_exit(process.kill)
        peak = peak_of(process)
        if process.returncode:
            sys.exit(process.returncode)
        output.seek(0)
        waited = [line.rstrip() for line in output if "waiting for examples" in line]
    lines = [json.loads(line) for line in (out / "metrics.jsonl").read_text().splitlines()]
    first, last = lines[1], lines[-1]
    speed = (last["round"] - first["round"]) / (last["seconds"] - first["seconds"])
    return {"peak": peak / 1024, "speed": speed, "accuracy": last["model"]["accuracy"], "waited": waited}


def report(tiny: dict, fits: dict, big: dict) -> str:
    """Returns the table of the three runs, the ratio of speeds, and how long the streamed run waited.

    Args:
      tiny: result of the run on the tiny federation.
      fits: of the one in memory.
      big: of the streamed one.
    """
    lines = [f"{'':10} {'RssAnon peak':>14} {'above tiny':>12} {'rounds/s':>10} {'accuracy':>9}"]
    for name, run in (("tiny", tiny), ("fits", fits), ("streamed", big)):
        above = run["peak"] - tiny["peak"]
        lines.append(f"{name:10} {run['peak']:10.0f} MiB {above:8.0f} MiB {run['speed']:10.2f} {run['accuracy']:9.3f}")
    lines.append(f"streamed speed / in-memory speed: {big['speed'] / fits['speed']:.2f}")
    return "\n".join([*lines, *big["waited"]])


def measure(root: pathlib.Path) -> None:
    """Writes the three federations below `root`, trains on each and prints the report."""
    options = flags.FLAGS
    bytes_per_client = PER_CLIENT * SIDE * SIDE * 3
    clients = max(int(options.gigabytes * 1e9) // bytes_per_client, options.clients_per_round)
    fitting = min(clients, 4 * options.clients_per_round)
    started = time.monotonic()
    for name, count, size in (("tiny", options.clients_per_round, 20), ("fits", fitting, PER_CLIENT)):
        cache.write(federation(count, size), CHOICE, root / name)
    large = federation(clients, PER_CLIENT)
    if options.kind == "jpeg":
        write_jpegs(large, root / "large")
    else:
        cache.write(large, CHOICE, root / "large")
    print(f"{clients:,} clients x {PER_CLIENT} images of {SIDE} x {SIDE}: {clients * bytes_per_client / 1e9:.2f} GB")
    print(f"written as {options.kind} in {time.monotonic() - started:.0f} s")
    tiny, fits = (run(name, root / name, "device") for name in ("tiny", "fits"))
    big = run("large", root / "large", "auto" if clients * bytes_per_client > 5e9 else "stream")
    print(report(tiny, fits, big))


def check(root: pathlib.Path) -> None:
    """Checks the flags before anything is written.

    Raises:
      UserError: too little disk space, or an unknown model.
    """
    options = flags.FLAGS
    MODELS.check(options.model)
    if not math.isfinite(options.gigabytes):
        raise UserError(f"gigabytes={options.gigabytes} must be a finite number, e.g. --gigabytes=10.")
    folder = next(place for place in root.absolute().parents if os.path.exists(place))
    if not folder.is_dir() or not os.access(folder, os.W_OK) or len(root.parent.name.encode()) > 255:
        raise UserError(f"dir={options.dir}: {folder} can't be written; choose another --dir.")
    image = SIDE * SIDE * 3
    clients = max(options.gigabytes * 1e9 / (PER_CLIENT * image), options.clients_per_round)
    needed = image * (PER_CLIENT * (clients + 4 * options.clients_per_round) + 20 * options.clients_per_round)
    free = shutil.disk_usage(folder).free
    if needed > free:
        raise UserError(
            f"dir={options.dir}: the images take {needed / 1e9:,.1f} GB and {free / 1e9:,.1f} GB are free; set a "
            f"smaller --gigabytes or --clients_per_round, or choose another --dir."
        )


def main(argv: list[str]) -> None:
    """Measures in a temporary folder, which is removed afterwards."""
    if not flags.FLAGS.dir:
        raise UserError("name a folder with space for the images with --dir=FOLDER.")
    root = pathlib.Path(flags.FLAGS.dir) / "stream_demo"
    check(root)
    if not flags.FLAGS.keep:
        signals.before_exit(lambda: shutil.rmtree(root, ignore_errors=True))
    try:
        measure(root)
    finally:
        if not flags.FLAGS.keep:
            shutil.rmtree(root, ignore_errors=True)


def define_flags() -> dict[str, list[str]]:
    """Defines the flags; returns title -> names."""
    flags.DEFINE_string("dir", None, "Folder with space for the images; they go to a new folder stream_demo in it.")
    flags.DEFINE_float("gigabytes", 10.0, "Size of the large federation, decoded.", lower_bound=0)
    flags.DEFINE_enum("kind", "packed", ["packed", "jpeg"], "How its images are stored.")
    flags.DEFINE_integer("rounds", 40, "Rounds of each run.", lower_bound=5)
    flags.DEFINE_integer("clients_per_round", 10, "Clients of a round.", lower_bound=1)
    flags.DEFINE_string("model", "digits_mlp", "Network.")
    flags.DEFINE_boolean("keep", False, "Keep the images and runs.")
    return {"flags": ["dir", "gigabytes", "kind", "rounds", "clients_per_round", "model", "keep"]}
