"""Plans, trains and draws the tables and figures of four papers, and lays them beside what is printed.

  fedwin reproduce --list
  fedwin reproduce wima/table2 --scale=trend --data_dir=DIR --dry_run
  fedwin reproduce wima/table2 --scale=paper --rows=fedavg,scaffold --columns=cifar10_alpha0 --seeds=0 --budget=2h
  fedwin reproduce wima/table2 --row=scaffold --column=cifar10_alpha0 --print_flags
  fedwin reproduce --queue --data_dir=DIR --budget=8h --keep
  fedwin reproduce --page

Runs are shared by all tables and figures that read them; the same command goes on where it was interrupted, and may be
started several times on the same --out_dir: its processes share the runs. With --distributed they compute every run
together.
"""

from absl import flags

from fedwin import multi_process
from fedwin.engine import devices
from fedwin.errors import UserError
from fedwin.registry import nearest

from . import binary, processes
from .papers.catalogue import catalogue, item
from .papers.flag_files import flag_text
from .papers.items import Analysis, Cell, Item, Sketch
from .papers.scales import SCALES
from .reproduction import orders, overview, queue_work, results_page, together

TAKES_WORDS = True
FLAGS = flags.FLAGS


def define_flags(known: flags.FlagValues = flags.FLAGS) -> dict[str, list[str]]:
    """Defines the flags; importing this file defines none."""
    flags.DEFINE_bool("list", False, "Show every table and figure, and how far it is.", flag_values=known)
    flags.DEFINE_enum("scale", "trend", SCALES, "How large: see above; paper is the papers' own.", flag_values=known)
    for axis in ("rows", "columns", "variants"):
        flags.DEFINE_list(axis, [], f"Only these {axis}, by name; empty: all.", flag_values=known)
    for axis in ("row", "column", "variant"):
        flags.DEFINE_string(axis, "", f"The {axis} of --print_flags.", flag_values=known)
    flags.DEFINE_list("seeds", [], "Seeds instead of the item's own.", flag_values=known)
    flags.DEFINE_string("budget", "", "Stop cleanly after this time: 90s, 20m, 2h.", flag_values=known)
    flags.DEFINE_bool("dry_run", False, "Show the runs, what they fill and what they would take.", flag_values=known)
    flags.DEFINE_bool("print_flags", False, "Print the flags of one cell's run.", flag_values=known)
    flags.DEFINE_bool("from_results", False, "Redraw from the kept results; trains nothing.", flag_values=known)
    flags.DEFINE_bool("afresh", False, "Train also what is kept with the project.", flag_values=known)
    flags.DEFINE_bool("queue", False, "Go on with the queue of paper-scale runs.", flag_values=known)
    flags.DEFINE_bool("page", False, "Write RESULTS.md from what is kept, after all else.", flag_values=known)
    flags.DEFINE_bool("keep", False, "Keep finished curves among the project's results.", flag_values=known)
    flags.DEFINE_string("out_dir", "runs/papers", "Where runs, tables and pictures go.", flag_values=known)
    flags.DEFINE_string("data_dir", "", "Folder of the data sets' files.", flag_values=known)
    return {
        "what is reproduced": ["list", "scale", "rows", "columns", "variants", "seeds"],
        "how": ["dry_run", "budget", "data_dir", "out_dir", "from_results", "keep", "afresh", "queue", "page"],
        "one cell": ["print_flags", "row", "column", "variant"],
    } | processes.define(known)


def asked(words: list[str]) -> list[Item | Analysis | Sketch]:
    """Returns the items that are named: 'wima/table2', or 'wima' for all of a paper; without a name: all.

    Raises:
      UserError: there is none of that name.
    """
    papers = {name.partition("/")[0] for name in catalogue()}
    found: dict[str, Item | Analysis | Sketch] = {}
    for word in words:
        if word in papers:
            found |= {name: each for name, each in catalogue().items() if name.startswith(f"{word}/")}
        else:
            found[word] = item(word)
    return list(found.values()) if words else list(catalogue().values())


def selected(one: Item, scale: str) -> list[Cell]:
    """Returns the cells of the rows, columns and variants that are asked for.

    Raises:
      UserError: a name that the item has not.
    """
    chosen = {}
    for axis, entries in (("rows", one.rows), ("columns", one.columns), ("variants", one.variants)):
        names = [entry.name for entry in entries]
        chosen[axis] = FLAGS[axis].value or names
        for name in chosen[axis]:
            if name not in names:
                raise UserError(
                    f"{axis}={name}: {one.name} has no such one.{nearest(name, names)} It has: {', '.join(names)}."
                )
    rows, columns, variants = chosen.values()
    cells = one.cells(scale)
    return [c for c in cells if c.row.name in rows and c.column.name in columns and c.variant.name in variants]


def main(argv: list[str]) -> None:
    """Does what the flags say; of several processes the first one does, and the others train with it."""
    devices.use_every_core()
    if not multi_process.is_first():
        together.follow(FLAGS.data_dir)
        return
    with together.leading():
        _do(argv)


def _do(argv: list[str]) -> None:
    order = orders.Order.from_flags(FLAGS)
    if FLAGS.list:
        print(overview.table(order.scale, order.shelf, order.data_dir))
        return
    if FLAGS.queue:
        queue_work.go_on(order)
        return
    if FLAGS.page and not argv[1:] and not order.from_results:
        results_page.write()
        return
    items = asked(argv[1:])
    if not argv[1:] and not order.from_results:
        raise UserError("name what to reproduce, such as wima/table2, or a paper; `fedwin reproduce --list` shows all.")
    if FLAGS.print_flags:
        print(flag_text(items[0], FLAGS.row, FLAGS.column, FLAGS.variant))
        return
    cells = {one.name: selected(one, order.scale) for one in items if isinstance(one, Item)}
    order.carry_out(items, cells)
    if FLAGS.page:
        results_page.write()


if __name__ == "__main__":
    binary.run(main, define_flags)
