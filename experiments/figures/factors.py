"""Figure of the factors of the global model's loss over rounds: bias, locality, variance, covariance."""

import dataclasses
import pathlib
from collections.abc import Mapping, Sequence
from typing import Any

import jax
import numpy as np

from fedwin import analysis
from fedwin.errors import UserError
from fedwin.runs.load import TrainedModel, client_models

from . import probing, style
from .models import Address, loaded, rounds_of

# Number of training examples, over all clients, and of test examples on which outputs are compared.
EXAMPLES = 2000
# Panel -> its curves: (key in the result of `compute`, suffix of the label, dash).
PANELS: dict[str, tuple[tuple[str, str, str], ...]] = {
    "bias (squared error)": (("train_bias", "own data", "-"), ("heter_bias", "others' data", "--")),
    "error (%)": (("train_error", "own data", "-"), ("heter_error", "others' data", "--")),
    "locality ‖w_k - w‖₂": (("locality", "farthest client", "-"), ("locality_mean", "mean", "--")),
    "test loss of the mean": (("test_loss", "", "-"),),
    "variance": (("variance", "", "-"),),
    "covariance (linear CKA)": (("cka", "", "-"),),
}
# Panels per row, and their size relative to that of a single one.
ACROSS, SHARE_OF_WIDTH, SHARE_OF_HEIGHT = 3, 0.62, 0.72
# The second curve of a panel has hollow markers.
HOLLOW = {"markerfacecolor": "white"}


def compute(
    runs: Mapping[str, str | pathlib.Path],
    *,
    rounds: Sequence[int] = (),
    clients: Sequence[int] = (),
    seed: int = 0,
    replicas: int = 2,
    count: int = EXAMPLES,
    data_dir: str | None = None,
) -> dict[str, Any]:
    """Returns the factors after every checkpoint: clients train one round from it, and their models are compared.

    Args:
      rounds: rounds of the checkpoints; by default all.
      clients: clients that train, at least two; by default the cohort of the round after the checkpoint.
      replicas: how many times every client trains, with different batches; variance needs two.
      count: number of training examples, and of test examples, on which outputs are compared.

    Raises:
      UserError: a run without checkpoints, or fewer than two clients.
    """
    addresses_of = {}
    for label, directory in runs.items():
        available = rounds_of(directory, seed)
        if missing := [at for at in rounds if at not in available]:
            others = ", ".join(map(str, available))
            raise UserError(f"{directory} has no checkpoint of round {missing[0]}; it has {others}.")
        addresses_of[label] = [Address(str(directory), at) for at in (rounds or available)]
    entries = []
    for label, addresses in addresses_of.items():
        models = loaded(addresses, seed, data_dir)
        # One checkpoint at a time: the models of its clients may be large.
        numbers = [at_checkpoint(model, clients, replicas, count) for model in models]
        curves = {name: style.plain([number[name] for number in numbers]) for name in numbers[0]}
        entries.append({"label": label, "rounds": [model.round for model in models], **curves})
    return {"kind": "factors", "replicas": replicas, "runs": entries}


