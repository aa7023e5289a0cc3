"""The flags of `fedwin train`: one for each field of Config."""

import dataclasses
from collections.abc import Callable
from typing import Any

from absl import flags

from fedwin.runs.config import Config

# Groups of --help in their order, with the fields that name none of their own.
GROUPS = {
    "what is trained": ("dataset", "data_dir", "model", "algorithm", "wrap", "loss", "num_rounds", "seeds"),
    "federation": ("partition", "num_clients", "clients_per_round", "partition_seed", "val_fraction"),
    "clients": (
        "local_epochs", "batch_size", "client_lr", "client_momentum", "client_optimizer", "weight_decay", "wd_in_loss",
        "lr_decay", "clip_norm", "augment", "batching", "shuffle",
    ),
    "server": ("server_lr", "weighting"),
    "read-outs": ("observe", "eval_every", "final_evals", "eval_examples", "eval_batch_size"),
    "running": ("strategy", "precision", "rounds_per_dispatch", "table", "examples", "stop_on_divergence"),
    "output": ("out_dir", "checkpoint_every", "keep_checkpoints", "fork_from"),
}  # fmt: skip
_OTHER = "other"
# `import` is a word of Python: the field has another name. Its flag is every binary's.
_FLAGS = {"imports": "import"}
_DEFINE: dict[type, Callable] = {
    bool: flags.DEFINE_bool,
    int: flags.DEFINE_integer,
    float: flags.DEFINE_float,
    str: flags.DEFINE_string,
}


def flag_of(field: str) -> str:
    """Returns the name of a field's flag."""
    return _FLAGS.get(field, field)


def default_of(field: dataclasses.Field) -> Any:
    """Returns the default of a field, a fresh one where it is a list."""
    if field.default is not dataclasses.MISSING:
        return field.default
    make: Any = field.default_factory
    return make()


def define(known: flags.FlagValues = flags.FLAGS) -> dict[str, list[str]]:
    """Defines a flag for every field; returns title -> names of flags."""
    usual = {name: title for title, names in GROUPS.items() for name in names}
    groups: dict[str, list[str]] = {title: [] for title in GROUPS}
    fields = {field.name: field for field in dataclasses.fields(Config) if field.name not in _FLAGS}
    grouped = any("group" in field.metadata for field in fields.values())
    order = [] if grouped else [name for names in GROUPS.values() for name in names if name in fields]
    for name in dict.fromkeys([*order, *fields]):
        field, default = fields[name], default_of(fields[name])
        told = field.metadata["help"]
        if name in ("wrap", "observe"):
            flags.DEFINE_multi_string(name, default, told, flag_values=known)
        elif isinstance(default, (list, tuple)):
            flags.DEFINE_list(name, [str(item) for item in default], told, flag_values=known)
        else:
            _DEFINE[type(default)](name, default, told, flag_values=known)
        title = field.metadata.get("group") or usual.get(name, _OTHER)
        groups.setdefault(title, []).append(name)
    return {title: names for title, names in groups.items() if names}


def config_from_flags(known: flags.FlagValues = flags.FLAGS) -> Config:
    """Returns the Config that the flags say."""
    names = [field.name for field in dataclasses.fields(Config) if flag_of(field.name) in known]
    values: dict[str, Any] = {name: known[flag_of(name)].value for name in names}
    return Config(**values)


def given(known: flags.FlagValues = flags.FLAGS) -> set[str]:
    """Returns the fields whose flags stand on the command line or in a flagfile."""
    names = [field.name for field in dataclasses.fields(Config)]
    return {name for name in names if flag_of(name) in known and known[flag_of(name)].present}
