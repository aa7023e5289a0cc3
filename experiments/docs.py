"""Writes the API reference as HTML: `python -m experiments.docs [FOLDER]` (build/docs); needs the extra `docs`."""

import importlib.util
import pathlib
import pkgutil
import sys
import warnings

import fedwin


def modules() -> list[str]:
    """Returns the package and every module below it."""
    found = pkgutil.walk_packages(fedwin.__path__, "fedwin.")
    return ["fedwin", *(module.name for module in found if not module.name.startswith("fedwin.experiments"))]


def build(folder: str | pathlib.Path) -> list[str]:
    """Writes the reference to a folder; returns what went wrong, a line each."""
    import pdoc

    for name in fedwin.__all__:  # pdoc sees what has been loaded, not what would be loaded on first use
        setattr(fedwin, name, getattr(fedwin, name))
    pdoc.render.configure(docformat="google", show_source=True)
    with warnings.catch_warnings(record=True) as caught:
        warnings.simplefilter("always")
        pdoc.pdoc(*modules(), output_directory=pathlib.Path(folder))
    # Some packages bring their modules along, others (those with __all__) do not: all are named, so some come twice.
    said = [str(w.message) for w in caught if "pdoc" in w.filename and w.category is not DeprecationWarning]
    return [line.splitlines()[0] for line in said if "already been added" not in line]


def main(arguments: list[str]) -> int:
    """Builds the reference; returns the exit status."""
    if importlib.util.find_spec("pdoc") is None:
        print("error: pdoc is not installed; install it with pip install 'fedwin[docs]'.", file=sys.stderr)
        return 2
    folder = arguments[0] if arguments else "build/docs"
    wrong = build(folder)
    print(*wrong, f"{folder}/index.html", sep="\n")
    return int(bool(wrong))


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
