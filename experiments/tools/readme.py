"""Writes the tables in README.md that are generated from the registries; a test checks that they are up to date.

python -m experiments.readme
python -m experiments.readme --check
"""

import pathlib

from absl import flags

from fedwin.algorithms import ALGORITHMS
from fedwin.data import catalog
from fedwin.errors import UserError

README = pathlib.Path(__file__).resolve().parents[2] / "README.md"


def with_part(text: str, name: str, content: str) -> str:
    """Returns `text` with the part between `<!-- name -->` and `<!-- end of name -->` replaced.

    Args:
      text: of README.md.
      name: of the part.
      content: its new text.

    Raises:
      ValueError: the part does not exist.
    """
    start, end = f"<!-- {name} -->\n", f"<!-- end of {name} -->"
    before, opened, rest = text.partition(start)
    _, closed, after = rest.partition(end)
    if not (opened and closed):
        raise ValueError(f"README.md has no part '{name}'")
    return f"{before}{start}{content.rstrip()}\n{end}{after}"


def generated(text: str) -> str:
    """Returns the text of README.md with its generated parts up to date."""
    text = with_part(text, "algorithms", ALGORITHMS.table("markdown"))
    return with_part(text, "data", catalog.markdown())


def define_flags(flag_values: flags.FlagValues = flags.FLAGS) -> dict[str, list[str]]:
    """Defines the flags; returns title -> names."""
    flags.DEFINE_bool("check", False, "Only check that README.md is up to date.", flag_values=flag_values)
    return {"flags": ["check"]}


def main(argv: list[str]) -> None:
    """Writes README.md, or with --check only checks that it is up to date."""
    text = README.read_text()
    if not flags.FLAGS.check:
        README.write_text(generated(text))
    elif generated(text) != text:
        raise UserError("README.md is not up to date; run `python -m experiments.readme`.")
