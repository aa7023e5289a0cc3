"""Starting a run from another run's checkpoint: --fork_from (the complete state) and --init_from (the model)."""

import dataclasses
import pathlib
import re
from typing import Any, NamedTuple

import jax
import jax.numpy as jnp
import numpy as np

from fedwin.core import Variables
from fedwin.errors import UserError
from fedwin.models import Model
from fedwin.observers.wima import PARTS, classifier_mask
from fedwin.runs.checkpoint import Checkpoints, checksum, leaf_name
from fedwin.runs.checkpoint_format import Leaves
from fedwin.runs.config import Config

_SOURCE = re.compile(r"(?P<directory>.+)@(?P<round>[0-9]{1,18})(?::part=(?P<part>\w+))?", re.ASCII | re.DOTALL)


class Source(NamedTuple):
    """A checkpoint of another run, as --fork_from and --init_from name it: DIR@ROUND or DIR@ROUND:part=PART.

    Attributes:
      directory: the other run's directory.
      round: round of the checkpoint.
      part: 'all', 'features' (all but the classifier, and the statistics) or 'classifier'.
    """

    directory: pathlib.Path
    round: int
    part: str = "all"

    def checkpoints(self, flag: str, seed: int) -> Checkpoints:
        """Returns the checkpoints of a seed of the other run.

        Args:
          flag: name of the flag, for messages.
          seed: the other run's seed.

        Raises:
          UserError: there is no checkpoint of the round.
        """
        checkpoints = Checkpoints(self.directory / "checkpoints" / f"seed_{seed}")
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
    """Returns the checkpoint that --fork_from names.

    Raises:
      UserError: the flag is malformed, a seed has no such checkpoint, or the round is not before --num_rounds.
    """
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


def init_source(text: str) -> Source:
    """Returns the checkpoint that --init_from names.

    Args:
      text: DIR@ROUND or DIR@ROUND:part=PART.

    Raises:
      UserError: the text is malformed, or there is no such part.
    """
    match = _SOURCE.fullmatch(text)
    if not match:
        raise UserError(
            f"init_from='{text}' is not DIR@ROUND:part=PART; name a run's directory and a round, e.g. "
            f"runs/a@100:part=features."
        )
    part = match["part"] or "all"
    if part not in PARTS:
        raise UserError(f"init_from={text}: part={part} must be one of {', '.join(PARTS)}.")
    return Source(pathlib.Path(match["directory"]), int(match["round"]), part)


@dataclasses.dataclass(frozen=True)
class WarmStart:
    """The parameters that one seed takes from another run (--init_from).

    Attributes:
      source: the other run's checkpoint.
      seed: the other run's seed.
      leaves: name in checkpoints -> array.
    """

    source: Source
    seed: int
    leaves: dict[str, np.ndarray]

    def __str__(self) -> str:
        part = {"all": "parameters", "features": "features", "classifier": "classifier"}[self.source.part]
        return f"the {part} of {self.source.directory}, seed {self.seed}, round {self.source.round}"

    @property
    def digest(self) -> str:
        """A hash of the parameters."""
        return checksum(self.leaves)

    def into(self, model: Variables) -> Variables:
        """Returns the model with its parameters replaced; may be traced."""
        return jax.tree_util.tree_map_with_path(
            lambda path, leaf: jnp.asarray(self.leaves[leaf_name(path)]) if leaf_name(path) in self.leaves else leaf,
            model,
        )

    def into_state(self, state: Any, model: Variables) -> Any:
        """Returns a server state whose averages of models start with the statistics of the initial model.

        Args:
          state: the result of `Algorithm.init`, whose averages start with the network's own statistics.
          model: the initial model.
        """
        copied = lambda: jax.tree.map(jnp.copy, model.stats)
        return jax.tree.map(
            lambda node: node._replace(stats=copied()) if _is_model(node) else node, state, is_leaf=_is_model
        )


def _is_model(node: Any) -> bool:
    return isinstance(node, Variables)


def _seed_of(source: Source, seed: int) -> int:
    """Returns the other run's seed whose model `seed` starts from: the same, or the only one of the other run."""
    folder = source.directory / "checkpoints"
    try:
        seeds = sorted(int(path.name[5:]) for path in folder.iterdir() if re.fullmatch(r"seed_[0-9]+", path.name))
    except OSError as error:
        raise UserError(f"init_from: {folder} can't be read ({error.strerror}); check the path.") from error
    if seed not in seeds and len(seeds) != 1:
        available = ", ".join(map(str, seeds)) or "none"
        raise UserError(f"init_from: {folder} has no seed {seed}, and not exactly one; available: {available}.")
    return seed if seed in seeds else seeds[0]


def _wanted(source: Source, model: Model) -> Leaves:
    """Returns name -> shape of the leaves of the source's part, with the same parts as `wima:part=`."""
    own = jax.eval_shape(model.init, jax.random.key(0))
    if source.part == "all":
        chosen = jax.tree.map(lambda leaf: True, own)
    else:
        try:
            mask = classifier_mask(own.params, model.classifier_path)
        except UserError as error:
            raise UserError(f"init_from, part={source.part}: {error}") from error
        features = source.part == "features"
        chosen = Variables(
            jax.tree.map(lambda in_classifier: in_classifier != features, mask),
            jax.tree.map(lambda leaf: features, own.stats),
        )
    leaves = jax.tree_util.tree_leaves_with_path(own)
    return {leaf_name(path): leaf for (path, leaf), take in zip(leaves, jax.tree.leaves(chosen), strict=True) if take}


def _check_fit(source: Source, model: Model, wanted: Leaves, saved: Leaves) -> None:
    """Raises UserError unless the other run's model has exactly the wanted leaves in the source's part."""
    remedy = "use the same network, or choose another part"
    for name, like in wanted.items():
        if name not in saved:
            raise UserError(f"init_from: the model of {source.directory} has no '{name}'; {remedy}.")
        value = saved[name]
        if value.shape != like.shape or value.dtype != like.dtype:
            raise UserError(
                f"init_from: '{name}' is {value.dtype}{list(value.shape)} in {source.directory} and "
                f"{like.dtype}{list(like.shape)} here; {remedy}."
            )
    classifier = ".".join(("params", *model.classifier_path, ""))
    for name in saved.keys() - wanted.keys():
        is_model, in_classifier = name.partition(".")[0] in ("params", "stats"), name.startswith(classifier)
        if is_model and (source.part == "all" or in_classifier == (source.part == "classifier")):
            raise UserError(f"init_from: '{name}' of {source.directory} has no place in this model; {remedy}.")


def warm_starts(config: Config, model: Model) -> dict[int, WarmStart]:
    """Returns seed -> the parameters that it takes from another run; {} without --init_from.

    Args:
      config: the flags.
      model: the network.

    Raises:
      UserError: the run or round does not exist, or its leaves do not fit the model.
    """
    if not config.init_from:
        return {}
    source = init_source(config.init_from)
    wanted = _wanted(source, model)
    starts = {}
    for seed in config.seeds:
        other = _seed_of(source, seed)
        leaves, _ = source.checkpoints("init_from", other).load(source.round)
        _check_fit(source, model, wanted, leaves)
        starts[seed] = WarmStart(source, other, {name: np.asarray(leaves[name]) for name in wanted})
    return starts
