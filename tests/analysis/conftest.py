"""Fixture `same`: comparison with the golden file in both precisions."""

from tests.algorithms.conftest import precision as precision
from tests.algorithms.conftest import same as same
