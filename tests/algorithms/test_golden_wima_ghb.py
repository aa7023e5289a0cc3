"""Golden trajectories of golden_wima_ghb.json, in float64 and float32.

FEDWIN_GOLDEN_DIR points the same tests at other problems of the same schema.
"""

import functools

import jax
import numpy as np
import pytest

from fedwin import engine, observers, testing, wrappers
from fedwin.algorithms import ALGORITHMS
from tests import golden_problems as golden
from tests.algorithms.numpy_clients import row

DATA = golden.load("golden_wima_ghb.json")

# What the file calls a hyper-parameter and what the builder calls it, where they differ.
RENAMED = {"fedopt": {"lr": "server_lr"}, "fedacg": {"lambda": "lam"}}


def build(p, key, hparams, extras=()):
    """Builds what a key names: the longest registered name that it begins with."""
    name = max((name for name in ALGORITHMS if key == name or key.startswith(name + "_")), key=len)
    names = RENAMED.get(name, {})
    given = {names.get(k, k): v for k, v in hparams.items() if k != "anchors"}
    if "average_model" in extras:
        given["eval_model"] = "average"
    if key == "fedopt_adam":
        given.setdefault("optimizer", "adam")
    return p.build(name, **given)


def problem(letter, **changes):
    meta = DATA[f"problem_{letter}"]
    return (golden.problem_a if letter == "A" else golden.problem_b)(meta, **changes), meta["rounds"]


def models(runs, read=lambda run: run.params):
    return np.stack([golden.vector(read(run)) for run in runs])


# What the file lists of every round: its place in ours.
PLACES = {
    "server_model": lambda algorithm, run: run.params,
    "server_control": lambda algorithm, run: run.state,
    "average_model": lambda algorithm, run: engine.read_out(algorithm, {}, run)["model"].params,
    "server_momentum": lambda algorithm, run: run.state.m,
    "lookahead_after_round": lambda algorithm, run: algorithm.phases[0].broadcast(run.params, run.state),
}

CASES = [(letter, key) for letter in "AB" for key in DATA[f"golden_{letter}"]]


@pytest.fixture
def checked(same):
    return functools.partial(same, rtol=2e-5, atol=2e-6)


@pytest.mark.parametrize("letter,key", CASES)
def test_golden(letter, key, precision, checked):
    entry = DATA[f"golden_{letter}"][key]
    p, rounds = problem(letter)
    algorithm = build(p, key, entry["hparams"], extras=entry)
    start = p.start(algorithm)
    if "anchors" in entry["hparams"]:
        anchors = golden.tree(p, entry["hparams"]["anchors"])
        start = start._replace(table=start.table._replace(anchor=jax.tree.map(jax.numpy.asarray, anchors)))
    runs = testing.trajectory(p, algorithm, rounds, run=start)
    assert models(runs).dtype == precision
    for name, expected in entry.items():
        if name == "final_client_controls":
            checked([row(runs[-1].table, i) for i in range(p.setting.num_clients)], expected)
        elif name != "hparams":
            checked(models(runs, lambda run: PLACES[name](algorithm, run)), expected)


@pytest.mark.parametrize("base", ["fedavg", "fedavgm"])
def test_golden_wima(base, checked):
    entry = DATA["golden_wima"]
    p, _ = problem(entry["problem"])
    size = entry["W"]
    readings = (
        observers.ReadOut("partial", size),
        observers.ReadOut("raw", size, warmup="raw"),
        observers.ReadOut("classifier", size, "classifier"),
        observers.ReadOut("features", size, "features"),
        observers.ReadOut("itself", 1),
    )
    watch = observers.wima(readings, ("classifier",))
    algorithm = build(p, base, DATA[f"golden_{entry['problem']}"][base]["hparams"])
    runs = testing.trajectory(p, algorithm, entry["rounds"], {"wima": watch})
    reads = [engine.read_out(algorithm, {"wima": watch}, run) for run in runs]
    read = lambda name: np.stack([golden.vector(r[name].params) for r in reads])
    checked(read("model"), entry[f"{base}_raw"])
    checked(read("partial"), entry[f"wima_{base}_partial_warmup"])
    assert (read("itself") == read("model")).all()
    if base == "fedavg":
        checked(read("raw"), entry["wima_fedavg_raw_warmup"])
        checked(read("classifier"), entry["wima_classifier_only"])
        checked(read("features"), entry["wima_feature_extractor_only"])


@pytest.mark.parametrize("phase", ["code", "swa"])
def test_golden_swa(phase, checked):
    entry = DATA["golden_swa"]
    expected = entry[phase]
    p, _ = problem(entry["problem"], lr=entry["lr1"], num_rounds=entry["rounds"])
    text = f"swa:start={entry['start']},cycle={entry['cycle']},phase={phase},second_lr={entry['lr2']}"
    wrapper = wrappers.WRAPPERS.build(text, p.setting)
    algorithm = p.build("fedavg", wrapper)
    rate = wrapper.solver(p.solve).rate
    checked([rate(np.int32(i)) for i in range(entry["rounds"])], expected["lr_by_round"])
    runs = testing.trajectory(p, algorithm, entry["rounds"])
    checked(golden.vector(runs[-1].params), expected["raw_final"])
    seen = models(runs, lambda run: engine.read_out(algorithm, {}, run)["model"].params)
    checked(seen[entry["start"] :], expected["eval_from_start"])
    for before, run in zip(seen[: entry["start"]], runs):
        assert (before == golden.vector(run.params)).all()
    assert int(runs[-1].state.own.count) == expected["n_models"]
