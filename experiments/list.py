"""Lists what is available, the user's own code included.

fedwin list algorithms|models|datasets|partitions|observers|wrappers|personalizers|aggregators|attacks|losses
fedwin list shifts|drifts|augmentations|samplers|local_work|clocks|asynchronous|strategies
fedwin list stopping|trackers|launchers    rules of --early_stopping, choices of --track and --launcher
fedwin list KIND NAME         parameters, costs and papers of one of them
fedwin list presets [NAME]    shipped flagfiles, for --flagfile=NAME; with a name its comments and flags
fedwin list runs [FOLDER]     runs below a folder (runs/) with their progress; --state: with what happens to them now
"""

from absl import flags

from fedwin import plugins
from fedwin.engine.strategy import STRATEGIES
from fedwin.errors import UserError
from fedwin.launching.launchers import LAUNCHERS
from fedwin.registry.ranges import one_of

from . import runs
from .cli import subcommand, unused
from .papers import presets

ARGUMENTS = "KIND [NAME]"
REGISTRIES = plugins.REGISTRIES | {"strategies": STRATEGIES, "launchers": LAUNCHERS}
LISTS = (*REGISTRIES, "presets", "runs")


def listing(kind: str, arguments: list[str], now: bool = False) -> str:
    """Text of `fedwin list KIND ...`; raises UserError if there is no such list, or for too many arguments."""
    one_of("KIND", kind, LISTS)
    if len(arguments) > 1:
        raise UserError(f"unexpected argument '{arguments[-1]}'; write `fedwin list {kind}`.")
    if kind == "runs":
        return runs.table(*(arguments or ["runs"]), now=now)
    if kind == "presets":
        return presets.text(presets.checked(*arguments)).rstrip() if arguments else presets.table()
    if arguments:
        return REGISTRIES[kind].details(arguments[0].partition(":")[0])
    columns = (
        "\nstatus: tested against the authors' code or numbers (paper), our NumPy code (checked), or neither (new)"
        "\ndown / up: models that a client receives and sends in a round"
    )
    explained = columns if kind == "algorithms" else ""
    return f"{REGISTRIES[kind].table('plain')}\n`fedwin list {kind} NAME` shows everything about one{explained}"


def define_flags() -> dict[str, list[str]]:
    """Defines --state."""
    flags.DEFINE_bool("state", False, "Say for each run whether it is queued, running, ended, failed or stopped.")
    return {"runs": ["state"]}


def main(argv: list[str]) -> None:
    """Prints one list."""
    if len(argv) < 2:
        raise UserError(f"name what to list: fedwin list {'|'.join(LISTS)}.")
    if argv[1] != "runs":
        unused.refuse(["state"], f"with {argv[1]}")
    print(listing(argv[1], argv[2:], flags.FLAGS.state))


if __name__ == "__main__":
    subcommand.run(main, define_flags)
