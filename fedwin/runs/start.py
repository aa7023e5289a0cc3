"""Where a run starts: its newest checkpoint, another run's (--fork_from), another's model or a file (--init_from)."""

import dataclasses
import pathlib
import re
from collections.abc import Callable
from typing import NamedTuple, get_args

import jax
import jax.numpy as jnp
import numpy as np

from fedwin import engine, tree
from fedwin.core import Variables
from fedwin.data.federation import Federation
from fedwin.errors import UserError
from fedwin.models import ADAPTATIONS, Model, interchange
from fedwin.observers.wima import Part, mask_of_part
from fedwin.registry import parse
from fedwin.residence.blockwise import Lazy, placed
from fedwin.residence.rings import without_vectors
from fedwin.residence.rows import ClientTable, DeviceTable
from fedwin.residence.saved import has_all_clients, table_template
from fedwin.runs import directory as directories
from fedwin.runs.checkpoint import (
    Checkpoints,
    Extra,
    Leaves,
    checksum,
    from_leaves,
    named_leaves,
    saved_seeds,
    seed_checkpoints,
    with_resized_rings,
)
from fedwin.runs.choices import check_arrivals, check_same_server
from fedwin.runs.config import Config
from fedwin.sampling import Sampler
from fedwin.tree import PyTree
from fedwin.wrappers import unwrapped_names
from fedwin.wrappers.accounting import Privacy, restored
from fedwin.wrappers.asynchronous import OLD_MODELS, resized_ring

# PreparedRun.start: (seed, slots, model, window_rounds) -> state before the first round.
Start = Callable[..., engine.RunState]

_SOURCE = re.compile(r"(?P<directory>.+)@(?P<round>[0-9]{1,18})(?::part=(?P<part>\w+))?", re.ASCII | re.DOTALL)
_FILE = re.compile(r"(?P<path>.+\.(?:npz|safetensors|pt|pth))(?::(?P<options>.+))?", re.DOTALL)

_STATE_FLAGS = ("dataset", "num_clients", "model", "lora", "precision", "algorithm", "wrap", "asynchronous")


class Source(NamedTuple):
    """A checkpoint of another run, as --fork_from and --init_from name it: DIR@ROUND or DIR@ROUND:part=PART.

    Attributes:
      part: 'all', 'features' (all but the classifier, and the statistics) or 'classifier'.
    """

    directory: pathlib.Path
    round: int
    part: str = "all"

    def checkpoints(self, flag: str, seed: int) -> Checkpoints:
        """Returns the checkpoints of a seed of the other run; raises UserError if it has none of the round."""
        checkpoints = seed_checkpoints(self.directory, seed)
        if not self.directory.is_dir():
            raise UserError(f"{flag}: {self.directory}: there is no such folder; check the path.")
        try:
            rounds = checkpoints.rounds()
        except OSError as error:
            raise UserError(f"{flag}: {checkpoints.path} can't be read ({error.strerror}); check the path.") from error
        if self.round not in rounds:
            available = ", ".join(map(str, rounds)) or "none"
            raise UserError(
                f"{flag}: {checkpoints.path} has no checkpoint of round {self.round}; available: {available}."
            )
        return checkpoints


def fork_source(config: Config) -> Source:
    """Returns the checkpoint of --fork_from; UserError if it is malformed, missing, or not before --num_rounds."""
    match = _SOURCE.fullmatch(config.fork_from)
    if not match or match["part"]:
        raise UserError(
            f"fork_from='{config.fork_from}' is not DIR@ROUND; name a run's directory and a round, e.g. runs/a@100."
        )
    source = Source(pathlib.Path(match["directory"]), int(match["round"]))
    if source.round >= config.num_rounds:
        raise UserError(
            f"fork_from={config.fork_from}: num_rounds={config.num_rounds} leaves nothing to train; raise --num_rounds."
        )
    for seed in config.seeds:
        source.checkpoints("fork_from", seed)
    return source


def fork_round(config: Config) -> int:
    """Returns the first round of a run: 0, or the round of --fork_from."""
    return int(config.fork_from.rpartition("@")[2]) if config.fork_from else 0


