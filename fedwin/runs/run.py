"""run and check: validates a Config, starts its run or resumes it, and returns the summary."""

import contextlib
import dataclasses
import math
import pathlib
from collections.abc import Callable
from typing import Any, NamedTuple

import jax

from fedwin import multi_process, plugins
from fedwin.callbacks import Callback, EarlyStopping, RunCallbacks, Tracking, as_callback, trackers
from fedwin.data import Dataset
from fedwin.engine.communication import Bytes
from fedwin.engine.evaluate import held_out
from fedwin.errors import UserError
from fedwin.files import check_unlocked
from fedwin.models import Model
from fedwin.models.convolution import onednn
from fedwin.runs import client_evaluations, fingerprint, multi_seed, strategy_choice
from fedwin.runs import directory as directories
from fedwin.runs.config import Config
from fedwin.runs.journal import Result, summarize
from fedwin.runs.metrics_log import MetricsLog, read_lines
from fedwin.runs.multi_seed import SeedRunner
from fedwin.runs.prepare import PreparedRun, check_objects, prepare
from fedwin.runs.program import Program
from fedwin.runs.resources import available, estimate, free_disk
from fedwin.runs.start import check_fork

Say = Callable[[str], None]


def run(
    config: Config,
    quiet: bool = False,
    *,
    dataset: Dataset | None = None,
    model: Model | None = None,
    on_eval: Callable | None = None,
) -> dict[str, Any]:
    """Starts a run, or resumes it from its newest checkpoint.

    In a multi-process run (fedwin.multi_process) every process calls this with the same flags; process 0 writes.

    Args:
      config: the configuration.
      quiet: whether to print nothing.
      dataset: an object (`fedwin.data.from_fedjax`, ...) in place of the data set that the config names.
      model: an object (`fedwin.models.from_flax`, ...) in place of the model that the config names.
      on_eval: called in process 0 with (round, seed, read-outs: name -> metric -> value) after each evaluation; ends
        the seed by returning `fedwin.STOP`. A function, or a `fedwin.callbacks.Callback`. A resumed run calls it for
        new evaluations only, and a seed that it stopped stays stopped.

    Returns:
      The summary, which is also written to summary.json: means of the last evaluations per seed and over seeds.

    Raises:
      UserError: the config is invalid, or does not fit the machine or the directory; raised before compilation.
    """
    quiet = quiet or not multi_process.is_first()
    say: Say = (lambda line: None) if quiet else (lambda line: print(line, flush=True))
    fingerprint.check_flags(config)
    callback = multi_process.run_on_all(lambda: as_callback(on_eval))
    prepared, directory, config_file, imports, bytes_per_client = multi_process.run_on_all(
        lambda: prepare_and_check(config, dataset, model)
    )
    config = prepared.config
    test = multi_process.run_on_all(lambda: held_out(prepared.dataset, config.eval_examples))
    with contextlib.ExitStack() as closing:
        metrics_log, config_file = multi_process.run_on_all(lambda: _open(config, directory, closing))
        strategy = strategy_choice.choose_strategy(config, prepared, config_file, say)
        identity = multi_process.run_on_all(
            lambda: _write_or_compare_config(directory, prepared, config_file, str(strategy), imports, say)
        )
        # Hosts may differ in their processors: process 0's is recorded.
        fingerprint.check_identity(dataclasses.replace(identity, environment={}).fingerprint)
        _print_header(directory, prepared, str(strategy), identity.fingerprint, say)
        flags = dataclasses.asdict(config) | {"fingerprint": identity.fingerprint, "directory": str(directory)}
        tracking = _tracking(config, directory, flags, closing)
        callbacks = _callbacks(prepared, callback, tracking)
        prepared = prepared.with_stops() if callbacks.may_stop else prepared
        program = Program(prepared, strategy, test, bytes_per_client)
        results = SeedRunner(program, directory, metrics_log, quiet, say, callbacks).train()
        summary = multi_process.run_on_all(lambda: _summary(program, results, directory, identity.fingerprint, say))
        if tracking is not None:
            tracking.summary(summary)
    return directories.summary_from_json(multi_process.broadcast_object(summary))


