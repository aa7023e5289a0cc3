"""Callbacks of fedwin.run: the evaluations that they receive, how they stop a seed, and resumed runs."""

import dataclasses

import numpy as np
import pytest

import fedwin
from fedwin.callbacks import Callback, RunCallbacks
from fedwin.errors import UserError
from fedwin.runs.checkpoint import Checkpoints
from tests.callbacks.test_trackers import CONFIG
from tests.refusals import refused
from tests.small_runs import lines, placed, run_in

SMALL = dataclasses.replace(CONFIG, num_rounds=12, eval_every=3, final_evals=4, checkpoint_every=5, observe=["ema"])


class Recorder(Callback):
    """Records its calls; stops a seed at the first evaluation at or after a round."""

    def __init__(self, stop_at=None):
        self.stop_at, self.seen, self.earlier = stop_at or {}, [], {}

    def resume(self, seed, evaluations):
        self.earlier[seed] = [round for round, _ in evaluations]

    def __call__(self, round, seed, read_outs):
        self.seen.append((round, seed, read_outs))
        return round >= self.stop_at.get(seed, 1000)


def test_a_callback_receives_every_evaluation_and_a_stopped_seed_ends_exactly_there_for_good(tmp_path):
    plain, path, recorder = tmp_path / "plain", tmp_path / "run", Recorder({0: 6})
    whole = run_in(SMALL, plain, seeds=[0, 1])
    summary = fedwin.run(placed(SMALL, path, seeds=[0, 1]), quiet=True, on_eval=recorder)
    rounds = {0: (0, 3, 6), 1: (0, 3, 6, 9, 10, 11, 12)}
    assert [(round, seed) for round, seed, _ in recorder.seen] == [(r, seed) for seed in (0, 1) for r in rounds[seed]]
    for round, seed, read_outs in recorder.seen:
        (line,) = (line for line in lines(plain, seed) if line["round"] == round)
        assert read_outs == {name: line[name] for name in ("model", "ema")}
    expected = [line for line in lines(plain, 0) if line["round"] <= 6]
    assert lines(path) == [*expected, *lines(plain, 1)]
    stopped, finished = summary["seeds"][0], summary["seeds"][1]
    assert (stopped["stopped_at"], stopped["final_round"], stopped["diverged_at"]) == (6, 6, None)
    assert "stopped_at" not in finished and finished["last"] == whole["seeds"][1]["last"]
    assert summary["fingerprint"] == whole["fingerprint"]
    assert Checkpoints(path / "checkpoints" / "seed_0").latest()[0]["round"] == 6
    # final_evals=4: the mean covers the evaluations of rounds 3 to 6.
    assert stopped["last"]["model"]["accuracy"] == np.mean([line["model"]["accuracy"] for line in expected[1:]])
    assert stopped["evaluations"] == 2
    again = Recorder()
    summary_again = fedwin.run(placed(SMALL, path, seeds=[0, 1]), quiet=True, on_eval=again)
    assert not again.seen and again.earlier == {0: [0, 3, 6], 1: list(rounds[1])}
    assert {**summary_again, "traces": 0} == {**summary, "traces": 0}


def test_a_seed_can_not_stop_in_its_last_round_and_an_answer_is_a_bool_or_none():
    line = {"seed": 0, "round": 6, "model": {"accuracy": 0.5, "loss": "nan"}}
    run = lambda answer, num_rounds: RunCallbacks([fedwin.callbacks.as_callback(lambda *_: answer)], num_rounds)
    for answer, num_rounds, stops in ((True, 12, True), (np.True_, 12, True), (True, 6, False), (None, 12, False)):
        assert run(answer, num_rounds).evaluated(line) is stops
    for answer in (0.93, "no", np.zeros(2)):
        refused("on_eval returned .*; return fedwin.STOP", run(answer, 12).evaluated, line)


def test_an_exception_of_the_users_code_is_one_line_that_names_its_place():
    def broken(round, seed, read_outs):
        read_outs["no such read-out"]

    failing = RunCallbacks([fedwin.callbacks.as_callback(broken)], 12)
    place = broken.__code__.co_firstlineno + 1
    words = rf"on_eval failed after round 6 of seed 0: KeyError in .*{place}: 'no"
    with pytest.raises(UserError, match=words) as caught:
        failing.evaluated({"seed": 0, "round": 6, "model": {"accuracy": 0.5}})
    assert isinstance(caught.value.__cause__, KeyError) and "\n" not in str(caught.value)
