"""Architecture: imports point downwards, everything stays small, nothing global changes, tests mirror the packages."""

import ast
import collections
import graphlib
import importlib.util
import pathlib

import pytest

ROOT = pathlib.Path(__file__).parents[1]
MOST_LINES_OF_A_FUNCTION = 60
MOST_LINES_OF_A_MODULE = 500
MOST_MODULES_AT_THE_TOP = 15
MOST_MODULES_OF_A_PACKAGE = 20
# Lines of Python, with 2 % of room: they rise by what a new feature needs, and by nothing else.
MOST_LINES = {"fedwin": 37_400, "experiments": 15_511, "tests": 22_546}
MOST_LINES_OF_JAVASCRIPT = 150
# Packages with one file per entry or family: algorithms, networks, data sets, subcommands, a paper's tables.
CATALOGUES = (
    *("fedwin.algorithms", "fedwin.models.networks", "fedwin.data.sources"),
    *("fedwin.experiments", "fedwin.experiments.papers"),
)

# From bottom to top; a module imports from its own layer and from lower ones.
LAYERS = (
    ("errors",),
    ("tree", "jax_config"),
    ("files", "registry", "multi_process"),
    ("core",),
    ("window", "schedules", "rules", "losses", "augment"),
    ("local",),
    ("data",),
    ("models",),
    ("observers",),
    ("algorithms", "personalization", "wrappers", "aggregation"),
    ("residence", "sampling"),
    ("clock",),
    ("engine",),
    ("callbacks",),
    ("plugins", "launching"),
    ("runs",),
    ("analysis", "citations", "fedjax_bridge", "testing"),
    ("experiments",),
)
# The same inside of `experiments`, whose other modules, the subcommands, lie on top.
EXPERIMENTS = ("cli", "records", "launching", "figures", "tables", "papers", "reproduction", "viewer")
# The only module that changes jax's configuration, and for no longer than a call.
JAX_CONFIGURATION = {
    "fedwin.jax_config": "the library and its commands",
    "fedwin.experiments.tools.peers.fedjax_peer": "a process of its own",
}
# Module-level state that functions change -> why there is no better place.
MUTABLE = {"fedwin.plugins._loaded_hashes": "a user's module is imported once per process; its source is recorded then"}
# Tests of what all layers and binaries have in common.
ACROSS = ("misuse",)
# Methods that change a list, dict or set.
IN_PLACE = {"append", "add", "update", "setdefault", "pop", "popitem", "extend", "insert", "remove", "discard", "clear"}
HEIGHT = {name: height for height, names in enumerate(LAYERS) for name in names}


def sources() -> dict[str, pathlib.Path]:
    """Returns module -> file of both packages; `experiments` under the name it is installed by."""
    found = {}
    for package in ("fedwin", "experiments"):
        for path in sorted((ROOT / package).rglob("*.py")):
            parts = path.relative_to(ROOT).with_suffix("").parts
            name = ".".join(parts[:-1] if parts[-1] == "__init__" else parts)
            found[name if package == "fedwin" else f"fedwin.{name}"] = path
    return found


SOURCES = sources()


# Parsed when the first test runs: every worker imports this file, and few run its tests.
@pytest.fixture(scope="module")
def trees() -> dict[str, ast.Module]:
    return {name: ast.parse(path.read_text()) for name, path in SOURCES.items()}


def imported(module: str, node: ast.AST) -> list[str]:
    """Returns the modules of the package that one import statement names."""
    if isinstance(node, ast.Import):
        names = [alias.name for alias in node.names]
    elif isinstance(node, ast.ImportFrom):
        package = module if SOURCES[module].name == "__init__.py" else module.rpartition(".")[0]
        base = importlib.util.resolve_name("." * node.level + (node.module or ""), package)
        full = [f"{base}.{alias.name}" for alias in node.names if alias.name != "__version__"]
        names = [name if name in SOURCES else base for name in full]
    else:
        return []
    return [name for name in names if name == "fedwin" or name.startswith("fedwin.")]


def edges(trees: dict[str, ast.Module], module: str) -> list[tuple[str, int]]:
    """Returns (imported module, line) of every import anywhere in a module."""
    return [(name, node.lineno) for node in ast.walk(trees[module]) for name in imported(module, node)]


def layer(module: str) -> str:
    return module.split(".")[1] if "." in module else ""


def place(module: str, line: int) -> str:
    return f"{SOURCES[module].relative_to(ROOT)}:{line}"


def functions(tree: ast.AST) -> list[ast.FunctionDef | ast.AsyncFunctionDef]:
    return [node for node in ast.walk(tree) if isinstance(node, (ast.FunctionDef, ast.AsyncFunctionDef))]


def test_every_layer_has_its_height():
    assert {layer(module) for module in SOURCES} - {""} == set(HEIGHT)


def test_imports_go_downwards(trees):
    """A package imports from those below it; the root package, which only loads lazily, belongs to what lies on top."""
    upwards = [
        f"{place(module, line)}: {layer(module)} imports {name}"
        for module in SOURCES
        if layer(module)
        for name, line in edges(trees, module)
        if layer(name) != layer(module)
        and (HEIGHT[layer(name)] if layer(name) else HEIGHT["runs"]) >= HEIGHT[layer(module)]
    ]
    assert not upwards, "\n".join(upwards)


