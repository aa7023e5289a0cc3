"""Writes and opens a page that shows runs, sweeps, comparisons or stored results: one HTML file, no network.

fedwin view                        all runs below runs/
fedwin view runs/comparison        a comparison, a sweep, or a single run
fedwin view runs/a other/b         runs of several folders
fedwin view --results              the papers' results, stored with fedwin
fedwin view --watch                writes the page again while runs go on; Ctrl-C ends it

Needs `pip install 'fedwin[view]'`.
"""

import os
import pathlib
import sys
import time
import webbrowser
from collections.abc import Callable, Sequence

from absl import flags

from fedwin.errors import UserError, escape
from fedwin.files import replace_text
from fedwin.runs import signals
from fedwin.runs.config import MOST

from .cli import picture_format, subcommand, unused
from .viewer import groups, page, runs

ARGUMENTS = "[FOLDER ...]"
# The folder that is shown when none is named.
FOLDER = "runs"
SUFFIXES = (".html", ".htm")
# Files of a run that change while it goes on.
CHANGING = ("config.json", "metrics.jsonl", "summary.json")
# Run -> times and sizes of its files.
Stamps = dict[pathlib.Path, list[tuple[int, int] | None]]


def define_flags() -> dict[str, list[str]]:
    """Defines the flags; returns title -> names."""
    flags.DEFINE_string("out", "view.html", "File of the page.")
    flags.DEFINE_string("title", "", "Title of the page; by default the names of the folders.")
    flags.DEFINE_boolean("results", False, "Show the stored results of the papers in place of runs.")
    flags.DEFINE_boolean("open", True, "Open the page in the browser, if there is one.")
    flags.DEFINE_boolean("watch", False, "Write the page again whenever a run has a new evaluation, until Ctrl-C.")
    flags.DEFINE_integer("every", 5, "watch: seconds between two checks.", lower_bound=1, upper_bound=MOST)
    return {"the page": ["out", "title", "results", "open"], "runs that go on": ["watch", "every"]}


def stamps(paths: Sequence[str]) -> Stamps:
    """Returns run -> times and sizes of its files; raises UserError if a path does not exist."""
    found = {path: [path / name for name in CHANGING] if path.is_dir() else [path] for path in runs.find(paths)}
    stamp = lambda file: (file.stat().st_mtime_ns, file.stat().st_size) if file.is_file() else None
    return {path: [stamp(file) for file in files] for path, files in found.items()}


def read(paths: Sequence[str]) -> tuple[list[runs.ViewedRun], list[str]]:
    """Returns the runs, and the reasons why others can't be shown; raises UserError if none can."""
    viewed: list[runs.ViewedRun] = []
    problems: list[str] = []
    found = runs.find(paths)
    points = min(max(runs.TOTAL // max(len(found), 1), runs.FEWEST), runs.MOST)
    for path, name in found.items():
        try:
            viewed.append(runs.read(path, name, points))
        except UserError as error:
            problems.append(str(error))
    if not viewed:
        none = f"no runs in {', '.join(paths)}; name a folder that contains runs, `fedwin view FOLDER`."
        raise UserError(problems[0] if problems else none)
    return viewed, problems


def path_of(text: str) -> pathlib.Path:
    """Returns the path of the page, with `.html` appended if it has no suffix; raises UserError for an unusable one."""
    path = picture_format.file_path(text, "view.html")
    path = path if path.suffix else path.with_name(f"{path.name}.html")
    if path.suffix.lower() not in SUFFIXES:
        raise UserError(f"out={text}: the page is an HTML file; write --out={path.stem}.html.")
    return path


def results_page(title: str = "Results of fedwin") -> str:
    """Returns the page of the stored results as HTML; raises UserError without results or plotting library."""
    bundle = page.library()
    return page.build(page.payload(*groups.kept()), title, bundle)


def _open(path: pathlib.Path, wanted: bool) -> None:
    """Opens a page in the browser of a desktop, or in $BROWSER; does nothing where there is neither."""
    desktop = sys.platform in ("darwin", "win32") or os.environ.get("DISPLAY") or os.environ.get("WAYLAND_DISPLAY")
    if wanted and (desktop or os.environ.get("BROWSER")):
        webbrowser.open(path.resolve().as_uri())


def write(paths: Sequence[str], title: str, out: pathlib.Path, bundle: str, reload: int = 0) -> None:
    """Reads the runs, writes their page, reloaded after `reload` seconds (0: never), and prints its name and size."""
    viewed, left_out = read(paths)
    text = page.build(page.payload(viewed, groups.of_folders(viewed), left_out, reload), title, bundle)
    replace_text(out, text)
    for reason in left_out:
        print(escape(f"left out           {reason}"), file=sys.stderr)
    count = f"{len(viewed)} run{'s' if len(viewed) > 1 else ''}"
    print(escape(f"page               {out} ({count}, {len(text.encode()) / 1e6:.1f} MB)"), flush=True)


def watch(paths: Sequence[str], shown: Stamps, again: Callable[[], None], every: float) -> None:
    """Calls a function whenever a run has changed; an error of the user's files, such as a removed folder, is printed.

    Args:
      shown: their `stamps` before they were read.
      every: seconds between two checks.
    """
    while True:
        time.sleep(every)
        try:
            if (now := stamps(paths)) != shown:
                shown = now
                again()
        except UserError as error:
            print(f"note: {error}", file=sys.stderr, flush=True)


def main(argv: list[str]) -> None:
    """Writes the page and opens it."""
    options = flags.FLAGS
    out, paths = path_of(options.out), argv[1:] or [FOLDER]
    if not options.watch:
        unused.refuse(["every"], "without --watch")
    if options.results:
        unused.refuse(["watch"], "with --results")
        if len(argv) > 1:
            raise UserError(f"--results shows the stored results alone; omit '{argv[1]}', or --results.")
        text = results_page(options.title or "Results of fedwin")
        replace_text(out, text)
        print(escape(f"page               {out} ({len(text.encode()) / 1e6:.1f} MB)"))
        _open(out, options.open)
        return
    title, bundle = options.title or ", ".join(paths), page.library()
    shown = stamps(paths)
    write(paths, title, out, bundle, options.every if options.watch else 0)
    _open(out, options.open)
    if options.watch:
        # A page that is no longer written need not be loaded again.
        signals.before_exit(lambda: write(paths, title, out, bundle))
        watch(paths, shown, lambda: write(paths, title, out, bundle, options.every), options.every)


if __name__ == "__main__":
    subcommand.run(main, define_flags)
