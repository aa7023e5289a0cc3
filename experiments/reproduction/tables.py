"""The numbers of a table next to the printed ones: CSV for programs, Markdown for people, and the commands of runs."""

import itertools
import pathlib
from collections.abc import Iterable, Iterator
from typing import Any

from fedwin.analysis import Interval, mean_interval, paired_interval
from fedwin.callbacks.scores import number
from fedwin.data import DATASETS
from fedwin.registry.choices import parse
from fedwin.runs.config import Config

from .. import records
from ..cli import command_line
from ..papers.items import Cell, Item
from ..papers.measures import NATS, SHARE
from ..papers.remarks import assumptions, explanations
from ..papers.trajectories import Run
from ..records import MODEL, Json
from ..tables import formats
from . import verdicts
from .numbers import AGREES, NEAR, Position, Value, common_seeds
from .results import Results, portable
from .runs import all_tasks, held_out_accuracies, lineage

# Decimals of numbers with these units; others have two.
DIGITS = {SHARE: 3, "rounds": 0, NATS: 3}
# Agreement with the printed number -> Markdown around ours.
MARKS = {AGREES: "**", NEAR: "*"}
# Stands for a fact that a stored result lacks.
UNRECORDED = "not recorded"
# Stands for the folder of the data in a command.
DATA_DIR = "DIR"
# CSV


def write_numbers(item: Item, results: Results, numbers: list[Value], path: pathlib.Path) -> None:
    """Writes an item's numbers to a CSV file, each with the printed one, its run, its fingerprint and its command."""
    by_position = intervals(item, numbers) if item.paired else {}
    rows = []
    for value in numbers:
        row = _csv_row(results, value)
        if item.paired:
            mean, difference = by_position[value.cell.position]
            row |= {
                "mean": mean.mean,
                "half width of its 95 % interval": mean.half_width,
                "difference from the first": difference.mean if difference else None,
                "half width of the difference's 95 % interval": difference.half_width if difference else None,
                "seeds that count": f"{mean.seeds} of {mean.of_seeds}",
                "MB sent": megabytes(results, value),
            }
        rows.append(row)
    formats.write_csv(path, rows)


def _csv_row(results: Results, value: Value) -> dict[str, Any]:
    """Returns column -> entry of a number: among them fingerprints, strategies and data of all records."""
    cell, printed = value.cell, value.cell.printed
    records = results.records(value.run)
    distinct = lambda texts: " ".join(dict.fromkeys(texts))
    return {
        "row": cell.row.name,
        "column": cell.column.name,
        "column heading": cell.heading,
        "variant": cell.variant.name,
        "read-out": cell.read or MODEL,
        "unit": cell.measure.unit,
        "printed": printed.value if printed else None,
        "printed std": printed.std if printed else None,
        "ours (mean over seeds)": value.mean,
        "std over seeds": value.std,
        "difference": value.difference,
        "z": value.z,
        "seeds (n)": len(value.defined),
        "of one seed": value.description if value.by_seed else None,
        "rounds done": value.rounds[0],
        "rounds": value.rounds[1],
        "run": value.run.key,
        "fingerprint": distinct(record.about.get("fingerprint", "") for record in records),
        "strategy": distinct(record.about.get("strategy", UNRECORDED) for record in records),
        "data": distinct(record.stored.get("data", {}).get("checksum", UNRECORDED) for record in records),
        "command": commands(results, value.run),
        "grid, held-out accuracy": _grid_points(results, cell),
    }


def _grid_points(results: Results, cell: Cell) -> str:
    """Returns the points of a cell's grid, by the flags that differ, and their held-out accuracies; '' without one."""
    if len(cell.runs) == 1:
        return ""
    texts = []
    for run, accuracy in zip(cell.runs, held_out_accuracies(results, cell), strict=True):
        differing = {name for each in cell.runs for name, value in each.fields.items() if value != run.fields.get(name)}
        point = " ".join(f"--{name}={run.fields[name]}" for name in sorted(differing) if name in run.fields)
        texts.append(f"{point} {'-' if accuracy is None else f'{100 * accuracy:.2f} %'}")
    return "; ".join(texts)


# Commands


