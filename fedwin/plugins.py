"""Code of the user's own: modules and files that register algorithms, wrappers, observers, data sets and so on.

`--import=my_methods`, `Config(imports=["my_methods.py"])` and `fedwin.load_plugins(["my_methods.py"])` name them;
packages announce theirs by an entry point of the group `fedwin.plugins`.
"""

import hashlib
import importlib
import importlib.metadata
import importlib.util
import pathlib
import sys
import traceback
import types
import warnings
from collections.abc import Iterable, Sequence

from fedwin.algorithms import ALGORITHMS
from fedwin.augment import AUGMENTATIONS
from fedwin.data import DATASETS, PARTITIONS
from fedwin.errors import UserError
from fedwin.losses import LOSSES
from fedwin.models import MODELS
from fedwin.observers import OBSERVERS
from fedwin.wrappers import WRAPPERS

GROUP = "fedwin.plugins"

# They are full before a plug-in is run: a name that is taken is refused at the line that takes it.
REGISTRIES = (ALGORITHMS, AUGMENTATIONS, DATASETS, LOSSES, MODELS, OBSERVERS, PARTITIONS, WRAPPERS)

# Real path of a file -> its hash when it was run: what has been registered can't be registered again.
_loaded: dict[pathlib.Path, str] = {}


def load(imports: Sequence[str] = ()) -> dict[str, str]:
    """Runs what a user registers, and what installed packages announce; loading twice is harmless.

    Args:
      imports: names of modules (`my_methods`, also of one in the working directory) or paths of `.py` files.

    Returns:
      name -> hash of the source, for each import and each entry point.

    Raises:
      UserError: when a file is missing, has a syntax error, raises an exception or shares its name with another module.
    """
    if isinstance(imports, str) or not isinstance(imports, Iterable):
        raise UserError(f"imports={imports!r} must be a list, such as ['my_methods.py'].")
    found = _announced()
    for text in imports:
        if not isinstance(text, str):
            raise UserError(f"imports: {text!r} must be text, the name of a module or of a .py file.")
        module = _from_file(text) if _is_path(text) else _by_name(text)
        found[text] = _hash_of(module)
    return found


def _is_path(text: str) -> bool:
    return text.endswith(".py") or "/" in text or "\\" in text


def _announced() -> dict[str, str]:
    """Loads every entry point; one that is broken is named in a warning, because the run may not need it."""
    found = {}
    for point in importlib.metadata.entry_points(group=GROUP):
        try:
            loaded = point.load()
            if isinstance(loaded, types.FunctionType):
                loaded()
            found[point.name] = _hash_of(sys.modules[point.module])
        except Exception as error:  # a stranger's code may raise anything
            warnings.warn(f"the plug-in {point.name} ({point.value}) is left out: {_told(error)}", stacklevel=2)
    return found


def _from_file(text: str) -> types.ModuleType:
    """Runs a `.py` file as the module of its name; modules beside it can be imported by it."""
    path = pathlib.Path(text).expanduser()
    if not path.is_file():
        raise UserError(f"import={text}: there is no such file in {path.absolute().parent}; check the path.")
    path, name = path.resolve(), path.stem
    if not name.isidentifier():
        raise UserError(
            f"import={text}: '{name}' is not the name of a module; rename the file to letters, digits and _."
        )
    if (module := sys.modules.get(name)) is not None and _source(module) == path:
        return module
    _refuse_shadow(text, name, path)
    if str(path.parent) not in sys.path:
        sys.path.append(str(path.parent))
    spec = importlib.util.spec_from_file_location(name, path)
    if spec is None or spec.loader is None:
        raise UserError(f"import={text}: this is not a file of Python code; name a .py file.")
    module = importlib.util.module_from_spec(spec)
    sys.modules[name] = module
    with _Guard(text, name):
        spec.loader.exec_module(module)
    return module


