"""All tables and figures, found in the folders beside this file."""

import functools
import importlib
import pkgutil

from fedwin.errors import UserError
from fedwin.registry import nearest

from . import ghb, ima, survey, wima, wsm
from .analyses import Analysis, Sketch
from .items import Item

PAPERS = (wima, ima, ghb, wsm, survey)


@functools.cache
def catalogue() -> dict[str, Item | Analysis | Sketch]:
    """Returns name -> table or figure, in the papers' order."""
    found: dict[str, Item | Analysis | Sketch] = {}
    for paper in PAPERS:
        for module in sorted(pkgutil.iter_modules(paper.__path__), key=lambda m: (m.name.startswith("figure"), m.name)):
            if module.name.startswith(("table", "figure")):
                item = importlib.import_module(f"{paper.__name__}.{module.name}").ITEM
                found[item.name] = item
    return found


def item(name: str) -> Item | Analysis | Sketch:
    """Returns a table or figure; raises UserError if there is none of that name."""
    known = catalogue()
    if name not in known:
        raise UserError(f"'{name}' is no table or figure.{nearest(name, known)} `fedwin reproduce --list` names all.")
    return known[name]
