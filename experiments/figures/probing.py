"""Evaluates many models of a run on its examples, in one compiled program."""

import dataclasses
import functools
from collections.abc import Callable, Sequence
from typing import Any, Concatenate, ParamSpec, TypeVar

import jax
import jax.numpy as jnp
import numpy as np

from fedwin import jax_config
from fedwin.engine import evaluate
from fedwin.engine.client_evaluation import EVALUATED
from fedwin.errors import UserError
from fedwin.runs.load import TrainedModel

P = ParamSpec("P")
R = TypeVar("R")


def in_precision(function: Callable[Concatenate[TrainedModel, P], R]) -> Callable[Concatenate[TrainedModel, P], R]:
    """Decorates a function of a trained model, which then computes with the precision of the model's run."""

    @functools.wraps(function)
    def computed(trained: TrainedModel, /, *arguments: P.args, **options: P.kwargs) -> R:
        with jax_config.settings(trained.prepared.config.precision):
            return function(trained, *arguments, **options)

    return computed


def examples(trained: TrainedModel, split: str = "test", count: int = 0, later: int = 0) -> dict[str, np.ndarray]:
    """Returns examples of a run's data set as they were in its last round, or `later` rounds later.

    Args:
      split: 'test', or 'train' for the examples of all clients.
      count: number of examples, drawn once; 0: all, or as many test examples as in the run's evaluations.
      later: number of rounds.
    """
    prepared, federation = trained.prepared, trained.prepared.federations[trained.seed]
    if split == "test":
        stored = evaluate.held_out(prepared.dataset, count or prepared.config.eval_examples)
        batch = {name: np.asarray(values)[None] for name, values in stored.items()}
        changed = prepared.changes.of_test(batch, trained.round + later, trained.run.key)
        return {name: np.asarray(values[0]) for name, values in changed.items()}
    order = federation.partition.order
    chosen = np.argsort(order, kind="stable")
    if 0 < count < len(order):
        chosen = chosen[np.sort(np.random.Generator(np.random.PCG64(0)).choice(len(order), count, replace=False))]
    found = of_clients(trained, range(federation.num_clients), later - 1, among=chosen)
    return {name: values[np.argsort(np.argsort(chosen))] for name, values in found.items()}


def of_clients(trained: TrainedModel, ids, later: int = 0, held_out=False, **which) -> dict[str, np.ndarray]:
    """Returns examples of clients, one client after the other, as they see them in the round after the checkpoint."""
    changes, federation = trained.prepared.changes, trained.prepared.federations[trained.seed]
    part, first = (federation.validation, EVALUATED) if held_out else (federation.partition, 0)
    assert part is not None
    found = list(changes.of_clients(federation, part, ids, trained.round + later, first=first, **which))
    return {name: np.concatenate([own[name] for own in found]) for name in found[0]}


def probe(trained: TrainedModel, splits: Sequence[str], count: int = 0) -> tuple[Callable, dict[str, Any]]:
    """Returns (evaluate, batches) for `analysis.mixtures`: evaluate(variables, batches) -> split -> metrics."""
    dataset = trained.prepared.dataset
    batches, probes = {}, {}
    for split in splits:
        batches[split] = evaluate.batches(examples(trained, split, count), trained.prepared.config.eval_batch_size)
        measure = evaluate.measure_of(dataclasses.replace(dataset, test=getattr(dataset, split)))
        probes[split] = evaluate.make_probe(trained.model, trained.normalize, measure)

    def measured(variables, batches):
        return {split: probes[split]({"it": variables}, batches[split])["it"] for split in batches}

    return measured, batches


def logits(trained: TrainedModel, models: Sequence, x) -> np.ndarray:
    """Returns the outputs of several models on the same examples [M, N, C], in one compiled program.

    Args:
      x: raw examples [N, ...].

    Raises:
      UserError: the task is not classification.
    """
    if trained.prepared.dataset.task != "classification":
        raise UserError(f"'{trained.prepared.dataset.name}' has no classes; this picture needs a classification.")
    packed = evaluate.batches({"x": np.asarray(x)}, trained.prepared.config.eval_batch_size)["x"]
    stacked = jax.tree.map(lambda *leaves: jnp.stack([jnp.asarray(leaf) for leaf in leaves]), *models)

    @jax.jit
    def program(stacked, packed):
        def one(variables):
            network = lambda x: trained.model.apply(variables, trained.normalize({"x": x}), None, False).logits
            return jax.lax.map(network, packed)

        return jax.lax.map(one, stacked)

    outputs = np.asarray(program(stacked, packed))
    return outputs.reshape(len(models), -1, outputs.shape[-1])[:, : len(x)]


def cohort(trained: TrainedModel, clients: Sequence[int] = (), most: int = 10) -> list[int]:
    """Returns `clients`, or without any up to `most` clients of the round after the checkpoint."""
    if clients:
        return list(clients)
    drawn = trained.prepared.setting.sampling.cohort(trained.seed, trained.round).ids
    return sorted(int(client) for client in drawn)[:most]
