"""FedFA: feature anchors, one per class, align the clients' feature extractors and classifiers.

h is the input of the last layer. The losses use the received A during the whole round. Averages over rounds (IMA,
WIMA) do not include the anchors.
"""

import dataclasses
from typing import Literal

import optax

from fedwin import core, local
from fedwin.algorithms import common
from fedwin.algorithms.anchors import Anchoring
from fedwin.algorithms.common import Weighting
from fedwin.algorithms.registry import ALGORITHMS
from fedwin.errors import UserError
from fedwin.losses import check_one_class
from fedwin.registry.ranges import NonNegative, Positive, Share
from fedwin.schedules import Start, first_round


@ALGORITHMS.register(
    "fedfa",
    paper="zhou2023fedfa",
    instances=("fedfa", "fedfa:calibrate_from=0,divide=present"),
    degenerate={"lam": 0, "calibrate_lr": 0},
    down="1 + C d numbers",
    up="1 + C d numbers",
    server="1 + C d",
    client="0",
    status="checked",
    warmup_horizon="anchor_from",
)
def fedfa(
    setting: core.Setting,
    solve: local.Solver,
    *,
    lam: NonNegative = 0.1,
    beta: Share = 0.5,
    anchor_from: Start = 1,
    calibrate_from: Start | None = None,
    calibrate_lr: NonNegative = 1e-3,
    divide: Literal["all", "present"] = "all",
    server_lr: Positive = 1.0,
    weighting: Weighting = "samples",
) -> core.Algorithm:
    """FedFA: loss + lam anchor loss, classifier calibrated on the anchors, anchors averaged like the model.

        client  L = loss + lam (1/C) sum_{c in batch} mean_{y_i = c} ||h_i - A[c]||^2       from round `anchor_from`
                after each step, from round `calibrate_from`: one Adam step of the classifier alone on
                    (1/C) sum_c CE(classifier(A[c]), c)
                after each epoch, for the client's own classes:
                    A_i[c] <- beta A_i[c] + (1 - beta) (1/batches) sum_batches mean_{y_i = c} h_i
        server  x <- x + server_lr sum_i p_i (y_i - x),   A <- sum_i p_i A_i

    Args:
      lam: weight of the anchor loss.
      beta: memory of the anchors; 1 keeps them constant.
      anchor_from: first round (0-based, or a fraction of the rounds) with the anchor loss; 0 in FedFA's repository.
      calibrate_from: first round with calibration; none = the first round after a quarter of the run.
      calibrate_lr: learning rate of the classifier's Adam.
      divide: divisor of an epoch's class means: 'all' batches, or those in which the class is 'present'.

    Raises:
      UserError: when the model's last layer is unknown.

    Source: Zhou et al., FedFA: Federated Learning with Feature Anchors to Align Features and Classifiers for
    Heterogeneous Data, 2023, https://arxiv.org/abs/2211.09299.

    Example:
      >>> from fedwin import testing
      >>> testing.run_rounds("fedfa:lam=0.1", problem=testing.classification())
      {'model': [0.777, 0.507, 0.365]}
    """
    anchors_start = first_round(anchor_from, setting.num_rounds, "fedfa")
    quarter = setting.num_rounds // 4 + 1
    calibration_start = quarter if calibrate_from is None else first_round(calibrate_from, setting.num_rounds, "fedfa")
    if setting.model is None or setting.model.classifier is None:
        raise UserError("fedfa: the model must name its last layer; choose another model.")
    anchoring = Anchoring(setting.model, lam, beta, divide, anchors_start, calibration_start, optax.adam(calibrate_lr))

    def server(params, anchors, total, round):
        return common.add_mean_step(params, total, server_lr), total["anchors"].value

    return core.algorithm(
        _client(solve, anchoring, weighting),
        server,
        broadcast=lambda params, anchors: (params, anchors),
        init=anchoring.initial,
        weighting=weighting,
    )


def _client(solve, anchoring: Anchoring, weighting: str):
    def client(down, c):
        check_one_class(c.examples["y"], "fedfa", "choose another --algorithm")
        params, anchors = down
        solve_anchored = dataclasses.replace(solve, loss=anchoring.loss(solve.loss, anchors, c.round))
        carry, on_step = anchoring.initial_carry(params, anchors), anchoring.on_step(anchors, c)
        y = solve_anchored(params, c, carry=carry, on_step=on_step)
        message = {
            "delta": common.weighted_delta(y, params, c, weighting),
            "anchors": core.mean(y.carry.anchors, core.aggregation_weight(c, weighting)),
        }
        return y.update(message)

    return client
