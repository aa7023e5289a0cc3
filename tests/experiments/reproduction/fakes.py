"""Results with one made-up record per run, and cells and numbers without training."""

from experiments.papers.items import Cell, Variation
from experiments.papers.trajectories import Fields, Run
from experiments.records import Record
from experiments.reproduction.numbers import Value
from experiments.reproduction.results import Results

ROUNDS = 20
RUN = Run(Fields(num_rounds=ROUNDS, eval_every=5, final_evals=3))


def record(run=RUN, strategy="chunked:k=1", observe=(), eval_every=1, seeds=(0,), **stored):
    """A record of a run: evaluated after every round, with accuracy round / ROUNDS."""
    lines = [
        {"seed": seed, "round": r, "model": {"accuracy": r / ROUNDS, "loss": 1.0}}
        for seed in seeds
        for r in range(ROUNDS + 1)
    ]
    config = {"num_rounds": ROUNDS, "eval_every": eval_every, "final_evals": 100, "algorithm": "fedavg"}
    config |= {"dataset": "digits", "seeds": list(seeds), "observe": list(observe)}
    about = {"config": config, "stored": stored} | ({"strategy": strategy} if strategy else {})
    return Record(about, lines, {"seeds": {str(seed): {"wall_seconds": 36.0} for seed in seeds}})


class Fake(Results):
    """Results with the given records, one or a list, by key of their run."""

    def __init__(self, by_key=None, scale="trend"):
        super().__init__(scale)
        self.by_key = by_key or {RUN.key: record()}

    def records(self, run):
        found = self.by_key.get(run.key, [])
        return found if isinstance(found, list) else [found]


def cell(measure, run=RUN, row="a", column="data"):
    return Cell(Variation(row), Variation(column), Variation("base"), (run,), "", measure, None, None)


def number(row, measure, each, rounds=(100, 100), column="data", **fields):
    run = Run(Fields(num_rounds=rounds[1], **fields))
    return Value(cell(measure, run, row, column), each, rounds, scale="trend")