@probing.in_precision
def at_checkpoint(
    trained: TrainedModel, clients: Sequence[int] = (), replicas: int = 2, count: int = EXAMPLES
) -> dict[str, float]:
    """Returns the factors of one round after a checkpoint; raises UserError for fewer than two clients."""
    from scipy.special import softmax  # takes a third of a second to import

    ids = probing.cohort(trained, clients, most=trained.prepared.setting.num_clients)
    if len(ids) < 2:
        raise UserError(f"factors: {len(ids)} client(s); with fewer than two nothing is averaged.")
    # Another key gives other batches; replica 0 is the run itself.
    run_of = lambda n: trained.run._replace(key=jax.random.fold_in(trained.run.key, n)) if n else trained.run
    models = [client_models(dataclasses.replace(trained, run=run_of(replica)), ids) for replica in range(replicas)]
    sizes = trained.prepared.federations[trained.seed].sizes[ids]
    weights, most = sizes / sizes.sum(), max(count // len(ids), 1)
    center = analysis.mix(weights, models[0])
    train, owner = probing.of_clients(trained, ids, most=most), np.repeat(np.arange(len(ids)), np.minimum(sizes, most))
    outputs = probing.logits(trained, [model for replica in models for model in replica], train["x"])
    labels = np.asarray(train["y"])
    shares, target = softmax(outputs.astype(np.float64), -1), np.eye(outputs.shape[-1])[labels]
    split = analysis.factors(shares.reshape(replicas, len(ids), *target.shape), target, owner, weights)
    wrong = (np.argmax(outputs[: len(ids)], -1) != labels).astype(float)
    own, others = analysis.by_ownership(wrong, owner)
    test = probing.examples(trained, "test", count, later=1)
    tested = probing.logits(trained, [*models[0], center], test["x"])
    distances = analysis.locality(models[0], center)
    return {
        "train_bias": split.train_bias,
        "heter_bias": split.heter_bias,
        "train_error": float(weights @ own),
        "heter_error": float(weights @ others),
        "bias_squared": split.bias_squared,
        "variance": split.variance if replicas > 1 else float("nan"),
        "covariance": split.covariance if replicas > 1 else float("nan"),
        "ensemble_loss": split.ensemble_loss,
        "cka": analysis.mean_cka(tested[:-1]),
        "locality": float(distances.max()),
        "locality_mean": float(distances.mean()),
        "test_loss": float(analysis.client_losses(tested[-1:], np.asarray(test["y"]), "ce").mean()),
        "test_error": float((np.argmax(tested[-1], -1) != test["y"]).mean()),
    }


def draw(result: dict[str, Any], path: str | pathlib.Path | None, title: str):
    """Draws panels over rounds, a color per run. `panels` of the result may select some of PANELS."""
    shown = result.get("panels") or list(PANELS)
    names = [run["label"] for run in result["runs"]]
    looks = style.looks(names)
    across = min(len(shown), ACROSS)
    down = -(-len(shown) // across)
    room = style.height_of(map(style.wrapped, names)) * (len(names) // 4) / down  # for the legend
    size = {"width": SHARE_OF_WIDTH * style.WIDTH, "height": SHARE_OF_HEIGHT * style.HEIGHT + room}
    with style.panels(path, title, down, across, **size) as (figure, grid):
        for axis, name in zip(grid.flat, shown):
            curves = PANELS[name]
            for of_run, run in zip(looks, result["runs"], strict=True):
                for place, (key, _, dash) in enumerate(curves):
                    factor = style.PERCENT if key.endswith("error") else 1
                    look = of_run | {"linestyle": dash} | (HOLLOW if place else {})
                    axis.plot(run["rounds"], factor * np.array(run[key], float), **look)  # None: NaN
            axis.set(title=name, xlabel="round")
            axis.xaxis.get_major_locator().set_params(integer=True, min_n_ticks=1)
            axis.grid(alpha=0.3)
            axis.set_ylim(bottom=0) if not name.startswith("cov") else axis.set_ylim(0, 1.03)
            if len(curves) > 1:
                gray = [{"linestyle": dash} | (HOLLOW if place else {}) for place, (_, _, dash) in enumerate(curves)]
                handles = [axis.plot([], [], color="0.3", marker="o", **look)[0] for look in gray]
                axis.legend(handles, [suffix for _, suffix, _ in curves], loc="best", fontsize=6.5)
            if name == "variance" and result["replicas"] < 2:
                axis.text(0.5, 0.5, "needs two replicas", ha="center", transform=axis.transAxes)
        # The common legend shows the runs by color, those of the panels the dashes.
        handles = [grid[0, 0].plot([], [], **of_run | {"linestyle": "-"})[0] for of_run in looks]
        figure.legend(handles, list(map(style.wrapped, names)), loc="outside lower center", ncols=4, frameon=False)
    return figure
