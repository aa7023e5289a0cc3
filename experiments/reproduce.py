"""Reproduces the tables and figures of four papers: plans, trains, draws, and compares with the printed numbers.

  fedwin reproduce --list
  fedwin reproduce wima/table2 --scale=trend --data_dir=DIR --dry_run
  fedwin reproduce wima/table2 --scale=paper --rows=fedavg,scaffold --columns=cifar10_alpha0 --seeds=0 --budget=2h
  fedwin reproduce wima/table2 --row=scaffold --column=cifar10_alpha0 --print_flags
  fedwin reproduce --queue --data_dir=DIR --budget=8h --keep
  fedwin reproduce --verify=10 --data_dir=DIR
  fedwin reproduce --page

Scales: smoke takes seconds, trend minutes (smaller data sets and networks stand in), paper is the papers' own. Runs
are shared by all tables and figures that read them; those with stored results are only drawn, unless --afresh is given.
The same command resumes after an interruption, and can be started several times with the same --out_dir: the processes
share the runs. With --distributed they compute each run jointly.
"""

from absl import flags

from fedwin import jax_config, multi_process
from fedwin.errors import UserError
from fedwin.registry.ranges import one_of

from . import launching
from .cli import picture_format, processes, subcommand, unused
from .papers.catalogue import catalogue, item
from .papers.cell_flags import flag_text
from .papers.items import AnyItem, Cell, Item
from .papers.scales import SCALES
from .reproduction import command, page, work
from .reproduction.request import Request
from .reproduction.results import IN_CHECKOUT

ARGUMENTS = "[ITEM ...]"
FLAGS = flags.FLAGS

AXES = ("row", "column", "variant")
_CELLS = ("rows", "columns", "variants")
# What the command does -> the flags that it uses; the first of these that is given decides.
MODES = {
    "list": ("scale", "data_dir", "out_dir", "from_results", "afresh"),
    "queue": ("dry_run", "budget", "data_dir", "out_dir", "keep", "afresh", "page", "format"),
    "print_flags": ("scale", *AXES),
    "from_results": ("scale", *_CELLS, "out_dir", "page", "format"),
    "verify": ("scale", "data_dir", "out_dir"),
    "dry_run": ("scale", *_CELLS, "seeds", "data_dir", "out_dir", "afresh"),
}
TRAINING = (
    "scale", *_CELLS, "seeds", "seeds_at_once", "budget", *launching.FLAGS, "data_dir", "out_dir", "keep", "afresh",
    "page", "format",
)  # fmt: skip


def define_flags() -> dict[str, list[str]]:
    """Defines the flags; returns title -> names of flags, for --help."""
    flags.DEFINE_bool("list", False, "List all tables and figures, their progress and missing data.")
    flags.DEFINE_enum("scale", "trend", SCALES, "Size of the experiments, see above; of --print_flags: paper.")
    for axis in AXES:
        flags.DEFINE_list(f"{axis}s", [], f"Only these {axis}s, by name; empty: all.")
        flags.DEFINE_string(axis, "", f"The {axis} of --print_flags; empty: the first.")
    flags.DEFINE_list("seeds", [], "Seeds to train in place of the item's own; tables show all seeds with results.")
    flags.DEFINE_integer("seeds_at_once", 1, "Seeds of a run that train vmapped; not at paper scale.", lower_bound=1)
    flags.DEFINE_string("budget", "", "Save and stop after this time: 90s, 20m, 2h.")
    flags.DEFINE_bool("dry_run", False, "List the runs, their cells and expected hours; train none.")
    flags.DEFINE_bool("print_flags", False, "Print the flags of one cell's run.")
    flags.DEFINE_bool("from_results", False, "Draw the stored results; train nothing.")
    flags.DEFINE_bool("afresh", False, "Also train runs with results in experiments/results.")
    text = "Train this many random stored runs again, one seed each, and compare all evaluations."
    flags.DEFINE_integer("verify", None, text, lower_bound=1)
    flags.DEFINE_bool("queue", False, "Train the next steps of the queue of paper-scale runs.")
    text = "Write RESULTS.md from the stored results, at the end; an installed package writes it into --out_dir."
    flags.DEFINE_bool("page", False, text)
    flags.DEFINE_bool("keep", False, "Store finished curves in experiments/results.")
    flags.DEFINE_string("out_dir", "runs/papers", "Folder of runs, tables and pictures.")
    flags.DEFINE_string("data_dir", "", "Folder of the data sets' files.")
    groups = {
        "selection": ["list", "scale", *_CELLS, "seeds"],
        "execution": ["dry_run", "seeds_at_once", "budget", "data_dir", "out_dir"],
        "results": ["from_results", "keep", "afresh", "verify", "queue", "page", *picture_format.define()],
        "one cell": ["print_flags", *AXES],
    } | processes.define()
    launching.define(groups)
    return groups


