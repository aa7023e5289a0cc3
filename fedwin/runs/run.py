"""Running a Config: starts a run in its directory, or resumes it there."""

import contextlib
import pathlib
from collections.abc import Callable
from typing import Any, NamedTuple

from fedwin import multi_process, plugins
from fedwin.data import Dataset
from fedwin.engine.communication import Bytes
from fedwin.engine.evaluate import held_out
from fedwin.errors import UserError
from fedwin.files import check_free, write_json
from fedwin.runs import consistency, fingerprint, multi_seed, strategy_choice
from fedwin.runs import directory as directories
from fedwin.runs.config import Config
from fedwin.runs.metrics_log import MetricsLog, read_lines
from fedwin.runs.multi_seed import SeedRunner
from fedwin.runs.prepare import PreparedRun, check_objects, prepare
from fedwin.runs.program import Program
from fedwin.runs.resources import available, estimate, free_disk
from fedwin.runs.restore import check_fork
from fedwin.runs.summary import summarise
from fedwin.runs.train import Result

Say = Callable[[str], None]


def run(config: Config, quiet: bool = False, *, dataset: Dataset | None = None, model: Any = None) -> dict[str, Any]:
    """Starts the run of a Config, or resumes it, and returns its summary, which is also written to summary.json.

    Of several processes (fedwin.multi_process) all call this with the same flags; the first one has the directory.

    Args:
      config: what to run.
      quiet: print nothing.
      dataset: an object (`fedwin.data.from_fedjax`, ...) in place of the data set that it names.
      model: an object (`fedwin.models.from_flax`, ...) in place of the model that it names.

    Raises:
      UserError: anything wrong in it, before compilation.
    """
    quiet = quiet or not multi_process.is_first()
    say: Say = (lambda line: None) if quiet else (lambda line: print(line, flush=True))
    consistency.check_flags(config)
    prepared, directory, known, imports, bytes_per_client = multi_process.agreed(
        lambda: checked(config, dataset, model)
    )
    config = prepared.config
    test = multi_process.agreed(lambda: held_out(prepared.dataset, config.eval_examples))
    with contextlib.ExitStack() as held:
        logbook, known = multi_process.agreed(lambda: _entered(config, directory, held))
        strategy = strategy_choice.chosen(config, prepared, known, say)
        about = multi_process.agreed(lambda: _settled(directory, prepared, known, str(strategy), imports, say))
        consistency.check_identity(about.fingerprint)
        _introduce(directory, prepared, str(strategy), about.fingerprint, say)
        program = Program(prepared, strategy, test, bytes_per_client)
        results = SeedRunner(program, directory, logbook, quiet, say).train()
        summary = multi_process.agreed(lambda: _summary(program, results, directory, about.fingerprint))
    return multi_process.said_by_first(summary)


def _entered(
    config: Config, directory: pathlib.Path, held: contextlib.ExitStack
) -> tuple[MetricsLog | None, directories.Known | None]:
    """Opens the run's directory in the process that has it; returns its logbook and what config.json says."""
    if not multi_process.is_first():
        return None, None
    held.enter_context(directories.opened(directory))
    logbook = held.enter_context(contextlib.closing(MetricsLog(directory)))
    return logbook, directories.load(config, directory)  # another process may have been there until just now


def _summary(program: Program, results: dict[int, Result], directory: pathlib.Path, fingerprint: str) -> dict[str, Any]:
    if not multi_process.is_first():
        return {}
    lines = read_lines(directory / "metrics.jsonl")
    summary = summarise(program.prepared.config, results, lines, fingerprint, len(program.dispatch.traces))
    write_json(directory / "summary.json", summary)
    return summary


def check(config: Config, *, dataset: Dataset | None = None, model: Any = None) -> None:
    """Raises UserError for whatever `run` would refuse before it writes; traces, but neither compiles nor computes.

    Args:
      config: what would be run.
      dataset: an object in place of the data set that it names.
      model: an object in place of the model that it names.
    """
    checked(config, dataset, model)


class Checked(NamedTuple):
    """A Config that would run.

    Attributes:
      prepared: the prepared run.
      directory: where it would run.
      known: what config.json says there, None for a new run.
      imports: imported file or module -> hash of its content.
      bytes_per_client: what a client receives and sends in a round.
    """

    prepared: PreparedRun
    directory: pathlib.Path
    known: directories.Known | None
    imports: dict[str, str]
    bytes_per_client: Bytes


def checked(config: Config, dataset: Dataset | None, model: Any) -> Checked:
    """Builds what a Config means and finds what is wrong or does not go together; writes nothing, compiles nothing.

    Args:
      config: what would be run.
      dataset: an object in place of the data set that it names, or None.
      model: an object in place of the model that it names, or None.

    Raises:
      UserError: whatever `run` refuses before it writes.
    """
    check_objects(config, dataset, model)
    imports = plugins.load(config.imports)
    if config.out_dir and multi_process.is_first():
        check_free(config.out_dir)
    strategy_choice.check(config.strategy)
    multi_seed.check_processes(config)
    prepared = prepare(config, dataset, model)
    config = prepared.config
    directory = pathlib.Path(config.out_dir) if config.out_dir else directories.default_directory(config)
    known = directories.load(config, directory) if multi_process.is_first() else None
    bytes_per_client = prepared.rehearse()
    strategy = strategy_choice.planned(config, known)
    multi_seed.check(prepared, strategy)
    needed = estimate(prepared, strategy)
    needed.check(available())
    if known is None and multi_process.is_first():  # of a run that has begun, they are there
        needed.check_disk(free_disk(directory))
    if known is None and config.fork_from and multi_process.is_first():
        check_fork(prepared)
    return Checked(prepared, directory, known, imports, bytes_per_client)


def _settled(
    directory, prepared: PreparedRun, known, strategy: str, imports: dict[str, str], say: Say
) -> fingerprint.Identity:
    """Writes config.json of a new run; compares that of a resumed one with the data and versions of today."""
    config = prepared.config
    hashes = fingerprint.data_hashes(prepared.federations)
    initial = {str(seed): taken.digest for seed, taken in prepared.initial.items()}
    about = fingerprint.identity(config, hashes, strategy, imports, initial)
    if not multi_process.is_first():
        return about
    if known is None:
        directories.write_config(directory, config, about, prepared.dataset.verified, prepared.model.name)
    elif known.identity.data != hashes:
        raise UserError(
            f"out_dir={directory} was run on other data than --data_dir={config.data_dir} holds; use another --out_dir."
        )
    elif known.identity.initial != initial:
        raise UserError(
            f"out_dir={directory} began with other parameters than init_from={config.init_from} holds now; restore "
            f"that checkpoint, or use another --out_dir."
        )
    elif known.identity.fingerprint != about.fingerprint:
        say(f"note: {about.differences(known.identity)}; the numbers of {directory} may differ from here on.")
    return about


def _introduce(directory, prepared: PreparedRun, strategy: str, fingerprint: str, say: Say) -> None:
    partition = next(iter(prepared.federations.values())).partition
    chosen_from = (partition.report or {}).get("chosen_from")
    clients = f"{partition.num_clients}" + (f" of {chosen_from}" if chosen_from else "")
    config = prepared.config
    say(
        f"{directory}: {config.algorithm} on {config.dataset}, {clients} clients, strategy {strategy}, "
        f"fingerprint {fingerprint}"
    )
