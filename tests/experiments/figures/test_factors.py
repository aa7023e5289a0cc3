"""Figure of the factors of the loss: the bias-variance identity, and locality."""

import numpy as np
import pytest

from experiments.figures import factors
from fedwin import analysis, client_models, load
from fedwin.errors import UserError
from tests.experiments.figures.common import drawn


@pytest.fixture(scope="module")
def found(finished):
    return factors.compute({"fedavg": finished}, rounds=[4], clients=[1, 2, 5], count=200)


def test_factors_add_up(found):
    (run,) = found["runs"]
    assert run["rounds"] == [4] and found["replicas"] == 2
    parts = np.sum([run[name] for name in ("bias_squared", "variance", "covariance")], 0)
    np.testing.assert_allclose(parts, run["ensemble_loss"], rtol=1e-6)
    assert min(run["variance"]) > 0 and all(0 <= cka <= 1 for cka in run["cka"])
    # Clients know their own data better than others', all the more where data differ.
    assert all(own < other for own, other in zip(run["train_bias"], run["heter_bias"]))
    assert all(own < other for own, other in zip(run["train_error"], run["heter_error"]))


@pytest.mark.slow
def test_locality_and_loss_are_those_of_the_clients_mean(finished, found):
    trained = load(finished, round=4)
    models = client_models(trained, [1, 2, 5])
    sizes = trained.prepared.federations[0].sizes[[1, 2, 5]]
    centre = analysis.mix(sizes / sizes.sum(), models)
    assert found["runs"][0]["locality"][0] == pytest.approx(analysis.locality(models, centre).max(), rel=1e-6)
    assert found["runs"][0]["locality_mean"][0] < found["runs"][0]["locality"][0]


def test_picture(found, tmp_path):
    drawn(found, tmp_path)
    alone = found["runs"][0] | {"variance": [None], "covariance": [None]}
    drawn(found | {"replicas": 1, "runs": [alone]}, tmp_path)


def test_misuse(finished):
    for options, message in (
        ({"replicas": 0}, "replicas=0"),
        ({"rounds": [9]}, "no checkpoint of round 9"),
        ({"clients": [3]}, "fewer than two"),
        ({"seed": 7}, "no checkpoint of seed 7"),
    ):
        with pytest.raises(UserError, match=message):
            factors.compute({"fedavg": finished}, **options)
