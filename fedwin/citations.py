"""BibTeX of the methods, models and data sets of a run: `citation("scaffold")`, `citation(config)`."""

from fedwin.algorithms import ALGORITHMS
from fedwin.data import DATASETS
from fedwin.errors import UserError
from fedwin.models import ADAPTATIONS, MODELS
from fedwin.registry import Choice, Entry, Registry, nearest
from fedwin.registry.choices import as_choice
from fedwin.runs.choices import REGISTRIES
from fedwin.runs.config import Config

# Field of Config -> the registry of its choices.
FIELDS: dict[str, Registry] = {
    "algorithm": ALGORITHMS,
    **REGISTRIES,
    "model": MODELS,
    "lora": ADAPTATIONS,
    "dataset": DATASETS,
}


def _name(choice: str | Choice) -> str:
    return as_choice(choice, "citation").name.lower()


def _entries_named(choice: str | Choice) -> list[Entry]:
    """Returns the entries of a name, several if registries share it (a wrapper and an observer, for instance)."""
    name = _name(choice)
    entries = [registry.entries[name] for registry in FIELDS.values() if name in registry]
    if not entries:
        known = (entry for registry in FIELDS.values() for entry in registry.entries.values())
        cited = sorted({entry.name for entry in known if entry.papers})
        raise UserError(f"no citation for '{name}'.{nearest(name, cited)} Known: {', '.join(cited)}.")
    return entries


def _entries_of_run(config: Config) -> list[Entry]:
    """Returns the entry of a run's algorithm, and those of parts that have a paper; UserError for an unknown part."""
    entries = []
    for field, registry in FIELDS.items():
        value = getattr(config, field)
        if registry is ADAPTATIONS:
            value = "lora" if value else ""
        for name in (_name(text) for text in (value if isinstance(value, list) else [value]) if text):
            # Data and models may be given as objects, whose names are not registered.
            if name not in registry and registry not in (MODELS, DATASETS):
                known = nearest(name, registry.entries)
                raise UserError(f"no citation for {registry.kind} '{name}'.{known}")
            entries += [registry.entries[name]] if name in registry else []
    return [entry for entry in entries if entry.papers or entry.name in ALGORITHMS]


def citation(*items: str | Choice | Config) -> str:
    """Returns the BibTeX of methods, wrappers, observers, losses, models, data sets and partitions, every paper once.

    An item without a paper gives a comment line.

    >>> print(citation("fedavg").partition(",")[0])
    @inproceedings{mcmahan2017communication

    Args:
      items: names, whose parameters (`name:key=value`) are ignored, or Configs, which stand for all parts of their run.

    Raises:
      UserError: for an unknown name.
    """
    lines: dict[str, None] = {}
    for item in items:
        is_run = isinstance(item, Config)
        entries = _entries_of_run(item) if isinstance(item, Config) else _entries_named(item)
        papers = [paper.entry() for entry in entries for paper in entry.papers]
        without_paper = [entry.name for entry in entries[:1] if not entry.papers] if is_run or not papers else []
        lines |= dict.fromkeys([*(f"% {name} was registered without a paper." for name in without_paper), *papers])
    return "\n\n".join(lines)
