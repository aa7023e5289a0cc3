"""The results: RESULTS.md and one page per paper, with their pictures and tables, from the stored curves."""

import collections
import functools
import pathlib
from typing import Any

from fedwin.errors import UserError
from fedwin.files import replace_text

from ..figures import stored as figure_files
from ..papers.catalogue import catalogue
from ..papers.items import Analysis, AnyItem, Item, Sketch, file_stem
from ..papers.remarks import FOLDER, explanations, rows_of
from ..papers.survey.scaffold import HYPOTHESES, TABLE5
from ..tables.formats import markdown_table
from . import pictures, tables, verdicts
from .command import QUEUE, duration, progress
from .numbers import Value, values
from .results import IN_CHECKOUT, READINGS, RESULTS, Results, stored
from .runs import all_tasks
from .verdicts import Verdict

PAGE, SCAFFOLD = "RESULTS.md", "scaffold.md"
SCALES = ("paper", "trend")
# Texts of the pages with numbers in them.
TEXTS = pathlib.Path(__file__).parent
# Folders below `experiments/results/`: the pages' pictures, and their numbers with commands.
PICTURES, TABLES = "pictures", "tables"
# Verdicts of one table that the summary states one by one; of more, two stand for all.
MOST_LINES = 3
# Package of a paper's items -> its title, and its name in the list of errata.
TITLES = {
    "wima": ("Window averages of server models (WIMA)", "WIMA"),
    "ima": ("Iterative moving averages (IMA)", "IMA"),
    "ghb": ("Generalized heavy-ball momentum (GHB, FedHBM)", "GHB"),
    "wsm": ("Weighted softmax (WSM)", "WSM"),
    "survey": ("Our own tables: every method on one task", ""),
}
LEGEND = """Above every table stands what its numbers are means over; n is the number of seeds, and the line says what
+- is. At paper scale a cell reads *printed / ours*. **Bold**: within one percentage point, and within two standard
deviations over seeds. *Italic*: within one point, but further apart than the seeds explain, or of one seed where the
paper prints no standard deviation."""


def write(out_dir: pathlib.Path) -> None:
    """Writes the pages, their pictures and their tables: in a checkout into experiments, otherwise into a folder."""
    target = RESULTS.parent if IN_CHECKOUT else out_dir
    folder = target / RESULTS.name
    for path, text in pages(folder).items():
        (target / path).parent.mkdir(parents=True, exist_ok=True)
        replace_text(target / path, text + "\n")
    print(f"written: {target / PAGE}, {folder}/*.md, {folder / PICTURES}, {folder / TABLES}")


def pages(folder: pathlib.Path = RESULTS) -> dict[pathlib.Path, str]:
    """Draws the pictures, writes the numbers, and returns path -> text of pages; raises UserError without results."""
    writer = _Pages(folder)
    if not any(results.packed for results in writer.stored.values()):
        raise UserError("there are no stored results; those of the project are in its repository and in its wheel.")
    result = {pathlib.Path(PAGE): writer.summary()}
    result |= {pathlib.Path(folder.name, f"{paper}.md"): writer.of_paper(paper) for paper in TITLES}
    if scaffold := writer.scaffold():
        result[pathlib.Path(folder.name, SCAFFOLD)] = scaffold
    return result


