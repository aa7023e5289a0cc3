"""Prints the BibTeX of methods, wrappers, observers and losses, or of everything that a run used.

fedwin citation scaffold wima
fedwin citation runs/digits/fedavg
"""

import os
import pathlib

from fedwin import citations, plugins
from fedwin.errors import UserError
from fedwin.runs.config import Config

from .cli import subcommand
from .records import config_of

ARGUMENTS = "NAME|RUN ..."


def subject(text: str) -> str | Config:
    """Returns a name as it is, or the Config of a run; raises UserError if it is altered, or imports code not named."""
    if not os.path.isdir(text) and os.sep not in text.partition(":")[0]:
        return text
    values = config_of(text)
    plugins.load_for(pathlib.Path(text), values["imports"])
    return Config(**{name: values[name] for name in citations.FIELDS})


def define_flags() -> dict[str, list[str]]:
    """Defines no flags."""
    return {}


def main(argv: list[str]) -> None:
    """Prints every BibTeX entry once."""
    if not all(argv[1:]) or len(argv) < 2:
        raise UserError("name what to cite: fedwin citation NAME ..., or the directory of a run.")
    print(citations.citation(*map(subject, argv[1:])))


if __name__ == "__main__":
    subcommand.run(main, define_flags)
