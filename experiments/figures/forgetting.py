"""Heat maps of what clients' models forget of each other's data in one local training."""

import pathlib
from collections.abc import Mapping, Sequence
from typing import Any

import numpy as np

from fedwin import analysis
from fedwin.errors import UserError
from fedwin.registry import parse
from fedwin.runs.load import TrainedModel, client_models

from . import probing, style
from .models import Address, loaded, rounds_of

# Most clients of a round that are shown, as in the thesis.
CLIENTS = 10
# Inches of a cell; letters of a title per inch.
CELL, LETTERS = 0.36, 12
# Smallest range of the color scale, plus and minus: noise must look small.
SMALLEST_SCALE = 0.1


def compute(
    runs: Mapping[str, str | pathlib.Path],
    *,
    round: int | None = None,
    clients: Sequence[int] = (),
    seed: int = 0,
    data_dir: str | None = None,
) -> dict[str, Any]:
    """Returns accuracies of clients' models on each other's data before and after one local training.

    The data are the clients' held-out examples where the run has them (--val_fraction), else their training examples.

    Args:
      round: round of the checkpoint; None: the newest.
      clients: clients that train; by default up to ten of the round after the checkpoint.

    Raises:
      UserError: a run without that checkpoint or one model for all clients, or fewer than two clients with examples.
    """
    for directory in runs.values():
        rounds_of(directory, seed)
    models = loaded([Address(str(directory), round) for directory in runs.values()], seed, data_dir)
    chosen = probing.cohort(models[0], clients, CLIENTS)
    if len(chosen) < 2:
        raise UserError(f"forgetting: {len(chosen)} client(s); at least two are needed.")
    entries = [{"label": label, "round": model.round} | _of(model, chosen) for label, model in zip(runs, models)]
    return {"kind": "forgetting", "clients": [int(client) for client in chosen], "runs": entries}


@probing.in_precision
def _of(trained: TrainedModel, clients: Sequence[int]) -> dict[str, Any]:
    """Returns the accuracy and forgetting matrices of a run."""
    if kept := [text for text in trained.prepared.config.wrap if parse(text).name in ("local", "local_bn")]:
        raise UserError(f"forgetting: with wrap={kept[0]}, clients start from different models; name other runs.")
    federation = trained.prepared.federations[trained.seed]
    held_out = federation.validation
    part, on = (federation.partition, "training") if held_out is None else (held_out, "held-out")
    # Some methods evaluate another model than clients receive.
    models = [trained.received, *client_models(trained, clients)]
    rows = [part.client(client) for client in clients]
    if empty := [client for client, own in zip(clients, rows) if not len(own)]:
        raise UserError(f"forgetting: client {empty[0]} has no held-out example; choose others, or a larger share.")
    examples = probing.of_clients(trained, clients, held_out=held_out is not None)
    right = np.argmax(probing.logits(trained, models, examples["x"]), -1) == examples["y"]
    ends = np.cumsum([len(own) for own in rows])[:-1]
    accuracy = np.stack([part.mean(1) for part in np.split(right, ends, 1)], 1)
    before, after = accuracy[0], accuracy[1:]
    matrix = analysis.forgetting(before, after)
    return {
        "on": on,
        "before": style.plain(before),
        "after": style.plain(after),
        "forgetting": style.plain(matrix),
        "per_model": style.plain(analysis.per_model(matrix)),
        "after_per_model": style.plain(analysis.per_model(after)),
        "mean": analysis.mean_forgetting(matrix),
    }


def draw(result: dict[str, Any], path: str | pathlib.Path | None, title: str):
    """Draws two heat maps per run: accuracy after minus before training (that is, -F), and accuracy after it.

    A row is a model, a column the data of a client; the last column is the row's mean without the diagonal."""
    size = CELL * (len(result["clients"]) + 1)
    rows = len(result["runs"])
    # All runs have the same color scale.
    most = max(SMALLEST_SCALE, *(float(np.abs(np.array(run["forgetting"], float)).max()) for run in result["runs"]))
    with style.panels(path, title, rows, 2, width=size + 1.5, height=size + 1.15) as (figure, grid):
        for (left, right), run in zip(grid, result["runs"]):
            change = -np.column_stack([run["forgetting"], run["per_model"]]).astype(float)  # None: NaN
            after = np.column_stack([run["after"], run["after_per_model"]]).astype(float)
            on = f"{run['on']} data, round {run['round']}"
            _map(figure, left, change, result["clients"], "PuOr", -most, "{:+.2f}")
            _map(figure, right, after, result["clients"], "cividis", 0, "{:.2f}")
            wrapped = lambda text: style.wrapped(f"{run['label']}: {text}", int(LETTERS * (size + 1.5)))
            left.set_title(f"{wrapped(f'after - before, {on}')}\n(mean forgetting {run['mean']:.3f})")
            right.set_title(wrapped("accuracy after local training"))
    return figure


def _map(figure, axis, values: np.ndarray, clients: Sequence[int], colors: str, low: float, form: str) -> None:
    shown = axis.imshow(values, cmap=colors, vmin=low, vmax=-low or 1, aspect="equal")
    for (row, column), value in np.ndenumerate(values):
        red, green, blue, _ = shown.cmap(shown.norm(value))
        dark = 0.3 * red + 0.59 * green + 0.11 * blue < 0.5
        text = form.format(value).replace("0.", ".") if abs(value) >= 0.005 else "0"
        axis.text(column, row, text, ha="center", va="center", fontsize=6.5, color="white" if dark else "black")
    axis.axvline(len(clients) - 0.5, color="white", linewidth=3)
    axis.set_xticks(range(len(clients) + 1), [*map(str, clients), "others"])
    axis.set_yticks(range(len(clients)), [str(client) for client in clients])
    axis.tick_params(length=0, labelsize=7)
    axis.spines[:].set_visible(False)
    axis.set(xlabel="data of client\n(last: mean over the others')", ylabel="model of client")
    figure.colorbar(shown, ax=axis, shrink=0.85, label="change of accuracy" if low < 0 else "accuracy")
