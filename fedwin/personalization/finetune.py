"""Fine-tuning of the evaluated model, or of part of it, on each client's training examples."""

import dataclasses
import math
import operator
from typing import Literal

import jax
import jax.numpy as jnp

from fedwin.core import Client, Setting, Variables
from fedwin.local import Solver
from fedwin.observers.wima import mask_of_part
from fedwin.personalization.registry import PERSONALIZERS, Personalizer
from fedwin.registry.ranges import NonNegative, Positive


@PERSONALIZERS.register("finetune", paper="yu2020salvaging", instances=("finetune", "finetune:part=classifier"))
def finetune(
    setting: Setting,
    solve: Solver,
    *,
    epochs: Positive = 1,
    part: Literal["all", "classifier", "features"] = "all",
    lr: NonNegative | None = None,
) -> Personalizer:
    """Local steps from the evaluated model: y <- y - lr g_i(y), on client i's training examples.

        y_i <- x,   then in every local step  y_i <- y_i - lr optimizer(g_i(y_i) + weight_decay y_i)  on the part

    Batches, loss, augmentation and weight decay are those of the run's clients, the optimizer --client_optimizer, even
    if the method has its own (DiLoCo). The rest does not change; the statistics (BatchNorm's) belong to the features.

    Args:
      epochs: local epochs, which need not be whole.
      part: 'all', 'classifier' or 'features', as in --init_from.
      lr: learning rate; none: that of the first round (--client_lr; with --lr_warmup the low rate it starts from).

    Returns:
      The Personalizer 'finetune', or 'finetune_<part>'.

    Raises:
      UserError: when the model has no known classifier and part needs one.

    Source: Yu et al., Salvaging Federated Learning by Local Adaptation, 2020, https://arxiv.org/abs/2002.04758.

    Example:
      >>> from fedwin import testing
      >>> p = testing.two_quadratics()  # client 0: f(x) = x^2 / 2, from x = 1 at learning rate 0.1
      >>> own = finetune(p.setting, p.solve, epochs=5).adapt(p.variables, p.client(0))
      >>> round(float(own.params["x"][0]), 3)
      0.59
    """

    def adapt(model: Variables, client: Client) -> Variables:
        frozen = None
        if part != "all":
            path = () if setting.model is None else setting.model.classifier_path
            others = jax.tree.map(operator.not_, mask_of_part(model.params, part, path, "finetune"))
            frozen = lambda s: others
        solver = dataclasses.replace(
            solve,
            epochs=epochs,
            max_epochs=math.ceil(epochs),
            steps=None,
            lr=solve.rate(jnp.zeros((), jnp.int32)) if lr is None else lr,
            # The bound of a wrapper is a protection of the messages, and these models are not sent.
            bound=lambda start, y: y,
            frozen=frozen,
        )
        y = solver(model.params, client._replace(stats=model.stats))
        return Variables(y.params, model.stats if part == "classifier" else y.stats)

    return Personalizer("finetune" if part == "all" else f"finetune_{part}", adapt)
