"""Calls a subcommand in this process, as its command line would."""

import contextlib
import io
import pathlib
import warnings
from collections.abc import Callable
from typing import NamedTuple

from absl import app, flags, logging
from absl.testing import flagsaver

from experiments import bench, cli
from fedwin.data import download
from fedwin.runs import run as runner

# A small run of few clients; without rounds.
SMALL = (
    "--dataset=digits --num_clients=10 --clients_per_round=2 --model=digits_mlp:hidden=8 --batch_size=32 "
    "--final_evals=2 --strategy=chunked:k=1"
)
LONG_NAME = 300 * "a"


class Ended(NamedTuple):
    """How a subcommand ended: exit status, lines on stderr, text on stdout."""

    status: int
    lines: list[str]
    out: str


@contextlib.contextmanager
def own_flags():
    """Forgets afterwards the flags that the body defines, and what it did to the others."""
    app.define_help_flags()  # once in a process, so not among those that are forgotten
    known, before = flags.FLAGS, set(flags.FLAGS)
    saved = flagsaver.save_flag_values(known)
    try:
        yield
    finally:
        for name in set(known) - before:
            delattr(known, name)
        flagsaver.restore_flag_values(saved, known)
        known.unparse_flags()


@contextlib.contextmanager
def own_settings():
    """Restores what a subcommand sets in its process."""
    show, verbosity = warnings.showwarning, logging.get_verbosity()
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")  # what Python shows to users; the tests' own filters make warnings errors
        warnings.simplefilter("default", UserWarning)
        try:
            yield
        finally:
            warnings.showwarning = show
            logging.set_verbosity(verbosity)


def ended(program: Callable[[], object]) -> Ended:
    """Returns how a program ends that runs in this process."""
    out, err = io.StringIO(), io.StringIO()
    status = 0
    with own_flags(), own_settings(), contextlib.redirect_stdout(out), contextlib.redirect_stderr(err):
        try:
            program()
        except SystemExit as end:
            status = end.code if isinstance(end.code, int) else int(end.code is not None)
    return Ended(status, err.getvalue().splitlines(), out.getvalue())


def called(*arguments: str) -> Ended:
    """Returns how `fedwin SUBCOMMAND ...` ends."""
    return ended(lambda: cli.main(arguments))


def tree_of(folder: pathlib.Path) -> set[str]:
    """Returns every path below a folder."""
    return {str(path.relative_to(folder)) for path in folder.rglob("*") if "__pycache__" not in path.parts}


def no_run_begins(monkeypatch) -> None:
    """Makes a run that was not rejected an error of the test, before it costs anything."""

    def begun(*args, **kwargs):
        raise AssertionError("the run was started")

    for place, name in ((runner, "Program"), (bench, "measure"), (download, "fetch")):
        monkeypatch.setattr(place, name, begun)


def refused(folder: pathlib.Path, said: str, *arguments: str) -> str:
    """Checks that a command line ends in one line with the parts of `said`, and writes nothing; returns the line."""
    before = tree_of(folder)
    status, lines, _ = called(*arguments)
    told = "\n".join(lines)
    assert status == 2, f"status {status}: {told}"
    assert len(lines) == 1 and told.startswith("error: "), told
    for part in said.split(" | "):
        assert part in told, f"{part!r} not in {told!r}"
    assert tree_of(folder) == before, tree_of(folder) - before
    return told
