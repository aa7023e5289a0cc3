"""FedDyn and AdaBest: drift terms of clients and server."""

import jax
import pytest

from fedwin import core, engine, testing, tree
from tests import golden_problems as golden
from tests.algorithms.identities import T, differ, models, problem, runs, same

pytestmark = pytest.mark.usefixtures("double")


def test_feddyns_server_term_is_the_mean_of_the_clients_terms():
    for run in runs("feddyn:alpha=0.1"):
        same(golden.vector(run.state.s), golden.vector(jax.tree.map(lambda leaf: leaf.mean(0), run.table)))


def test_feddyn_without_alpha_is_local_sgd_and_a_server_integrator():
    p = problem("partial")

    def client(params, c):
        y = p.solve(params, c)
        delta = tree.sub(y.params, params)
        return core.Update({"delta": core.mean(delta, c.size), "sum": delta})

    def server(params, s, total, round):
        s = tree.axpy(1 / p.setting.num_clients, total["sum"], s)
        return tree.add(params, tree.add(total["delta"].value, s)), s

    integrator = core.algorithm(client, server, init=tree.zeros_like)
    reference = [golden.vector(run.params) for run in testing.trajectory(p, integrator, T)]
    same(models("feddyn:alpha=1e-12"), reference, 1e-8)


@pytest.mark.parametrize("choice", ["feddyn:alpha=0.1", "adabest"])
def test_evaluating_the_average_leaves_training_alone(choice):
    average = choice + (",eval_model=average" if ":" in choice else ":eval_model=average")
    same(models(choice), models(average), 0)
    p = problem("partial")
    shown = engine.read_out(p.build(average), {}, runs(average)[-1])["model"].params
    differ(golden.vector(shown), models(choice)[-1])