def commands(results: Results, run: Run) -> str:
    """Returns a command per record of a run, separated by ' ; '; '' if nothing has been trained.

    A fork's command trains the run that it forks first, into the directory that --fork_from names. All commands can be
    executed in one directory; runs that several of them name are trained once. If the strategy of a run is unknown, a
    comment at the end says so.
    """
    chains: list[list[Json]] = []
    done: set[int] = set()
    for record in results.records(run):
        groups: dict[tuple[str, ...], list[int]] = {}  # seeds whose ancestors had the same strategies
        for seed in record.seeds:
            if seed not in done:
                found = (results.record_of(ancestor, seed) for ancestor in lineage(run)[:-1])
                strategies = tuple(each.about.get("strategy", "") if each else "" for each in found)
                groups.setdefault(strategies, []).append(seed)
        done |= set(record.seeds)
        chains += [list(_chain(results, run, seeds)) for seeds in groups.values()]
    command = lambda fields: command_line.train_command(Config(**fields))
    text = " ; ".join(" && ".join(map(command, chain)) for chain in chains)
    known = all("strategy" in fields for chain in chains for fields in chain)
    return text if known else f"{text}  # strategy {UNRECORDED}"


def _chain(results: Results, run: Run, seeds: list[int], kept: tuple[int, ...] = ()) -> Iterator[Json]:
    """Yields the fields of the Configs that train a run, its ancestors first; checkpoints of `kept` rounds are kept."""
    checkpoint = run.parent
    if checkpoint is not None:
        yield from _chain(results, checkpoint.run, seeds, (checkpoint.round,))
    record = results.record_of(run, seeds[0])
    fields = portable(record.config if record is not None else vars(run.config()), "")
    if record is not None:
        fields.pop("strategy", None)
        fields |= {name: record.about[name] for name in ("strategy",) if record.about.get(name)}
    task = all_tasks(results.scale).get(run.key)
    rounds = {*kept, *fields.get("keep_rounds", ()), *(task.keep_rounds if task is not None else ())}
    fields |= {"seeds": seeds, "out_dir": _directory(run, seeds)}
    fields["keep_rounds"] = sorted(rounds - {run.num_rounds})  # a run's last checkpoint is kept anyway
    if checkpoint is not None:
        start = f"{_directory(checkpoint.run, seeds)}@{checkpoint.round}"
        part = f":part={checkpoint.part}" if checkpoint.part else ""
        fields["init_from" if part else "fork_from"] = start + part
    facts = DATASETS.entries[parse(fields["dataset"]).name].facts
    if facts["downloads"] or facts["by_hand"]:  # it has files
        fields["data_dir"] = DATA_DIR
    yield fields


def _directory(run: Run, seeds: list[int]) -> str:
    return f"runs/{run.key}-seed{'-'.join(map(str, seeds))}"


# Markdown


def shown(value: Value) -> str:
    """Returns a number for readers.

    At paper scale 'printed / ours', ours in bold if it agrees, in italics if it is near, and of one seed with the
    standard deviation over the averaged evaluations in parentheses.
    """
    digits = DIGITS.get(value.cell.measure.unit, 2)
    ended = value.rounds[0] == value.rounds[1]
    ours = "never" if value.by_seed and ended and value.mean is None else number(value.mean, digits)
    ours = "diverged" if value.mean is None and value.diverged else ours
    defined, seeds = len(value.defined), len(value.by_seed)
    if value.std is not None:
        ours += f" +- {value.std:.{digits}f}"
    if value.std is not None or 0 < defined < seeds:
        ours += f" (n = {formats.seed_count(defined, seeds)})"
    if value.mean is not None and 0 < value.rounds[0] < value.rounds[1]:
        ours += f" (round {value.rounds[0]:,} of {value.rounds[1]:,})"
    if value.scale == "paper" and defined == 1 and value.jump is not None:
        ours += f" ({value.jump:.{digits}f})"
    mark = MARKS.get(value.agreement or "", "")
    ours = f"{mark}{ours}{mark}"
    beside = value.cell.printed is not None and value.scale == "paper"
    return f"{value.cell.printed} / {ours}" if beside else ours