class _Pages:
    """Writes the pages, with pictures and numbers below a folder; records, numbers and verdicts are read once."""

    def __init__(self, folder: pathlib.Path):
        self.folder = folder
        self.stored: dict[str, Results] = {scale: stored(scale) for scale in SCALES}
        self.numbers = functools.cache(self._numbers)
        self.verdicts = functools.cache(self._verdicts)

    def _numbers(self, name: str, scale: str) -> list[Value]:
        """Returns the numbers of a table or figure; none of a figure of trained models."""
        item = catalogue()[name]
        return values(self.stored[scale], item) if isinstance(item, Item) else []

    def _verdicts(self, paper: str, scale: str) -> list[tuple[str, Verdict]]:
        """Returns (name of the item, verdict) of all claims of a paper."""
        found: list[tuple[str, Verdict]] = []
        for item in _items(paper):
            if isinstance(item, Item):
                found += [(item.name, each) for each in verdicts.verdicts(item, self.numbers(item.name, scale))]
            elif isinstance(item, Analysis):
                source = self.stored[scale].figure(file_stem(item))
                found += [(item.name, each) for each in verdicts.figure_verdicts(item, scale, source)]
        return found

    def _distinct(self, paper: str, scale: str = "trend") -> list[tuple[str, Verdict]]:
        """Returns (name of the item, verdict) of a paper's claims; for claims on the same numbers, the first alone."""
        distinct: dict[Any, tuple[str, Verdict]] = {}
        for name, each in self.verdicts(paper, scale):
            distinct.setdefault(each.identity or (name, each.claim.text), (name, each))
        return list(distinct.values())

    def summary(self) -> str:
        """Returns RESULTS.md: the rule of verdicts, their numbers per paper, the queue, and the data."""
        rows = []
        for paper, (title, _) in TITLES.items():
            counter = collections.Counter(each.word for _, each in self._distinct(paper))
            counts = (str(counter[word]) for word in verdicts.WORDS)
            rows.append((f"[{title}]({self.folder.name}/{paper}.md)", *counts, f"{self._hours(paper):.1f}"))
        found = {title: [each for _, each in self._distinct(paper)] for paper, (title, _) in TITLES.items()}
        found["The four papers as one family of tests"] = sum(list(found.values())[:-1], [])
        tests = [(title, *map(str, verdicts.corrected(each).values())) for title, each in found.items()]
        steps = []
        for step in QUEUE:
            done, cells = progress(step, self.stored["paper"])
            state = "done" if cells and done == cells else f"{done} of {cells} cells"
            names = (step.item, ", ".join(step.rows), ", ".join(step.columns), " ".join(map(str, step.seeds)))
            steps.append((*names, duration(step, self.stored["paper"]), state))
        where = f"[a page of its own]({self.folder.name}/{SCAFFOLD})"
        own = f"Why SCAFFOLD is behind FedAvg after 1,000 rounds of CIFAR-10 at 16x16, one class per client: {where}."
        return _filled(
            PAGE.lower(),
            claims=markdown_table(("page", *verdicts.WORDS, "hours"), rows),
            rule=verdicts.RULE,
            corrected=markdown_table(("page", "decided", "Holm", "Benjamini-Hochberg"), tests),
            scaffold=own if self.scaffold() else "",
            headlines="\n\n".join(filter(None, map(self._headlines, TITLES))),
            queue=markdown_table(("item", "rows", "columns", "seeds", "two CPU cores", "state"), steps),
            data=self._data(),
        )

    def _headlines(self, paper: str) -> str:
        """Returns the verdicts of a paper that are decided; '' without any."""
        lines = []
        for scale in SCALES:
            for word in (verdicts.HOLDS, verdicts.CONTRADICTED):
                by_item: dict[str, list[Verdict]] = {}
                for name, each in self._distinct(paper, scale):
                    if each.word == word:
                        by_item.setdefault(name, []).append(each)
                for name, decided in by_item.items():
                    place = f"**{word}** ({name}, {scale} scale)"
                    lines += [f"- {place}: {text}" for text in _in_words(decided)]
        return f"### {TITLES[paper][0]}\n\n" + "\n".join(lines) if lines else ""

    def _hours(self, paper: str) -> float:
        """Returns the hours of training of the stored runs that a paper's tables read, each counted once."""
        runs = {
            (scale, number.run.key): sum(self.stored[scale].seconds(number.run).values())
            for scale in SCALES
            for item in _items(paper)
            for number in self.numbers(item.name, scale)
        }
        return sum(runs.values()) / 3600

    def _data(self) -> str:
        """Returns the data sets of the stored results: numbers of examples and checksums, as they were when stored."""
        files: collections.Counter[tuple[str, ...]] = collections.Counter()
        for scale, results in self.stored.items():
            for key in results.packed.keys() & all_tasks(scale).keys():
                for record in results.records(all_tasks(scale)[key].run):
                    data = record.stored.get("data")
                    counts = f"{data['train']:,} / {data['test']:,}" if data else tables.UNRECORDED
                    checksum = data["checksum"] if data else tables.UNRECORDED
                    files[record.config["dataset"], scale, counts, checksum] += 1
        head = ("data set", "scale", "examples", "checksum", "stored results")
        return markdown_table(head, [(*row, str(count)) for row, count in sorted(files.items())])

    def scaffold(self) -> str:
        """Returns the page on SCAFFOLD with one class per client, whose picture is its table's; '' without results."""
        numbers = self.numbers(TABLE5.name, "trend")
        if not any(map(_trained, numbers)):
            return ""
        claims = zip(HYPOTHESES, TABLE5.stated, strict=True)
        rows = [(line[0], claim.text, str(verdicts.verdict(claim, numbers)), line[-1]) for line, claim in claims]
        trained = [number for number in numbers if number.by_seed]
        return _filled(
            SCAFFOLD,
            setting=TABLE5.standin,
            hypotheses=markdown_table(("reason", "then", "verdict", "earlier runs"), rows),
            title=TABLE5.title,
            picture=str(pathlib.Path(PICTURES, "trend", f"{file_stem(TABLE5)}.png")),
            numbers="\n\n".join(tables.paired_blocks(self.stored["trend"], TABLE5, trained)),
        )

    def of_paper(self, paper: str) -> str:
        """Returns the page of a paper: its verdicts first, then tables and figures."""
        title, errata_name = TITLES[paper]
        at_paper, at_trend = (
            "\n\n".join(filter(None, (self._section(item, scale) for item in _items(paper)))) for scale in SCALES
        )
        misprints = [cells for cells in rows_of(FOLDER / "errata.md") if cells[0].partition(",")[0] == errata_name]
        sections = {
            "## Claims": self._claims(paper),
            "": LEGEND,
            "## Paper scale": at_paper,
            "## Trend scale": at_trend or "Nothing yet.",
            "## Not run": _absent(paper),
            "## Errata": markdown_table(("where", "printed", "what shows it", "here"), misprints) if misprints else "",
        }
        blocks = [f"# {title}", f"One page of the [results](../{PAGE}), which state the rule of verdicts."]
        for head, text in sections.items():
            blocks += [head, text] if text else []
        return "\n\n".join(filter(None, blocks))

    def _claims(self, paper: str) -> str:
        """Returns a line per claim of a paper, decided ones first."""
        order = {word: place for place, word in enumerate((verdicts.CONTRADICTED, verdicts.HOLDS, verdicts.OPEN))}
        ranked = []
        for (name, trend), (_, own) in zip(self.verdicts(paper, "trend"), self.verdicts(paper, "paper"), strict=True):
            rank = min(order.get(each.word, len(order)) for each in (trend, own))
            source = f"{name}, {trend.claim.section}".rstrip(", ")
            ranked.append((rank, (source, trend.claim.text, str(trend), str(own))))
        rows = [row for _, row in sorted(ranked, key=lambda pair: pair[0])]
        return markdown_table(("item", "claim", "trend scale", "paper scale"), rows) if rows else ""

    def _section(self, item: AnyItem, scale: str) -> str:
        """Draws an item, writes its numbers and returns its section; '' if nothing is stored."""
        drawings, results = self.folder / PICTURES / scale, self.stored[scale]
        drawings.mkdir(parents=True, exist_ok=True)
        command = f"Command: `fedwin reproduce {item.name} --scale={scale} --data_dir=DIR`"
        if isinstance(item, Analysis) and (source := results.figure(file_stem(item))) is not None:
            path = drawings / f"{file_stem(item)}.png"
            pictures.draw_models(item, scale, source, path)
            blocks = [f"### {item.name} ({scale}): {item.titled(scale)}"]
            blocks += [f"Stand-in: {item.standin}"] if scale == "trend" and item.standin else []
            if item.claims:
                seeds = list(figure_files.read(source)[0][READINGS])
                over = f"{'seeds' if len(seeds) > 1 else 'seed'} {', '.join(seeds)}"
                blocks.append(f"Shown: seed {seeds[0]}. Claims: over {over}.")
            picture = f"![{item.titled(scale)}]({path.relative_to(self.folder)})"
            return "\n\n".join(filter(None, [*blocks, picture, explanations().get((item.name, scale)), command]))
        numbers = self.numbers(item.name, scale)
        if not isinstance(item, Item) or not any(map(_trained, numbers)):
            return ""
        drawn = pictures.draw(item, results, numbers, drawings)
        table = self.folder / TABLES / scale / f"{file_stem(item)}.csv"
        table.parent.mkdir(parents=True, exist_ok=True)
        tables.write_numbers(item, results, numbers, table)
        text = tables.section(item, results, numbers, [path.relative_to(self.folder) for path in drawn])
        link = table.relative_to(self.folder)
        return f"{text}\n\n{command}; numbers, and the commands of single runs: [{table.name}]({link})"


