"""Prints the BibTeX of methods, wrappers, observers and losses, or of all that a run used.

fedwin citation scaffold wima
fedwin citation runs/digits/fedavg
"""

import json
import os
import pathlib

from fedwin import plugins
from fedwin.citations import citation
from fedwin.errors import UserError
from fedwin.runs.config import Config

from . import binary

TAKES_WORDS = True


def of(word: str) -> str | Config:
    """Returns what a word names: a thing that has a paper, or the Config of a run's directory.

    Raises:
      UserError: when a directory holds no run.
    """
    path = pathlib.Path(word)
    if not word or not os.path.isdir(path):
        return word
    try:
        known = json.loads((path / "config.json").read_text())["config"]
        config = Config(**{name: known[name] for name in ("algorithm", "wrap", "observe", "loss")})
        imports = list(known.get("imports", ()))
    except (OSError, ValueError, KeyError, TypeError) as error:
        raise UserError(f"{word}: this is not the directory of a run; `fedwin list runs` shows them.") from error
    plugins.load(imports)  # what it used may be the user's own
    return config


def define_flags() -> dict[str, list[str]]:
    """This binary has no flags of its own."""
    return {}


def main(argv: list[str]) -> None:
    """Prints every entry once."""
    if not all(argv[1:]) or len(argv) < 2:
        raise UserError("say what to cite: fedwin citation NAME ..., or the directory of a run.")
    print(citation(*(of(word) for word in argv[1:])))


if __name__ == "__main__":
    binary.run(main, define_flags, words=TAKES_WORDS)
