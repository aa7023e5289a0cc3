"""Getting trained models out of a run's directory."""

import dataclasses
import os
import pathlib
from collections.abc import Sequence
from typing import Any, NamedTuple

import jax
import jax.numpy as jnp
import numpy as np

from fedwin import core, engine, local, plugins, tree
from fedwin.core import Variables
from fedwin.data import Dataset
from fedwin.engine.strategy import Strategy
from fedwin.errors import UserError, deprecated
from fedwin.residence.blockwise import placed
from fedwin.residence.client_table import (
    DeviceTable,
    InitialRows,
    SavedTable,
    check_num_clients,
    has_all_clients,
    table_template,
)
from fedwin.residence.client_table_file import saved_or_initial_rows
from fedwin.residence.examples import make_examples
from fedwin.residence.offloaded_windows import SnapshotRing, traceable, windows_of, with_rings, without_vectors
from fedwin.residence.record_store import SnapshotLeaf
from fedwin.runs import directory as directories
from fedwin.runs.checkpoint import Checkpoints, from_leaves
from fedwin.runs.config import Config
from fedwin.runs.prepare import PreparedRun, prepare, seed_keys


@dataclasses.dataclass(frozen=True)
class TrainedModel:
    """A trained model and what is needed to apply it.

    Attributes:
      variables: parameters and statistics of the read-out.
      model: the network (`models.Model`).
      normalise: batch -> batch, what the run did to test examples before the network saw them.
      seed: whose run.
      round: completed rounds.
      prepared: the run, prepared again from its configuration.
      run: the complete state; rows of clients that are in a file stay there, and are read on access.
    """

    variables: Variables
    model: Any
    normalise: Any
    seed: int
    round: int
    prepared: PreparedRun
    run: engine.RunState

    @property
    def trial(self) -> PreparedRun:
        """Deprecated name of `prepared`."""
        deprecated("TrainedModel.trial", "TrainedModel.prepared")
        return self.prepared

    def logits(self, x) -> jax.Array:
        """Returns the network's output for examples as the data set stores them: [B, ...] -> [B, C] or [B, T, V]."""
        return self.model.apply(self.variables, self.normalise({"x": jnp.asarray(x)}), None, False).logits


def load(
    directory,
    seed: int = 0,
    round: int | None = None,
    readout: str = "model",
    *,
    data_dir: str | None = None,
    dataset: Dataset | None = None,
    model: Any = None,
) -> TrainedModel:
    """Returns a trained model of a run.

    Args:
      directory: the run's.
      seed: whose run.
      round: of which checkpoint; None = the newest.
      readout: 'model', or the name of a read-out such as 'wima50'.
      data_dir: where the data set's files are now; None = where they were.
      dataset: the object that the run was given in place of a name.
      model: the object that the run was given in place of a name.

    Raises:
      UserError: no run, no such checkpoint or read-out.
    """
    if not isinstance(directory, (str, os.PathLike)):
        raise UserError(f"load: directory is a {type(directory).__name__}; give the path of a run's directory.")
    directory = pathlib.Path(directory)
    prepared = _prepared_run(directory, seed, data_dir, dataset, model)
    checkpoints = Checkpoints(directory / "checkpoints" / f"seed_{seed}")
    rounds = checkpoints.rounds()
    if not rounds or (round is not None and round not in rounds):
        available = ", ".join(map(str, rounds)) or "none"
        raise UserError(
            f"{checkpoints.directory} has no checkpoint{f' of round {round}' if rounds else ''}; it has: {available}."
        )
    at = rounds[-1] if round is None else round
    leaves, _ = checkpoints.load(at)
    run = _state(prepared, seed, leaves)
    models = engine.read_out(prepared.algorithm, prepared.observers, run)
    if readout not in models:
        raise UserError(f"readout='{readout}': {directory} has {', '.join(models)}.")
    return TrainedModel(models[readout], prepared.model, prepared.normalise, seed, at, prepared, run)


def _prepared_run(directory: pathlib.Path, seed: int, data_dir, dataset, model) -> PreparedRun:
    said = directories.read_config(directory).config
    fields = {field.name for field in dataclasses.fields(Config)}
    config = Config(**{name: value for name, value in said.items() if name in fields})
    if seed not in config.seeds:
        raise UserError(f"seed={seed}: {directory} has the seeds {', '.join(map(str, config.seeds))}.")
    if data_dir is not None:
        config = dataclasses.replace(config, data_dir=str(data_dir))
    plugins.load(config.imports)
    return prepare(dataclasses.replace(config, seeds=[seed]), dataset, model)


def _state(prepared: PreparedRun, seed: int, leaves: dict[str, Any]) -> engine.RunState:
    """Rebuilds the state of a checkpoint with all clients' rows in its table; those never drawn are as at the start.

    Rows in a file stay there: the table is Rows, whose leaves are read on access.
    """
    clients = prepared.setting.num_clients
    filed = any(isinstance(leaf, SnapshotLeaf) for leaf in leaves.values())
    slots = 1 if filed or has_all_clients(leaves, clients) else clients
    # Windows that no round follows need no room.
    run = without_vectors(prepared.start(seed, slots, window_rounds=1))
    if filed:
        found = from_leaves(leaves, table_template(run, leaves))
        check_num_clients(found.table, clients)
        return _placed(found._replace(table=()))._replace(table=found.table)
    rows = DeviceTable(clients)
    return _placed(rows.restore(from_leaves(leaves, rows.template(run, leaves)), run))


