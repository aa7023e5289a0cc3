"""run, check and dry runs: validates a Config, starts or resumes its run, or measures what it would need."""

import contextlib
import dataclasses
import math
import pathlib
import tempfile
import time
from collections.abc import Callable, Iterator
from typing import NamedTuple

import jax

from fedwin import engine, jax_config, multi_process, plugins
from fedwin.callbacks import Callback, EarlyStopping, RunCallbacks, Tracking, as_callback, trackers
from fedwin.data import Dataset
from fedwin.data.checks import classes_without_examples
from fedwin.engine.evaluate import held_out
from fedwin.engine.strategy import check_strategy
from fedwin.errors import UserError, escape
from fedwin.files import SUMS, check_unlocked
from fedwin.models import Model
from fedwin.models.convolution import onednn
from fedwin.registry import parse
from fedwin.runs import directory as directories
from fedwin.runs import signals
from fedwin.runs.checkpoint import Checkpoints
from fedwin.runs.choices import check_deadline, check_objects
from fedwin.runs.config import Config
from fedwin.runs.journal import Journal, Summary, summarize
from fedwin.runs.machine import Memory, available, free_disk
from fedwin.runs.metrics_log import MetricsLog, read_lines
from fedwin.runs.plan import Requirements, RunPlan
from fedwin.runs.prepare import PreparedRun, model_digest, prepare
from fedwin.runs.program import Program
from fedwin.runs.seeds import SeedRunner
from fedwin.runs.start import accounted, check_fork, fork_round
from fedwin.runs.timing import EXHAUSTED, TimedRun, Timing, chosen, planned
from fedwin.wrappers.accounting import restored

Say = Callable[[str], None]
# What XLA says -> what helps.
DEVICE_REMEDIES = {
    EXHAUSTED: "--dry_run counts the memory; set --strategy=chunked:k=1 or a smaller --batch_size in another --out_dir",
    "select-and-scatter": "pool with fedwin.models.convolution.max_pool, or wrap it with from_flax, from_haiku",
}

# Default limits of dry runs once the data are read; rounds of a second or more are timed once after that many seconds.
ROUNDS, SECONDS = 20, 8.0


def run(
    config: Config,
    quiet: bool = False,
    *,
    dataset: Dataset | None = None,
    model: Model | None = None,
    on_eval: Callable | None = None,
) -> Summary:
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
      KeyboardInterrupt: Ctrl-C; the rounds in progress are finished and saved first, and the same call resumes.
    """
    try:
        with signals.watched_call():
            return _run(config, quiet, dataset, model, on_eval)
    except signals.Interrupted as error:
        # Where the signal arrived is of no interest.
        raise error.with_traceback(None) from None


def _run(
    config: Config, quiet: bool, dataset: Dataset | None, model: Model | None, on_eval: Callable | None
) -> Summary:
    jax_config.check_backend()
    quiet = quiet or not multi_process.is_first()
    say: Say = (lambda line: None) if quiet else (lambda line: print(escape(line), flush=True))
    multi_process.run_on_all(lambda: check_objects(config, dataset, model))
    directories.check_flags(config)
    with jax_config.settings(config.precision), _device_errors(), contextlib.ExitStack() as closing:
        callback = multi_process.run_on_all(lambda: as_callback(on_eval))
        checked = multi_process.run_on_all(lambda: prepare_and_check(config, dataset, model))
        summary = _train(checked, callback, quiet, say, closing)
    return directories.summary_from_json(multi_process.broadcast_object(summary))


@contextlib.contextmanager
def _device_errors() -> Iterator[None]:
    """Converts what a device refuses into a UserError with a remedy."""
    try:
        yield
    except jax.errors.JaxRuntimeError as error:
        reason = str(error).partition("\n")[0].rstrip(".")
        for words, remedy in DEVICE_REMEDIES.items():
            if words in reason:
                raise UserError(f"{reason}; {remedy}.") from error
        raise


def _train(
    checked: "CheckedRun", on_eval: Callback | None, quiet: bool, say: Say, closing: contextlib.ExitStack
) -> Summary:
    """Opens the run's directory, trains all seeds, and returns the summary ({} in processes that do not write)."""
    prepared, directory = checked.plan.prepared, checked.directory
    config = prepared.config
    test = multi_process.run_on_all(lambda: held_out(prepared.dataset, config.eval_examples))
    metrics_log, config_file = multi_process.run_on_all(lambda: _open(config, directory, closing))
    checked = checked._replace(config_file=config_file)  # another process may have changed it
    plan = chosen(checked.plan, checked.config_file, say)
    checked = checked._replace(plan=plan)
    identity = multi_process.run_on_all(lambda: _write_or_compare_config(checked, say))
    directories.check_identity(identity)
    ended = checked.config_file if (directory / "summary.json").exists() else None  # its numbers are computed already
    fingerprint = (ended or identity).fingerprint
    _print_header(checked, fingerprint, say)
    flags = dataclasses.asdict(config) | {"fingerprint": fingerprint, "directory": str(directory)}
    tracking = Tracking(trackers.build_all(config.track) if multi_process.is_first() else {}, directory, flags)
    closing.callback(tracking.close)
    rule = [] if prepared.stopping_rule is None else [EarlyStopping(prepared.stopping_rule, config.early_stopping)]
    given = [*rule, *([] if on_eval is None else [on_eval])]
    callbacks = RunCallbacks(given, config.num_rounds, tracking.line)
    summary = multi_process.broadcast_object(multi_process.run_on_all(lambda: _diverged(config, directory)))
    if summary:
        say(f"note: this run has ended and diverged; remove {directory} to train it again.")
        for seed in config.seeds:
            callbacks.resume(seed, lambda: metrics_log.lines(seed) if metrics_log else [])
    else:
        program = Program(plan, test, callbacks.may_stop)
        results = SeedRunner(program, directory, metrics_log, quiet, say, callbacks).train()
        summary = multi_process.run_on_all(lambda: _summary(program, results, directory, fingerprint, say))
    tracking.summary(summary, again=ended is not None)
    return summary


