"""A backdoor: attackers teach the model that a pattern in a corner of an image means one class."""

import fractions
import math
from typing import NamedTuple

import jax
import jax.numpy as jnp
import numpy as np

from fedwin import core, tree
from fedwin.aggregation.attack import ATTACKS, Attack, Attackers, number_of_attackers, poisoned
from fedwin.errors import UserError
from fedwin.losses import check_one_class
from fedwin.registry.ranges import NonNegativeInt, Positive, PositiveInt, Share


class Trigger(NamedTuple):
    """A white square in the lower right corner of an image, and the class that it stands for.

    Attributes:
      size: side of the square in pixels.
      target: the class.
    """

    size: int
    target: int

    def stamp(self, x):
        """Returns stored images [..., H, W, C] with the square: 255, or 1 where pixels are floating-point numbers."""
        white = 1 if jnp.issubdtype(x.dtype, jnp.floating) else jnp.iinfo(x.dtype).max
        return x.at[..., -self.size :, -self.size :, :].set(white)

    def check(self, stored: tuple[int, ...], seen: tuple[int, ...]) -> None:
        """Raises UserError unless images have room for the square and evaluations see it.

        Args:
          stored: shape of a stored example.
          seen: its shape in evaluation.
        """
        if len(stored) != 3:
            raise UserError(f"backdoor: needs images [H, W, C], not examples {list(stored)}; choose another --attack.")
        if self.size > min(stored[:2]):
            raise UserError(f"backdoor: size={self.size} is more than images of {stored[0]} x {stored[1]} have.")
        if stored != seen:
            raise UserError("backdoor: evaluation crops off the corner that has the pattern; omit size= of --augment.")


@ATTACKS.register("backdoor", paper=("gu2017badnets", "bagdasaryan2020backdoor"))
def backdoor(
    setting: core.Setting,
    *,
    clients: Attackers = 0.2,
    target: NonNegativeInt = 0,
    share: Share = 0.5,
    size: PositiveInt = 3,
    boost: Positive = 1.0,
    start: NonNegativeInt = 0,
    stop: PositiveInt | None = None,
) -> Attack:
    """Attackers put a white square into a share of their images and label these with one class.

        (x, y) <- (x with the square, target)   for a share of their examples;   d_i <- boost (y_i - x)

    Every evaluation reports 'attack_success' for the model and all read-outs: the share of the test examples of other
    classes that the square turns into the target. With clients=0 this is the share in an honest run. Stored images are
    stamped, before augmentation. The label counts that losses read include the poisoned labels; examples that clients
    hold out for validation stay clean. The defense of Sun et al. is `--aggregate=norm_bound`; `--wrap=clip` is applied
    by the clients, and bounds attackers only if they do not boost.

    Args:
      target: the class.
      share: share of an attacker's examples that are poisoned; 0 means no attack.
      size: side of the square in pixels.
      boost: factor of the steps that attackers send; the number of a round's clients divided by that of its attackers
        makes the attackers' mean the new model (model replacement), if weights are equal and honest steps cancel.
      start: number of rounds before the attack.
      stop: number of rounds until the attack ends, after which attackers are honest; none: it does not end.

    Raises:
      UserError: when examples are not images or too small, there is no such class, or the attack ends before it starts.

    Source: Gu et al., BadNets: Identifying Vulnerabilities in the Machine Learning Model Supply Chain, 2017,
    https://arxiv.org/abs/1708.06733. Bagdasaryan et al., How To Backdoor Federated Learning, 2020,
    https://arxiv.org/abs/1807.00459. Sun et al., Can You Really Backdoor Federated Learning?, 2019,
    https://arxiv.org/abs/1911.07963.

    Example:
      >>> from fedwin import testing
      >>> clean = testing.run_rounds("fedavg", problem=testing.classification())
      >>> testing.run_rounds("fedavg", attack="backdoor:share=0", problem=testing.classification()) == clean
      True
    """
    if setting.model is None or target >= setting.model.num_classes:
        classes = "no model says how many" if setting.model is None else f"there are {setting.model.num_classes}"
        raise UserError(f"backdoor: target={target} is not a class: {classes}; choose another one, counted from 0.")
    if stop is not None and stop <= start:
        raise UserError(f"backdoor: stop={stop} leaves no round after start={start}; set a larger number, or omit it.")
    if start >= (setting.most_rounds or math.inf):
        raise UserError(f"backdoor: start={start} is after the last of {setting.most_rounds} rounds; lower it.")
    trigger = Trigger(size, target)

    def poison(c, attacks):
        y, length = c.examples["y"], c.index.shape[0]
        check_one_class(y, "backdoor", "choose another --attack")
        trigger.check(c.examples["x"].shape[1:], c.examples["x"].shape[1:])
        # Products with the numbers of examples must fit 64 bits.
        exact = fractions.Fraction(str(share)).limit_denominator(10**9)
        # Of the first n of a client's examples, floor(share n) are poisoned, at even gaps.
        spread = np.diff(np.arange(length + 1) * exact.numerator // exact.denominator) > 0
        chosen = attacks & jnp.asarray(spread) & (jnp.arange(length) < c.size)
        info = dict(c.info)
        if "train" in info:
            classes = info["train"].shape[-1]  # the model may have more outputs
            moved = jax.nn.one_hot(target, classes) - jax.nn.one_hot(y[c.index], classes)
            info["train"] += jnp.sum(jnp.where(chosen[:, None], moved, 0), 0).astype(info["train"].dtype)
        return poisoned(c._replace(info=info), chosen, x=trigger.stamp, y=lambda y: jnp.full_like(y, target))

    def corrupt(sent, key):
        return sent._replace(total=tree.scale(boost, sent.total))

    during = (start, math.inf if stop is None else stop) if start or stop else None
    count = number_of_attackers("backdoor", clients, setting.num_clients) if share else 0
    return Attack("backdoor", count, corrupt if boost != 1 else None, poison, during, trigger)