def _placed(run: engine.RunState) -> engine.RunState:
    """Returns a state on the device, but for rings in files, which stay there and are read on access."""
    filed = {name: node.ring for name, node in windows_of(run).items() if isinstance(node.ring, SnapshotRing)}
    without = with_rings(run, lambda name, node: () if name in filed else node.ring)
    return with_rings(placed(without), lambda name, node: filed.get(name, node.ring))


def _rows_of(trained: TrainedModel, ids: np.ndarray):
    """Returns the rows of some clients, [n, ...]."""
    prepared, table = trained.prepared, trained.run.table
    if not isinstance(table, SavedTable):
        return tree.map(lambda leaf: leaf[ids], table)
    began = prepared.start(trained.seed, 1)
    first = InitialRows(prepared.algorithm, began.params, seed_keys(trained.seed)["init"], len(ids))
    return saved_or_initial_rows(table, ids, first)


class _Row(NamedTuple):
    """A client's row, and the model that it trained."""

    inner: Any
    model: Variables


class _Recording(local.Solver):
    """A local solver whose metrics carry the model that it ends with."""

    def __call__(self, *args, **kwargs):
        y = super().__call__(*args, **kwargs)
        return y._replace(metrics=y.metrics | {"model": core.Mean(Variables(y.params, y.stats), jnp.ones((), float))})


def _recorded(phase: core.Phase, is_last: bool) -> core.Phase:
    """The phase of an algorithm whose rows became _Row: a client leaves the model that it trained in its row."""

    def client(down, c):
        update = phase.client(down, c._replace(state=c.state.inner))
        if is_last and "model" not in update.metrics:
            raise UserError(
                "client_models: this algorithm drops the metrics of its local solver; "
                "return core.Update(..., metrics=y.metrics)."
            )
        # MIME's first round trip trains nothing and returns no row.
        trained = update.metrics.get("model", core.Mean(c.state.model, jnp.ones((), float))).value
        metrics = {name: value for name, value in update.metrics.items() if name != "model"}
        inner = c.state.inner if tree.is_empty(update.state) else update.state
        return update._replace(state=_Row(inner, trained), metrics=metrics)

    return phase._replace(client=client)


def client_models(
    directory, clients: Sequence[int], seed: int = 0, round: int | None = None, **objects
) -> list[Variables]:
    """Trains given clients for one round from a run's checkpoint and returns the models that they end with.

    The clients are one cohort: what the algorithm broadcasts, their rows and their rates are those of the round that
    comes after the checkpoint.

    Args:
      directory: the run's, or what `load` returned.
      clients: global numbers, each once.
      seed: whose run.
      round: of which checkpoint; None = the newest.
      **objects: data_dir, dataset or model, as in `load`.

    Returns:
      One model per client, in the order given.

    Raises:
      UserError: no run or checkpoint, or a client that does not exist.
    """
    trained = directory if isinstance(directory, TrainedModel) else load(directory, seed, round, **objects)
    prepared, federation = trained.prepared, trained.prepared.federations[trained.seed]
    ids = np.asarray(list(clients), np.int32)
    if not len(ids) or len(set(ids.tolist())) < len(ids) or ids.min() < 0 or ids.max() >= federation.num_clients:
        raise UserError(f"clients={list(clients)}: give each once, of 0..{federation.num_clients - 1}.")
    settings = {field.name: getattr(prepared.solver, field.name) for field in dataclasses.fields(prepared.solver)}
    algorithm = prepared.algorithm_of(_Recording(**settings))
    last = max(number for number, phase in enumerate(algorithm.phases) if phase.client)
    phases = (_recorded(p, n == last) if p.client else p for n, p in enumerate(algorithm.phases))
    algorithm = algorithm._replace(phases=tuple(phases))
    examples = make_examples(federation, prepared.config.examples, Strategy(), len(ids), 1)
    store, rows = examples.load(ids[None])
    slots = np.arange(len(ids), dtype=np.int32)

    own = _rows_of(trained, ids)

    def trained_models(run, own, store):
        model = Variables(run.params, run.stats)
        blank = tree.map(lambda leaf: jnp.zeros((len(ids), *leaf.shape), leaf.dtype), model)
        state = run._replace(table=_Row(own, blank), observers={})
        n_max = federation.bucket(ids)
        after, _ = engine.one_round(algorithm, {}, Strategy(), n_max, state, store, ids, rows[0], slots)
        return after.table.model

    found = jax.device_get(jax.jit(trained_models)(traceable(trained.run._replace(table=())), own, store))
    examples.close()
    return [tree.map(lambda leaf: leaf[k], found) for k in range(len(ids))]