def legend(item: Item, numbers: list[Value]) -> str:
    """Returns a line above a table: the rounds and seeds of its means, and the meaning of +-."""
    trained = [value for value in numbers if value.mean is not None]
    if not trained:
        return "No number yet: no run has finished."
    parts = [f"For one seed: {_descriptions(item, numbers)}."]
    if item.draw == "curves":
        by_column = [[v.defined for v in trained if v.cell.column == column] for column in item.columns]
        counts = sorted({len(common_seeds(each)) for each in by_column if each})
        seeds = " to ".join(map(str, dict.fromkeys((counts[0], counts[-1]))))
        lines = "one seed" if counts == [1] else f"mean over n = {seeds} seeds; band: standard deviation over them"
        return " ".join([*parts, f"Lines: {lines}."])
    counts = sorted({len(value.defined) for value in trained})
    jumps = any(value.scale == "paper" and value.jump is not None for value in numbers)
    one = "one seed, with the standard deviation over these evaluations in parentheses" if jumps else "one seed"
    several = f"mean over n seeds, +- their standard deviation{f'; without +-: {one}' * (1 in counts)}"
    parts.append(f"Shown: {one if counts == [1] else several}.")
    if any(0 < len(value.defined) < len(value.by_seed) for value in numbers):
        parts.append("Where n is below the number of seeds (2 of 5), the others diverged or never reached the target.")
    if any(value.scale == "paper" and value.cell.printed and value.cell.printed.std for value in numbers):
        parts.append("The printed +- is the paper's.")
    return " ".join(parts)


def _descriptions(item: Item, numbers: list[Value]) -> str:
    """Returns the measure of one seed, with the columns and variants of each kind if there are several."""
    by_description: dict[str, list[Value]] = {}
    for value in numbers:
        if value.mean is not None:
            by_description.setdefault(value.description, []).append(value)
    if len(by_description) == 1:
        return next(iter(by_description))
    return "; ".join(f"{text} ({_where(item, values)})" for text, values in by_description.items())


def _where(item: Item, values: list[Value]) -> str:
    """Returns the columns and variants of some numbers in words."""
    variants: dict[str, dict[str, None]] = {}
    for value in values:
        variants.setdefault(value.cell.heading, {})[value.cell.variant.title] = None
    columns: dict[tuple[str, ...], list[str]] = {}
    for column, titles in variants.items():
        columns.setdefault(tuple(titles), []).append(column)
    every = {variant.title for variant in item.variants}
    return "; ".join(
        " / ".join(titles) + ("" if {*shown_variants} == every else f": {' / '.join(shown_variants)}")
        for shown_variants, titles in columns.items()
    )


def _grid(item: Item, numbers: list[Value], cells: dict[Position, str]) -> str:
    """Returns a table in Markdown: methods down, data and variants across."""
    text = lambda row, pair: cells.get((row.name, *(each.name for each in pair)), "")
    pairs = [
        pair for pair in itertools.product(item.columns, item.variants) if any(text(row, pair) for row in item.rows)
    ]
    several = item.paired or len(item.variants) > 1
    headings = {value.cell.column.name: value.cell.heading for value in numbers}
    heads = [(headings[column.name], variant.title) for column, variant in pairs]
    titles = [": ".join(head) if several else head[0] for head in heads]
    rows = [[row.title, *(text(row, pair) for pair in pairs)] for row in item.rows]
    return formats.markdown_table(["", *titles], [row for row in rows if any(row[1:])])


def section(item: Item, results: Results, numbers: list[Value], pictures: Iterable[str | pathlib.Path] = ()) -> str:
    """Returns an item's section of the report in Markdown; paths of pictures are relative to it."""
    scale, trained = results.scale, [value for value in numbers if value.by_seed]
    blocks = [f"### {item.name} ({scale}): {item.titled(scale)}"]
    if scale == "trend" and item.standin:
        blocks.append(f"{'Setting' if item.paired else 'Stand-in'}: {item.standin}")
    if item.paired and item.draw != "curves":
        blocks += paired_blocks(results, item, trained)
    else:
        blocks.append(legend(item, trained) if trained or item.draw != "curves" else "")
        if item.draw != "curves":
            blocks.append(_grid(item, trained, {v.cell.position: shown(v) for v in trained}))
    blocks += [f"![{item.titled(scale)}]({path})" for path in pictures]
    blocks.append(verdicts.table(verdicts.verdicts(item, numbers)))
    blocks.append(explanations().get((item.name, scale), ""))
    if scale == "paper" and (assumed := assumptions().get(item.name)):
        notes = "\n".join(f"- {line}" for line in assumed)
        blocks.append(f"Not stated in the paper, and taken here:\n\n{notes}")
    return "\n\n".join(filter(None, blocks))


# Tables of our own: methods against the first one, seed by seed


def megabytes(results: Results, value: Value) -> float | None:
    """Returns the traffic of all clients of a run, down and up, in megabytes: that of the seed with the most."""
    sent = (records.megabytes(record.lines).values() for record in results.records(value.run))
    return max(itertools.chain(*sent), default=None)


