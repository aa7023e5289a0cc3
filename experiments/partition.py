"""Shows how a partition splits a data set: a report on the terminal and a picture of classes by clients.

fedwin partition --dataset=digits --partition=dirichlet:alpha=0.5 --num_clients=20 --out=partition.png
fedwin partition --dataset=digits --partition=yurochkin:alpha=0.3 --num_clients=20 --plot=skew --imbalance=20
fedwin partition --dataset=digits --num_clients=20 --plot=examples --client_shift=rotation:degrees=45,levels=rising
"""

import pathlib

import numpy as np
from absl import flags

from fedwin import analysis, data
from fedwin.callbacks.scores import plain_table
from fedwin.data.changes import Changes, changes_of
from fedwin.data.federation import federate
from fedwin.data.shifts import as_numbers
from fedwin.errors import UserError, escape
from fedwin.runs.config import MOST

from .cli import picture_format, subcommand, unused
from .figures import style

# Bins of the histograms of clients; clients in a picture of examples, and examples of each.
BINS, ACROSS, DOWN = 20, 10, 4
# Distance of label distributions -> its name and largest value; None: it depends on the number of bins.
DISTANCES: dict[str, tuple[str, float | None]] = {
    "hellinger": ("Hellinger", 1),
    "jensen_shannon": ("Jensen-Shannon", 1),
    "emd": ("earth mover's", 2),
    "wasserstein": ("Wasserstein (bins)", None),
}


def distances_of(part: data.Partition, task: str) -> dict[str, np.ndarray]:
    """Returns name -> distance of each client's labels to those of all [K]; {} without counts of classes or bins.

    Classes have no order, so that the distance of ordered labels is left out.
    """
    histogram = part.report["histogram"]
    if histogram is None:
        return {}
    found = analysis.label_distances(histogram)
    return {DISTANCES[name][0]: each for name, each in found.items() if name != "wasserstein" or task == "regression"}


def describe(part: data.Partition, task: str = "classification") -> str:
    """Returns the report of a partition of a data set with such a task as lines of text."""
    sizes, report = part.sizes, part.report
    chosen = f" of {report['chosen_from']:,} clients" if "chosen_from" in report else ""
    lines = [
        f"partition          {report['partition']}",
        f"clients            {part.num_clients:,}{chosen}",
        f"examples           {len(part.order):,} assigned, {report['left_out']:,} left out, "
        f"{report['fallbacks']:,} fallbacks",
        f"sizes              min {sizes.min():,}, median {np.median(sizes):,.0f}, mean {sizes.mean():,.1f}, "
        f"max {sizes.max():,}, Gini {analysis.gini(sizes):.2f}",
    ]
    histogram = report["histogram"]
    if histogram is not None:
        classes = (histogram > 0).sum(1)
        top = histogram.max(1) / np.maximum(histogram.sum(1), 1)
        kind, many = ("bin", "bins") if task == "regression" else ("class", "classes")
        total = histogram.sum(0)
        lines += [
            f"{f'examples per {kind}':18} min {total.min():,}, max {total.max():,}",
            f"{f'{many} per client':18} min {classes.min()}, mean {classes.mean():.2f}, max {classes.max()}",
            f"share of top {kind:5} mean {top.mean():.2f}",
        ]
        lines += [
            f"{name:18} mean {each.mean():.3f}, by size {np.average(each, weights=sizes):.3f}, max {each.max():.3f}"
            for name, each in distances_of(part, task).items()
        ]
    if part.domain is not None:
        lines.append(f"clients per domain {', '.join(map(str, np.bincount(part.domain)))}")
    shown = {"partition", "sizes", "histogram", "left_out", "fallbacks", "chosen_from"}
    others = {key: value for key, value in report.items() if key not in shown and np.ndim(value) == 0}
    return "\n".join([*lines, *(f"{key.replace('_', ' '):18} {value}" for key, value in others.items())])


def client_table(part: data.Partition, task: str) -> str:
    """Returns a row per client: its number of examples, of classes or bins, and its label distances."""
    columns = {"client": np.arange(part.num_clients), "examples": part.sizes}
    if (histogram := part.report["histogram"]) is not None:
        columns["bins" if task == "regression" else "classes"] = (histogram > 0).sum(1)
    columns |= {name: each.round(3) for name, each in distances_of(part, task).items()}
    return plain_table([tuple(columns), *(tuple(map(str, row)) for row in zip(*columns.values()))])


