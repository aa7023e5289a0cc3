"""Starting a run from another run's checkpoint."""

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
from fedwin.runs.config import Config


def fork_source(config: Config) -> tuple[pathlib.Path, int]:
    """Returns (directory, round) of --fork_from.

    Raises:
      UserError: a seed's checkpoint is missing or comes too late.
    """
    directory, _, round = config.fork_from.rpartition("@")
    if not directory or not (round.isascii() and round.isdecimal()):
        raise UserError(
            f"fork_from='{config.fork_from}' is not DIR@ROUND; name a run's directory and a round, e.g. runs/a@100."
        )
    if int(round) >= config.num_rounds:
        raise UserError(
            f"fork_from={config.fork_from}: num_rounds={config.num_rounds} leaves nothing to train; raise --num_rounds."
        )
    for seed in config.seeds:
        where = pathlib.Path(directory) / "checkpoints" / f"seed_{seed}"
        try:
            rounds = Checkpoints(where).rounds()
        except OSError as error:
            raise UserError(f"fork_from: {where} can't be read ({error.strerror}); check the path.") from error
        if int(round) not in rounds:
            available = ", ".join(map(str, rounds)) or "none"
            raise UserError(f"fork_from: {where} has no checkpoint of round {round}; it has: {available}.")
    return pathlib.Path(directory), int(round)


def fork_round(config: Config) -> int:
    """Returns the round that a run begins at: 0, or that of --fork_from."""
    return int(config.fork_from.rpartition("@")[2]) if config.fork_from else 0


_TEXT = re.compile(r"(?P<directory>.+)@(?P<round>[0-9]{1,18})(?::part=(?P<part>\w+))?", re.ASCII | re.DOTALL)


class WarmStartSource(NamedTuple):
    """What --init_from names.

    Attributes:
      directory: the other run's.
      round: of its checkpoint.
      part: 'all', 'features' (all but the classifier, and the statistics) or 'classifier'.
    """

    directory: pathlib.Path
    round: int
    part: str


@dataclasses.dataclass(frozen=True)
class WarmStart:
    """What one seed takes from another run.

    Attributes:
      source: where from.
      seed: of the other run.
      leaves: name -> array, as checkpoints name them.
    """

    source: WarmStartSource
    seed: int
    leaves: dict[str, np.ndarray]

    def __str__(self) -> str:
        what = {"all": "parameters", "features": "features", "classifier": "classifier"}[self.source.part]
        return f"the {what} of {self.source.directory}, seed {self.seed}, round {self.source.round}"

    @property
    def digest(self) -> str:
        """A hash of what is taken."""
        return checksum(self.leaves)

    def into(self, model: Variables) -> Variables:
        """Returns a model with what is taken in the place of its own; may be traced."""
        return jax.tree_util.tree_map_with_path(
            lambda path, leaf: jnp.asarray(self.leaves[leaf_name(path)]) if leaf_name(path) in self.leaves else leaf,
            model,
        )

    def into_state(self, state, model: Variables):
        """Returns a server state whose averages of models, which begin with the initial one, have its statistics.

        Args:
          state: as `Algorithm.init` made it of the parameters, with statistics of the network's own.
          model: the initial model.
        """
        own = lambda: jax.tree.map(jnp.copy, model.stats)
        return jax.tree.map(
            lambda node: node._replace(stats=own()) if _is_model(node) else node, state, is_leaf=_is_model
        )


def _is_model(node) -> bool:
    return isinstance(node, Variables)


def parse_init_from(text: str) -> WarmStartSource:
    """Reads DIR@ROUND or DIR@ROUND:part=PART.

    Raises:
      UserError: for anything else.
    """
    match = _TEXT.fullmatch(text)
    if not match:
        raise UserError(
            f"init_from='{text}' is not DIR@ROUND:part=PART; name a run's directory and a round, e.g. "
            f"runs/a@100:part=features."
        )
    part = match["part"] or "all"
    if part not in PARTS:
        raise UserError(f"init_from={text}: part={part} must be one of {', '.join(PARTS)}.")
    return WarmStartSource(pathlib.Path(match["directory"]), int(match["round"]), part)


def _seed_of(source: WarmStartSource, seed: int) -> int:
    """Returns the seed of the other run that `seed` takes its model from: the same, or the only one that there is."""
    where = source.directory / "checkpoints"
    try:
        found = sorted(int(path.name[5:]) for path in where.iterdir() if re.fullmatch(r"seed_[0-9]+", path.name))
    except OSError as error:
        raise UserError(f"init_from: {where} can't be read ({error.strerror}); check the path.") from error
    if seed not in found and len(found) != 1:
        raise UserError(
            f"init_from: {where} has no seed {seed}, and not just one; it has: {', '.join(map(str, found)) or 'none'}."
        )
    return seed if seed in found else found[0]


def _load(source: WarmStartSource, seed: int) -> dict[str, np.ndarray]:
    checkpoints = Checkpoints(source.directory / "checkpoints" / f"seed_{seed}")
    try:
        rounds = checkpoints.rounds()
    except OSError as error:
        raise UserError(f"init_from: {checkpoints.shown} can't be read ({error.strerror}); check the path.") from error
    if source.round not in rounds:
        available = ", ".join(map(str, rounds)) or "none"
        raise UserError(
            f"init_from: {checkpoints.shown} has no checkpoint of round {source.round}; it has: {available}."
        )
    return checkpoints.load(source.round)[0]


def _wanted(source: WarmStartSource, model: Model) -> dict[str, Any]:
    """Returns name -> shape of the leaves that are taken, by the same division as `wima:part=`."""
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
            jax.tree.map(lambda below: below != features, mask), jax.tree.map(lambda leaf: features, own.stats)
        )
    named = jax.tree_util.tree_leaves_with_path(own)
    return {leaf_name(path): leaf for (path, leaf), take in zip(named, jax.tree.leaves(chosen), strict=True) if take}


def _check_fit(source: WarmStartSource, model: Model, wanted: dict[str, Any], found: dict[str, np.ndarray]) -> None:
    """Raises UserError unless the other run's model has the wanted leaves, and no others in their part."""
    remedy = "begin with the same network, or take another part"
    for name, like in wanted.items():
        if name not in found:
            raise UserError(f"init_from: the model of {source.directory} has no '{name}'; {remedy}.")
        value = found[name]
        if value.shape != like.shape or value.dtype != like.dtype:
            raise UserError(
                f"init_from: '{name}' is {value.dtype}{list(value.shape)} in {source.directory} and "
                f"{like.dtype}{list(like.shape)} here; {remedy}."
            )
    classifier = ".".join(("params", *model.classifier_path, ""))
    for name in found.keys() - wanted.keys():
        is_model, below = name.partition(".")[0] in ("params", "stats"), name.startswith(classifier)
        if is_model and (source.part == "all" or below == (source.part == "classifier")):
            raise UserError(f"init_from: '{name}' of {source.directory} has no place in this model; {remedy}.")


def warm_starts(config: Config, model: Model) -> dict[int, WarmStart]:
    """Returns seed -> what it takes from another run; {} without --init_from.

    Args:
      config: the flags.
      model: the network.

    Raises:
      UserError: no such run or round, or leaves that do not fit the model.
    """
    if not config.init_from:
        return {}
    source = parse_init_from(config.init_from)
    wanted = _wanted(source, model)
    taken = {}
    for seed in config.seeds:
        other = _seed_of(source, seed)
        found = _load(source, other)
        _check_fit(source, model, wanted, found)
        taken[seed] = WarmStart(source, other, {name: np.asarray(found[name]) for name in wanted})
    return taken