def intervals(item: Item, numbers: list[Value]) -> dict[Position, tuple[Interval, Interval | None]]:
    """Returns position -> (mean, difference from the first row's model in the same column; None for that model)."""
    by_position: dict[Position, Value] = {value.cell.position: value for value in numbers}
    result: dict[Position, tuple[Interval, Interval | None]] = {}
    for position, value in by_position.items():
        first = by_position.get((item.rows[0].name, value.cell.column.name, item.variants[0].name))
        difference = None if first is None or first is value else paired_interval(value.by_seed, first.by_seed)
        result[position] = (mean_interval(value.by_seed), difference)
    return result


def paired_blocks(results: Results, item: Item, numbers: list[Value]) -> list[str]:
    """Returns the tables of a report, and how to read them."""
    text = (
        f"For one seed: {_descriptions(item, numbers)}. Shown: mean over n seeds, +- {formats.HALF_WIDTH}; in "
        f"parentheses the difference from the model of {item.rows[0].title} in the same column, seed by seed, and its "
        "95 % interval. (n) is the number of seeds, 'n of m' where the others diverged; fewer than three have no "
        "interval. MB sent are those of the seed with the most."
    )
    ended = [value for value in numbers if value.mean is not None or value.diverged]
    digits: dict[Position, int] = {value.cell.position: DIGITS.get(value.cell.measure.unit, 2) for value in ended}
    cells = {place: _paired(*both, digits[place]) for place, both in intervals(item, ended).items()}
    return [text, _grid(item, ended, cells), _costs(results, item, ended)]


def _paired(mean: Interval, difference: Interval | None, digits: int) -> str:
    """Returns '81.20 +- 0.30 (n = 5) (+1.20, [+0.50, +1.90])', or '(+1.20)' with too few seeds."""
    text = formats.mean_and_half_width(mean, 1, digits)
    text += f" (n = {formats.seed_count(mean.seeds, mean.of_seeds)})" if mean.seeds and "(n =" not in text else ""
    if difference is None or difference.mean is None:
        return text
    bounds = "" if difference.seeds < formats.MIN_SEEDS else f", {formats.interval_bounds(difference, 1, digits)}"
    return f"{text} ({difference.mean:+.{digits}f}{bounds})"


def _costs(results: Results, item: Item, numbers: list[Value]) -> str:
    """Returns in Markdown the flags of every method, and its traffic in megabytes, of the seed with the most."""
    sent = {
        (v.cell.row.name, v.cell.column.name): megabytes(results, v)
        for v in numbers
        if v.mean is not None  # without those that diverged
    }
    # The first read-out of a row is that of its own run; later ones may be wrapped.
    by_row: dict[str, dict[str, str]] = {}
    for value in numbers:
        by_row.setdefault(value.cell.row.name, {}).setdefault(value.cell.column.title, _flags(value.run.config()))
    same_costs: dict[tuple[float | None, ...], list[str]] = {}  # megabytes of all rows -> columns
    for column, heading in {v.cell.column.name: v.cell.heading for v in numbers}.items():
        same_costs.setdefault(tuple(sent.get((name, column)) for name in by_row), []).append(heading)
    rows = []
    for index, row in enumerate(row for row in item.rows if row.name in by_row):
        by_flags: dict[str, list[str]] = {}
        for title, flags in by_row[row.name].items():
            by_flags.setdefault(flags, []).append(title)
        names = {flags: f" ({'; '.join(titles)})" if len(by_flags) > 1 else "" for flags, titles in by_flags.items()}
        shown = "; ".join(f"`{flags}`{name}" for flags, name in names.items())
        rows.append([row.title, shown, *(number(column[index], 1) for column in same_costs)])
    heads = [f"MB sent: {'; '.join(titles)}" for titles in same_costs.values()]
    return formats.markdown_table(["", "runs with", *heads], rows)


def _flags(config: Config) -> str:
    """Returns the flags that tell the methods of a table apart."""
    flags = [f"--algorithm={config.algorithm}", *(f"--wrap={text}" for text in config.wrap)]
    flags += [f"--loss={config.loss}"] if config.loss != Config.loss else []
    flags += [f"--client_lr={config.client_lr:g}"]
    flags += [f"--lr_schedule={config.lr_schedule}"] if config.lr_schedule else []
    return " ".join([*flags, *([f"--lr_warmup={config.lr_warmup:g}"] if config.lr_warmup else [])])