def _tracking(
    config: Config, directory: pathlib.Path, flags: dict[str, Any], closing: contextlib.ExitStack
) -> Tracking | None:
    """Starts the trackers of --track in process 0, and has them closed at the end."""
    if not config.track or not multi_process.is_first():
        return None
    started = Tracking(trackers.build_all(config.track), directory, flags)
    closing.callback(started.close)
    return started


def _callbacks(prepared: PreparedRun, on_eval: Callback | None, tracking: Tracking | None) -> RunCallbacks:
    """Returns the callbacks of a run: the stopping rule, then the user's; and its trackers."""
    rule = prepared.stopping_rule
    given = [*([] if rule is None else [EarlyStopping(rule)]), *([] if on_eval is None else [on_eval])]
    return RunCallbacks(given, prepared.config.num_rounds, [] if tracking is None else [tracking.line])


def _open(
    config: Config, directory: pathlib.Path, closing: contextlib.ExitStack
) -> tuple[MetricsLog | None, directories.ConfigFile | None]:
    """Opens the run's directory in process 0; returns its MetricsLog and config.json, None in other processes."""
    if not multi_process.is_first():
        return None, None
    closing.enter_context(directories.open_directory(directory))
    metrics_log = closing.enter_context(contextlib.closing(MetricsLog(directory)))
    return metrics_log, directories.load_config(config, directory)  # again: another process may have changed it


def _summary(
    program: Program, results: dict[int, Result], directory: pathlib.Path, fingerprint: str, say: Say
) -> dict[str, Any]:
    if not multi_process.is_first():
        return {}
    ended = {seed: result.diverged_at for seed, result in results.items() if result.diverged_at is not None}
    causes = {seed: program.divergence(seed, diverged_at) for seed, diverged_at in ended.items()}
    for seed, cause in causes.items():
        say(f"seed {seed}: diverged in round {ended[seed]}: {cause}.")
    for seed, result in results.items():
        if result.stopped_at is not None:
            say(f"seed {seed}: stopped early in round {result.stopped_at} of {program.prepared.config.num_rounds}.")
        if result.empty_rounds:
            effect = "added noise alone" if program.prepared.privacy is not None else "left the model unchanged"
            say(f"seed {seed}: no client took part in {result.empty_rounds} rounds, which {effect}.")
    lines = read_lines(directory / "metrics.jsonl")
    summary = summarize(program.prepared.config, results, lines, fingerprint, len(program.dispatch.traces), causes)
    if (privacy := program.prepared.privacy) is not None:
        summary["privacy"] = privacy.report(program.prepared.config.num_rounds)
    directories.write_summary(directory, summary)
    return summary


def check(config: Config, *, dataset: Dataset | None = None, model: Model | None = None) -> None:
    """Checks a run without starting it: traces its functions, but neither compiles nor writes.

    Args:
      config: the configuration.
      dataset: an object in place of the data set that the config names.
      model: an object in place of the model that the config names.

    Raises:
      UserError: `run` would reject the config before it writes.
    """
    prepare_and_check(config, dataset, model)


class CheckedRun(NamedTuple):
    """A valid run.

    Attributes:
      prepared: the prepared run.
      directory: its directory.
      config_file: config.json in the directory; None for a new run, and in processes that do not write.
      imports: imported file or module -> hash of its content.
      bytes_per_client: bytes that a client receives and sends in a round.
    """

    prepared: PreparedRun
    directory: pathlib.Path
    config_file: directories.ConfigFile | None
    imports: dict[str, str]
    bytes_per_client: Bytes


