"""Papers from `papers.bib` or a user's BibTeX, by key."""

import functools
import pathlib
import re
from typing import NamedTuple

from fedwin.errors import UserError

_ENTRY = re.compile(r"^@\w+\{([^,\s]+),.*?^\}", re.MULTILINE | re.DOTALL)
_FIELD = re.compile(r"^\s*(\w+)\s*=\s*[{\"](.*?)[}\"],?\s*$", re.MULTILINE)


class Paper(NamedTuple):
    """A paper that a method comes from.

    Attributes:
      key: BibTeX key.
      title: title in tables.
      link: URL.
      bibtex: the BibTeX entry; '' for one made of key, title and link.
    """

    key: str
    title: str
    link: str = ""
    bibtex: str = ""

    def entry(self) -> str:
        """Returns the BibTeX entry."""
        return self.bibtex or f"@misc{{{self.key},\n  title = {{{self.title}}},\n  url = {{{self.link}}}\n}}"


def read(bibtex: str) -> dict[str, Paper]:
    """Returns key -> Paper of a BibTeX text."""
    papers = {}
    for match in _ENTRY.finditer(bibtex):
        fields = {str(name).lower(): str(value) for name, value in _FIELD.findall(match[0])}
        title = re.sub(r"[{}]", "", fields.get("title", match[1]))
        papers[match[1]] = Paper(match[1], title, fields.get("url", ""), match[0])
    return papers


@functools.cache
def shipped() -> dict[str, Paper]:
    """Returns key -> Paper of `papers.bib`."""
    return read((pathlib.Path(__file__).parent / "papers.bib").read_text(encoding="utf-8"))


def find(paper: "str | Paper") -> Paper:
    """Returns a paper by its key in `papers.bib` or of one BibTeX entry; raises UserError if it is neither."""
    if isinstance(paper, Paper):
        return paper
    if paper.lstrip().startswith("@"):
        entries = list(read(paper.strip()).values())
        if len(entries) != 1:
            raise UserError(f"paper='{paper.strip()[:40]}...' is not one BibTeX entry that ends with a line '}}'.")
        return entries[0]
    if paper not in shipped():
        raise UserError(
            f"paper='{paper}' is not a key of papers.bib; give a BibTeX entry or fedwin.registry.papers.Paper(...)."
        )
    return shipped()[paper]