def define_flags() -> dict[str, list[str]]:
    """Defines the flags; returns title -> names."""
    flags.DEFINE_string("dataset", "digits", "Data set, with its parameters.")
    flags.DEFINE_string("data_dir", None, "Folder of its files.")
    flags.DEFINE_string("partition", None, "Partition, with its parameters; default: the data set's clients, or iid.")
    flags.DEFINE_integer("num_clients", None, "Clients; default: those of the data set, or 100.", lower_bound=1)
    flags.DEFINE_integer("partition_seed", 0, "Seed of the partition.", lower_bound=0, upper_bound=MOST)
    flags.DEFINE_float("imbalance", 1.0, "Long tail before the partition: largest class to smallest.", lower_bound=1)
    flags.DEFINE_string("client_shift", "", "examples: shift of each client's inputs, as in fedwin train.")
    text = "Picture: bubbles of counts; skew, shares of classes with sizes and label distances; or clients' examples."
    flags.DEFINE_enum("plot", "bubbles", ["bubbles", "skew", "examples", "none"], text)
    flags.DEFINE_boolean("per_client", False, "Also print a line per client: its size, classes and label distances.")
    flags.DEFINE_integer("shown", 40, f"Number of clients in the picture; examples: at most {ACROSS}.", lower_bound=1)
    flags.DEFINE_string("out", None, "File of the picture, by default partition.png.")
    of_data = ["dataset", "data_dir", "partition", "num_clients", "partition_seed", "imbalance", "per_client"]
    return {"flags": [*of_data, "plot", "client_shift", "shown", "out", *picture_format.define()]}


def main(argv: list[str]) -> None:
    """Prints the report and draws the picture."""
    options = flags.FLAGS
    if options.plot == "none":
        unused.refuse(["shown", "out", "format"], "with --plot=none")
    if options.plot != "examples":
        unused.refuse(["client_shift"], f"with --plot={options.plot}", "set --plot=examples")
    out = "" if options.plot == "none" else picture_format.path_of(options.out, "partition", options.format, False)
    dataset = data.load(options.dataset, options.data_dir)
    changes = changes_of(options.client_shift, "", dataset, 1)
    seed, factor = options.partition_seed, options.imbalance
    part = data.make_partition(dataset, options.partition, options.num_clients, seed, imbalance=factor)
    named = options.partition or part.report["partition"], f"imbalance={factor:g}" * (factor > 1), options.client_shift
    part = part._replace(report={**part.report, "partition": ", ".join(filter(None, named))})
    print(describe(part, dataset.task))
    if options.per_client:
        print(f"\n{client_table(part, dataset.task)}")
    if options.plot != "none":
        draw_picture(part, dataset, options.shown, out, options.plot, changes, seed)
        print(escape(f"picture            {out}"))


def draw_picture(
    part: data.Partition, dataset: data.Dataset, shown: int, path: str, kind="bubbles", changes=Changes(), seed: int = 0
) -> None:
    """Draws the classes of the first clients, or examples of some with their changes, which a partition's seed decides.

    Raises:
      UserError: the data set has no classes, or no images.
    """
    histogram = part.report["histogram"]
    if kind == "examples":
        shown = min(shown, part.num_clients, ACROSS)
        figure, axes = _examples(part, dataset, shown, changes, seed)
    elif histogram is None:
        raise UserError(f"'{dataset.name}' has no class histogram to draw; use --plot=none.")
    else:
        figure, axes = _skew(part, dataset.task, histogram[:shown]) if kind == "skew" else _bubbles(histogram[:shown])
        if (classes := histogram.shape[1]) <= 30:
            names = dataset.class_names if len(dataset.class_names or ()) == classes else range(classes)
            axes.set_yticks(range(classes), list(map(str, names)))
    of = f" ({shown} of {part.num_clients})" if shown < part.num_clients else ""
    label = "example" if kind == "examples" else "quantile bin" if dataset.task == "regression" else "class"
    axes.set(xlabel=f"client{of}", ylabel=label, title=f"{dataset.name}, {part.report['partition']}")
    axes.spines[["top", "right"]].set_visible(False)
    style.save(figure, pathlib.Path(path))


