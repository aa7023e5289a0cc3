"""Writes the tables of the guide that are generated; a test checks that they are up to date.

python -m experiments.readme
python -m experiments.readme --check
"""

import pathlib

from absl import flags

from fedwin.algorithms import ALGORITHMS
from fedwin.errors import UserError

from . import speedrun
from .cli import subcommand

README = pathlib.Path(__file__).resolve().parents[1] / "README.md"
GUIDE = README.parent / "experiments" / "guide"
# Page of the guide -> name of its generated part and the function that generates it.
PARTS = {
    "algorithms.md": ("algorithms", lambda: ALGORITHMS.table("markdown")),
    "speedrun.md": ("records", speedrun.markdown),
}


def generated(page: str) -> str:
    """Returns the text of a page of the guide, the part between two comments up to date."""
    name, content = PARTS[page]
    start, end = f"<!-- {name} -->\n", f"<!-- end of {name} -->"
    before, rest = (GUIDE / page).read_text().split(start)
    _, after = rest.split(end)
    return f"{before}{start}{content().rstrip()}\n{end}{after}"


def define_flags() -> dict[str, list[str]]:
    """Defines the flags; returns title -> names."""
    flags.DEFINE_bool("check", False, "Only check that the tables are up to date.")
    return {"flags": ["check"]}


def main(argv: list[str]) -> None:
    """Writes the tables, or with --check only checks that they are up to date."""
    for page in PARTS:
        text = generated(page)
        if not flags.FLAGS.check:
            (GUIDE / page).write_text(text)
        elif text != (GUIDE / page).read_text():
            raise UserError(f"experiments/guide/{page} is not up to date; run `python -m experiments.readme`.")


if __name__ == "__main__":
    subcommand.run(main, define_flags)
