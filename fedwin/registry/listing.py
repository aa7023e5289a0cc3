"""Tables of a registry's entries, in Markdown and for a terminal."""

import inspect
import textwrap

from fedwin.registry.choices import format_value

WIDTH = 120


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
    """Returns a table of at most 120 columns: one row per entry, below it its parameters and papers."""
    rows = [("name", *columns, rule), *((e.name, *_facts(e, columns), e.summary) for e in entries)]
    widths = [max(len(row[i]) for row in rows) for i in range(len(columns) + 1)]
    lines = []
    for entry, row in zip((None, *entries), rows):
        left = "".join(cell.ljust(width) + "  " for cell, width in zip(row, widths))
        lines.append(_wrapped(row[-1], left, len(left)))
        for h in entry.hyperparameters if entry else ():
            lines.append(_wrapped(h.description, f"    {_option(h):<26} ", 31))
        for paper in entry.papers if entry else ():
            lines.append(_wrapped(f"{paper.title} {paper.link}".rstrip(), "    ", 4))
    return "\n".join(lines)


def _facts(entry, columns: dict[str, str]) -> list[str]:
    return [text.format(**entry.facts) for text in columns.values()]


def _option(hyperparameter) -> str:
    default = hyperparameter.default
    return f"{hyperparameter.name}={'(required)' if default is inspect.Parameter.empty else format_value(default)}"


def _wrapped(text: str, first: str, indent: int) -> str:
    if not text:
        return first.rstrip()
    filled = textwrap.fill(
        text,
        WIDTH,
        initial_indent=first,
        subsequent_indent=" " * indent,
        break_long_words=False,
        break_on_hyphens=False,
    )
    return filled.rstrip()