def _diverged(config: Config, directory: pathlib.Path) -> Summary:
    """Returns the summary of a finished run that a divergence ended, for which no state is saved; {} otherwise."""
    written = all((directory / name).exists() for name in ("summary.json", SUMS))
    if not multi_process.is_first() or not config.stop_on_divergence or not written:
        return {}
    summary = directories.verified_summary(directory)
    return summary if any(seed.get("diverged_at") is not None for seed in summary["seeds"].values()) else {}


def _open(
    config: Config, directory: pathlib.Path, closing: contextlib.ExitStack
) -> tuple[MetricsLog | None, directories.ConfigFile | None]:
    """Opens the run's directory in process 0; returns its MetricsLog and config.json, None in other processes."""
    if not multi_process.is_first():
        return None, None
    closing.enter_context(directories.open_directory(directory))
    metrics_log = closing.enter_context(contextlib.closing(MetricsLog(directory)))
    return metrics_log, directories.load_config(config, directory)


def _summary(
    program: Program, results: dict[int, Journal], directory: pathlib.Path, fingerprint: str, say: Say
) -> Summary:
    if not multi_process.is_first():
        return {}
    lines = read_lines(directory / "metrics.jsonl")
    converged = {seed for seed, result in results.items() if result.diverged_at is None}
    for seed in sorted(converged & {line["seed"] for line in lines}):
        of_seed = [line["model"] for line in lines if line["seed"] == seed]
        # Losses as they are shown, where they may be infinite.
        start, end = (f"{float(metrics['loss']):.3g}" for metrics in (of_seed[0], of_seed[-1]))
        before, after = (metrics.get("accuracy", 0) for metrics in (of_seed[0], of_seed[-1]))
        # A better model may have a larger loss, too.
        if float(end) > float(start) and after < 2 * max(before, 1 / program.prepared.dataset.num_classes):
            remedy = "a smaller --client_lr" if program.prepared.config.attack == "none" else "a robust --aggregate"
            say(f"note: seed {seed}: the test loss rose from {start} to {end}; {remedy} may help.")
    summary = summarize(program.prepared.config, results, lines, fingerprint, len(program.dispatch.traces))
    if (privacy := program.prepared.privacy) is not None:
        summary["privacy"] = privacy.report(program.prepared.config.num_rounds)
    directories.write_summary(directory, summary)
    return summary


def check(config: Config, *, dataset: Dataset | None = None, model: Model | None = None) -> None:
    """Checks a run without starting it: traces its functions, but neither compiles nor writes.

    Args:
      config, dataset, model: as for `run`.

    Raises:
      UserError: `run` would reject the config before it writes.
    """
    check_objects(config, dataset, model)
    with jax_config.settings(config.precision):
        prepare_and_check(config, dataset, model)


class CheckedRun(NamedTuple):
    """A valid run.

    Attributes:
      config_file: config.json in the directory; None for a new run, and in processes that do not write.
      imports: imported file or module -> hash of its content.
      model: 'model' -> hash of a model that was given as an object; {} for one given by name.
    """

    plan: RunPlan
    directory: pathlib.Path
    config_file: directories.ConfigFile | None
    imports: dict[str, str]
    model: dict[str, str]


