"""Plug-ins: loads user modules that register algorithms, wrappers, observers, data sets and so on.

`--import=my_methods`, `Config(imports=["my_methods.py"])` and `fedwin.load_plugins(["my_methods.py"])` name them;
installed packages declare theirs with an entry point of the group `fedwin.plugins`.
"""

import contextlib
import hashlib
import importlib
import importlib.metadata
import importlib.util
import os
import pathlib
import sys
import types
import warnings
from collections.abc import Iterable, Iterator, Sequence

from fedwin.aggregation import AGGREGATORS, ATTACKS
from fedwin.algorithms import ALGORITHMS
from fedwin.augment import AUGMENTATIONS
from fedwin.callbacks import STOPPING_RULES, TRACKERS
from fedwin.clock import CLOCKS
from fedwin.data import DATASETS, DRIFTS, PARTITIONS, SHIFTS
from fedwin.errors import UserError, describe
from fedwin.local import LOCAL_WORK
from fedwin.losses import LOSSES
from fedwin.models import MODELS
from fedwin.observers import OBSERVERS
from fedwin.personalization import PERSONALIZERS
from fedwin.sampling import SAMPLERS
from fedwin.wrappers import ASYNCHRONOUS, WRAPPERS

GROUP = "fedwin.plugins"

# List of `fedwin list` -> registry. Imported here so that they are filled before plug-ins, which can take no such name.
REGISTRIES = {
    "algorithms": ALGORITHMS,
    "models": MODELS,
    "datasets": DATASETS,
    "partitions": PARTITIONS,
    "shifts": SHIFTS,
    "drifts": DRIFTS,
    "observers": OBSERVERS,
    "wrappers": WRAPPERS,
    "personalizers": PERSONALIZERS,
    "aggregators": AGGREGATORS,
    "attacks": ATTACKS,
    "losses": LOSSES,
    "augmentations": AUGMENTATIONS,
    "samplers": SAMPLERS,
    "local_work": LOCAL_WORK,
    "clocks": CLOCKS,
    "asynchronous": ASYNCHRONOUS,
    "stopping": STOPPING_RULES,
    "trackers": TRACKERS,
}

# Real path of a file -> its hash when it was loaded; a changed file cannot be loaded again in the same process.
_loaded_hashes: dict[pathlib.Path, str] = {}


def load(imports: Sequence[str] = ()) -> dict[str, str]:
    """Loads modules and files that register user code, and the entry points of installed packages.

    Loading a plug-in again has no effect.

    Args:
      imports: names of modules (installed or in the working directory) or paths of `.py` files.

    Returns:
      name -> hash of the source, for each import and each entry point.

    Raises:
      UserError: when a file is missing, has a syntax error, raises an exception or shares its name with another module.
    """
    if isinstance(imports, str) or not isinstance(imports, Iterable):
        raise UserError(f"imports={imports!r} must be a list, such as ['my_methods.py'].")
    hashes = _load_entry_points()
    for text in imports:
        if not isinstance(text, str):
            raise UserError(f"imports: {text!r} must be text, the name of a module or of a .py file.")
        module = _from_file(text) if _is_path(text) else _by_name(text)
        hashes[text] = _hash_of(module)
    return hashes


def load_for(directory, recorded: Sequence[str], imports: Sequence[str] = ()) -> None:
    """Loads the user's imports, and checks that they include those that a run's directory names.

    A directory is data: nothing is imported because config.json names it.

    Args:
      recorded: the imports in its config.json.
      imports: what the user names; imports that are loaded already need no repetition.

    Raises:
      UserError: when the directory needs a file or module that has not been loaded.
    """
    load(imports)
    for text in recorded:  # the name of a module, or of a file in any folder
        name = str(text).replace("\\", "/").rpartition("/")[2].removesuffix(".py") if _is_path(str(text)) else str(text)
        if name not in sys.modules:
            raise UserError(
                f"{directory} uses the code of {text}, which a directory alone does not import; if you trust it, name "
                f"it: --import={text}, in Python imports=[{str(text)!r}]."
            )


def _is_path(text: str) -> bool:
    return text.endswith(".py") or "/" in text or "\\" in text


def _load_entry_points() -> dict[str, str]:
    """Loads every entry point; a broken one gives a warning only, because the run may not need it."""
    hashes = {}
    for point in importlib.metadata.entry_points(group=GROUP):
        try:
            loaded = point.load()
            if isinstance(loaded, types.FunctionType):
                loaded()
            hashes[point.name] = _hash_of(sys.modules[point.module])
        except Exception as error:  # user code may raise anything
            warnings.warn(f"the plug-in {point.name} ({point.value}) is left out: {describe(error)}", stacklevel=2)
    return hashes


