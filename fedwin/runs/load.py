"""load, client_models and export: trained models from the directory of a run."""

import dataclasses
import os
import pathlib
import warnings
from collections.abc import Callable, Iterable, Sequence
from typing import Any, NamedTuple

import jax
import jax.numpy as jnp
import numpy as np

from fedwin import __version__, augment, core, engine, jax_config, local, plugins, tree
from fedwin.core import Variables
from fedwin.data import DATASETS, Dataset
from fedwin.engine.strategy import Strategy
from fedwin.errors import UserError
from fedwin.models import MODELS, Model, interchange, merged
from fedwin.models.adapters.classifier import traced_shapes
from fedwin.registry import nearest, parse
from fedwin.registry.ranges import NonNegativeInt, check_values
from fedwin.residence.blockwise import placed
from fedwin.residence.examples import make_examples
from fedwin.residence.rings import traceable, with_newest_model, without_vectors
from fedwin.residence.rows import DeviceTable, InitialRows, saved_or_initial_rows
from fedwin.residence.saved import SavedTable, SnapshotRing, check_num_clients, has_all_clients, table_template
from fedwin.residence.store import SnapshotLeaf
from fedwin.runs import directory as directories
from fedwin.runs.checkpoint import Leaves, from_leaves, named_leaves, seed_checkpoints
from fedwin.runs.choices import check_objects
from fedwin.runs.client_evaluations import client_table
from fedwin.runs.config import Config
from fedwin.runs.metrics_log import read_lines
from fedwin.runs.prepare import PreparedRun, model_digest, prepare, seed_keys


@dataclasses.dataclass(frozen=True)
class TrainedModel:
    """A trained model with everything needed to apply it.

    Its functions can't be pickled: other processes can take `variables`, or load it from `directory`.

    Attributes:
      variables: parameters and statistics of the read-out.
      model: the network.
      normalize: batch -> batch, the preparation of test examples for the network.
      seed: the seed.
      round: completed rounds.
      prepared: the prepared run: data set, federations, algorithm, ...
      run: the complete state; client rows and windows in files are read on access.
      directory: directory of the run.
    """

    variables: Variables
    model: Model
    normalize: Callable[[dict[str, Any]], dict[str, Any]]
    seed: int
    round: int
    prepared: PreparedRun
    run: engine.RunState
    directory: pathlib.Path = pathlib.Path()

    def __repr__(self) -> str:
        """Shows where the model is from, not its arrays, in a notebook."""
        config, parameters = self.prepared.config, sum(leaf.size for leaf in jax.tree.leaves(self.variables.params))
        return (
            f"TrainedModel {self.model.name!r}: {parameters:,} parameters, seed {self.seed}, round {self.round}\n"
            f"  {config.algorithm} on {config.dataset}, from {self.directory}"
        )

    @property
    def received(self) -> Variables:
        """The model that clients receive next: the server's, or what an algorithm or wrapper sends in its place."""
        run, phases = traceable(self.run), self.prepared.algorithm.phases
        is_model = lambda node: tree.alike(node, run.params)
        with jax_config.settings(self.prepared.config.precision):
            sent = next(phase for phase in phases if phase.client).broadcast(run.params, run.state)
            if self.prepared.config.asynchronous:  # a ring of broadcasts, or the newest alone
                sent = tree.map(lambda leaf: leaf[run.round % len(leaf)], sent)
        return Variables(next(filter(is_model, jax.tree.leaves(sent, is_leaf=is_model)), run.params), run.stats)

    def client_table(self) -> dict[str, np.ndarray]:
        """Returns this round's table of clients (--eval_clients), like `fedwin.client_table`."""
        return client_table(self.directory, self.seed, self.round)

    def logits(self, x: Any) -> jax.Array:
        """Returns logits [B, C] or [B, T, V] of examples [B, ...], stored as in the data set; UserError for others."""
        x, stored = jnp.asarray(x), self.prepared.dataset.train["x"]
        if x.ndim != len(stored.shape):
            raise UserError(f"logits: x has shape {x.shape}; give examples, such as of shape {(1, *stored.shape[1:])}.")
        # The dtype decides how x is normalized: uint8 is divided by 255, other whole numbers are tokens.
        if jnp.issubdtype(x.dtype, jnp.integer):
            x = x.astype(stored.dtype)
        apply = lambda x: self.model.apply(self.variables, self.normalize({"x": x}), None, False).logits
        with jax_config.settings(self.prepared.config.precision):
            traced_shapes(f"logits: model '{self.model.name}'", x.shape[1:], apply, x)
            return apply(x)