def prepare_and_check(config: Config, dataset: Dataset | None = None, model: Model | None = None) -> CheckedRun:
    """Prepares, plans and checks a run, as `run` does before it writes; compiles nothing."""
    imports = plugins.load(config.imports)
    if config.out_dir and multi_process.is_first():
        check_unlocked(config.out_dir)
    check_strategy(config.strategy)
    if multi_process.is_first():
        trackers.build_all(config.track)
    prepared = prepare(config, dataset, model)
    config = prepared.config
    directory = pathlib.Path(config.out_dir) if config.out_dir else directories.default_directory(config)
    config_file = directories.load_config(config, directory) if multi_process.is_first() else None
    if config_file is not None and config_file.privacy is not None:
        prepared = dataclasses.replace(prepared, privacy=restored(config_file.privacy))
    elif config_file is None and multi_process.is_first():  # which alone reports epsilon
        privacy = accounted(config, prepared.privacy, prepared.federations)
        prepared = dataclasses.replace(prepared, privacy=privacy)
    if config_file is not None:
        check_unchanged(prepared, directory)
    plan = planned(prepared, config_file.identity.strategy if config_file else None)
    plan.check(available())
    if config_file is None and multi_process.is_first():  # a resumed run has its files already
        plan.requirements.check_disk(free_disk(directory))
        check_deadline(config, prepared.setting.sampling)
        if config.fork_from:
            check_fork(config, prepared.start, prepared.setting.sampling)
    return CheckedRun(plan, directory, config_file, imports, {} if model is None else {"model": model_digest(prepared)})


class DryRun(NamedTuple):
    """The result of a dry run.

    Attributes:
      requirements: bytes by part, including activations.
      available: memory that was available before anything was allocated.
      free_disk: free bytes where the run would be written.
    """

    checked: CheckedRun
    requirements: Requirements
    available: Memory
    free_disk: int
    timing: Timing


def measure_requirements(
    config: Config,
    *,
    rounds: int = ROUNDS,
    seconds: float = SECONDS,
    say: Callable[[str], None] = lambda line: None,
) -> DryRun:
    """Compiles a dispatch of a run, compares its requirements with the machine, and times a few rounds if it fits.

    Args:
      rounds: maximum number of rounds to time.
      seconds: long measurements are not repeated once this many seconds have passed since the data were read.

    Raises:
      UserError: `fedwin.run` would reject the run, or it does not fit.
    """
    config.check()
    with jax_config.settings(config.precision), _device_errors():
        checked = prepare_and_check(config)
        checked = checked._replace(plan=chosen(checked.plan, checked.config_file, say))
        plan, memory, free = checked.plan, available(), free_disk(checked.directory)
        plan.requirements.check_disk(free)
        started, config = time.monotonic(), plan.prepared.config
        program = Program(plan, held_out(plan.prepared.dataset, config.eval_examples))
        with (
            contextlib.closing(program.examples(config.seeds[0])) as examples,
            tempfile.TemporaryDirectory() as scratch,  # for rows that are in a file
        ):
            timed = TimedRun(program, examples)
            requirements = plan.requirements.with_activations(timed.activation_bytes())
            requirements.check_memory(memory)
            with contextlib.closing(timed.start(Checkpoints(scratch))):
                timing = timed.timing(started, rounds, seconds)
        return DryRun(checked, requirements, memory, free, timing)


def readout_names(config: Config) -> list[str]:
    """Returns the names of a run's read-outs, sorted: 'model', 'wima50' ...; computes nothing."""
    prepared = prepare(config)
    read = lambda: engine.read_out(prepared.algorithm, prepared.observers, prepared.start(config.seeds[0], 1))
    with jax_config.settings(config.precision):
        return sorted(jax.eval_shape(read))


def check_unchanged(prepared: PreparedRun, directory: pathlib.Path) -> None:
    """Raises UserError if the run in a directory used other data or another start than its flags now refer to."""
    config, recorded = prepared.config, directories.read_config(directory).identity
    files, data, initial = prepared.hashes
    parent, before = pathlib.Path(config.fork_from.rpartition("@")[0]), recorded.environment.get("fork_from")
    if changed := [flag for flag, digest in files.items() if recorded.data.get(flag, "") != digest]:
        what = f"was run with another file than --{changed[0]}={getattr(config, changed[0])} has now; restore the file"
    elif not recorded.has_data(prepared.dataset, data):
        source = f"data_dir={config.data_dir}" if config.data_dir else f"dataset={config.dataset}"
        what = f"was run on other data than {source} has, or with another mean or std; give the run's own data"
    elif recorded.initial != initial:
        what = f"started with other parameters than init_from={config.init_from} has now; restore that model"
    elif before and (parent / "config.json").exists() and directories.read_config(parent).fingerprint != before:
        what = f"continues another run than is in fork_from={config.fork_from} now; restore that run"
    else:
        return
    raise UserError(f"out_dir={directory} {what}, or use another --out_dir.")


