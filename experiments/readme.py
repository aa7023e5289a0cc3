"""Writes the generated parts of README.md: `python -m experiments.readme`; a test keeps them up to date."""

import pathlib
import sys

from fedwin.algorithms import ALGORITHMS
from fedwin.data import table

README = pathlib.Path(__file__).parent.parent / "README.md"


def with_part(text: str, name: str, content: str) -> str:
    """Returns `text` with what is between `<!-- name -->` and `<!-- end of name -->` replaced."""
    start, end = f"<!-- {name} -->\n", f"<!-- end of {name} -->"
    before, found, rest = text.partition(start)
    _, closed, after = rest.partition(end)
    if not (found and closed):
        raise ValueError(f"README.md has no part '{name}'")
    return f"{before}{start}{content.rstrip()}\n{end}{after}"


def generated(text: str) -> str:
    """Returns README.md as it should be."""
    text = with_part(text, "algorithms", ALGORITHMS.table("markdown"))
    return with_part(text, "data", table.markdown())


def main(arguments: list[str]) -> int:
    """Writes README.md, or with --check checks that it is up to date; returns the exit status."""
    text = README.read_text()
    if "--check" not in arguments:
        README.write_text(generated(text))
    elif generated(text) != text:
        print("README.md is not up to date; run `python -m experiments.readme`.", file=sys.stderr)
        return 1
    return 0


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
