"""Numbers and the terminal table from the summaries of runs: accuracies, rounds per second."""

import html
from collections.abc import Iterable, Mapping, Sequence
from typing import Any

import numpy as np

from fedwin.errors import escape

# A cell without a value.
NOTHING = "-"
# Characters of a line on the terminal.
WIDTH = 120
# A column is not cut below this many characters.
NARROWEST = 8


# The contents of summary.json; of several runs: name -> summary.
Summary = dict[str, Any]
Summaries = Mapping[str, Summary]
# Kind of the figures over clients -> which model they are of; other kinds are personalizers.
KINDS = {"client": "as it is", "personal": "clients' own models", "unseen": "as it is, new clients"}
# The metric that comes first where a run has it: for classes, and for continuous labels.
MAIN_METRICS = ("accuracy", "r2")
# The figures over clients, which their metrics' names end in: client_accuracy_worst10.
PERCENTILES = (5, 25, 50, 75, 95)
FIGURES = ("mean", "weighted", "std", "worst10", "best10", *(f"p{p}" for p in PERCENTILES))
# The metric of a backdoor.
ATTACKED = "attack_success"
# Words of metrics' names that are written differently.
WORDS = {"r2": "R2", "rmse": "RMSE"}


def main_metric(metrics: Iterable[str]) -> str:
    """Returns the metric that runs are ranked by: accuracy, or R^2 for continuous labels."""
    return next((name for name in MAIN_METRICS if name in metrics), MAIN_METRICS[0])


def main_metric_of(summaries: Summaries) -> str:
    """Returns the metric that runs are ranked by: that of the first run."""
    return main_metric(next(iter(next(iter(summaries.values()))["over_seeds"].values()), ()))


def title_of(metric: str) -> str:
    """Returns the name of a metric in tables and pictures: 'val R2' for val_r2."""
    return " ".join(WORDS.get(word, word) for word in metric.split("_"))


def is_lower(metric: str) -> bool:
    """Whether lower values of a metric are better: for losses, errors, RMSE, spreads and the success of attacks."""
    return metric.endswith("_std") or any(word in metric for word in ("loss", "error", "rmse", "attack"))


def reaches(values, target: float) -> np.ndarray:
    """Whether values reach a target, compared in float32 like evaluations, where 252 of 360 is less than 0.7."""
    return np.asarray(values, np.float32) >= np.float32(target)


def is_share(metric: str) -> bool:
    """Whether a metric is a fraction, shown in percent."""
    return metric.startswith(("accuracy", "error", "attack")) or "_accuracy" in metric


def scale_of(metric: str) -> tuple[int, int]:
    """Returns the factor and the number of decimals with which a metric is shown."""
    return (100, 2) if is_share(metric) else (1, 4)


class RunSummary(Summary):
    """The summary of one run, a dict whose `repr` is the table that `fedwin train` prints at the end."""

    def __repr__(self) -> str:
        return summary_table({self["algorithm"]: self})

    def _repr_html_(self) -> str:
        return f"<pre>{html.escape(repr(self))}</pre>"


