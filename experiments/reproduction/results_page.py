"""Writes experiments/RESULTS.md, its pictures and its tables from the stored results."""

import collections
import functools
import pathlib
from collections.abc import Iterable

from fedwin.files import replace_text

from ..papers.catalogue import catalogue
from ..papers.errata import ERRATA
from ..papers.items import Analysis, AnyItem, Item, Sketch, file_stem
from ..papers.scales import SCALES
from ..tables.formats import markdown_table
from . import inspection, pictures
from . import write as write_tables
from .run_queue import QUEUE, progress
from .store import RESULTS, StoredResults
from .values import Value, values, verdicts

PAGE = RESULTS.parent / "RESULTS.md"
# Folders below `experiments/results/`: the page's pictures, and its numbers with their commands.
PICTURES, TABLES = "pictures", "tables"

INTRODUCTION = """# Results

Made by `fedwin reproduce --from_results` from the curves in `experiments/results/`; nothing here is typed by hand.
Every kept file names its command, configuration, versions, machine and seconds, and `fedwin curves` lays it beside a
run of your own; every number with its seeds, run, fingerprint and command is in `experiments/results/tables/`. At paper
scale a cell reads *printed / ours*; **bold** agrees within one percentage point or two
standard deviations. `trend` is a stand-in of minutes that asks for sign and order of an effect, not for its size: its
numbers are not compared with printed ones. A claim's verdict counts the pairs of cells in which it shows.

Two data sets differ from the papers' own: the copy of Fashion-MNIST used here has a split of its own (the same 70,000
images, dealt otherwise to training and test), and Shakespeare's roles were prepared from the plays, not taken from
LEAF's download."""


def page(folder: pathlib.Path = RESULTS) -> str:
    """Draws the pictures, writes the numbers, and returns the page.

    Args:
      folder: above pictures and numbers.
    """
    sections = {scale: list(_sections(scale, folder)) for scale in reversed(SCALES) if scale != "smoke"}
    return "\n\n".join(
        [
            INTRODUCTION,
            "## Claims",
            _claims(),
            "## Paper scale",
            *(sections["paper"] or ["Nothing has been trained at the papers' own scale yet."]),
            "## The queue",
            "Paper-scale runs in the order of what they tell; `fedwin reproduce --queue` goes on with the next.",
            _queue(),
            "## Trends",
            *(sections["trend"] or ["Nothing yet."]),
            "## Not run",
            _absent(),
            "## Errata",
            markdown_table(("where", "printed", "what shows it", "here"), ERRATA),
        ]
    )


def write() -> None:
    """Writes the page, its pictures and its tables."""
    replace_text(PAGE, page() + "\n")
    print(f"written: {PAGE}, {RESULTS / PICTURES}, {RESULTS / TABLES}")


def _sections(scale: str, folder: pathlib.Path) -> Iterable[str]:
    """Yields a section per item with stored results at a scale."""
    for kind in (PICTURES, TABLES):
        (folder / kind / scale).mkdir(parents=True, exist_ok=True)
    for item in catalogue().values():
        section = _section(item, scale, folder)
        if section:
            yield section


def _section(item: AnyItem, scale: str, folder: pathlib.Path) -> str:
    """Draws an item and returns its section; '' if nothing is stored."""
    drawings = folder / PICTURES / scale
    link = lambda path: path.relative_to(PAGE.parent) if path.is_relative_to(PAGE.parent) else path
    if isinstance(item, Analysis):
        stored = StoredResults(scale).folder / f"{file_stem(item)}.json.gz"
        if not stored.is_file():
            return ""
        path = drawings / f"{file_stem(item)}.png"
        inspection.redraw(item, scale, stored, path)
        standin = f"\n\nStand-in: {item.standin}" if scale != "paper" and item.standin else ""
        return f"### {item.name} ({scale}): {item.title}{standin}\n\n![{item.title}]({link(path)})"
    if isinstance(item, Sketch):
        return ""
    stored = _stored(scale)
    numbers = values(stored, item, scale)
    if not any(_trained(number) for number in numbers):
        return ""
    drawn = pictures.draw(item, scale, stored, numbers, drawings)
    write_tables.write_numbers(item, stored, numbers, folder / TABLES / scale / f"{file_stem(item)}.csv")
    return write_tables.section(item, scale, stored, numbers, [link(path) for path in drawn])


@functools.cache
def _stored(scale: str) -> StoredResults:
    """Returns the stored results of a scale, whose records a page reads once."""
    return StoredResults(scale)


# Verdict -> its plural.
PLURAL = {
    "holds": "hold",
    "shows in part": "show in part",
    "does not show": "do not show",
    "too close to tell": "are too close to tell",
    "not tested": "were not tested",
}


def _trained(number: Value) -> bool:
    return bool(number.by_seed) and number.rounds[1] > 0


def _claims() -> str:
    """Returns how many claims hold, and a line per claim of every item."""
    rows, words = [], collections.Counter[str]()
    for item in catalogue().values():
        if isinstance(item, Item) and item.claims:
            by_scale = {scale: verdicts(item, values(_stored(scale), item, scale)) for scale in ("trend", "paper")}
            words.update(verdict.word for verdict in by_scale["trend"])
            for number, claim in enumerate(item.claims):
                rows.append((item.name, claim.text, *(str(by_scale[scale][number]) for scale in by_scale)))
    counts = ", ".join(f"{count} {PLURAL.get(word, word)}" for word, count in words.most_common())
    return f"At trend scale, of {words.total()} claims: {counts}.\n\n" + markdown_table(
        ("item", "claim", "trend", "paper"), rows
    )


def _queue() -> str:
    """Returns the steps of the queue and their state."""
    rows = []
    for step in QUEUE:
        done, cells = progress(step)
        state = "done" if cells and done == cells else f"{done} of {cells} cells"
        hours = "GPU" if step.hours is None else f"{step.hours:g} h"
        rows.append(
            (step.item, ", ".join(step.rows), ", ".join(step.columns), " ".join(map(str, step.seeds)), hours, state)
        )
    return markdown_table(("item", "rows", "columns", "seeds", "two CPU cores", "state"), rows)


def _absent() -> str:
    """Returns why cells are absent at trend scale, and which figures are sketches."""
    lines = []
    for item in catalogue().values():
        if isinstance(item, Sketch):
            lines.append(f"- {item.name}, {item.title}: {item.why}.")
        elif isinstance(item, Item):
            for variation in (*item.rows, *item.columns, *item.variants):
                if variation.absent:
                    lines.append(f"- {item.name}, {variation.title}: {variation.absent}.")
    return "\n".join(dict.fromkeys(lines))
