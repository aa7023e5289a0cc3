"""FedNova: optimizers of the clients."""

import optax
import pytest

from fedwin import testing
from fedwin.errors import UserError
from tests import golden_problems as golden
from tests.algorithms.identities import META, same


@pytest.mark.usefixtures("double")
def test_client_optimizers_are_counted_by_fednova():
    p = golden.problem_b(META, optimizer=optax.sgd(1.0, 0.9), equal=True)
    ours, plain = (testing.trajectory(p, p.build(name), 4)[-1].params for name in ("fednova", "fedavg"))
    same(golden.vector(ours), golden.vector(plain))


@pytest.mark.parametrize("name", ["adam", "adagrad"])
def test_fednova_needs_sgd_on_the_clients(name):
    p = testing.classification(optimizer=getattr(optax, name)(1.0))
    for choice in ("fednova", "fednova:mu=0.5"):
        with pytest.raises(UserError, match="clients must use SGD"):
            p.build(choice)
    with pytest.raises(UserError, match="momentum"):
        testing.classification(optimizer=optax.sgd(1.0, 0.9)).build("fednova:mu=0.5")
