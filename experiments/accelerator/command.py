"""The suite's flags, and starting it from them."""

import os
import pathlib
from collections.abc import Callable

from absl import flags

from fedwin.errors import UserError
from fedwin.registry import checks

from ..table_files import check_folder
from .budget import Clock
from .pieces import COHORTS
from .suite import Suite

NAMES = ("peers", "accelerator")
# Flags that only one of the suites has.
OWN = {
    "peers": ("cohort", "studies", "cores", "turns", "turn_seconds", "case_seconds"),
    "accelerator": ("minutes", "out_dir", "data_dir", "again"),
}
PEERS = ("fedjax", "torch")
TITLE = "--suite=accelerator"
MOST_MINUTES = 7 * 24 * 60


def define_flags() -> dict[str, list[str]]:
    """Defines the suite's flags; returns title -> names."""
    flags.DEFINE_enum(
        "suite", NAMES[0], NAMES,
        "peers: on this machine's CPU, and a GPU beside it; accelerator: all that is to be measured on a GPU or TPU, "
        "in pieces that resume, then LeNet-5's row of the heavy-ball paper's Table 4 is trained.",
    )  # fmt: skip
    flags.DEFINE_float("minutes", 20.0, "Time for one call; the same command goes on with what is missing.")
    flags.DEFINE_string("out_dir", "runs/accelerator", "Where pieces, runs and tables go.")
    flags.DEFINE_string("data_dir", "", "Folder with the files of CIFAR-10 and CIFAR-100; empty: nothing is trained.")
    flags.DEFINE_bool("again", False, "Try pieces again that failed.")
    return {TITLE: list(OWN["accelerator"])}


def check(options) -> None:
    """Raises UserError for a flag of the other suite, and for what this one would fail with."""
    for suite, names in OWN.items():
        for name in names:
            if suite != options.suite and options[name].present:
                raise UserError(f"{name} belongs to --suite={suite}; omit it, or set --suite={suite}.")
    if options.suite == "peers":
        return
    for name in asked(options) or []:
        if name not in COHORTS:
            raise UserError(f"cases={name}: --suite=accelerator has no such case; it has {', '.join(COHORTS)}.")
    checks.number("bench", 0, MOST_MINUTES, open_least=True, minutes=options.minutes)
    folder = pathlib.Path(options.out_dir)
    check_folder(folder)
    for path in (folder, *folder.parents):
        if path.exists():
            if not path.is_dir() or not os.access(path, os.W_OK):
                raise UserError(f"out_dir={folder} can't be written; choose another --out_dir.")
            break
    if options.data_dir and not pathlib.Path(options.data_dir).is_dir():
        raise UserError(f"data_dir={options.data_dir} is no folder; name the one with CIFAR's files, or omit it.")


def asked(options) -> list[str] | None:
    """Returns the cases that --cases names, which may be none at all; None where it is not given."""
    return [name for name in options.cases if name] if options["cases"].present else None


def start(options, peers: list[str], python_torch: str, imports: list[str], say: Callable[[str], None]) -> str:
    """Runs the suite and returns its report.

    Args:
      options: the flags, checked.
      peers: that were asked for.
      python_torch: interpreter that has torch.
      imports: the user's own code.
      say: where news go.

    Raises:
      UserError: there is no accelerator.
    """
    names = asked(options)
    return Suite(
        out_dir=pathlib.Path(options.out_dir),
        data_dir=options.data_dir,
        names=list(COHORTS) if names is None else names,
        peers=[name for name in peers if name in PEERS],
        python_torch=python_torch,
        imports=imports,
        clock=Clock(60 * options.minutes),
        tiny=options.quick,
        again=options.again,
        json=options.json,
        say=say,
    ).run()