def requested_items(names: list[str]) -> list[AnyItem]:
    """Returns the items named 'wima/table2', or 'wima' for a paper, or all; raises UserError for an unknown name."""
    items: dict[str, AnyItem] = {}
    for name in names:
        of_paper = {key: each for key, each in catalogue().items() if key.startswith(f"{name}/")}
        items |= of_paper or {name: item(name)}
    return list(items.values()) if names else list(catalogue().values())


def selected_cells(table: Item, scale: str) -> list[Cell]:
    """Returns the cells in the rows, columns and variants that the flags name; raises UserError for an unknown name."""
    chosen = []
    for axis, variations in zip(_CELLS, (table.rows, table.columns, table.variants), strict=True):
        names = [variation.name for variation in variations]
        chosen.append(FLAGS[axis].value or names)
        for name in chosen[-1]:
            one_of(f"{table.name}: {axis}", name, names)
    within = lambda cell: all(name in names for name, names in zip(cell.position, chosen, strict=True))
    return list(filter(within, table.cells(scale)))


def check_flags(names: list[str]) -> None:
    """Raises UserError if what the command does ignores one of the flags and names that are given."""
    known = dict.fromkeys(("page", *TRAINING, *MODES, *(name for used in MODES.values() for name in used)))
    given = [name for name in known if FLAGS[name].present and FLAGS[name].value not in (None, False, "", [])]
    mode = next((name for name in MODES if name in given), "")
    used = MODES.get(mode, TRAINING)
    if not mode and not names and "page" in given:
        mode, used = "page", () if IN_CHECKOUT else ("out_dir",)
    what = f"--{mode}" if mode else "training"
    unused.refuse((name for name in given if name not in (mode, *used)), f"on {what}", "leave it out, or see --help")
    if names and mode in ("list", "queue"):
        raise UserError(f"{what} takes no table or figure; leave out {names[0]}.")


def main(argv: list[str]) -> None:
    """Executes the command in process 0; other processes train with it."""
    check_flags(argv[1:])
    if FLAGS.launcher or FLAGS.print_jobs:
        unused.refuse(["budget"], "with a launcher", "leave it out, or limit the jobs: slurm:time=2h")
    jax_config.use_every_core()
    if not multi_process.is_first():
        work.follow(FLAGS.data_dir)
        return
    with work.coordinating():
        _execute(argv[1:])


def _execute(names: list[str]) -> None:
    request = Request.from_flags(FLAGS)
    if FLAGS.list:
        print(command.item_table(request))
    elif FLAGS.queue:
        command.work_off(request)
    elif FLAGS.verify:
        print(command.verify(requested_items(names), FLAGS.verify, request))
    elif FLAGS.print_flags:
        if len(items := requested_items(names) if names else []) != 1:
            raise UserError("--print_flags takes the name of one table or figure, such as wima/table2.")
        scale = FLAGS.scale if FLAGS["scale"].present else "paper"
        print(flag_text(items[0], FLAGS.row, FLAGS.column, FLAGS.variant, scale))
    elif names or request.from_results:
        items = requested_items(names)
        if not any(isinstance(each, Item) for each in items) and (FLAGS.rows or FLAGS.columns or FLAGS.variants):
            raise UserError(f"{items[0].name} has no rows, columns and variants; leave out the flags that name them.")
        cells = {table.name: selected_cells(table, request.scale) for table in items if isinstance(table, Item)}
        command.execute(request, items, cells)
    elif not FLAGS.page:
        raise UserError("name what to reproduce, such as wima/table2, or a paper; `fedwin reproduce --list` shows all.")
    if FLAGS.page:
        page.write(request.out_dir)


if __name__ == "__main__":
    subcommand.run(main, define_flags)
