"""experiments/RESULTS.md: what was run, at which scale, and what came out; made from the kept results alone."""

import collections
import functools
import pathlib
from collections.abc import Iterable

from fedwin.files import replace_text

from ..papers.catalogue import catalogue
from ..papers.errata import ERRATA
from ..papers.items import Analysis, Item, Sketch
from ..papers.queue import QUEUE, Place
from ..papers.scales import SCALES
from ..table_files import markdown
from . import inspecting, pictures, written
from .places import stem_of
from .plan import Selection
from .shelf import KEPT, Kept
from .values import Value, value, values
from .verdicts import verdicts

PAGE = KEPT.parent / "RESULTS.md"
# Below `experiments/results/`: where the page's pictures are, and its numbers with their commands.
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


def page(folder: pathlib.Path = KEPT) -> str:
    """Draws the pictures, writes the numbers, and returns the page.

    Args:
      folder: that pictures and numbers go below.
    """
    shown = {scale: list(_sections(scale, folder)) for scale in reversed(SCALES) if scale != "smoke"}
    return "\n\n".join(
        [
            INTRODUCTION,
            "## Claims",
            _claims(),
            "## Paper scale",
            *(shown["paper"] or ["Nothing has been trained at the papers' own scale yet."]),
            "## The queue",
            "Paper-scale runs in the order of what they tell; `fedwin reproduce --queue` goes on with the next.",
            _queue(),
            "## Trends",
            *(shown["trend"] or ["Nothing yet."]),
            "## Not run",
            _absent(),
            "## Errata",
            markdown(("where", "printed", "what shows it", "here"), ERRATA),
        ]
    )


def write() -> None:
    """Writes the page and its pictures."""
    replace_text(PAGE, page() + "\n")
    print(f"written: {PAGE}, {KEPT / PICTURES}, {KEPT / TABLES}")


def _sections(scale: str, folder: pathlib.Path) -> Iterable[str]:
    """Yields a section per item of which anything is kept at a scale."""
    for kind in (PICTURES, TABLES):
        (folder / kind / scale).mkdir(parents=True, exist_ok=True)
    for item in catalogue().values():
        section = _section(item, scale, folder)
        if section:
            yield section


def _section(item: Selection, scale: str, folder: pathlib.Path) -> str:
    where = folder / PICTURES / scale
    place = lambda path: path.relative_to(PAGE.parent) if path.is_relative_to(PAGE.parent) else path
    if isinstance(item, Analysis):
        kept = Kept(scale).where / f"{stem_of(item)}.json.gz"
        if not kept.is_file():
            return ""
        path = where / f"{stem_of(item)}.png"
        inspecting.redraw(item, scale, kept, path)
        stand = f"\n\nStand-in: {item.standin}" if scale != "paper" and item.standin else ""
        return f"### {item.name} ({scale}): {item.title}{stand}\n\n![{item.title}]({place(path)})"
    if isinstance(item, Sketch):
        return ""
    shelf = _shelf(scale)
    found = values(shelf, item, scale)
    if not any(_trained(number) for number in found):
        return ""
    drawn = pictures.draw(item, scale, shelf, found, where)
    written.write_numbers(item, shelf, found, folder / TABLES / scale / f"{stem_of(item)}.csv")
    return written.section(item, scale, shelf, found, [str(place(path)) for path in drawn])


@functools.cache
def _shelf(scale: str) -> Kept:
    """Returns the kept curves of a scale; a page reads each of them once."""
    return Kept(scale)


# What is said of several claims.
OF_SEVERAL = {
    "holds": "hold",
    "shows in part": "show in part",
    "does not show": "do not show",
    "too close to tell": "are too close to tell",
    "not tested": "were not tested",
}


def _trained(number: Value) -> bool:
    return bool(number.each) and number.rounds[1] > 0


def _claims() -> str:
    """Returns how many claims show, and a line per claim of every item."""
    rows, words = [], collections.Counter[str]()
    for item in catalogue().values():
        if isinstance(item, Item) and item.claims:
            by_scale = {scale: verdicts(item, values(_shelf(scale), item, scale)) for scale in ("trend", "paper")}
            words.update(one.word for one in by_scale["trend"])
            for number, claim in enumerate(item.claims):
                rows.append((item.name, claim.text, *(str(by_scale[scale][number]) for scale in by_scale)))
    told = ", ".join(f"{count} {OF_SEVERAL.get(word, word)}" for word, count in words.most_common())
    return f"At trend scale, of {words.total()} claims: {told}.\n\n" + markdown(
        ("item", "claim", "trend", "paper"), rows
    )


def progress(place: Place) -> tuple[int, int]:
    """Returns (cells with a final number, cells) of a step of the queue, by the kept results."""
    item = catalogue()[place.item]
    if not isinstance(item, Item):
        return 0, 0
    cells = [c for c in item.cells("paper") if c.row.name in place.rows and c.column.name in place.columns]
    numbers = [value(Kept("paper"), cell, "paper") for cell in cells]
    done = sum(all(seed in n.each and n.each[seed] is not None for seed in place.seeds) for n in numbers)
    return done, len(cells)


def _queue() -> str:
    rows = []
    for place in QUEUE:
        done, cells = progress(place)
        state = "done" if cells and done == cells else f"{done} of {cells} cells"
        hours = "GPU" if place.hours is None else f"{place.hours:g} h"
        rows.append(
            (place.item, ", ".join(place.rows), ", ".join(place.columns), " ".join(map(str, place.seeds)), hours, state)
        )
    return markdown(("item", "rows", "columns", "seeds", "two CPU cores", "state"), rows)


def _absent() -> str:
    """Returns why cells have nothing at trend scale, and which figures are sketches."""
    lines = []
    for item in catalogue().values():
        if isinstance(item, Sketch):
            lines.append(f"- {item.name}, {item.title}: {item.why}.")
        elif isinstance(item, Item):
            for entry in (*item.rows, *item.columns, *item.variants):
                if entry.absent:
                    lines.append(f"- {item.name}, {entry.title}: {entry.absent}.")
    return "\n".join(dict.fromkeys(lines))
