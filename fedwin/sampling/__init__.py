"""Client sampling: which clients take part in which round, by name.

A builder has the signature `builder(population: Population, *, option=default, ...) -> Sampler`. To add a sampler,
write one file with `@SAMPLERS.register(...)` above its builder: every module of this package is imported.
"""

from fedwin.data.rng import generator
from fedwin.registry import import_all
from fedwin.sampling.arrivals import Jobs, asynchronous, first_to_arrive, greatest_staleness
from fedwin.sampling.base import SAMPLERS, Draw, Population, Sampler, make_sampler, uniforms
from fedwin.sampling.drawing import cohort, uniform_sampler

import_all(__name__, __path__)

__all__ = [
    "SAMPLERS",
    "Draw",
    "Jobs",
    "Population",
    "Sampler",
    "asynchronous",
    "cohort",
    "first_to_arrive",
    "generator",
    "greatest_staleness",
    "make_sampler",
    "uniform_sampler",
    "uniforms",
]
