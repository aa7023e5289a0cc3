"""The command `fedwin`: finds and runs its subcommands."""

import difflib
import importlib
import importlib.util
import sys
from collections.abc import Sequence

# subcommand -> (module, what it does)
SUBCOMMANDS = {
    "train": ("train", "train one federated run; without flags the main job (handwritten digits)"),
    "compare": ("compare", "train several methods on the same seeds and print one table"),
    "reproduce": ("reproduce", "train, check and draw the tables and figures of four papers"),
    "sweep": ("sweep", "train every point of a grid over flags and name the best"),
    "list": ("list", "list algorithms, models, datasets, partitions, ..., presets, or the runs below a folder"),
    "curves": ("curves", "plot learning curves of runs and of stored results in one figure"),
    "figure": ("figure", "draw planes, lines, factors, forgetting, smoothness, targets, sweeps, label histograms"),
    "view": ("view", "show runs, sweeps, comparisons or stored results in the browser: one HTML file"),
    "partition": ("partition", "show how a partition splits a data set across clients"),
    "prepare": ("prepare", "download, verify and pack a data set"),
    "export": ("export", "write a trained model to a .safetensors or .npz file"),
    "citation": ("citation", "print the BibTeX of methods, or of everything that a run used"),
}
# The same, for those that need a checkout.
TOOLS = {
    "bench": ("tools.bench", "time fedwin against FedJAX, PyTorch, pfl-research and Flower"),
    "scaling": ("tools.scaling", "count what devices exchange in a round, and model how it scales"),
    "soak": ("tools.soak", "interrupt and damage random runs, and compare what they resume to"),
    "stream_demo": ("tools.stream_demo", "train on more images than the memory holds"),
    "check": ("tools.check", "run format, lint, types, doctests, README and site checks"),
    "docs": ("tools.docs", "build the documentation site"),
    "readme": ("tools.readme", "write the generated tables of the guide"),
}
ALL = SUBCOMMANDS | TOOLS


def usage() -> str:
    """Returns the subcommands, one per line."""
    lines = lambda commands: [f"  fedwin {name:<12} {summary}" for name, (_, summary) in commands.items()]
    head = "Federated-learning simulation in JAX. `fedwin SUBCOMMAND --help` explains a subcommand."
    middle = "In a checkout, there also as `python -m experiments.SUBCOMMAND`:"
    return "\n".join([head, *lines(SUBCOMMANDS), middle, *lines(TOOLS)])


def main(arguments: Sequence[str] | None = None, program: str = "fedwin {}") -> None:
    """Runs the subcommand that the first argument names; an unknown one is one line on stderr and exit status 2.

    Args:
      arguments: without the name of the program; None: those of the process.
      program: how the subcommand is called, for its help.
    """
    given = list(sys.argv[1:] if arguments is None else arguments)
    if not given or given[0] in ("-h", "-help", "--help", "help"):
        print(usage())
        return
    name, *rest = given
    if name == "--version":
        print(importlib.import_module("fedwin").__version__)
        return
    if name not in ALL:
        match = difflib.get_close_matches(name, ALL, n=1, cutoff=0.5)
        hint = f" Did you mean '{match[0]}'?" if match else ""
        _fail(f"unknown command '{name}'.{hint} Available: {', '.join(ALL)}.")
    package = __package__.rpartition(".")[0]
    if name in TOOLS and importlib.util.find_spec(f"{package}.tools") is None:
        _fail(f"`fedwin {name}` needs a checkout of the project's repository: `python -m experiments.{name}` in it.")
    # Importing jax takes seconds: only the modules of the chosen subcommand are imported.
    subcommand = importlib.import_module(".subcommand", __package__)
    module = importlib.import_module(f"{package}.{ALL[name][0]}")
    subcommand.run(module.main, module.define_flags, [program.format(name), *rest])


def _fail(message: str) -> None:
    print(f"error: {message}", file=sys.stderr)
    sys.exit(2)


def run_tool(name: str) -> None:
    """Runs the tool of a module `experiments/NAME.py`, which only makes `python -m experiments.NAME` work."""
    main([name, *sys.argv[1:]], f"python -m {__package__.rpartition('.')[0]}.{{}}")