def _write_or_compare_config(checked: CheckedRun, say: Say) -> directories.Identity:
    """Writes config.json of a new run; compares that of a resumed run with the current data and versions."""
    plan, directory, config_file, imports, of_model = checked
    prepared, config = plan.prepared, plan.prepared.config
    _, data, initial = prepared.hashes
    others = str(plan.strategy), imports, initial, prepared.dataset, _calls_onednn(prepared)
    identity = directories.identity(config, data, *others)
    if not multi_process.is_first():
        return identity
    fork = {}
    if config_file is None and config.fork_from:
        parent = directories.read_config(pathlib.Path(config.fork_from.rpartition("@")[0]))
        fork = {"fork_from": parent.fingerprint}
        if not parent.identity.has_data(prepared.dataset, {str(seed): data[str(seed)] for seed in config.seeds}):
            say(f"note: fork_from={config.fork_from}: its clients, or their examples, are not those of this run.")
    elif config_file is not None:
        check_unchanged(prepared, directory)
        fork = {name: text for name, text in config_file.identity.environment.items() if name == "fork_from"}
    identity = dataclasses.replace(identity, environment=identity.environment | of_model | fork)
    if config_file is None:
        verified, model = prepared.dataset.verified, prepared.model.name
        privacy = None if prepared.privacy is None else dataclasses.asdict(prepared.privacy)
        directories.write_config(directory, config, identity, verified, model, prepared.attackers, privacy)
    elif identity.fingerprint != config_file.identity.fingerprint:
        before = config_file.identity
        with_model = dataclasses.replace(before, environment=before.environment | of_model)
        # The only difference: other versions of jax may trace the same network differently.
        if "model" in before.environment and with_model.fingerprint == identity.fingerprint:
            raise UserError(f"out_dir={directory} had another object as model={config.model}; use another --out_dir.")
        ended = (directory / "summary.json").exists()
        effect = "are from before; use another --out_dir" if ended else "may differ from now on"
        say(f"note: {identity.differences(before)}; the numbers of {directory} {effect}.")
    return identity


def _print_header(checked: CheckedRun, fingerprint: str, say: Say) -> None:
    prepared = checked.plan.prepared
    partition = next(iter(prepared.federations.values())).partition
    chosen_from = (partition.report or {}).get("chosen_from")
    clients = f"{partition.num_clients}" + (f" of {chosen_from}" if chosen_from else "")
    config = prepared.config
    say(
        f"{checked.directory}: {config.algorithm} on {config.dataset}, {clients} clients, strategy "
        f"{checked.plan.strategy}, fingerprint {fingerprint}"
    )
    say(prepared.schedule.describe(fork_round(config)))
    say(str(checked.plan.requirements))
    if absent := classes_without_examples(prepared.dataset):
        shown = ", ".join(map(str, absent[:5])) + ", ..." * (len(absent) > 5)
        say(f"note: {len(absent)} of {prepared.dataset.num_classes} classes have no training example: {shown}.")
    if (rule := prepared.stopping_rule) is not None and rule.on_test:
        say(f"note: the test examples decide when a seed stops (early_stopping by {rule.metric}): a biased result.")
    choice, left = parse(config.early_stopping or "none"), config.num_rounds - fork_round(config)
    if choice.name == "patience" and choice.params["rounds"] >= left:
        say(f"note: early_stopping={config.early_stopping}: no seed ends before the last round; set fewer rounds.")
    if prepared.privacy is not None:
        say(f"privacy of each seed: {prepared.privacy.describe(config.num_rounds)}")
    if config.strategy in ("default", "auto") and (cores := jax_config.unused_cores()):
        say(
            f"note: jax has one CPU device for {cores} cores; fedwin.use_every_core() before its first computation "
            f"makes one per core, as `fedwin train` does."
        )
    inputs = prepared.dataset.train["x"].shape[1:3]
    large = len(inputs) < 2 or math.prod(inputs) >= 256  # smaller images gain nothing
    if jax.default_backend() == "cpu" and large and (reason := onednn.missing()) and _calls_onednn(prepared):
        say(f"note: {reason}; convolutions and LSTMs are XLA's, which train at 0.6 to 0.8 of the speed.")


def _calls_onednn(prepared: PreparedRun) -> bool:
    """Whether the network, or the one that --lora adapts, has kernels [height, width, channels, outputs] or LSTMs."""
    adapted = [start.leaves for start in prepared.initial.values()]
    leaves = jax.tree.leaves_with_path((prepared.shapes.params, adapted))
    return any(leaf.ndim == 4 or "hidden_kernel" in jax.tree_util.keystr(path) for path, leaf in leaves)
