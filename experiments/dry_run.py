"""What a run would need: memory, rounds, pace, hours. Nothing is trained to an end, and nothing is written."""

from fedwin.errors import UserError
from fedwin.runs import strategy_choice
from fedwin.runs.checkpoint import Checkpoints
from fedwin.runs.config import Config
from fedwin.runs.estimate import estimate
from fedwin.runs.fork import fork_round
from fedwin.runs.pace import pace_of
from fedwin.runs.run import checked

_MINUTE, _HOUR = 60, 3600


def duration(seconds: float) -> str:
    """Returns a time in words of a fitting size.

    >>> duration(0.2), duration(200), duration(20_000)
    ('0.2 s', '3.3 minutes', '5.6 hours')
    """
    if seconds < 2 * _MINUTE:
        return f"{seconds:.1f} s"
    return f"{seconds / _MINUTE:.1f} minutes" if seconds < 2 * _HOUR else f"{seconds / _HOUR:.1f} hours"


def completed(config: Config, directory) -> list[int]:
    """Returns how many rounds of each seed are done: those of its newest checkpoint."""
    found = []
    for seed in config.seeds:
        try:
            rounds = Checkpoints(directory / "checkpoints" / f"seed_{seed}").rounds()
        except OSError as error:
            raise UserError(f"{directory}/checkpoints can't be read ({error.strerror}).") from error
        found.append(rounds[-1] if rounds else fork_round(config))
    return found


def show(config: Config) -> float:
    """Prints what a run would need and returns the seconds that it would take.

    Raises:
      UserError: whatever `fedwin.run` would refuse.
    """
    found = checked(config, None, None)
    trial, config = found.trial, found.trial.config
    strategy = strategy_choice.chosen(config, trial, found.known, print)
    done, schedule = completed(config, found.directory), trial.schedule
    seeds = f"{'seed' if len(done) == 1 else 'each of the seeds'} {','.join(map(str, config.seeds))}"
    begun = f"; done: {','.join(map(str, done))}" if any(done) else ""
    print(f"{found.directory}: {config.algorithm} on {config.dataset}, {config.model}, strategy {strategy}")
    print(f"{estimate(trial, strategy)}")
    print(f"rounds: {config.num_rounds:,} and {schedule.evaluations(0):,} evaluations for {seeds}{begun}", flush=True)
    pace = pace_of(trial, strategy, found.bytes_per_client)
    print(
        f"pace: {pace.seconds_per_round:.3g} s a round, {pace.seconds_per_evaluation:.3g} s an evaluation, "
        f"{pace.compile_seconds:.1f} s to compile"
    )
    seconds = pace.expected(schedule, done)
    print(f"expected: {duration(seconds)}, without checkpoints; nothing was written")
    return seconds
