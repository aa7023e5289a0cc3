"""Finds all tables and figures: those that the modules in the papers' packages define, alone or in a tuple."""

import functools
import importlib
import pkgutil
import re

from fedwin.errors import UserError
from fedwin.registry import nearest

from . import ghb, ima, survey, wima, wsm
from .items import AnyItem

PAPERS = (wima, ima, ghb, wsm, survey)


def _order(item: AnyItem) -> tuple[bool, list[str]]:
    """Returns the sorting key within a paper: tables first, then by number, figure10b after figure9."""
    name = item.name.rpartition("/")[2]
    return name.startswith("figure"), [part.zfill(4) for part in re.split(r"(\d+)", name)]


@functools.cache
def catalogue() -> dict[str, AnyItem]:
    """Returns name -> table or figure, paper by paper."""
    items: dict[str, AnyItem] = {}
    for paper in PAPERS:
        modules = [importlib.import_module(f"{paper.__name__}.{m.name}") for m in pkgutil.iter_modules(paper.__path__)]
        values = [value for module in modules for value in vars(module).values()]
        each = [one for value in values for one in (value if isinstance(value, tuple) else (value,))]
        own = [one for one in each if isinstance(one, AnyItem)]
        items |= {item.name: item for item in sorted(own, key=_order)}
    return items


def item(name: str) -> AnyItem:
    """Returns a table or figure; raises UserError if no item has this name."""
    items = catalogue()
    if name not in items:
        raise UserError(f"unknown table or figure '{name}'.{nearest(name, items)} `fedwin reproduce --list` shows all.")
    return items[name]
