"""SCAFFOLD: control variates remove the drift of local training.

With plain SGD, option II is the paper's c_i - c + (x - y_i) / (J_i lr); as a mean of gradients it remains correct with
momentum, weight decay and clipping. c = (1/K) sum_i c_i holds after every round. c_i is the client's row of the client
table, which `fedwin.residence` stores on the device, on the host or in a file. The sum is over the clients that take
part, however many: it needs no |S|, and Client.importance, which corrects means, does not enter it.
"""

from collections.abc import Callable
from typing import Literal

from fedwin import core, local, tree
from fedwin.algorithms import common
from fedwin.algorithms.registry import ALGORITHMS, facts
from fedwin.registry.ranges import Positive


def controlled(client: Callable, server_lr: float, weighting: common.Weighting) -> core.Algorithm:
    """Returns the algorithm of clients with control variates: x <- x + server_lr delta, c <- c + the sum of 'drift'.

    Args:
      client: as in core.algorithm; it receives (x, c), its row is c_i, and its message has 'delta' and 'drift'.
    """

    def server(params, control, total, round):
        return common.add_mean_step(params, total, server_lr), tree.add(control, total["drift"])

    return core.algorithm(
        client,
        server,
        broadcast=lambda params, control: (params, control),
        init=tree.zeros_like,
        client_init=lambda params, id: tree.zeros_like(params),
        weighting=weighting,
    )


@ALGORITHMS.register(
    "scaffold",
    paper="karimireddy2020scaffold",
    instances=("scaffold", "scaffold:option=I,control_weighting=samples"),
    reported="2x",
    asynchronous=True,
    **facts(down="2", up="2", server="2", client="1"),
)
def scaffold(
    setting: core.Setting,
    solve: local.Solver,
    *,
    option: Literal["I", "II"] = "II",
    server_lr: Positive = 1.0,
    weighting: common.Weighting = "samples",
    control_weighting: Literal["uniform", "samples"] = "uniform",
) -> core.Algorithm:
    """SCAFFOLD: direction g(y) - c_i + c.

        y <- y - lr (g(y) - c_i + c),               c_i+ = mean_j g(y_j)  or  grad f_i(x)
        x <- x + server_lr sum_i p_i (y_i - x),     c <- c + sum_{i in S} v_i (c_i+ - c_i)

    Args:
      option: how a client updates its control: 'II' (mean gradient along the path) or 'I' (full gradient at x).
      control_weighting: c = sum_i v_i c_i over all clients, v_i = 1/K ('uniform') or N_i / sum N ('samples').

    Source: Karimireddy et al., SCAFFOLD: Stochastic Controlled Averaging for Federated Learning, 2020,
    https://arxiv.org/abs/1910.06378.

    Example:
      >>> from fedwin import testing
      >>> testing.run_rounds("scaffold")["model"]  # the minimum is 3; FedAvg's drift keeps it above
      [3.916, 3.136, 3.013]
    """

    def client(down, c):
        params, control = down
        y = solve(params, c, local.shift(tree.sub(control, c.state)), grad=option == "II")
        new_control = y.grad if option == "II" else solve.gradient(params, c)
        control_weight = 1 / setting.num_clients if control_weighting == "uniform" else c.weight
        message = {
            "delta": common.weighted_delta(y, params, c, weighting),
            "drift": tree.scale(control_weight, tree.sub(new_control, c.state)),
        }
        return y.update(message, state=new_control)

    return controlled(client, server_lr, weighting)
