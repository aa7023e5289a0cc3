"""Schedules of dispatches and their participants, at a cost independent of the number of clients."""

import dataclasses

import numpy as np

from fedwin import sampling
from fedwin.engine.strategy import Strategy
from fedwin.runs.config import Config
from fedwin.runs.schedule import Attendance, CohortSchedule, Schedule
from tests.residence.test_examples import of_sizes

FEDERATION = of_sizes([2] * 30)


def schedule(num_rounds):
    return Schedule(Config(num_rounds=num_rounds, rounds_per_dispatch=5))


def test_a_block_is_drawn_once_and_dispatches_are_cut_from_it():
    drawn = []
    uniform = sampling.uniform_sampler(30, 3)
    sampler = dataclasses.replace(uniform, draw=lambda *at: drawn.append(at[1]) or uniform.draw(*at))
    cohorts = CohortSchedule(FEDERATION, schedule(17), Strategy(), 7, sampler)
    for begin, end in ((0, 2), (2, 5), (5, 6), (2, 5), (15, 17)):
        found, n_max = cohorts.cohorts(begin, end)
        assert found.ids.shape == (5, 3) and n_max == 2
        assert found.present[: end - begin].all() and not found.present[end - begin :].any()
        drawn_anew = [sampling.cohort(7, round, 30, 3) for round in range(begin, end)]
        np.testing.assert_array_equal(found.ids[: end - begin], drawn_anew)
    assert drawn == [0, 1, 2, 3, 4, 5, 6, 7, 8, 9, 15, 16]


def test_the_work_is_asked_for_those_who_answer():
    asked = []
    work = lambda seed, round, ids: asked.append((seed, round, ids.tolist())) or ids / 10
    draw = sampling.Draw(ids := np.array([7, 3, 5]), answers=np.array([True, False, True]))
    sampler = sampling.Sampler(lambda seed, round: draw, 30, 4, 2, 3)
    found = CohortSchedule(FEDERATION, schedule(17), Strategy(), 7, sampler, work).cohorts(5, 7)[0].work
    assert found.dtype == np.float32 and asked == [(7, round, [7, 5]) for round in range(5, 10)]
    np.testing.assert_allclose(found, [[0.7, 1, 0.5, 1]] * 2 + [[1] * 4] * 3, rtol=1e-5)
    # A draw without work takes all steps, wherever dispatches are cut.
    some = dataclasses.replace(sampler, draw=lambda _, round: draw._replace(work=ids / 10 if round % 2 else None))
    cohorts = CohortSchedule(FEDERATION, schedule(17), Strategy(), 7, some)
    found = [cohorts.cohorts(*rounds)[0].work[:, 0].tolist() for rounds in ((0, 4), (2, 3))]
    np.testing.assert_allclose(found, [[1, 0.7, 1, 0.7, 1], [1] * 5], rtol=1e-5)


def test_a_dropped_update_was_sent():
    draw = sampling.Draw(np.arange(2), started=4, dropped=1)
    sampler = sampling.Sampler(lambda seed, round: draw, 30, 2, 2, 2)
    cohorts = CohortSchedule(FEDERATION, schedule(3), Strategy(), 0, sampler)
    assert list(Attendance(cohorts, (10, 100)).bytes(3)) == [3 * 4 * 10, 3 * 3 * 100]
    assert Attendance(cohorts, (10, 100), 3, {"bytes": (8, 6)}).bytes(2) == (8, 6)  # ended in round 2, resumes after 3


def test_a_saved_time_continues_to_the_bit():
    cohorts = CohortSchedule(FEDERATION, schedule(17), Strategy(), 0, sampling.uniform_sampler(30, 3))
    count = lambda completed, saved: Attendance(cohorts, (1, 1), completed, saved, lambda round, draw: 0.1 + round / 7)
    at_once, resumed = count(0, {}), count(4, count(0, {}).state(4))
    assert resumed.state(9) == at_once.state(9)
    np.testing.assert_allclose(at_once.evaluated(9)["simulated_seconds"], 0.9 + 36 / 7)


def test_no_dispatch_goes_through_all_clients(monkeypatch):
    fed = of_sizes([2] * 1000)
    cohorts = CohortSchedule(fed, schedule(100), Strategy(), 0, sampling.uniform_sampler(1000, 3))
    cohorts.cohorts(0, 5)
    monkeypatch.setattr(type(fed.partition), "sizes", property(lambda self: 1 / 0))
    cohorts.cohorts(5, 10)