def _by_name(name: str) -> types.ModuleType:
    """Imports a module by its name; one in the working directory is found too."""
    here = pathlib.Path.cwd()
    top = name.partition(".")[0]
    own = next((p for p in (here / f"{top}.py", here / top / "__init__.py") if p.is_file()), None)
    if own is not None:
        _refuse_shadow(name, top, own.resolve())
        if str(here) not in sys.path:
            sys.path.append(str(here))
    try:
        spec = importlib.util.find_spec(name)
    except (ImportError, ValueError):
        spec = None
    if spec is None:
        raise UserError(
            f"import={name}: there is no module of this name; name one that is installed or in {here}, or a .py file."
        )
    with _Guard(name, name):
        return importlib.import_module(name)


def _refuse_shadow(text: str, name: str, path: pathlib.Path) -> None:
    """Raises UserError if another module has the name of the user's file: one of them would take the other's place."""
    try:
        spec = importlib.util.find_spec(name)
    except (ImportError, ValueError):  # a module that was made by hand has no spec
        spec = None
    if spec is None:
        other = sys.modules.get(name)
        origin = _source(other) if other is not None else None
        if other is None:
            return
    else:
        origin = pathlib.Path(spec.origin).resolve() if spec.origin not in (None, "built-in", "frozen") else None
    if origin != path:
        where = origin or "Python itself"
        raise UserError(f"import={text}: a module '{name}' exists already ({where}); give {path.name} another name.")


class _Guard:
    """Turns whatever an import raises into one line, and takes back what it registered before."""

    def __init__(self, text: str, name: str):
        self.text, self.name = text, name

    def __enter__(self) -> None:
        self.before = [dict(registry) for registry in REGISTRIES]

    def __exit__(self, kind, error, trace) -> None:
        if not isinstance(error, (Exception, SystemExit)):
            return
        sys.modules.pop(self.name, None)
        for registry, before in zip(REGISTRIES, self.before):
            for name in registry.keys() - before.keys():
                del registry[name]
        raise UserError(f"import={self.text}: {_told(error)}") from error


def _told(error: BaseException) -> str:
    """Returns an exception in one line, with the place in the source where it was raised."""
    if isinstance(error, SyntaxError) and error.filename:
        return f"{type(error).__name__} in {error.filename}:{error.lineno}: {error.msg}."
    frames = [f for f in traceback.extract_tb(error.__traceback__) if "importlib" not in f.filename]
    # The last line of the user's own: below it stand those of libraries that it called.
    outside = [f for f in frames if not _is_library(f.filename)] or frames
    place = f" in {outside[-1].filename}:{outside[-1].lineno}" if outside else ""
    said = (str(error).splitlines() or [""])[0]
    return f"{type(error).__name__}{place}: {said.rstrip('.') or 'no message'}."


def _is_library(filename: str) -> bool:
    own = str(pathlib.Path(__file__).parent)
    return filename.startswith((own, sys.prefix, sys.base_prefix, "<"))


def _source(module: types.ModuleType) -> pathlib.Path | None:
    file = getattr(module, "__file__", None)
    return pathlib.Path(file).resolve() if file else None


def _hash_of(module: types.ModuleType) -> str:
    """Returns the hash of a module's source (of a package: of all its files) as it was when it was loaded."""
    source = _source(module)
    if source is None:
        return hashlib.blake2b(module.__name__.encode(), digest_size=8).hexdigest()
    files: Iterable[pathlib.Path] = [source]
    if source.name == "__init__.py":
        files = sorted(source.parent.rglob("*.py"))
    h = hashlib.blake2b(digest_size=8)
    for path in files:
        h.update(path.relative_to(source.parent).as_posix().encode() + b"\0" + path.read_bytes())
    now = h.hexdigest()
    before = _loaded.setdefault(source, now)
    if now != before:
        warnings.warn(f"{source} has changed since it was loaded; start Python again to use the new code", stacklevel=3)
    return before
