"""Attacks on the model by some of the clients; `attacked` applies one to an algorithm.

The attackers are a fixed set of clients, drawn with the run's seed. A client learns whether it is one of them from
Client.info['attacker'], which `attacked` removes before the algorithm's client function sees it.
"""

import math
from collections.abc import Callable
from typing import Annotated, Any, NamedTuple

import jax
import jax.numpy as jnp
import numpy as np

from fedwin import core, tree
from fedwin.aggregation.aggregator import StepCheck
from fedwin.data.rng import generator
from fedwin.data.views import with_counts, with_views
from fedwin.errors import UserError
from fedwin.losses import check_one_class
from fedwin.registry import Registry
from fedwin.registry.ranges import NonNegativeInt, Positive, Range, Share, check_values

# Tags of the draw of attackers, and of the keys of what they send.
_TAG = 0xA77AC
_KEY = 0x5E4D


class Attack(NamedTuple):
    """The change that attackers make to their steps or examples.

    Attributes:
      name: name of the attack.
      count: number of attackers among all clients.
      corrupt: (core.MeanStep, PRNG key) -> core.MeanStep that is sent instead; None: the client's own.
      poison: (core.Client, whether it attacks) -> core.Client with the examples it trains on; None: its own.
      during: first round of the attack and first one after it, 0-based; None: all rounds.
      trigger: what a backdoor puts into images (backdoor.Trigger), whose success evaluations report; None for none.
    """

    name: str
    count: int  # type: ignore[assignment]  # a tuple has a method of this name
    corrupt: Callable | None = None
    poison: Callable | None = None
    during: tuple[int, float] | None = None
    trigger: Any = None


# Builders have the signature builder(setting, *, clients=..., option=...) -> Attack.
ATTACKS = Registry(
    "attack",
    rule="what attackers do",
    common={"clients": "the attackers: a fraction of all clients (0.2), or their number (3)."},
    builds=Attack,
)

# A fraction of all clients, or their number.
Attackers = Share | NonNegativeInt


def number_of_attackers(owner: str, clients: float, num_clients: int) -> int:
    """Returns the number of attackers.

    Args:
      clients: a fraction of all clients (a float), rounded to the nearest number, or the number (an integer).

    Raises:
      UserError: when there are fewer clients than that, or a fraction rounds to 0 clients.

    Example:
      >>> number_of_attackers("sign_flip", 0.2, 100), number_of_attackers("sign_flip", 3, 100)
      (20, 3)
    """
    count = clients if isinstance(clients, int) else math.floor(clients * num_clients + 0.5)
    if count > num_clients or (clients and not count):
        change = "smaller" if count else "larger"
        raise UserError(f"{owner}: clients={clients}, but the federation has {num_clients}; set a {change} number.")
    return count


def attackers(seed: int, count: int, num_clients: int) -> np.ndarray:
    """Draws the attackers, bool [K]; a larger count includes those of a smaller one; UserError if it is not in 0..K."""
    check_values("attack", Annotated[int, Range(0, num_clients)], count=count)
    mask = np.zeros(num_clients, bool)
    mask[generator(seed, _TAG).permutation(num_clients)[:count]] = True
    return mask


def with_attackers(info: dict[str, np.ndarray] | None, mask: np.ndarray) -> dict[str, np.ndarray]:
    """Returns Federation.info with the attackers."""
    return {**(info or {}), "attacker": mask}


def attacked(algorithm: core.Algorithm, attack: Attack) -> core.Algorithm:
    """Returns an algorithm, before `aggregated`, some of whose clients attack; Client.info must contain 'attacker'.

    An attacker trains, applies all client-side wrappers, and changes its mean step last, so a bound on the step (clip)
    does not hold for attackers. Its weight, its row of the client table, model statistics, metrics and other parts of
    its message remain those of its training.

    Raises:
      UserError: on tracing a round, when an attack on steps meets clients that send no mean step, or something derived
        from it.
    """
    if not attack.count:
        return algorithm
    check = StepCheck(f"attack={attack.name}", algorithm)

    def with_attack(phase: core.Phase) -> core.Phase:
        honest = phase.client
        assert honest is not None

        def client(down, c):
            attacks = c.info["attacker"]
            if attack.during is not None:
                attacks = attacks & (c.round >= attack.during[0]) & (c.round < attack.during[1])
            c = c._replace(info={name: value for name, value in c.info.items() if name != "attacker"})
            if attack.poison is not None:
                c = attack.poison(c, attacks)
            update = honest(down, c)
            if attack.corrupt is None or not check(phase, update.message):
                return update
            key = jax.random.fold_in(c.key, _KEY)
            sent = lambda step: tree.where(attacks, attack.corrupt(step, key), step)
            return update._replace(message=core.map_mean_steps(sent, update.message))

        return phase._replace(client=client)

    return core.with_client_phases(with_attack, algorithm)


