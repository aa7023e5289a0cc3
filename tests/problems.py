"""Clients whose local training takes given steps, and methods in wrappers."""

import numpy as np

from fedwin import testing
from fedwin.wrappers import WRAPPERS

# Steps of five clients, and their numbers of examples.
STEPS = np.array([[3.0, 4.0, -0.3], [0.2, -0.5, -0.2], [5.0, 1.5, -0.1], [0.1, 0.2, 4.0], [0.3, 0.1, -2.0]])
SIZES = [1, 2, 1, 3, 1]


def stepping(steps=STEPS, schedule=None, sizes=None) -> testing.Problem:
    """Client i moves from 0 by steps[i]: curvature 1 at rate 1 leads to the center. By default all take part."""
    count, start = len(steps), np.zeros_like(steps[0])
    return testing.quadratic(
        [1.0] * count, steps, start, steps=1, lr=1.0, schedule=schedule or [range(count)], sizes=sizes
    )


def built(p: testing.Problem, choice, *texts: str):
    """Builds an algorithm for a problem in wrappers that are given by name."""
    return p.build(choice, *(WRAPPERS.build(text, p.setting) for text in texts))


def one_round(p: testing.Problem, choice, *texts: str):
    """Returns the run after the first round of an algorithm in wrappers."""
    return testing.trajectory(p, built(p, choice, *texts), 1)[-1]
