"""BibTeX of what a run used: `citation("scaffold")`, `citation("fedhbm:first=shared", "wima")`, `citation(config)`."""

from fedwin.algorithms import ALGORITHMS
from fedwin.augment import AUGMENTATIONS
from fedwin.data import DATASETS, PARTITIONS
from fedwin.errors import UserError
from fedwin.losses import LOSSES
from fedwin.models import MODELS
from fedwin.observers import OBSERVERS
from fedwin.registry import Choice, Entry, Registry, nearest
from fedwin.registry.choices import as_choice
from fedwin.runs.config import Config
from fedwin.wrappers import WRAPPERS

# Where a bare name is looked up.
REGISTRIES: tuple[Registry, ...] = (
    ALGORITHMS,
    WRAPPERS,
    OBSERVERS,
    LOSSES,
    MODELS,
    DATASETS,
    PARTITIONS,
    AUGMENTATIONS,
)


def _name(choice: str | Choice) -> str:
    return as_choice(choice, "citation").name.lower()


def _named(choice: str | Choice) -> list[Entry]:
    """Returns the entries of a name, of which a wrapper and an observer may share one."""
    name = _name(choice)
    found = [registry.entries[name] for registry in REGISTRIES if name in registry]
    if not found:
        known = sorted({name for registry in REGISTRIES for name, entry in registry.entries.items() if entry.papers})
        raise UserError(f"no citation for '{name}'.{nearest(name, known)} Known: {', '.join(known)}.")
    return found


def _used(config: Config) -> list[Entry]:
    """Returns what a run is made of: its algorithm, and whatever else has a paper.

    Raises:
      UserError: for a wrapper, observer or loss that is unknown.
    """
    parts: tuple[tuple[Registry, list[str]], ...] = (
        (WRAPPERS, config.wrap),
        (OBSERVERS, config.observe),
        (LOSSES, [config.loss]),
        (MODELS, [config.model]),
        (DATASETS, [config.dataset]),
        (PARTITIONS, [config.partition]),
        (AUGMENTATIONS, [config.augment]),
    )
    found = [ALGORITHMS.entries[ALGORITHMS.check(config.algorithm).name]]
    for registry, texts in parts:
        # Data and models may be given as objects, under names that no registry has.
        own = registry in (MODELS, DATASETS)
        names = [_name(text) for text in texts if text]
        known = [_entry(registry, name) for name in names if not (own and name not in registry)]
        found += [entry for entry in known if entry.papers]
    return found


def _entry(registry: Registry, name: str) -> Entry:
    registry_entries = registry.entries
    if name not in registry_entries:
        raise UserError(f"no citation for {registry.kind} '{name}'.{nearest(name, registry_entries)}")
    return registry_entries[name]


def citation(*what: str | Choice | Config) -> str:
    """Returns the BibTeX of methods, wrappers, observers, losses, models, data sets and partitions, every paper once.

    What was registered without a paper is a comment line that says so.

    Args:
      what: names, whose parameters (`name:key=value`) are ignored, or a Config: all that its run uses.

    Raises:
      UserError: for an unknown name.
    """
    lines: dict[str, None] = {}
    for one in what:
        found = _used(one) if isinstance(one, Config) else _named(one)
        papers = [paper.entry() for entry in found for paper in entry.papers]
        bare = [entry.name for entry in found[:1] if not entry.papers] if isinstance(one, Config) or not papers else []
        lines |= dict.fromkeys([*(f"% {name} was registered without a paper." for name in bare), *papers])
    return "\n\n".join(lines)