def load(
    directory: str | os.PathLike,
    seed: int = 0,
    round: int | None = None,
    readout: str = "model",
    *,
    data_dir: str | None = None,
    dataset: Dataset | None = None,
    model: Model | None = None,
    imports: Sequence[str] = (),
) -> TrainedModel:
    """Loads a trained model from the directory of a run.

    Args:
      directory: the run's directory.
      seed: the seed.
      round: round of the checkpoint; None: the newest.
      readout: 'model', or the name of another read-out such as 'wima50'.
      data_dir: folder of the data set's files; None: as in the run.
      dataset: the object that the run was given in place of a named data set.
      model: the object that the run was given in place of a named network; a warning says if it computes another
        function.
      imports: modules and .py files of the run (--import), which its directory alone does not import.

    Raises:
      UserError: there is no such run, checkpoint or read-out; the data is not the run's; or the run needs imports.
    """
    check_values("load", NonNegativeInt, seed=seed)
    check_values("load", NonNegativeInt | None, round=round)
    if not isinstance(directory, (str, os.PathLike)):
        raise UserError(f"load: directory is a {type(directory).__name__}; give the path of a run's directory.")
    directory = pathlib.Path(directory)
    checkpoints = seed_checkpoints(directory, seed)
    rounds = checkpoints.rounds()
    seed, round = int(seed), max(rounds, default=-1) if round is None else int(round)
    leaves, _ = checkpoints.load(round) if round in rounds else ({}, {})
    objects: dict[str, Any] = {"data_dir": data_dir, "dataset": dataset, "model": model, "imports": imports}
    prepared = prepared_run(directory, [seed], **objects, initial=not has_all_clients(leaves))
    if round not in rounds:
        available = ", ".join(map(str, rounds)) or "none"
        wanted = f" of round {round}" if rounds else ""
        raise UserError(f"{checkpoints.directory} has no checkpoint{wanted}; available: {available}.")
    with jax_config.settings(prepared.config.precision):
        run = _state(prepared, seed, leaves)
        models = engine.read_out(prepared.algorithm, prepared.observers, traceable(run))
    if readout not in models:
        raise UserError(f"readout='{readout}': {directory} has {', '.join(models)}.{nearest(str(readout), models)}")
    return TrainedModel(models[readout], prepared.model, prepared.normalize, seed, round, prepared, run, directory)


def export(
    directory: str | os.PathLike,
    out: str | os.PathLike,
    seed: int = 0,
    round: int | None = None,
    readout: str = "model",
    *,
    overwrite: bool = False,
    layout: str = "jax",
    **objects: Any,
) -> pathlib.Path:
    """Writes a trained model to a .npz or .safetensors file, which --init_from and others read; returns its path.

    Arrays have the names of checkpoints, such as params.conv1.kernel. The metadata, in JSON, contains what is needed to
    apply the model: its name, input shape, classes and the normalization of the network's input:

        (x / 255 if x is uint8, else x), then (x - mean) / std per channel

    With layout='torch' the arrays are a state dict, out before in and channels first, and the metadata's `source` is
    Python code: the torch.nn.Module, the normalization, and the lines that load the file.

    Args:
      directory: the run's directory; its configuration, evaluations and checkpoint are verified first.
      out: the new file.
      seed, round, readout: as for `load`.
      overwrite: whether to replace an existing file.
      layout: 'jax' or 'torch'.
      **objects: data_dir, dataset, model or imports, as for `load`.

    Raises:
      UserError: as for `load`; the file exists, or has another extension; the directory has been altered; or the
        network has no PyTorch form.
    """
    if layout not in ("jax", "torch"):
        raise UserError(f"export: layout={layout!r} must be 'jax' or 'torch'.")
    out = interchange.check_target(out, overwrite)
    directory = pathlib.Path(directory)
    config_file = directories.read_config(directory)
    read_lines(directory / "metrics.jsonl")
    trained = load(directory, seed, round, readout, **objects)
    dataset = trained.prepared.dataset
    augmentation = augment.AUGMENTATIONS.build(trained.prepared.config.augment)
    shape = augment.output_shape(augmentation, dataset.train["x"].shape[1:])
    numbers = lambda values: None if values is None else np.ravel(values).astype(float).tolist()
    metadata = {
        "format": 1,
        "fedwin": __version__,
        "fingerprint": config_file.fingerprint,
        "config": config_file.identity.config,
        "seed": trained.seed,
        "round": trained.round,
        "readout": readout,
        "model": trained.model.name,
        "input_shape": list(shape),
        "input_dtype": str(np.dtype(dataset.train["x"].dtype)),
        "num_classes": dataset.num_classes,
        "class_names": [str(name) for name in dataset.class_names],
        "mean": numbers(dataset.mean),
        "std": numbers(dataset.std),
    }
    with jax_config.settings(trained.prepared.config.precision):
        arrays = named_leaves(merged(trained.model, trained.variables))
        if layout == "torch":
            arrays, source = interchange.convert(trained.model, arrays, metadata, out)
            metadata |= {"layout": layout, "source": source}
    interchange.write(out, arrays, metadata, overwrite)
    return out