def _from_file(text: str) -> types.ModuleType:
    """Loads a `.py` file as the module of its name; it can import modules in its folder."""
    path = pathlib.Path(text).expanduser()
    if not os.path.isfile(path):  # False for a name that is too long, too
        raise UserError(f"import={text}: there is no such file in {path.absolute().parent}; check the path.")
    path, name = path.resolve(), path.stem
    if not name.isidentifier():
        raise UserError(f"import={text}: '{name}' is not the name of a module; use letters, digits and _.")
    if (module := sys.modules.get(name)) is not None and _source(module) == path:
        return module
    _refuse_shadow(text, name, path)
    if str(path.parent) not in sys.path:
        sys.path.append(str(path.parent))
    spec = importlib.util.spec_from_file_location(name, path)
    if spec is None or spec.loader is None:
        raise UserError(f"import={text}: this is not a file of Python code; name a .py file.")
    module = importlib.util.module_from_spec(spec)
    with _guarded(text, name):
        sys.modules[name] = module
        spec.loader.exec_module(module)
    return module


def _by_name(name: str) -> types.ModuleType:
    """Imports a module by name, installed or in the working directory."""
    folder = pathlib.Path.cwd()
    top = name.partition(".")[0]
    local = next((p for p in (folder / f"{top}.py", folder / top / "__init__.py") if os.path.isfile(p)), None)
    if local is not None:
        _refuse_shadow(name, top, local.resolve())
        if str(folder) not in sys.path:
            sys.path.append(str(folder))
    with _guarded(name, top):
        if _spec(top) is not None:  # not left to find_spec, where a parent's ImportError means that there is no module
            importlib.import_module(name.rpartition(".")[0] or name)
        if _spec(name) is not None:
            return importlib.import_module(name)
    raise UserError(
        f"import={name}: there is no module of this name; name one that is installed or in {folder}, or a .py file."
    )


def _spec(name: str):
    """Returns the spec of a module; None if there is none, or if it was made by hand and has no spec."""
    try:
        return importlib.util.find_spec(name)
    except (ImportError, ValueError):
        return None


def _refuse_shadow(text: str, name: str, path: pathlib.Path) -> None:
    """Raises UserError if the user's file has the name of another module, because one would replace the other."""
    if (spec := _spec(name)) is not None:
        origin = pathlib.Path(spec.origin).resolve() if spec.origin not in (None, "built-in", "frozen") else None
    elif (other := sys.modules.get(name)) is not None:
        origin = _source(other)
    else:
        return
    if origin != path:
        where = origin or "Python itself"
        raise UserError(f"import={text}: a module '{name}' exists already ({where}); give {path.name} another name.")


@contextlib.contextmanager
def _guarded(text: str, top: str) -> Iterator[None]:
    """Context of an import that converts exceptions to UserError and then removes what the import registered."""
    before, modules = [dict(registry) for registry in REGISTRIES.values()], set(sys.modules)
    try:
        yield
    except (Exception, SystemExit) as error:
        builders = [r.pop(name) for r, known in zip(REGISTRIES.values(), before) for name in r.keys() - known.keys()]
        registering = {getattr(builder, "__module__", top) for builder in builders}
        # A corrected import must execute them again, but libraries stay: some can't be imported twice.
        for name in sys.modules.keys() - modules:
            if name in registering or name.partition(".")[0] == top:
                del sys.modules[name]
        raise UserError(f"import={text}: {describe(error)}") from error


def _source(module: types.ModuleType) -> pathlib.Path | None:
    file = getattr(module, "__file__", None)
    return pathlib.Path(file).resolve() if file else None


def _hash_of(module: types.ModuleType) -> str:
    """Returns the hash of a module's source when it was loaded; for a package, of all its files."""
    source = _source(module)
    if source is None:
        return hashlib.blake2b(module.__name__.encode(), digest_size=8).hexdigest()
    files: Iterable[pathlib.Path] = [source]
    if source.name == "__init__.py":
        files = sorted(source.parent.rglob("*.py"))
    digest = hashlib.blake2b(digest_size=8)
    for path in files:
        digest.update(path.relative_to(source.parent).as_posix().encode() + b"\0" + path.read_bytes())
    current = digest.hexdigest()
    loaded = _loaded_hashes.setdefault(source, current)
    if current != loaded:
        warnings.warn(f"{source} has changed since it was loaded; start Python again to use the new code", stacklevel=3)
    return loaded