@ATTACKS.register("none")
def none(setting: core.Setting) -> Attack:
    """No client attacks; the default.

    Example:
      >>> from fedwin import testing
      >>> testing.run_rounds("fedavg", attack="none") == testing.run_rounds("fedavg")
      True
    """
    return Attack("none", 0)


@ATTACKS.register("sign_flip", paper="li2019rsa")
def sign_flip(setting: core.Setting, *, clients: Attackers = 0.2, scale: Positive = 1.0) -> Attack:
    """Attackers send their step with the opposite sign: -scale (y_i - x).

    Args:
      scale: factor of the step.

    Source: Li et al., RSA: Byzantine-Robust Stochastic Aggregation Methods for Distributed Learning from Heterogeneous
    Datasets, 2019, https://arxiv.org/abs/1811.03761.

    Example:
      >>> from fedwin import testing
      >>> testing.run_rounds("fedavg", attack="sign_flip:clients=1")  # one of two clients
      {'model': [14.921, 30.166, 56.923]}
    """

    def corrupt(sent, key):
        return sent._replace(total=tree.scale(-scale, sent.total))

    return Attack("sign_flip", number_of_attackers("sign_flip", clients, setting.num_clients), corrupt)


@ATTACKS.register("gaussian", paper="blanchard2017machine")
def gaussian(setting: core.Setting, *, clients: Attackers = 0.2, std: Positive = 1.0) -> Attack:
    """Attackers send independent normal numbers in place of their step.

        d_i ~ N(0, std^2 I),   drawn anew in every round

    Args:
      std: standard deviation of every coordinate.

    Source: Blanchard et al., Machine Learning with Adversaries: Byzantine Tolerant Gradient Descent, 2017,
    https://arxiv.org/abs/1703.02757.

    Example:
      >>> from fedwin import testing
      >>> testing.run_rounds("fedavg", attack="gaussian:clients=1,std=0.1")
      {'model': [7.991, 9.122, 9.588]}
    """

    def corrupt(sent, key):
        return type(sent)(*core.mean(tree.normal(sent.total, key, std), sent.weight))

    return Attack("gaussian", number_of_attackers("gaussian", clients, setting.num_clients), corrupt)


def poisoned(c: core.Client, chosen, **changes: Callable) -> core.Client:
    """Returns a client that reads changed values of some of its examples.

    Args:
      chosen: which of its examples, bool [n_max] or [].
      **changes: feature -> its change, values [B, ...] -> values.
    """

    def where_chosen(change: Callable) -> Callable:
        def changed(read, rows, chosen):
            mask = jnp.reshape(chosen[rows], jnp.shape(rows) + (1,) * (read.ndim - jnp.ndim(rows)))
            return jnp.where(mask, change(read), read).astype(read.dtype)

        return changed

    changed = {name: where_chosen(change) for name, change in changes.items()}
    return with_views(c, jnp.broadcast_to(chosen, c.index.shape), changed)


@ATTACKS.register("label_flip", paper=("fang2020local", "fung2020limitations"))
def label_flip(setting: core.Setting, *, clients: Attackers = 0.2) -> Attack:
    """Attackers train on labels C - 1 - y in place of y, with C classes, and are otherwise honest.

    All label counts that losses read (weighted softmax) count flipped labels, also among the examples that a client
    holds out for validation; evaluations on these use the original labels.

    Raises:
      UserError: when the number of classes is unknown, or examples have several labels.

    Source: Fang et al., Local Model Poisoning Attacks to Byzantine-Robust Federated Learning, 2020,
    https://arxiv.org/abs/1911.11815. Fung et al., The Limitations of Federated Learning in Sybil Settings, 2020,
    https://arxiv.org/abs/1808.04866 (where the labels of one class become those of another).

    Example:
      >>> from fedwin import testing
      >>> testing.run_rounds("fedavg", attack="label_flip:clients=1", problem=testing.classification())
      {'model': [0.777, 0.589, 0.444]}
    """
    if setting.model is None:
        raise UserError("label_flip: the model does not say how many classes there are; choose another --model.")

    def poison(c, attacks):
        check_one_class(c.examples["y"], "label_flip", "choose another --attack")
        # Of the data, as counts are: the model may have more. The counts are those of the labels that it trains on.
        num_classes = c.info["train"].shape[-1] if "train" in c.info else setting.model.num_classes
        info = with_counts(c.info, lambda counts: jnp.where(attacks, jnp.flip(counts, -1), counts))
        return poisoned(c._replace(info=info), attacks, y=lambda y: num_classes - 1 - y)

    return Attack("label_flip", number_of_attackers("label_flip", clients, setting.num_clients), poison=poison)
