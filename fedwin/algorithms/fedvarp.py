"""FedVARP, FedStale: the server remembers every client's last step, and uses the steps of absent clients.

With all clients in every round, both are FedAvg. p_i (over the cohort S) and v_i (over all clients) follow one rule: in
proportion to N_i, or equal (1 / |S| and 1 / K, as in the paper).

m_i is the server's memory. Here it is the client's row of the client table, which `fedwin.residence` stores on the
device, on the host or in a file; only the model is sent.

FedStale's weights 1 / (K pi_i), for clients that take part with unequal probabilities pi_i, are those of
--sampling=weighted (Client.importance), but normalized over the cohort; the released code's sums are not.
"""

from fedwin import core, local, tree
from fedwin.algorithms.common import Weighting
from fedwin.algorithms.registry import ALGORITHMS, facts
from fedwin.registry.ranges import Positive, Share


def with_stale_steps(setting, solve, beta, server_lr, weighting) -> core.Algorithm:
    """Returns FedVARP (beta = 1) or FedStale; its server state is m, and a client's row m_i."""

    def client(params, c):
        y = solve(params, c)
        delta = tree.sub(y.params, params)
        weight = core.aggregation_weight(c, weighting)
        share = c.weight if weighting == "samples" else 1 / setting.num_clients
        # Earlier steps were bounded as the present one is.
        memory = {"stale": core.mean(c.state, weight), "change": tree.scale(share, tree.sub(delta, c.state))}
        return y.update({"delta": core.mean_step(delta, weight), "memory": core.DerivedFromStep(memory)}, state=delta)

    def server(params, mean_of_all, total, round):
        memory = total["memory"].value
        step = tree.axpy(beta, tree.sub(mean_of_all, memory["stale"].value), total["delta"].value)
        return tree.axpy(server_lr, step, params), tree.add(mean_of_all, memory["change"])

    return core.algorithm(
        client,
        server,
        init=tree.zeros_like,
        client_init=lambda params, id: tree.zeros_like(params),
        weighting=weighting,
    )


@ALGORITHMS.register("fedvarp", paper="jhunjhunwala2022fedvarp", **facts(server="2 + 1 per client"))
def fedvarp(
    setting: core.Setting, solve: local.Solver, *, server_lr: Positive = 1.0, weighting: Weighting = "samples"
) -> core.Algorithm:
    """FedVARP: x <- x + server_lr (m + sum_i p_i (d_i - m_i)), m_i the step d_i = y_i - x of the client's last round.

        x <- x + server_lr (m + sum_{i in S} p_i (d_i - m_i)),   d_i = y_i - x
        m <- m + sum_{i in S} v_i (d_i - m_i),   m_i <- d_i for i in S       m = sum_i v_i m_i over all clients

    Args:
      weighting: p_i and v_i proportional to N_i ('samples') or equal ('uniform').

    Source: Jhunjhunwala et al., FedVARP: Tackling the Variance Due to Partial Client Participation in Federated
    Learning, 2022, https://arxiv.org/abs/2207.14130.

    Example:
      >>> from fedwin import testing
      >>> testing.run_rounds("fedvarp") == testing.run_rounds("fedavg")  # every client takes part
      True
    """
    return with_stale_steps(setting, solve, 1.0, server_lr, weighting)


@ALGORITHMS.register(
    "fedstale", like="fedvarp", paper="rodio2024fedstale", instances=("fedstale:beta=0.5",), degenerate={"beta": 0}
)
def fedstale(
    setting: core.Setting,
    solve: local.Solver,
    *,
    beta: Share = 0.5,
    server_lr: Positive = 1.0,
    weighting: Weighting = "samples",
) -> core.Algorithm:
    """FedStale: x <- x + server_lr (sum_i p_i d_i + beta (m - sum_i p_i m_i)), between FedAvg and FedVARP.

        x <- x + server_lr (sum_{i in S} p_i d_i + beta (m - sum_{i in S} p_i m_i)),   d_i = y_i - x
        m, m_i as in FedVARP

    Args:
      beta: weight of the remembered steps: 0 is FedAvg, 1 is FedVARP.

    Source: Rodio and Neglia, FedStale: Leveraging Stale Client Updates in Federated Learning, 2024,
    https://arxiv.org/abs/2405.04171.

    Example:
      >>> from fedwin import testing
      >>> testing.run_rounds("fedstale:beta=0.5") == testing.run_rounds("fedavg")  # every client takes part
      True
    """
    return with_stale_steps(setting, solve, beta, server_lr, weighting)
