"""FedDyn and AdaBest: the server's drift term, and the average."""

import jax
import pytest

from fedwin import engine
from tests import golden_problems as golden
from tests.algorithms.identities import differ, models, problem, runs, same

pytestmark = pytest.mark.usefixtures("double")


def test_feddyns_server_term_is_the_mean_of_the_clients_terms():
    for run in runs("feddyn:alpha=0.1"):
        same(golden.vector(run.state.s), golden.vector(jax.tree.map(lambda leaf: leaf.mean(0), run.table)))


@pytest.mark.parametrize("choice", ["feddyn:alpha=0.1", "adabest"])
def test_evaluating_the_average_leaves_training_alone(choice):
    average = choice + (",eval_model=average" if ":" in choice else ":eval_model=average")
    same(models(choice), models(average), 0)
    p = problem("partial")
    shown = engine.read_out(p.build(average), {}, runs(average)[-1])["model"].params
    differ(golden.vector(shown), models(choice)[-1])
