"""Early stopping: when the rules stop, what they refuse, and that a killed run ends where an uninterrupted one does."""

import dataclasses

import numpy as np
import pytest

import fedwin
from fedwin.callbacks import STOPPING_RULES, RunCallbacks, stopping
from tests.refusals import refused
from tests.small_runs import lines, placed, small

NAN, INF = float("nan"), float("inf")
CONFIG = small(
    clients_per_round=2, num_rounds=40, eval_every=4, final_evals=8, checkpoint_every=6, val_fraction=0.2, eval_val=True
)


def stops(choice, curve):
    """Returns the first round at which a rule stops; None if it never does."""
    rule = STOPPING_RULES.build(choice)
    callback = stopping.EarlyStopping(rule, choice)
    return next((round for round, value in curve if callback(round, 0, {rule.read_out: {rule.metric: value}})), None)


# By hand: the last improvement is in round 20 (0.5), so that 30 rounds without one end in round 50.
CURVE = [(0, 0.1), (10, 0.4), (20, 0.5), (30, 0.45), (40, 0.5), (50, 0.499), (60, 0.9), (70, 0.2)]


@pytest.mark.parametrize(
    "choice, curve, expected",
    [
        ("patience:rounds=30", CURVE, 50),
        ("patience:rounds=31", CURVE, None),
        ("patience:rounds=1", CURVE, 30),
        # An improvement by 0.1 (from 0.4 to 0.5) is not more than 0.1.
        ("patience:rounds=30,min_delta=0.1", [(t, v) for t, v in CURVE if t != 60], 40),
        ("patience:rounds=20,metric=val_loss", [(10, 2.0), (20, 1.0), (30, 1.5), (40, 1.0)], 40),
        ("patience:rounds=20", [(0, NAN), (10, 0.3), (20, NAN), (30, NAN)], 30),
        ("patience:rounds=20,metric=loss", [(0, INF), (10, 3.0), (20, INF), (30, 4.0)], 30),
        ("target:value=0.5", CURVE, 20),
        ("target:value=0.7", [(10, float(np.float32(252 / 360)))], 10),
        ("target:value=1.2,metric=val_loss", [(10, 2.0), (20, NAN), (30, 1.2)], 30),
    ],
)
def test_a_rule_stops_in_the_right_round(choice, curve, expected):
    assert stops(choice, curve) == expected


def test_a_state_may_be_zero():
    rule = stopping.StoppingRule("loss", "model", lambda: 2, lambda state, round, value: (state - 1, state == 0))
    callback = stopping.EarlyStopping(rule, "mine")
    assert [callback(t, 0, {"model": {"loss": 1.0}}) for t in range(3)] == [False, False, True]


def test_what_no_evaluation_of_the_run_has_is_refused_before_it():
    config = dataclasses.replace(CONFIG, val_fraction=0.0, eval_val=False, early_stopping="patience:rounds=5")
    refused("val_accuracy needs examples that clients hold out; set --val_fraction=0.1", fedwin.check, config)
    for rule, words in (
        ("patience:rounds=5,metric=val_acuracy", "early_stopping: metric=val_acuracy must be one of .*'val_accuracy'"),
        ("target:value=0.5,read_out=wima9", "early_stopping: read_out=wima9 must be one of model"),
        ("target:value=90", "value=90 of val_accuracy is a fraction"),
        ("patience:rounds=5,min_delta=1", "min_delta=1 of val_accuracy is a fraction"),
    ):
        refused(words, fedwin.check, dataclasses.replace(CONFIG, early_stopping=rule))


def test_a_rule_that_fails_or_returns_something_else_is_named():
    for update, words in (
        (lambda state, round, value: value > 0.5, "update returned True; return .state, True or False"),
        (lambda state, round, value: (state, 0.9), r"update returned \(None, 0.9\); return"),
        (lambda state, round, value: state["best"], "fails after round 3 of seed 0: TypeError in .*test_stopping.py:"),
    ):
        rule = stopping.StoppingRule("loss", "model", lambda: None, update)
        callbacks = RunCallbacks([stopping.EarlyStopping(rule, "mine")], 12)
        refused(f"^early_stopping=mine:? {words}", callbacks.evaluated, {"seed": 0, "round": 3, "model": {"loss": 1.0}})


@pytest.mark.slow
def test_a_killed_run_ends_in_the_round_of_an_uninterrupted_one(tmp_path, monkeypatch, capsys):
    config = dataclasses.replace(CONFIG, early_stopping="patience:rounds=8,min_delta=0.15")
    whole = fedwin.run(placed(config, tmp_path / "whole"))
    at = whole["seeds"][0]["stopped_at"]
    curve = [(line["round"], line["model"]["val_accuracy"]) for line in lines(tmp_path / "whole")]
    assert at == stops(config.early_stopping, curve) == curve[-1][0] < CONFIG.num_rounds
    assert f"seed 0: stopped early in round {at} of 40." in capsys.readouterr().out
    update = stopping.EarlyStopping.__call__

    def killed(self, round, seed, read_outs):
        if update(self, round, seed, read_outs):
            raise SystemExit  # after the evaluation, before the checkpoint of the stop
        return False

    again = placed(config, tmp_path / "killed")
    with monkeypatch.context() as patched, pytest.raises(SystemExit):
        patched.setattr(stopping.EarlyStopping, "__call__", killed)
        fedwin.run(again, quiet=True)
    assert fedwin.run(again, quiet=True)["seeds"][0]["stopped_at"] == at
    assert lines(tmp_path / "killed") == lines(tmp_path / "whole")
    ended = dataclasses.replace(again, early_stopping="")
    refused("holds a run with --early_stopping=.*, not '';", fedwin.run, ended, quiet=True)
