"""Shows how a partition deals a data set: the report on the terminal and a picture of classes by clients.

fedwin partition --dataset=digits --partition=dirichlet:alpha=0.5 --num_clients=20 --out=partition.png
"""

import numpy as np
from absl import flags

from fedwin import data
from fedwin.runs.config import MOST

from . import binary
from .figures import style
from .partition_picture import draw


def describe(part: data.Partition) -> str:
    """Returns the report as lines of text."""
    sizes, report = part.sizes, part.report
    chosen = f" of {report['chosen_from']:,} clients" if "chosen_from" in report else ""
    lines = [
        f"partition          {report['partition']}",
        f"clients            {part.num_clients:,}{chosen}",
        f"examples           {len(part.order):,} dealt, {report['left_out']:,} left out, "
        f"{report['fallbacks']:,} fallbacks",
        f"sizes              min {sizes.min():,}, median {np.median(sizes):,.0f}, mean {sizes.mean():,.1f}, "
        f"max {sizes.max():,}",
    ]
    histogram = report["histogram"]
    if histogram is not None:
        classes = (histogram > 0).sum(1)
        top = histogram.max(1) / np.maximum(histogram.sum(1), 1)
        lines += [
            f"classes per client min {classes.min()}, mean {classes.mean():.2f}, max {classes.max()}",
            f"share of top class mean {top.mean():.2f}",
        ]
    if part.domain is not None:
        lines.append(f"clients per domain {', '.join(map(str, np.bincount(part.domain)))}")
    known = {"partition", "sizes", "histogram", "left_out", "fallbacks", "chosen_from"}
    for key, value in report.items():
        if key not in known and np.ndim(value) == 0:
            lines.append(f"{key.replace('_', ' '):18} {value}")
    return "\n".join(lines)


def define_flags() -> dict[str, list[str]]:
    """Defines the flags; importing this file from a test or another binary defines none."""
    flags.DEFINE_string("dataset", "digits", "Data set, with its parameters.")
    flags.DEFINE_string("data_dir", None, "Folder of its files.")
    flags.DEFINE_string(
        "partition", None, "Partition, with its parameters; default: the data set's own clients or iid."
    )
    flags.DEFINE_integer(
        "num_clients", None, "Clients; 100 by default where neither data set nor file has its own.", lower_bound=1
    )
    flags.DEFINE_integer("partition_seed", 0, "Seed of the partition.", lower_bound=0, upper_bound=MOST)
    flags.DEFINE_enum("plot", "bubbles", ["bubbles", "bars", "none"], "Kind of picture: bubbles, bars, none.")
    flags.DEFINE_integer("shown", 40, "Clients in the picture, the first ones.", lower_bound=1)
    flags.DEFINE_string("out", "partition.png", "Where the picture goes.")
    return {"flags": ["dataset", "data_dir", "partition", "num_clients", "partition_seed", "plot", "shown", "out"]}


def main(argv: list[str]) -> None:
    """Prints the report and draws the picture."""
    known = flags.FLAGS
    out = style.path_of(known.out, "partition.png") if known.plot != "none" else ""
    dataset = data.load(known.dataset, known.data_dir)
    part = data.deal(dataset, known.partition, known.num_clients, known.partition_seed)
    if known.partition:
        part = part._replace(report={**part.report, "partition": known.partition})
    print(describe(part))
    if known.plot != "none":
        draw(part, dataset, known.plot, known.shown, out)
        print(f"picture            {out}")


if __name__ == "__main__":
    binary.run(main, define_flags)
