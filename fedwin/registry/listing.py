"""Tables of a registry's entries, in Markdown and for a terminal."""

import inspect
import textwrap

from fedwin.registry.choices import format_value

WIDTH = 120
# Maximum number of characters of each of a line's middle columns.
COLUMN = 18


def markdown(entries, columns: dict[str, str], rule: str) -> str:
    """Returns a Markdown table, one row per entry."""
    cited = any(entry.papers for entry in entries)
    head = ("name", rule, "hyper-parameters", *columns, *(("paper",) if cited else ()))
    rows = []
    for entry in entries:
        options = ", ".join(_option(h) for h in entry.hyperparameters) or "-"
        links = ", ".join(f"[{p.title}]({p.link})" if p.link else p.title for p in entry.papers) or "-"
        row = (entry.name, entry.summary, options, *_facts(entry, columns), *((links,) if cited else ()))
        rows.append(tuple(cell.replace("|", "\\|") for cell in row))
    lines = ["| " + " | ".join(row) + " |" for row in (head, *rows)]
    return "\n".join([lines[0], "|" + " --- |" * len(head), *lines[1:]])


def plain(entries, columns: dict[str, str], rule: str) -> str:
    """Returns a line of at most 120 columns per entry: name, two columns, and as much of the rule as fits."""
    shown = dict(list(columns.items())[:2])
    rows = [("name", *shown, rule), *((e.name, *_facts(e, shown), e.summary) for e in entries)]
    rows = [(row[0], *(_cut(cell, COLUMN) for cell in row[1:-1]), row[-1]) for row in rows]
    widths = [max(len(row[i]) for row in rows) for i in range(len(shown) + 1)]
    lines = ["".join(cell.ljust(width) + "  " for cell, width in zip(row, widths)) for row in rows]
    return "\n".join((left + _cut(row[-1], WIDTH - len(left))).rstrip() for left, row in zip(lines, rows))


def details(entry, columns: dict[str, str]) -> str:
    """Returns all about an entry for a terminal: rule, columns, parameters, papers and module, a line or more each."""
    lines = [_wrapped(entry.summary, f"{entry.name}: ", 4)]
    lines += [f"    {head}: {fact}" for head, fact in zip(columns, _facts(entry, columns))]
    lines += [_wrapped(h.description, f"    {_option(h):<26} ", 31) for h in entry.hyperparameters]
    lines += [_wrapped(f"{paper.title} {paper.link}".rstrip(), "    ", 4) for paper in entry.papers]
    return "\n".join([*lines, f"    defined in {entry.builder.__module__}"])


def _cut(text: str, width: int) -> str:
    return text if len(text) <= width else text[: width - 3].rstrip() + "..."


def _facts(entry, columns: dict[str, str]) -> list[str]:
    return [text.format(**entry.facts) for text in columns.values()]


def _option(hyperparameter) -> str:
    default = hyperparameter.default
    return f"{hyperparameter.name}={'(required)' if default is inspect.Parameter.empty else format_value(default)}"


def _wrapped(text: str, head: str, indent: int) -> str:
    if not text:
        return head.rstrip()
    return textwrap.fill(
        text, WIDTH, initial_indent=head, subsequent_indent=" " * indent, break_long_words=False, break_on_hyphens=False
    ).rstrip()