def prepared_run(
    directory: str | os.PathLike,
    seeds: Sequence[int] | None = None,
    *,
    data_dir: str | None = None,
    dataset: Dataset | None = None,
    model: Model | None = None,
    imports: Sequence[str] = (),
    initial: bool = False,
) -> PreparedRun:
    """Returns the prepared run of a directory: data set, partition, network, algorithm.

    Args:
      directory: the run's directory.
      seeds: some of its seeds; None: all.
      data_dir, dataset, model, imports: as for `load`.
      initial: whether to read the run's initial model (--init_from). The model that --lora adapts is always read.

    Raises:
      UserError: there is no such run or seed; the data or the initial model is not the run's; or the run needs imports.
    """
    directory = pathlib.Path(directory)
    config_file = directories.read_config(directory)
    config = Config(**config_file.config)
    for seed in seeds or ():
        if seed not in config.seeds:
            raise UserError(f"seed={seed}: {directory} has the seeds {', '.join(map(str, config.seeds))}.")
    # The number of old models in an asynchronous run's state is that of all seeds.
    if seeds is not None and not config.asynchronous:
        config = dataclasses.replace(config, seeds=list(seeds))
    data_dir = config.data_dir if data_dir is None else str(data_dir)
    # What they name may be gone.
    init_from = config.init_from if initial or config.lora else ""
    config = dataclasses.replace(config, data_dir=data_dir, init_from=init_from, fork_from="")
    check_objects(config, dataset, model)
    plugins.load_for(directory, config.imports, imports)
    for kind, given, known in ("dataset", dataset, DATASETS), ("model", model, MODELS):
        if given is None and (name := parse(getattr(config, kind)).name) not in known:
            raise UserError(f"{directory} was run with an object, {kind}={name}; give it as {kind}=... again.")
    prepared = prepare(config, dataset, model)
    if not config_file.identity.has_data(prepared.dataset, directories.data_hashes(prepared.federations)):
        source = f"data_dir={config.data_dir}" if config.data_dir else f"dataset={prepared.config.dataset}"
        other = f"was run on other data than {source} has, or with another mean or std"
        raise UserError(f"{directory} {other}; give the run's own data.")
    if model is not None and (recorded := config_file.identity.environment.get("model")):
        with jax_config.settings(config.precision):
            if recorded != model_digest(prepared):
                other = "or another version of jax"
                warnings.warn(f"{directory} had another object as model={config.model}, {other}", stacklevel=3)
    if any(config_file.identity.initial.get(str(seed)) != start.digest for seed, start in prepared.initial.items()):
        raise UserError(f"{directory} started from another model than init_from={init_from} is now; restore that one.")
    return prepared


def _state(prepared: PreparedRun, seed: int, leaves: Leaves) -> engine.RunState:
    """Rebuilds the state of a checkpoint with all clients' rows, initial ones for clients that it does not contain.

    Windows and rows in files stay there and are read on access; the table is then a SavedTable. Of old models in files,
    the newest alone is read.
    """
    clients = prepared.setting.num_clients
    in_file = any(isinstance(leaf, SnapshotLeaf) for leaf in leaves.values())
    slots = 1 if in_file or has_all_clients(leaves) else clients
    # Without a following round, windows need no free slots.
    run = without_vectors(prepared.start(seed, slots, window_rounds=1))
    saved = from_leaves(leaves, table_template(run, leaves))
    if in_file:
        check_num_clients(saved.table, clients)
    else:
        saved = DeviceTable(clients).restore(saved, run)
    on_device = lambda leaf: leaf if isinstance(leaf, (SnapshotLeaf, SnapshotRing)) else placed(leaf)
    return jax.tree.map(on_device, with_newest_model(saved))


class _Row(NamedTuple):
    """A client's row and the model that it trained."""

    inner: Any
    model: Variables


