"""The summary of a run: per seed and over seeds."""

from typing import Any

import numpy as np

from fedwin.errors import UserError
from fedwin.runs.config import Config
from fedwin.runs.train import Result


def _read_outs(line: dict[str, Any]) -> dict[str, dict[str, float]]:
    """Returns read-out -> metric -> value of a line of metrics.jsonl."""
    return {
        name: {metric: float(value) for metric, value in found.items()}
        for name, found in line.items()
        if isinstance(found, dict)
    }


def _means(lines: list[dict[str, Any]]) -> dict[str, dict[str, float]]:
    """Returns read-out -> metric -> mean over lines."""
    found = [_read_outs(line) for line in lines]
    return {
        name: {metric: float(np.mean([line[name][metric] for line in found])) for metric in metrics}
        for name, metrics in found[0].items()
    }


def _of_seed(config: Config, seed: int, result: Result, lines: list[dict[str, Any]]) -> dict[str, Any]:
    mine = [line for line in lines if line["seed"] == seed]
    if not mine:
        raise UserError(f"metrics.jsonl has no line of seed {seed}; run it again in another --out_dir.")
    first, end = mine[0]["round"], mine[-1]["round"]
    counted = max(config.final_evals, 1)
    last = [line for line in mine if line["round"] > config.num_rounds - counted]
    if result.diverged_at is None and len({line["round"] for line in last}) < min(counted, config.num_rounds - first):
        raise UserError(
            f"metrics.jsonl has {len(last)} of the last {counted} evaluations of seed {seed}; run it again in another "
            f"--out_dir."
        )
    rounds, seconds = result.steady
    return {
        "final_round": end,
        "diverged_at": result.diverged_at,
        "wall_seconds": result.seconds,
        "compile_seconds": result.compile_seconds,
        # Of the dispatches that compiled nothing; a run of one dispatch has no pace.
        "rounds_per_second": rounds / seconds if seconds else None,
        "evaluations": len(last),
        # A diverged seed has no mean of its last rounds: the last finite evaluation would flatter it.
        "last": _means(last) if result.diverged_at is None else None,
        "final": _read_outs(mine[-1]),
    }


def _over_seeds(seeds: dict[int, dict[str, Any]]) -> dict[str, Any]:
    """Returns read-out -> metric -> mean and standard deviation over the seeds that did not diverge."""
    kept = [seed["last"] for seed in seeds.values() if seed["last"] is not None]
    shape = next(iter(seeds.values()))["final"]

    def spread(name, metric):
        values = [seed[name][metric] for seed in kept]
        return {
            "mean": float(np.mean(values)) if values else None,
            "std": float(np.std(values, ddof=1)) if len(values) > 1 else None,
            "seeds": len(values),
            "of_seeds": len(seeds),
        }

    return {name: {metric: spread(name, metric) for metric in metrics} for name, metrics in shape.items()}


def summarise(
    config: Config, results: dict[int, Result], lines: list[dict[str, Any]], fingerprint: str, traces: int
) -> dict[str, Any]:
    """Returns the summary of a run.

    Args:
      config: what ran.
      results: seed -> what became of it.
      lines: all evaluations (metrics.jsonl).
      fingerprint: of the run.
      traces: programs that were compiled.

    Returns:
      Per seed and over seeds: the mean of the last N evaluations of every read-out, the final one, times. Diverged
      seeds have no such mean and are left out of those over seeds, which say how many seeds they cover.

    Raises:
      UserError: evaluations are missing.
    """
    seeds = {seed: _of_seed(config, seed, result, lines) for seed, result in results.items()}
    return {
        "algorithm": config.algorithm,
        "num_rounds": config.num_rounds,
        "last_rounds": min(max(config.final_evals, 1), config.num_rounds),
        "fingerprint": fingerprint,
        "traces": traces,
        "over_seeds": _over_seeds(seeds),
        "seeds": seeds,
    }
