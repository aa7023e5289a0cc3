"""Writes the API reference as HTML; needs the extra `docs`.

python -m experiments.docs [FOLDER]     by default build/docs
"""

import importlib.util
import pathlib
import pkgutil
import sys
import warnings

import fedwin
from fedwin.errors import UserError

TAKES_ARGUMENTS = True


def modules() -> list[str]:
    """Returns the names of the package and of all modules below it."""
    submodules = pkgutil.walk_packages(fedwin.__path__, "fedwin.")
    return ["fedwin", *(module.name for module in submodules if not module.name.startswith("fedwin.experiments"))]


def build(folder: str | pathlib.Path) -> list[str]:
    """Writes the reference to a folder; returns pdoc's warnings, a line each."""
    import pdoc

    for name in fedwin.__all__:  # pdoc documents attributes that are loaded, but fedwin loads its own on first use
        setattr(fedwin, name, getattr(fedwin, name))
    pdoc.render.configure(docformat="google", show_source=True)
    with warnings.catch_warnings(record=True) as caught:
        warnings.simplefilter("always")
        pdoc.pdoc(*modules(), output_directory=pathlib.Path(folder))
    # Packages without __all__ document their modules, too, which are therefore named twice.
    messages = [str(w.message) for w in caught if "pdoc" in w.filename and w.category is not DeprecationWarning]
    return [message.splitlines()[0] for message in messages if "already been added" not in message]


def define_flags() -> dict[str, list[str]]:
    """Defines no flags."""
    return {}


def main(argv: list[str]) -> None:
    """Builds the reference; ends with status 1 if pdoc warns."""
    if len(argv) > 2:
        raise UserError(f"unexpected argument '{argv[2]}'; write `fedwin docs FOLDER`.")
    if importlib.util.find_spec("pdoc") is None:
        raise UserError("pdoc is not installed; install it with pip install '.[docs]'.")
    folder = argv[1] if len(argv) > 1 else "build/docs"
    messages = build(folder)
    print(*messages, f"{folder}/index.html", sep="\n")
    sys.exit(int(bool(messages)))