def _examples(part: data.Partition, dataset: data.Dataset, count: int, changes: Changes, seed: int):
    if len(dataset.train["x"].shape) != 4:
        raise UserError(f"'{dataset.name}' has no images [H, W, C] to draw; choose another --plot.")
    chosen, columns = np.linspace(0, part.num_clients - 1, count).astype(int), []
    federation = changes.of_federation(seed, None, federate(dataset, part))
    for own in changes.of_clients(federation, part, chosen, 0, most=DOWN):
        framed = np.pad(as_numbers(own["x"]), ((0, DOWN - len(own["x"])), (1, 1), (1, 1), (0, 0)), constant_values=1)
        columns.append(framed.reshape(-1, *framed.shape[2:]))
    figure, axes = style.subplots(figsize=(1.1 * count, 1.1 * DOWN + 0.8))
    pixels = np.clip(np.concatenate(columns, 1), 0, 1)
    axes.imshow(pixels[..., :3] if pixels.shape[-1] > 2 else pixels[..., 0], cmap="gray", vmin=0, vmax=1)
    axes.set_xticks((np.arange(count) + 0.5) * pixels.shape[1] / count, list(map(str, chosen)))
    axes.set_yticks([])
    return figure, axes


def _bubbles(histogram: np.ndarray):
    from matplotlib import colormaps

    clients, classes = histogram.shape
    figure, axes = style.subplots(figsize=(min(3.0 + 0.22 * clients, 14.0), min(2.0 + 0.28 * classes, 12.0)))
    colors = colormaps["tab20" if classes > 10 else "tab10"]
    client, label = np.nonzero(histogram)
    count = histogram[client, label]
    room = min(figure.get_figwidth() * 66 / clients, figure.get_figheight() * 66 / classes)
    area = np.maximum((0.95 * room) ** 2 * count / histogram.max(), 1.0)
    axes.scatter(client, label, s=area, c=colors(label % colors.N), linewidths=0)
    figure.supxlabel(f"area: examples, the largest {histogram.max():,}", fontsize="small")
    axes.set(ylim=(-0.8, classes - 0.2), xlim=(-0.8, clients - 0.2))
    axes.grid(alpha=0.25, linewidth=0.5)
    axes.set_axisbelow(True)
    if clients <= 60:
        axes.set_xticks(range(0, clients, 1 if clients <= 20 else 5))
    return figure, axes


def _skew(part: data.Partition, task: str, histogram: np.ndarray):
    figure, (heat, sizes, distances) = style.subplots(1, 3, figsize=(14.0, 4.0))
    shares = style.PERCENT * histogram / histogram.sum(1, keepdims=True)
    image = heat.imshow(shares.T, aspect="auto", origin="lower", vmin=0, vmax=style.PERCENT)
    figure.colorbar(image, ax=heat, label="share of the client's examples (%)")
    least, most = part.sizes.min(), part.sizes.max()
    sizes.hist(part.sizes, min(BINS, most - least + 3), range=(least - 1.5, most + 1.5), color=style.NEUTRAL)
    sizes.set(xlabel=f"examples of a client; Gini {analysis.gini(part.sizes):.2f}", ylabel="clients")
    largest = {name: most or max(histogram.shape[1] - 1, 1) for name, most in DISTANCES.values()}
    for name, each in distances_of(part, task).items():
        label = f"{name}, of at most {largest[name]:g}: mean {each.mean():.2f}"
        distances.hist(each / largest[name], np.linspace(0, 1, BINS + 1), histtype="step", linewidth=1.5, label=label)
    distances.set(xlabel="distance of labels to those of all clients / largest", ylabel="clients", xlim=(0, 1))
    for axis in (heat.xaxis, sizes.xaxis, sizes.yaxis, distances.yaxis):
        axis.get_major_locator().set_params(integer=True, min_n_ticks=1)
    figure.legend(*distances.get_legend_handles_labels(), loc="outside lower right", ncols=4, fontsize=8, frameon=False)
    return figure, heat


if __name__ == "__main__":
    subcommand.run(main, define_flags)
