"""Shows how a partition deals a data set: the report on the terminal and a picture of classes by clients.

python -m experiments.partition --dataset=digits --partition=dirichlet:alpha=0.5 --num_clients=20 --out=partition.png
"""

import sys
import warnings

import numpy as np
from absl import app, flags

from fedwin import data
from fedwin.errors import UserError


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


def draw(part: data.Partition, dataset: data.Dataset, kind: str, shown: int, path: str) -> None:
    """Writes the picture of the first `shown` clients: bubbles of area ~ examples, or stacked bars."""
    import matplotlib

    matplotlib.use("Agg")
    import matplotlib.pyplot as plt

    histogram = part.report["histogram"]
    if histogram is None:
        raise UserError(f"'{dataset.name}' has no class histogram to draw; use --plot=none.")
    histogram = histogram[:shown]
    clients, classes = histogram.shape
    colours = plt.get_cmap("tab20" if classes > 10 else "tab10")
    height = min(2.0 + 0.28 * classes, 12.0) if kind == "bubbles" else 4.2
    figure, axes = plt.subplots(figsize=(min(3.0 + 0.22 * clients, 14.0), height), layout="constrained")
    names = dataset.class_names if classes <= 30 and len(dataset.class_names) == classes else None
    if kind == "bubbles":
        client, label = np.nonzero(histogram)
        count = histogram[client, label]
        room = min(figure.get_figwidth() * 66 / clients, figure.get_figheight() * 66 / classes)
        colour = colours(label % colours.N)
        axes.scatter(
            client, label, s=np.maximum((0.95 * room) ** 2 * count / histogram.max(), 1.0), c=colour, linewidths=0
        )
        axes.set(ylabel="class", ylim=(-0.8, classes - 0.2), xlim=(-0.8, clients - 0.2))
        axes.grid(alpha=0.25, linewidth=0.5)
        axes.set_axisbelow(True)
        if classes <= 30:
            axes.set_yticks(range(classes), names or range(classes))
    else:
        bottom = np.zeros(clients)
        for c in range(classes):
            axes.bar(
                range(clients),
                histogram[:, c],
                bottom=bottom,
                width=0.85,
                color=colours(c % colours.N),
                label=names[c] if names else c,
            )
            bottom += histogram[:, c]
        axes.set(ylabel="examples", xlim=(-0.8, clients - 0.2), ylim=(0, 1.03 * bottom.max()))
        if classes <= 20:
            axes.legend(fontsize=7, loc="center left", bbox_to_anchor=(1.0, 0.5), title="class", frameon=False)
    if clients <= 60:
        axes.set_xticks(range(0, clients, 1 if clients <= 20 else 5))
    of = f" ({clients} of {part.num_clients})" if clients < part.num_clients else ""
    axes.set(xlabel=f"client{of}", title=f"{dataset.name}, {part.report['partition']}")
    axes.spines[["top", "right"]].set_visible(False)
    try:
        figure.savefig(path, dpi=130)
    except (OSError, ValueError) as error:
        raise UserError(f"{path}: the picture cannot be written ({error}); choose another --out.")
    finally:
        plt.close(figure)


def define_flags() -> None:
    """Defines the flags; importing this file from a test or another binary defines none."""
    flags.DEFINE_string("dataset", "digits", "Data set, with its parameters.")
    flags.DEFINE_string("data_dir", None, "Folder of its files.")
    flags.DEFINE_string(
        "partition", None, "Partition, with its parameters; the data set's own clients or iid by default."
    )
    flags.DEFINE_integer("num_clients", None, "Clients; 100 by default where neither data set nor file has its own.")
    flags.DEFINE_integer("partition_seed", 0, "Seed of the partition.")
    flags.DEFINE_enum("plot", "bubbles", ["bubbles", "bars", "none"], "Kind of picture.")
    flags.DEFINE_integer("shown", 40, "Clients in the picture, the first ones.", lower_bound=1)
    flags.DEFINE_string("out", "partition.png", "Where the picture goes.")


def main(argv) -> None:
    if len(argv) > 1:
        raise app.UsageError(f"unexpected argument '{argv[1]}'")
    warnings.showwarning = lambda message, *_, **__: print(f"warning: {message}", file=sys.stderr)
    try:
        dataset = data.load(flags.FLAGS.dataset, flags.FLAGS.data_dir)
        part = data.deal(dataset, flags.FLAGS.partition, flags.FLAGS.num_clients, flags.FLAGS.partition_seed)
        if flags.FLAGS.partition:
            part.report["partition"] = flags.FLAGS.partition
        print(describe(part))
        if flags.FLAGS.plot != "none":
            draw(part, dataset, flags.FLAGS.plot, flags.FLAGS.shown, flags.FLAGS.out)
            print(f"picture            {flags.FLAGS.out}")
    except UserError as error:
        print(f"error: {error}", file=sys.stderr)
        sys.exit(2)


if __name__ == "__main__":
    define_flags()
    app.run(main)