class FileSource(NamedTuple):
    """A file of parameters, as --init_from names it: FILE or FILE:map=names.json,layout=torch,part=PART.

    Attributes:
      part: as in Source.
      map: a JSON file with names, or None.
      layout: 'auto', 'jax' or 'torch'.
    """

    path: pathlib.Path
    part: str = "all"
    map: str | None = None
    layout: str = "auto"


def init_source(text: str) -> Source | FileSource:
    """Returns the checkpoint or file of --init_from; UserError if it is malformed or has no such option."""
    source: Source | FileSource
    if match := _SOURCE.fullmatch(text):
        source = Source(pathlib.Path(match["directory"]), int(match["round"]), match["part"] or "all")
    elif match := _FILE.fullmatch(text):
        source = _file_source(text, match["path"], match["options"])
    else:
        raise UserError(
            f"init_from='{text}' is neither DIR@ROUND:part=PART nor FILE:map=names.json; name a run and a round, e.g. "
            f"runs/a@100:part=features, or a file (of a read-out: fedwin export) *.npz, *.safetensors, *.pt or *.pth."
        )
    if source.part not in get_args(Part):
        raise UserError(f"init_from={text}: part={source.part} must be one of {', '.join(get_args(Part))}.")
    return source


def _file_source(text: str, path: str, options: str | None) -> FileSource:
    """Returns the file of a path and its options, `key=value,key=value` or None."""
    given = parse(f"file:{options}", str).params if options else {}
    for name in given:
        if name not in ("part", "map", "layout"):
            raise UserError(f"init_from={text}: there is no option '{name}'; the options are part, map and layout.")
    if given.get("layout", "auto") not in interchange.LAYOUTS:
        known = ", ".join(interchange.LAYOUTS)
        raise UserError(f"init_from={text}: layout={given['layout']} must be one of {known}.")
    return FileSource(pathlib.Path(path), **{name: str(value) for name, value in given.items()})


@dataclasses.dataclass(frozen=True)
class WarmStart:
    """The parameters that one seed takes from another run or a file (--init_from).

    Attributes:
      source: the other run's checkpoint, or the file.
      seed: the other run's seed; None for a file.
      leaves: name in checkpoints -> array.
      note: the conversions in words; '' without any.
    """

    source: Source | FileSource
    seed: int | None
    leaves: dict[str, np.ndarray]
    note: str = ""

    def __str__(self) -> str:
        part = "parameters" if self.source.part == "all" else self.source.part
        if isinstance(self.source, FileSource):
            return f"the {part} of {self.source.path}" + (f" ({self.note})" if self.note else "")
        return f"the {part} of {self.source.directory}, seed {self.seed}, round {self.source.round}"

    @property
    def digest(self) -> str:
        """A hash of the parameters."""
        return checksum(self.leaves)

    def into(self, model: Variables) -> Variables:
        """Returns the model with its parameters replaced; may be traced."""
        own = lambda name, leaf: jnp.asarray(self.leaves[name]) if name in self.leaves else leaf
        return jax.tree.unflatten(jax.tree.structure(model), [own(*item) for item in tree.named(model).items()])


def _seed_of(source: Source, seed: int) -> int:
    """Returns the other run's seed whose model `seed` starts from: the same, or the only one of the other run."""
    folder = source.directory / "checkpoints"
    try:
        seeds = saved_seeds(source.directory)
    except OSError as error:
        raise UserError(f"init_from: {folder} can't be read ({error.strerror}); check the path.") from error
    if seed not in seeds and len(seeds) != 1:
        available = ", ".join(map(str, seeds)) or "none"
        raise UserError(f"init_from: {folder} has no seed {seed}, and not just one seed; available: {available}.")
    return seed if seed in seeds else seeds[0]


def _wanted(part: str, model: Model) -> Leaves:
    """Returns name -> shape of the leaves of a part, with the same parts as `wima:part=`."""
    own = jax.eval_shape(model.init, jax.random.key(0))
    if part == "all":
        return named_leaves(own)
    mask = mask_of_part(own.params, part, model.classifier_path, "init_from")
    chosen = Variables(mask, jax.tree.map(lambda leaf: part == "features", own.stats))
    return {name: leaf for (name, leaf), take in zip(named_leaves(own).items(), jax.tree.leaves(chosen)) if take}