def _filled(name: str, **parts: str) -> str:
    """Returns a text with its parts; without the paragraph of an empty one."""
    text = (TEXTS / name).read_text(encoding="utf-8").strip()
    for part, filling in parts.items():
        text = text.replace(f"{{{part}}}" if filling else f"{{{part}}}\n\n", filling)
    return text


def _items(paper: str) -> list[AnyItem]:
    return [item for item in catalogue().values() if item.name.partition("/")[0] == paper]


def _trained(number: Value) -> bool:
    return bool(number.by_seed) and number.rounds[1] > 0


def _in_words(decided: list[Verdict]) -> list[str]:
    """Returns verdicts of one table in words, a line each; of many the smallest and the largest gain in one line."""
    if len(decided) <= MOST_LINES:
        return [f"{each.claim.text} {each.numbers}." for each in decided]
    means = {index: each.estimate.mean for index, each in enumerate(decided) if each.estimate is not None}
    gains = {index: mean for index, mean in means.items() if mean is not None}
    ends = (decided[min(gains, key=gains.__getitem__)], decided[max(gains, key=gains.__getitem__)])
    smallest, largest = (f"{each.claim.text.rstrip('.')}, {each.numbers}" for each in ends)
    return [f"{len(decided)} claims, from: {smallest}; to: {largest}."]


def _absent(paper: str) -> str:
    """Returns why cells are absent at trend scale, and which figures are sketches."""
    lines = []
    for item in _items(paper):
        if isinstance(item, Sketch):
            lines.append(f"- {item.name}, {item.title}: {item.why}.")
        elif isinstance(item, Item):
            for variation in (*item.rows, *item.columns, *item.variants):
                if variation.absent:
                    lines.append(f"- {item.name}, {variation.title}: {variation.absent}.")
    return "\n".join(dict.fromkeys(lines))
