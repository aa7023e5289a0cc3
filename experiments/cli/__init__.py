"""The command `fedwin`: finds and runs its subcommands."""

import difflib
import importlib
import importlib.util
import sys
from collections.abc import Sequence

# Subcommand, which is a module of this package's parent -> what it does.
SUBCOMMANDS = {
    "train": "train one federated run; without flags the main job (handwritten digits)",
    "compare": "train several methods on the same seeds and print one table",
    "reproduce": "train, check and draw the tables and figures of four papers",
    "sweep": "train every point of a grid over flags and name the best",
    "list": "list algorithms, models, datasets, partitions, ..., presets, or the runs below a folder",
    "runs": "show the runs below a folder, or delete some",
    "curves": "plot learning curves of runs and of stored results in one figure",
    "figure": "draw planes, lines, factors, forgetting, smoothness, targets, sweeps, labels, clients, staleness",
    "speedrun": "print the records of rounds and bytes to 50 % on CIFAR-10, or check a new entry",
    "view": "show runs, sweeps, comparisons or stored results in the browser: one HTML file",
    "partition": "show how a partition splits a data set across clients",
    "prepare": "download, verify and pack a data set",
    "export": "write a trained model to a .safetensors or .npz file",
    "citation": "print the BibTeX of methods, or of everything that a run used",
}
# The same, for those that need a checkout.
TOOLS = {
    "bench": "time fedwin against FedJAX, PyTorch, pfl-research, Flower and fluke",
    "check": "run format, lint, types, doctests, README and site checks",
    "docs": "build the documentation site",
    "readme": "write the generated tables of the guide",
}
ALL = SUBCOMMANDS | TOOLS


def usage() -> str:
    """Returns the subcommands, one per line."""
    lines = lambda commands: [f"  fedwin {name:<12} {summary}" for name, summary in commands.items()]
    head = "Federated-learning simulation in JAX. `fedwin SUBCOMMAND --help` explains a subcommand."
    middle = "In a checkout only, where all also run as `python -m experiments.SUBCOMMAND`:"
    return "\n".join([head, *lines(SUBCOMMANDS), middle, *lines(TOOLS)])


def main(arguments: Sequence[str] | None = None) -> None:
    """Runs the subcommand that the first argument names; an unknown one is one line on stderr and exit status 2.

    Args:
      arguments: without the name of the program; None: those of the process.
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
        _fail(f"unknown command {name!r}.{hint} Available: {', '.join(ALL)}.")
    package = __package__.rpartition(".")[0]
    if name in TOOLS and importlib.util.find_spec(f"{package}.tools") is None:
        _fail(f"`fedwin {name}` needs a checkout of the project's repository: `python -m experiments.{name}` in it.")
    # Importing jax takes seconds: only the modules of the chosen subcommand are imported.
    subcommand = importlib.import_module(".subcommand", __package__)
    module = importlib.import_module(f"{package}.{name}")
    subcommand.run(module.main, module.define_flags, [f"fedwin {name}", *rest])


def _fail(message: str) -> None:
    print(f"error: {message}", file=sys.stderr)
    sys.exit(2)