def _check_fit(part: str, where: pathlib.Path, model: Model, wanted: Leaves, saved: Leaves) -> None:
    """Raises UserError unless the leaves of another run or a file are exactly the wanted ones of a part."""
    remedy = "use the same network, or choose another part"
    if any(f"{name}.a" in saved for name in wanted):
        remedy = "these are corrections of --lora; export that run, and start from the file, the merged network"
    for name, like in wanted.items():
        if name not in saved:
            raise UserError(f"init_from: the model of {where} has no '{name}'; {remedy}.")
        value = saved[name]
        if value.shape != like.shape or not np.can_cast(value.dtype, like.dtype):
            raise UserError(
                f"init_from: '{name}' is {value.dtype}{list(value.shape)} in {where} and "
                f"{like.dtype}{list(like.shape)} here; {remedy}."
            )
    classifier = ".".join(("params", *model.classifier_path, ""))
    for name in saved.keys() - wanted.keys():
        in_classifier = name.startswith(classifier)
        if part == "all" or in_classifier == (part == "classifier"):
            raise UserError(f"init_from: '{name}' of {where} has no place in this model; {remedy}.")


def warm_starts(
    config: Config, model: Model, input_shape: tuple[int, ...], input_dtype: np.dtype
) -> dict[int, WarmStart]:
    """Returns seed -> the parameters of --init_from, {} without it; UserError if they are missing or do not fit.

    Args:
      input_shape: shape of one example as the network sees it.
      input_dtype: dtype of the stored examples.
    """
    if not config.init_from:
        return {}
    source = init_source(config.init_from)
    wanted = _wanted(source.part, model)
    if isinstance(source, FileSource):
        dtype = jnp.float32 if input_dtype == jnp.uint8 else jax.dtypes.canonicalize_dtype(input_dtype)
        own, given = _wanted("all", model), (input_shape, dtype, source.map, source.layout)
        loaded = interchange.load(source.path, model, own, wanted, *given)
        _check_fit(source.part, source.path, model, wanted, loaded.leaves)
        start = WarmStart(source, None, {name: loaded.leaves[name] for name in wanted}, loaded.note)
        return dict.fromkeys(config.seeds, start)
    starts = {}
    for seed in config.seeds:
        other = _seed_of(source, seed)
        leaves, _ = source.checkpoints("init_from", other).load(source.round)
        saved = {name: leaf for name, leaf in leaves.items() if name.partition(".")[0] in ("params", "stats")}
        _check_fit(source.part, source.directory, model, wanted, saved)
        starts[seed] = WarmStart(source, other, {n: np.array(leaves[n], like.dtype) for n, like in wanted.items()})
    return starts


def adapted(config: Config, model: Model, starts: dict[int, WarmStart]) -> Model:
    """Returns the network to train, with --lora corrections of --init_from's; UserError if seeds or forks differ."""
    if not config.lora:
        return model
    if "=" not in config.lora:
        raise UserError(f"lora={config.lora} is not key=value,key=value; write, for instance, --lora=rank=4.")
    choice = ADAPTATIONS.check(f"lora:{config.lora}")
    start = next(iter(starts.values()))
    for seed, other in starts.items():
        if other.digest != start.digest:
            raise UserError(
                f"lora: seed {seed} would adapt {other} and others {start}; one network is adapted in all seeds: name "
                f"a run of one seed or a file in --init_from, or run the seeds separately."
            )
    directory = pathlib.Path(config.fork_from.rpartition("@")[0])
    if config.fork_from and (directory / "config.json").exists():  # a fork resumes without it
        parent = directories.read_config(directory)
        if not parent.identity.config["lora"] or start.digest not in parent.identity.initial.values():
            raise UserError(
                f"fork_from={config.fork_from} adapts another model than {start}, or none; name its own in --init_from."
            )
    shapes = jax.eval_shape(model.init, jax.random.key(0))
    base = [start.leaves.get(name, shape) for name, shape in tree.named(shapes).items()]
    return ADAPTATIONS.build(choice, model, jax.tree.unflatten(jax.tree.structure(shapes), base))