def prepare_and_check(config: Config, dataset: Dataset | None, model: Model | None) -> CheckedRun:
    """Prepares a run and checks it; writes nothing, compiles nothing.

    Args:
      config: the configuration.
      dataset: an object in place of the data set that the config names, or None.
      model: an object in place of the model that the config names, or None.

    Raises:
      UserError: `run` rejects the config before it writes.
    """
    check_objects(config, dataset, model)
    imports = plugins.load(config.imports)
    if config.out_dir and multi_process.is_first():
        check_unlocked(config.out_dir)
    strategy_choice.check_strategy(config.strategy)
    multi_seed.check_processes(config)
    if multi_process.is_first():
        trackers.build_all(config.track)
    prepared = prepare(config, dataset, model)
    config = prepared.config
    directory = pathlib.Path(config.out_dir) if config.out_dir else directories.default_directory(config)
    config_file = directories.load_config(config, directory) if multi_process.is_first() else None
    bytes_per_client = prepared.rehearse()
    strategy = strategy_choice.planned_strategy(prepared, config_file)
    multi_seed.check(prepared, strategy)
    client_evaluations.check(prepared, strategy)
    requirements = estimate(prepared, strategy)
    requirements.check(available())
    if config_file is None and multi_process.is_first():  # a resumed run has its files already
        requirements.check_disk(free_disk(directory))
    if config_file is None and config.fork_from and multi_process.is_first():
        check_fork(prepared)
    return CheckedRun(prepared, directory, config_file, imports, bytes_per_client)


def _write_or_compare_config(
    directory: pathlib.Path,
    prepared: PreparedRun,
    config_file: directories.ConfigFile | None,
    strategy: str,
    imports: dict[str, str],
    say: Say,
) -> fingerprint.Identity:
    """Writes config.json of a new run; compares that of a resumed run with the current data and versions."""
    config = prepared.config
    files = fingerprint.file_hashes(config) | {"sampling": prepared.setting.sampling.digest}
    hashes = fingerprint.data_hashes(prepared.federations) | {flag: digest for flag, digest in files.items() if digest}
    initial = {str(seed): start.digest for seed, start in prepared.initial.items()}
    identity = fingerprint.identity(config, hashes, strategy, imports, initial, prepared.dataset)
    if not multi_process.is_first():
        return identity
    if config_file is None:
        verified, model = prepared.dataset.verified, prepared.model.name
        directories.write_config(directory, config, identity, verified, model, prepared.attackers)
    elif changed := [flag for flag, digest in files.items() if config_file.identity.data.get(flag, "") != digest]:
        raise UserError(
            f"out_dir={directory} was run with another file than --{changed[0]}={getattr(config, changed[0])} has now; "
            f"restore the file, or use another --out_dir."
        )
    elif config_file.identity.data != hashes:
        raise UserError(
            f"out_dir={directory} was run on other data than --data_dir={config.data_dir} has; use another --out_dir."
        )
    elif config_file.identity.initial != initial:
        raise UserError(
            f"out_dir={directory} started with other parameters than init_from={config.init_from} has now; restore "
            f"that checkpoint or file, or use another --out_dir."
        )
    elif identity.fingerprint != config_file.identity.fingerprint:
        say(f"note: {identity.differences(config_file.identity)}; the numbers of {directory} may differ from now on.")
    return identity


def _print_header(directory: pathlib.Path, prepared: PreparedRun, strategy: str, fingerprint: str, say: Say) -> None:
    partition = next(iter(prepared.federations.values())).partition
    chosen_from = (partition.report or {}).get("chosen_from")
    clients = f"{partition.num_clients}" + (f" of {chosen_from}" if chosen_from else "")
    config = prepared.config
    say(
        f"{directory}: {config.algorithm} on {config.dataset}, {clients} clients, strategy {strategy}, "
        f"fingerprint {fingerprint}"
    )
    if (rule := prepared.stopping_rule) is not None and rule.on_test:
        say(f"note: the test examples decide when a seed stops (early_stopping by {rule.metric}): a biased result.")
    if prepared.privacy is not None:
        say(f"privacy of each seed: {prepared.privacy.describe(config.num_rounds)}")
    if jax.default_backend() == "cpu" and (reason := onednn.missing()) and _has_large_convolutions(prepared):
        say(f"note: {reason}; convolutions are XLA's, which train at 0.6 to 0.8 of the speed.")


def _has_large_convolutions(prepared: PreparedRun) -> bool:
    """Whether the network has kernels [height, width, channels, outputs], and images that oneDNN is faster for."""
    shapes = jax.eval_shape(prepared.model.init, jax.random.key(0)).params
    pixels = math.prod(prepared.dataset.train["x"].shape[1:3])
    return pixels >= 256 and any(leaf.ndim == 4 for leaf in jax.tree.leaves(shapes))
