"""Learning-rate schedules."""

import numpy as np
import pytest

from fedwin.runs.config import Config
from fedwin.runs.prepare import prepare
from fedwin.schedules import cosine, warmup_stable_decay


def test_half_a_cosine_falls_from_the_rate_towards_zero():
    rates = np.array([cosine(0.4, 8)(t) for t in range(9)])
    np.testing.assert_allclose(rates[:8], [0.2 * (1 + np.cos(np.pi * t / 8)) for t in range(8)], rtol=1e-6)
    assert rates[0] == np.float32(0.4) and rates[4] == pytest.approx(0.2) and np.all(np.diff(rates[:8]) < 0)
    assert rates[8] == rates[7]  # one more round


def test_the_decay_of_the_last_fifth_starts_at_the_rate_and_leaves_the_rounds_before_it_alone():
    rates = np.array([warmup_stable_decay(0.4, 20)(t) for t in range(20)])
    np.testing.assert_allclose(rates, [0.4] * 17 + [0.3, 0.2, 0.1], rtol=1e-6)
    assert np.all(rates[:17] == np.float32(0.4)) and warmup_stable_decay(0.4, 20)(20) == rates[19]


def test_a_run_has_the_course_that_its_flags_say():
    config = dict(dataset="digits", model="digits_mlp", num_rounds=8, client_lr=0.4, clients_per_round=2)
    assert float(prepare(Config(**config, lr_schedule="cosine")).solver.rate(4)) == pytest.approx(0.2)
    assert float(prepare(Config(**config, lr_schedule="wsd")).solver.rate(7)) == pytest.approx(0.25)
    assert float(prepare(Config(**config)).solver.rate(4)) == pytest.approx(0.4)
    warm = prepare(Config(**config, lr_schedule="wsd", lr_warmup=0.5)).solver
    np.testing.assert_allclose([warm.rate(t) for t in range(8)], [0.1, 0.2, 0.3, 0.4, 0.4, 0.4, 0.4, 0.25], rtol=1e-6)