def check_fork(config: Config, start: Start, sampler: Sampler) -> None:
    """Raises UserError if a run can't start from --fork_from; traces shapes, computes nothing."""
    for seed in config.seeds:
        fork = _Fork(config, seed)
        if config.asynchronous:
            kept = next(len(leaf) for name, leaf in fork.saved.items() if name.startswith(OLD_MODELS))
            seconds = fork.counts["simulated"]["seconds"]
            check_arrivals(config, sampler, seed, fork.source.round, seconds, kept)
        plain = lambda leaf: jax.random.key_data(leaf) if tree.is_key(leaf) else leaf
        fresh = jax.eval_shape(lambda: jax.tree.map(plain, start(seed, 1, window_rounds=1)))
        blank = jax.tree.map(lambda s: s if isinstance(s, Lazy) else np.zeros(s.shape, s.dtype), without_vectors(fresh))
        own = DeviceTable(1).checkpoint_form(blank)
        shapes = named_leaves(own)
        for name, value in fork.leaves(own).items():
            if _field(name) != "table" and (value.shape, value.dtype) != (shapes[name].shape, shapes[name].dtype):
                raise fork.mismatch(name)


def forked(
    config: Config, seed: int, run: engine.RunState, rows: ClientTable, start: Start, say: Callable[[str], None]
) -> tuple[engine.RunState, Extra]:
    """Returns a fresh state that continues the checkpoint of --fork_from with server and client states, and its counts.

    The state of a wrapper (a window, an average) that the other run did not have starts from the checkpoint's model,
    and so do observers unless both runs have the same; everything else must be in the checkpoint, or UserError.
    `start` leaves windows as much room as `run` has.
    """
    fork = _Fork(config, seed)
    source = fork.source
    if run.observers and not fork.same_observers:
        say(f"seed {seed}: the observers start at round {source.round}; {source.directory} has other observers")
    if config.clock and "simulated" not in fork.counts:
        say(f"seed {seed}: simulated_seconds count from round {source.round} on; {source.directory} has no --clock")

    def continued(run: engine.RunState) -> engine.RunState:
        own = fork.leaves(rows.checkpoint_form(run))
        return from_leaves(own, table_template(without_vectors(run), own))

    first = continued(run)
    # Rows of clients that had not taken part are those of round 0, an average that only this run has begins here.
    table = run.table if has_all_clients(fork.saved) else start(seed, rows.slots).table
    run = start(seed, 1, placed(Variables(first.params, first.stats)))._replace(table=table)
    return rows.restore(continued(run), run), fork.counts


def accounted(config: Config, privacy: Privacy | None, federations: dict[int, Federation]) -> Privacy | None:
    """Returns the guarantee of a run with the rounds that were accounted in the run that it starts from.

    A fork continues the account. So does a warm start from a private model of the same clients, with other seeds: with
    the same it would draw the same cohorts and noise again. Otherwise the guarantee says that it counts one run alone.

    Args:
      privacy: the guarantee of the run's own rounds; None for a run that is not private.

    Raises:
      UserError: a fork whose account can't be continued, or a start from a model that was trained on the same clients
        without privacy.
    """
    text = config.fork_from or config.init_from
    own = privacy and dataclasses.replace(privacy, seeds=tuple(config.seeds))
    if own is None or not text:
        return own
    source = fork_source(config) if config.fork_from else init_source(text)
    if isinstance(source, FileSource):
        return dataclasses.replace(own, alone=f"the model of {source.path} is taken as public")
    parent, hashes = directories.read_config(source.directory), directories.data_hashes(federations)
    of_seed = lambda seed: parent.identity.data.get(str(seed if config.fork_from else _seed_of(source, seed)))
    earlier = None if parent.privacy is None else restored(parent.privacy)
    refused = bool(config.fork_from)
    if any(of_seed(seed) != hashes[str(seed)] for seed in config.seeds):
        obstacle = f"its clients, or their examples, are not those of {source.directory} (they may share some)"
    elif earlier is None:
        obstacle, refused = f"{source.directory} has no account of its rounds on the same clients (--wrap=dp)", True
    elif earlier.neighbors != own.neighbors:
        obstacle = f"the guarantee of {source.directory} has neighbors={earlier.neighbors}"
    elif not config.fork_from and (again := set(own.seeds) & set(earlier.seeds)):
        obstacle = f"seed {min(again)} draws the cohorts and noise of {source.directory} again"
    else:
        before, since = earlier.spent(source.round), source.round if config.fork_from else 0
        together = tuple(sorted({*earlier.seeds, *own.seeds}))
        return dataclasses.replace(own, before=before, since=since, alone=earlier.alone, seeds=together)
    if refused:
        raise UserError(
            f"{'fork_from' if config.fork_from else 'init_from'}={text}: dp accounts for all rounds, and {obstacle}; "
            f"start from a private run on the same clients, or without another run."
        )
    return dataclasses.replace(own, alone=obstacle)