def cut(texts: Sequence[str], width: int) -> list[str]:
    """Returns texts of at most `width` characters: longer ones lack their end, or the middle if that confuses fewer.

    >>> cut(["fedprox:mu=0.1", "fedprox:mu=0.2"], 12), cut(["fedprox:mu=0.1", "fedavg"], 12)
    (['fedpr...=0.1', 'fedpr...=0.2'], ['fedprox:m...', 'fedavg'])
    """
    fitted = lambda text, end: text if len(text) <= width else f"{text[: width - 3 - end]}...{text[len(text) - end :]}"
    ways = [[fitted(text, end) for text in texts] for end in (0, (width - 3) // 2)]
    return max(ways, key=lambda way: len(set(way)))


def plain_table(rows: Sequence[Sequence[str]], width: int = WIDTH) -> str:
    """Returns rows as aligned columns for the terminal; the widest columns are cut until a line fits.

    >>> print(plain_table([("run", "rounds/s"), ("fedavg", "12.5")]))
    run     rounds/s
    ----------------
    fedavg  12.5

    Args:
      rows: the cells; the first row is the header.
    """
    rows = [list(map(escape, row)) for row in rows]
    widths = [max(len(row[i]) for row in rows) for i in range(len(rows[0]))]
    while sum(widths) + 2 * (len(widths) - 1) > width and max(widths) > NARROWEST:
        widths[widths.index(max(widths))] -= 1
    columns = [[cell.ljust(w) for cell in cut(column, w)] for column, w in zip(zip(*rows), widths)]
    lines = ["  ".join(row).rstrip() for row in zip(*columns)]
    return "\n".join([lines[0], "-" * len(lines[0]), *lines[1:]])


def number(value: float | None, digits: int) -> str:
    """Returns a number with `digits` decimals; '-' for None."""
    return NOTHING if value is None else f"{value:.{digits}f}"


def final(summary: Summary, readout: str, metric: str) -> float | None:
    """Returns the mean of a metric's last value over the seeds that have it and did not diverge; None without any."""
    return summary["over_seeds"].get(readout, {}).get(metric, {}).get("final")


def evaluations(summary: Summary) -> int:
    """Returns how many evaluations the means of a seed that was not stopped early cover; 0 if all seeds diverged."""
    counted = [entry for entry in summary["seeds"].values() if entry["last"] is not None]
    finished = [entry for entry in counted if "stopped_at" not in entry] or counted
    return max((entry["evaluations"] for entry in finished), default=0)


def rounds_per_second(summary: Summary) -> float | None:
    """Returns rounds per second of training alone, the mean over seeds; None if none was measured."""
    return mean_of(seed["rounds_per_second"] or None for seed in summary["seeds"].values())


def mean_of(values: Iterable[float | None]) -> float | None:
    """Returns the mean of the values that are not None; None if all are."""
    numbers = [value for value in values if value is not None]
    return float(np.mean(numbers)) if numbers else None


def last_rounds(summary: Summary) -> str:
    """Describes the rounds that the means of a summary cover: 'the last 10 of 50 rounds (10 evaluations)'."""
    total = summary["num_rounds"]
    last = min(max(summary["last_rounds"], 1), total)
    rounds = f"the last {last} of {total} rounds" if last < total else f"all {total} round{'s' if total > 1 else ''}"
    counted = [entry for entry in summary["seeds"].values() if entry["last"] is not None]
    if counted and all("stopped_at" in entry for entry in counted):
        return f"at most the last {last} rounds before each seed stopped early"
    count = evaluations(summary)
    return f"{rounds} ({count} evaluation{'s' if count > 1 else ''})" if count else rounds


def averaged_rounds(summaries: Summaries) -> str:
    """Describes the rounds that the means of several runs cover, with the runs' names where they differ."""
    runs: dict[str, list[str]] = {}
    for run, summary in summaries.items():
        # A run whose seeds all diverged has no means.
        if evaluations(summary) or len(summaries) == 1:
            runs.setdefault(last_rounds(summary), []).append(run)
    if len(runs) < 2:
        return next(iter(runs), "no round")
    first, *others = runs.items()
    return "; ".join([first[0], *(f"of {', '.join(names)}: {text}" for text, names in others)])


def summary_table(summaries: Summaries) -> str:
    """Returns a row per run and read-out: mean accuracy (%) and loss over the last rounds, and the final accuracy.

    For continuous labels it has R^2 and RMSE instead. With several seeds, each mean is followed by the standard
    deviation over them. A second table has the metrics over clients, for runs that have them (--eval_clients).
    """
    several = any(len(summary["seeds"]) > 1 for summary in summaries.values())
    deviation = " +- std" if several else ""
    metric = main_metric_of(summaries)
    unit, error, title = (" (%)", "loss", "test loss") if is_share(metric) else ("", "rmse", "RMSE")
    head = ["run", "read-out", f"{title_of(metric)}{unit}{deviation}", f"final{unit}", f"{title}{deviation}"]
    attacked = any(ATTACKED in metrics for summary in summaries.values() for metrics in summary["over_seeds"].values())
    head += [f"attack success (%){deviation}"] if attacked else []
    rows = [tuple([*head, *([f"each seed{unit}"] if several else []), "rounds/s"])]
    for run, summary in summaries.items():
        for position, (name, metrics) in enumerate(summary["over_seeds"].items()):
            cells = [_cell(metrics, metric), _number(final(summary, name, metric), metric), _cell(metrics, error)]
            cells += [_cell(metrics, ATTACKED)] if attacked else []
            if several:
                means = ((seed["last"] or {}).get(name, {}).get(metric) for seed in summary["seeds"].values())
                cells.append(" ".join(_number(mean, metric) for mean in means))
            # All read-outs of a run come from the same rounds.
            speed = "" if position else number(rounds_per_second(summary), 1)
            rows.append(("" if position else run, name, *cells, speed))
    seeds = dict.fromkeys(", ".join(map(str, summary["seeds"])) for summary in summaries.values())
    over = f"seed{'s' if several else ''} {' or '.join(seeds)}"
    over += "; +- is the standard deviation over seeds" if several else ""
    diverged = [
        f"{run} seed {seed} diverged in round {entry['diverged_at']} and counts in no mean"
        for run, summary in summaries.items()
        for seed, entry in summary["seeds"].items()
        if entry["diverged_at"] is not None
    ]
    note = f"mean over {averaged_rounds(summaries)}; {over}; final: the last evaluation"
    return "\n".join(
        [plain_table(rows), note, *diverged, *stop_notes(summaries), *_tail_table(summaries), *_client_table(summaries)]
    )


def _tail_table(summaries: Summaries) -> list[str]:
    """Returns the lines of the accuracies by the size of classes of a long tail; [] without such figures."""
    parts = ("head", "middle", "tail")
    rows = [
        (run, name, *(_cell(metrics, f"accuracy_{part}") for part in parts))
        for run, summary in summaries.items()
        for name, metrics in summary["over_seeds"].items()
        if "accuracy_head" in metrics
    ]
    head = ("run", "read-out", *(f"{part} (%)" for part in parts))
    note = "means over the largest, middle and smallest third of classes"
    return ["", plain_table([head, *rows]), note] if rows else []


def _client_table(summaries: Summaries) -> list[str]:
    """Returns the lines of the accuracies over clients, before and after personalization; [] without such figures."""
    percent = is_share(main_metric_of(summaries))
    shown, unit = ("accuracy", " (%)") if percent else ("rmse", "")
    mean = f"clients' mean{unit}" if percent else "clients' mean RMSE"
    head = ("run", "read-out", "model", mean, f"worst 10 %{unit}", f"spread{unit}")
    rows = [
        (run, name, KINDS.get(kind := metric.removesuffix(f"_{shown}_mean"), f"after {kind}"))
        + tuple(_cell(metrics, f"{kind}_{shown}_{figure}") for figure in ("mean", "worst10", "std"))
        for run, summary in summaries.items()
        for name, metrics in summary["over_seeds"].items()
        for metric in metrics
        if metric.endswith(f"_{shown}_mean")
    ]
    seeds = [seed for summary in summaries.values() for seed in summary["seeds"].values() if seed["last"] is not None]
    counts = sorted({seed["client_evaluations"] for seed in seeds if "client_evaluations" in seed})
    of = f", in {' or '.join(map(str, counts))} of these evaluations (--eval_clients_every)" if counts else ""
    note = f"on clients' own examples{of}; worst 10 %: mean of the worst tenth; spread: standard deviation over clients"
    return ["", plain_table([head, *rows]), note] if rows else []


def _number(value: float | None, metric: str) -> str:
    factor, digits = scale_of(metric)
    return number(None if value is None else factor * value, digits)


def _cell(metrics: dict[str, Any], metric: str) -> str:
    factor, digits = scale_of(metric)
    if (stats := metrics.get(metric)) is None:  # a run on labels of another kind
        return NOTHING
    if stats["mean"] is None:
        return "diverged"
    text = f"{stats['mean'] * factor:.{digits}f}"
    text = text if stats["std"] is None else f"{text} +- {stats['std'] * factor:.{digits}f}"
    seeds, of_seeds = stats["seeds"], stats["of_seeds"]
    return text if seeds == of_seeds else f"{text} ({seeds} of {of_seeds} seeds)"


def stop_notes(summaries: Summaries) -> list[str]:
    """Returns a line per seed that was stopped early: when, and how many evaluations its mean covers."""
    covered = lambda count: f"; its mean covers its last {f'{count} evaluations' if count > 1 else 'evaluation'}"
    return [
        f"{run} seed {seed} stopped early in round {entry['stopped_at']} of {summary['num_rounds']}"
        + ("" if entry["last"] is None else covered(entry["evaluations"]))
        for run, summary in summaries.items()
        for seed, entry in summary["seeds"].items()
        if "stopped_at" in entry
    ]
