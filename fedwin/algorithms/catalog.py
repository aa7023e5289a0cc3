"""A registry whose entries also say what they are: hyper-parameters, paper, cost, small instances for tests."""

import inspect
import re
from typing import Any, Callable, NamedTuple

from fedwin.registry import Registry

_ARGUMENT = re.compile(r"^ {2}(\w+): (.*)$")


class Paper(NamedTuple):
    """title, link, and the BibTeX key under which fedwin.citations knows it."""

    title: str
    link: str
    key: str


class Hyperparameter(NamedTuple):
    """One keyword of a builder: its default and what it means."""

    name: str
    default: Any
    meaning: str


class Entry(NamedTuple):
    """What is known about a method.

    down, up: models sent to and from one client in one round; reported: the overhead that the GHB paper prints for it
    (None: not listed); server, client: models that the server and a client keep; instances: choices, small enough for
    tests, that together cover its variants.
    """

    name: str
    builder: Callable
    summary: str
    paper: Paper
    down: str
    up: str
    reported: str | None
    server: str
    client: str
    instances: tuple[str, ...]

    @property
    def hyperparameters(self) -> tuple[Hyperparameter, ...]:
        meanings = meanings_of(self.builder)
        parameters = inspect.signature(self.builder).parameters.values()
        return tuple(
            Hyperparameter(p.name, p.default, meanings.get(p.name, ""))
            for p in parameters
            if p.kind is p.KEYWORD_ONLY
        )


def meanings_of(builder) -> dict[str, str]:
    """Reads `name: meaning` lines below `Args:` in a builder's docstring."""
    found, current, inside = {}, None, False
    for line in (inspect.getdoc(builder) or "").splitlines():
        if line.strip() == "Args:":
            inside = True
        elif inside and (match := _ARGUMENT.match(line)):
            current = match[1]
            found[current] = match[2].strip()
        elif inside and current and line.startswith("   ") and line.strip():
            found[current] += " " + line.strip()
        elif inside and not line.strip():
            inside = False
    return found


class Catalog(Registry):
    """A Registry with an Entry for every name: `catalog.entries[name]`."""

    def __init__(self, kind: str):
        super().__init__(kind)
        self.entries: dict[str, Entry] = {}

    def add(self, builder, paper: Paper, *, down="1", up="1", reported=None, server="1", client="0", instances=()):
        """Registers `builder` under its own name; `instances` defaults to the name alone."""
        name = builder.__name__
        summary = (inspect.getdoc(builder) or "").splitlines()[0]
        self.register(name, builder)
        self.entries[name] = Entry(name, builder, summary, paper, down, up, reported, server, client, instances or (name,))

    def instances(self) -> tuple[str, ...]:
        """All small instances, in order of registration."""
        return tuple(choice for entry in self.entries.values() for choice in entry.instances)

    def table(self, style: str = "markdown") -> str:
        """Renders the catalog, one row per name; style 'markdown' or 'plain'."""
        head = ("name", "rule", "hyper-parameters", "down / up", "reported", "server / client keep", "paper")
        rows = [head]
        for e in self.entries.values():
            options = ", ".join(f"{h.name}={_shown(h.default)}" for h in e.hyperparameters)
            title = f"[{e.paper.title}]({e.paper.link})" if style == "markdown" else f"{e.paper.title} {e.paper.link}"
            summary = e.summary.partition(": ")[2].rstrip(".") or e.summary
            cost = (f"{e.down} / {e.up}", e.reported or "-", f"{e.server} / {e.client}")
            rows.append((e.name, summary, options, *cost, title))
        if style == "markdown":
            rows = [tuple(cell.replace("|", "\\|") for cell in row) for row in rows]
            lines = ["| " + " | ".join(row) + " |" for row in rows]
            return "\n".join([lines[0], "|" + " --- |" * len(head), *lines[1:]])
        widths = [max(len(row[i]) for row in rows) for i in range(len(head))]
        return "\n".join("  ".join(cell.ljust(w) for cell, w in zip(row, widths)).rstrip() for row in rows)


def _shown(default) -> str:
    if default is inspect.Parameter.empty:
        return "(required)"
    # As the command line spells it: true, false, none.
    return str(default).lower() if default is None or isinstance(default, bool) else str(default)