def test_the_root_imports_nothing_of_its_own(trees):
    assert not [name for name, _ in edges(trees, "fedwin") if name != "fedwin"]


def test_modules_import_in_no_circle(trees):
    """A package's __init__ gathers its modules; a module that needs another names it, not the package."""
    needs = {module: {name for name, _ in edges(trees, module) if name != module} for module in SOURCES}
    graphlib.TopologicalSorter(needs).prepare()  # raises CycleError, which names the modules of a circle


def test_no_import_of_the_package_inside_a_function(trees):
    inside = {
        f"{place(module, node.lineno)}: {name}"
        for module, tree in trees.items()
        for function in functions(tree)
        for node in ast.walk(function)
        for name in imported(module, node)
    }
    assert not inside, "\n".join(sorted(inside))


def code_lines(function: ast.FunctionDef | ast.AsyncFunctionDef) -> int:
    """Returns the lines of a function without its docstring: documentation is not what makes a function long."""
    first = function.body[0]
    documentation = first.end_lineno - first.lineno + 1 if ast.get_docstring(function) is not None else 0
    return function.end_lineno - function.lineno + 1 - documentation


def test_functions_are_short(trees):
    long = [
        f"{place(module, f.lineno)}: {f.name} has {code_lines(f)} lines"
        for module, tree in trees.items()
        for f in functions(tree)
        if code_lines(f) > MOST_LINES_OF_A_FUNCTION
    ]
    assert not long, "\n".join(long)


def test_modules_are_short():
    counts = {path.relative_to(ROOT): len(path.read_text().splitlines()) for path in SOURCES.values()}
    long = [f"{path} has {count} lines" for path, count in counts.items() if count > MOST_LINES_OF_A_MODULE]
    assert not long, "\n".join(long)


def test_packages_are_small():
    counts = collections.Counter(path.parent.relative_to(ROOT) for path in SOURCES.values())
    limits = dict.fromkeys(counts, MOST_MODULES_OF_A_PACKAGE) | {pathlib.Path("fedwin"): MOST_MODULES_AT_THE_TOP}
    limits |= dict.fromkeys((SOURCES[name].parent.relative_to(ROOT) for name in CATALOGUES), len(SOURCES))
    large = [f"{package} has {count} modules" for package, count in counts.items() if count > limits[package]]
    assert not large, "\n".join(large)


@pytest.mark.parametrize("package", MOST_LINES)
def test_the_project_is_small(package):
    lines = sum(len(path.read_text().splitlines()) for path in (ROOT / package).rglob("*.py"))
    assert lines <= 1.02 * MOST_LINES[package], f"{package} has {lines} lines; remove a concept"


def test_there_is_little_javascript():
    assert (
        sum(len(path.read_text().splitlines()) for path in ROOT.glob("experiments/**/*.js")) <= MOST_LINES_OF_JAVASCRIPT
    )


def test_imports_of_experiments_go_downwards(trees):
    height = lambda module: (
        EXPERIMENTS.index(part) if (part := module.split(".")[2]) in EXPERIMENTS else len(EXPERIMENTS)
    )
    inner = [module for module in SOURCES if module.startswith("fedwin.experiments.")]
    upwards = [
        f"{place(module, line)}: imports {name}"
        for module in inner
        for name, line in edges(trees, module)
        if name in inner and height(name) > height(module)
    ]
    assert not upwards, "\n".join(upwards)


def changed_names(tree: ast.Module) -> set[str]:
    """Returns the names of a module that its functions rebind or change in place."""
    top = {
        target.id
        for node in tree.body
        if isinstance(node, (ast.Assign, ast.AnnAssign))
        for target in (node.targets if isinstance(node, ast.Assign) else [node.target])
        if isinstance(target, ast.Name)
    }
    changed: set[str] = set()
    for function in functions(tree):
        nodes = list(ast.walk(function))
        changed |= {name for node in nodes if isinstance(node, ast.Global) for name in node.names}
        own = {node.arg for node in nodes if isinstance(node, ast.arg)}
        own |= {node.id for node in nodes if isinstance(node, ast.Name) and isinstance(node.ctx, ast.Store)}
        for node in nodes:
            # name[...] = ..., del name[...], name.append(...) and the like
            value = None
            if isinstance(node, ast.Subscript) and not isinstance(node.ctx, ast.Load):
                value = node.value
            elif isinstance(node, ast.Call) and isinstance(node.func, ast.Attribute) and node.func.attr in IN_PLACE:
                value = node.func.value
            if isinstance(value, ast.Name) and value.id in top - own:
                changed.add(value.id)
    return changed


def test_no_module_has_state(trees):
    state = {f"{module}.{name}" for module, tree in trees.items() for name in changed_names(tree)}
    assert state == set(MUTABLE)


def test_jax_is_configured_in_one_place():
    configuring = {module for module, path in SOURCES.items() if "config.update(" in path.read_text()}
    assert configuring <= set(JAX_CONFIGURATION)


@pytest.mark.parametrize("folder", sorted(p.name for p in (ROOT / "tests").iterdir() if (p / "__init__.py").exists()))
def test_the_tests_mirror_the_package(folder):
    if folder in ACROSS:
        return
    above = ROOT if folder == "experiments" else ROOT / "fedwin"
    assert (above / folder).is_dir() or (above / f"{folder}.py").is_file(), f"tests/{folder} mirrors nothing"