class _Fork:
    """The checkpoint of --fork_from for one seed.

    Attributes:
      source: names the other run and its round.
      saved: name -> leaf of its checkpoint.
      same_observers, same_algorithm: whether both runs have the same ones; same_method: whatever its parameters are.
      is_asynchronous: whether the run that starts is.
      remedy: names the other run's flags that decide what a state holds, where they differ.
      counts: what the fork continues to count: bytes, clients that took part, simulated seconds if it has a clock.
    """

    def __init__(self, config: Config, seed: int):
        self.source = fork_source(config)
        self.saved, extra = self.source.checkpoints("fork_from", seed).load(self.source.round)
        since = {"rounds": self.source.round, "sizes": [], "staleness": []}
        self.counts: Extra = {name: extra[name] for name in ("bytes", "simulated") if name in extra}
        self.counts["attendance"] = extra.get("attendance", {}) | since
        other = directories.read_config(self.source.directory).config
        # Names and shapes do not identify a window: the same ring may serve several lengths.
        self.same_observers = other["observe"] == config.observe
        self.same_algorithm = other["algorithm"] == config.algorithm
        self.same_method = parse(other["algorithm"]).name == parse(config.algorithm).name
        self.is_asynchronous = bool(config.asynchronous)
        changed = (name for name in _STATE_FLAGS if other[name] != getattr(config, name))
        flags = " ".join(f"--{name}={directories.written(other[name])}" for name in changed)
        self.remedy = f"that run has {flags}" if flags else "keep its model, algorithm, wrappers and precision"
        check_same_server(config, other)
        if other.get("asynchronous") and not self.is_asynchronous:  # nobody trains from an old model
            kept = (name for name in self.saved if not name.startswith(OLD_MODELS))
            self.saved = {re.sub(r"^state\.inner", "state", name): self.saved[name] for name in kept}
        init_from = other.get("init_from")
        if init_from and not has_all_clients(self.saved):
            raise UserError(
                f"fork_from: {self.source.directory} started with init_from={init_from}, and its checkpoint has no "
                f"rows of clients that had not taken part; run it with --table=device to fork it."
            )

    def leaves(self, own: engine.RunState) -> Leaves:
        """Returns the leaves of the forked run's first state, from its fresh state in the form of a checkpoint."""
        forked: Leaves = {}
        used = set()
        method = _of_algorithm("state", own.state), _of_algorithm("table.rows", getattr(own.table, "rows", ()))
        for name, value in (fresh := named_leaves(own)).items():
            # A wrapper that the other run did not have wraps its own state around the algorithm's.
            match = next((found for found in (name, *unwrapped_names(name)) if found in self.saved), None)
            if _field(name) == "observers" and not self.same_observers:
                match = None
            elif match is None and _field(name) in ("params", "stats", "table"):
                raise self.mismatch(name)
            elif match and not self.same_method and name.startswith(method):
                raise self.mismatch(name)  # arrays of the same name and shape mean something else in another algorithm
            forked[name] = self.saved[match] if match else value
            if self.is_asynchronous and name.startswith(OLD_MODELS):
                forked[name] = resized_ring(forked[name], len(value), self.source.round)
            used.add(match)
        for name in self.saved:
            if _field(name) in ("params", "stats", "state", "table") and name not in used:
                raise self.mismatch(name)
        resizable = {"observers": own.observers if self.same_observers else ()}
        resizable["state"] = own.state if self.same_algorithm else ()
        return with_resized_rings(forked, resizable) | {"key": fresh["key"]}

    def mismatch(self, name: str) -> UserError:
        """Returns the error for a leaf that one of the two runs lacks, or has with another shape."""
        return UserError(f"fork_from: '{name}' does not match that of {self.source.directory}; {self.remedy}.")


def _of_algorithm(name: str, node: PyTree) -> str:
    """Returns how the names of an algorithm's own leaves begin in a state or row, inside those of its wrappers."""
    return _of_algorithm(f"{name}.inner", node.inner) if hasattr(node, "inner") else name


def _field(name: str) -> str:
    return name.partition(".")[0]
