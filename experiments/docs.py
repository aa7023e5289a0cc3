"""Builds the documentation site from the pages of the guide; needs the extra `docs`.

python -m experiments.docs                    build/docs/html/index.html in minutes; a broken link is an error
python -m experiments.docs --nogallery        without running the examples of the gallery: half a minute
python -m experiments.docs --out=DIR          elsewhere; a second build redoes only what changed
"""

import importlib.util
import os
import pathlib
import subprocess
import sys

from absl import flags

from fedwin.errors import UserError

from . import view
from .cli import subcommand
from .tools.site import staging

# Modules of the extra `docs`.
NEEDED = (
    *("sphinx", "myst_nb", "sphinx_book_theme", "sphinx_copybutton", "sphinx_design", "sphinx_gallery"),
    *("vl_convert", "dp_accounting"),
)
CONFIGURATION = pathlib.Path(staging.__file__).parent


def build(folder: str | pathlib.Path, gallery: bool = True) -> int:
    """Builds the site in `folder`/html; returns the status of Sphinx, which is 1 if it warned.

    Args:
      gallery: whether to run the gallery's examples; else their pages have no pictures.
    """
    folder = pathlib.Path(folder).resolve()
    staging.stage(folder)
    options = ["-W", "--keep-going", "-b", "html", "-c", str(CONFIGURATION), "-d", str(folder / "doctrees")]
    # The gallery trains in this process: its runs belong beside its pages, whatever the user's variables say.
    paths = [str(staging.ROOT), *filter(None, [os.environ.get("PYTHONPATH")])]
    environment = os.environ | {"PYTHONPATH": os.pathsep.join(paths), "MPLBACKEND": "agg"}
    command = [sys.executable, "-m", "sphinx", *options, "-D", f"plot_gallery={int(gallery)}"]
    command += [str(folder / "source"), str(folder / "html")]
    status = subprocess.run(command, env=environment, cwd=folder).returncode
    staging.write(folder / "html" / staging.VIEWER, view.results_page())
    return status


def define_flags() -> dict[str, list[str]]:
    """Defines the flags; returns title -> names."""
    flags.DEFINE_string("out", "build/docs", "Folder to write to; the site is in its folder html.")
    flags.DEFINE_bool("gallery", True, "Run the examples of the gallery.")
    return {"flags": ["out", "gallery"]}


def main(argv: list[str]) -> None:
    """Builds the site; ends with status 1 if Sphinx warns."""
    if missing := [name for name in NEEDED if importlib.util.find_spec(name) is None]:
        raise UserError(f"{', '.join(missing)} not installed; install the extra with pip install '.[docs]'.")
    status = build(flags.FLAGS.out, flags.FLAGS.gallery)
    print(pathlib.Path(flags.FLAGS.out, "html", "index.html"))
    sys.exit(int(status != 0))


if __name__ == "__main__":
    subcommand.run(main, define_flags)