@dataclasses.dataclass(frozen=True)
class _RecordingSolver(local.Solver):
    """A local solver that keeps the results of its calls while an algorithm is traced."""

    results: list[local.Local] = dataclasses.field(default_factory=list, compare=False)

    def __call__(self, *args, **kwargs) -> local.Local:
        self.results.append(super().__call__(*args, **kwargs))
        return self.results[-1]


def _recorded(phase: core.Phase, solver: _RecordingSolver, is_last: bool) -> core.Phase:
    """Returns a phase whose client rows are _Row, with the model that the client trained."""

    def client(down, c):
        solver.results.clear()
        update, inner = core.on_inner_row(phase.client, down, c)
        if is_last and not solver.results:
            raise UserError("client_models: this algorithm's clients do not call its local solver.")
        # The first phase of MIME trains nothing and returns no row.
        model = c.state.model
        if solver.results:
            model = Variables(solver.results[-1].params, solver.results[-1].stats)
        return update._replace(state=_Row(inner, model))

    return phase._replace(client=client)


def client_models(
    directory: str | os.PathLike | TrainedModel,
    clients: Sequence[int],
    seed: int = 0,
    round: int | None = None,
    **objects: Any,
) -> list[Variables]:
    """Trains clients for one round from a run's checkpoint and returns their trained models.

    The clients form one cohort; broadcast state, client rows and learning rate are taken from the round after the
    checkpoint.

    Args:
      directory: the run's directory, or a result of `load`, which has its own seed and round.
      clients: client ids without duplicates.
      seed, round: as for `load`.
      **objects: data_dir, dataset, model or imports, as for `load`.

    Returns:
      One model per client, in the order given; for a client that trains several, the last.

    Raises:
      UserError: there is no such run, checkpoint or client, or the result of `load` is of another seed or round.
    """
    trained = directory if isinstance(directory, TrainedModel) else load(directory, seed, round, **objects)
    if seed not in (0, trained.seed) or round not in (None, trained.round):
        raise UserError(
            f"client_models: this result of load is of seed {trained.seed}, round {trained.round}; leave seed and "
            f"round out, or load others."
        )
    prepared, federation = trained.prepared, trained.prepared.federations[trained.seed]
    ids = np.asarray(list(clients) if isinstance(clients, Iterable) else clients)
    known = ids.ndim == 1 and ids.dtype.kind in "iu" and np.isin(ids, np.arange(federation.num_clients)).all()
    if not known or not len(ids) or len(np.unique(ids)) < len(ids):
        raise UserError(f"clients={clients}: give a list of clients of 0..{federation.num_clients - 1}, each once.")
    with jax_config.settings(prepared.config.precision):
        return _trained_clients(trained, ids.astype(np.int32))


def _trained_clients(trained: TrainedModel, ids: np.ndarray) -> list[Variables]:
    """Trains clients for one round and returns their models."""
    prepared, federation = trained.prepared, trained.prepared.federations[trained.seed]
    solver = _RecordingSolver(**vars(prepared.solver))
    algorithm = prepared.algorithm_of(prepared.setting, solver)
    last = next(phase for phase in reversed(algorithm.phases) if phase.client)
    algorithm = core.with_client_phases(lambda phase: _recorded(phase, solver, phase is last), algorithm)
    examples = make_examples(federation, prepared.config.examples, Strategy(), len(ids), 1)
    store, rows = examples.load(core.Cohort.of(ids[None]))
    work = local.work_of_cohort(prepared.local_work, trained.seed, int(trained.run.round), ids)
    cohort = core.Cohort.of(ids, rows=rows[0], slots=np.arange(len(ids), dtype=np.int32), work=work)

    if isinstance(table := trained.run.table, SavedTable):
        initial = prepared.start(trained.seed, 1)
        first = InitialRows(prepared.algorithm, initial.params, seed_keys(trained.seed)["init"], len(ids))
        client_rows = saved_or_initial_rows(table, ids, first)
    else:
        client_rows = tree.map(lambda leaf: leaf[ids], table)

    def trained_models(run, client_rows, store):
        model = Variables(run.params, run.stats)
        blank = tree.map(lambda leaf: jnp.zeros((len(ids), *leaf.shape), leaf.dtype), model)
        state = run._replace(table=_Row(client_rows, blank), observers={})
        after, _ = engine.one_round(algorithm, {}, Strategy(), federation.bucket(ids), state, store, cohort)
        return after.table.model

    models = jax.device_get(jax.jit(trained_models)(traceable(trained.run._replace(table=())), client_rows, store))
    examples.close()
    return [tree.map(lambda leaf: leaf[k], models) for k in range(len(ids))]
