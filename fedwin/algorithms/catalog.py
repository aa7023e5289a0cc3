"""A registry whose entries also say what they are: hyper-parameters, paper, cost, small instances for tests."""

import inspect
import math
import re
from typing import Any, Callable, NamedTuple

from fedwin.registry import Registry

_ARGUMENT = re.compile(r"^ {2}(\w+): (.*)$")
_COST = re.compile(r"^(\d+)(?: \+ (.+) numbers?)?(?: \((\d+) with .+\))?$")


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


def amounts(cost: str, model: int, **sizes: int) -> set[int]:
    """Returns the numbers that a cost stands for: '1', '2 (3 with momentum)', '1 + C d numbers'.

    Args:
      cost: models that travel, single numbers beside them, models where something is switched on.
      model: parameters of the model; sizes: what the letters of a product stand for.

    Raises ValueError for any other text.
    """
    match = _COST.match(cost)
    if not match:
        raise ValueError(f"'{cost}' is not a cost such as '1', '2 (3 with momentum)' or '1 + C d numbers'")
    always, product, switched = match.groups()
    beside = math.prod(sizes[f] if f in sizes else int(f) for f in product.split()) if product else 0
    return {int(models) * model + beside for models in (always, switched) if models}


class Entry(NamedTuple):
    """What is known about a method.

    down, up: models sent to and from one client in one round, as `amounts` reads them; reported: the overhead that the
    GHB paper prints for it (None: not listed); server, client: models that the server and a client keep; instances:
    choices, small enough for tests, that together cover its variants; degenerate: hyper-parameters under which it is
    FedAvg (None: never in general).
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
    degenerate: dict[str, Any] | None

    @property
    def hyperparameters(self) -> tuple[Hyperparameter, ...]:
        meanings = meanings_of(self.builder)
        parameters = inspect.signature(self.builder).parameters.values()
        return tuple(
            Hyperparameter(p.name, p.default, meanings.get(p.name, "")) for p in parameters if p.kind is p.KEYWORD_ONLY
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

    def add(
        self,
        builder,
        paper: Paper,
        *,
        down="1",
        up="1",
        reported=None,
        server="1",
        client="0",
        instances=(),
        degenerate=None,
    ):
        """Registers `builder` under its own name; `instances` defaults to the name alone."""
        name = builder.__name__
        for cost in (down, up):
            amounts(cost, 1, C=1, d=1)  # raises where it can't be read
        summary = (inspect.getdoc(builder) or "").splitlines()[0]
        self.register(name, builder)
        kept = (server, client, instances or (name,), degenerate)
        self.entries[name] = Entry(name, builder, summary, paper, down, up, reported, *kept)

    def instances(self) -> tuple[str, ...]:
        """All small instances, in order of registration."""
        return tuple(choice for entry in self.entries.values() for choice in entry.instances)

    def table(self, style: str = "markdown") -> str:
        """Renders the catalog, one row per name: 'markdown', or 'plain' with the hyper-parameters explained below it."""
        markdown = style == "markdown"
        head = ("name", "rule", "hyper-parameters", "down / up", "reported", "server / client keep", "paper")
        rows, below = [head], [""]
        for e in self.entries.values():
            options = [(f"{h.name}={_shown(h.default)}", h.meaning) for h in e.hyperparameters]
            title = f"[{e.paper.title}]({e.paper.link})" if markdown else f"{e.paper.title} {e.paper.link}"
            summary = e.summary.partition(": ")[2].rstrip(".") or e.summary
            cost = (f"{e.down} / {e.up}", e.reported or "-", f"{e.server} / {e.client}")
            rows.append((e.name, summary, ", ".join(text for text, _ in options), *cost, title))
            below.append("".join(f"\n    {text:<26} {meaning}" for text, meaning in options))
        if markdown:
            rows = [tuple(cell.replace("|", "\\|") for cell in row) for row in rows]
            lines = ["| " + " | ".join(row) + " |" for row in rows]
            return "\n".join([lines[0], "|" + " --- |" * len(head), *lines[1:]])
        # Below the row the hyper-parameters stand with what they mean.
        rows = [(row[0], *row[3:6], row[1], row[6]) for row in rows]
        widths = [max(len(row[i]) for row in rows) for i in range(len(rows[0]))]
        lines = ["  ".join(cell.ljust(w) for cell, w in zip(row, widths)).rstrip() for row in rows]
        return "\n".join(line + more for line, more in zip(lines, below))


def _shown(default) -> str:
    if default is inspect.Parameter.empty:
        return "(required)"
    # As the command line spells it: true, false, none.
    return str(default).lower() if default is None or isinstance(default, bool) else str(default)
