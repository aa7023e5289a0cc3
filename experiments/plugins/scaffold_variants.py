"""Variants of SCAFFOLD's rule: which part of it keeps it from training with one class per client.

  python -m experiments.train --import=experiments.plugins.scaffold_variants --algorithm=scaffold_variant:damping=0.3

With the defaults it is the registered `scaffold`, to rounding. `survey/table5` compares them, and the results have a
page on it (experiments/results/scaffold.md).
"""

from typing import Any, NamedTuple

import jax.numpy as jnp

from fedwin import core, local, tree
from fedwin.algorithms import ALGORITHMS, common


class Controls(NamedTuple):
    """Server state: sum of the clients' controls times its share, and number of clients that have taken part."""

    c: Any
    seen: Any


class Row(NamedTuple):
    """Row of a client: its control, and whether it has taken part."""

    c: Any
    seen: Any


@ALGORITHMS.register("scaffold_variant", instances=("scaffold_variant",), down="2", up="2", server="2", client="1")
def scaffold_variant(
    setting,
    solve,
    *,
    control="path",
    own=1.0,
    total="mean",
    damping=1.0,
    start=0,
    only_seen=False,
    memory=0.0,
    server_lr=1.0,
    weighting="samples",
):
    """SCAFFOLD with another control, sum of controls, damping, or start: direction g(y) + damping (total_c - c_i).

    Args:
      control: new c_i: 'path' (option II: mean gradient along the path) or 'norm' (rescaled to the norm of the full
        gradient at x, option I).
      own: factor of the client's own control in the direction; 0 leaves it out: g(y) + c.
      total: server control c = sum_i c_i times 1/K ('mean'), 1/|S| ('cohort') or 1 ('sum', the released code).
      damping: factor of the whole correction c - c_i; 0 is FedAvg, 1 SCAFFOLD.
      start: first round in which the correction is applied; controls are collected from round 0 on.
      only_seen: clients without a control of their own take plain steps in their first participation, and c is the
        mean over clients that have taken part.
      memory: c_i+ = memory c_i + (1 - memory) new control, in [0, 1).
      server_lr: server learning rate.
      weighting: 'samples' or 'uniform'.
    """
    share = {"mean": 1 / setting.num_clients, "cohort": 1 / setting.clients_per_round, "sum": 1.0}[total]

    def client(down, c):
        params, (control_sum, seen) = down
        scale = setting.num_clients / jnp.maximum(seen, 1) if only_seen else 1.0
        on = jnp.where(c.round >= start, damping, 0.0)
        if only_seen:
            on = jnp.where(c.state.seen, on, 0.0)
        correction = tree.scale(on, tree.axpy(scale, control_sum, tree.scale(-own, c.state.c)))
        y = solve(params, c, local.shift(correction), grad=True)
        new = y.grad
        if control == "norm":
            new = tree.scale(tree.norm(solve.gradient(params, c)) / jnp.maximum(tree.norm(new), 1e-12), new)
        new = tree.where(c.state.seen, tree.lerp(1 - memory, c.state.c, new), new)
        message = {
            "delta": common.weighted_delta(y, params, c, weighting),
            "drift": tree.scale(share, tree.sub(new, c.state.c)),
            "new": jnp.where(c.state.seen, 0.0, 1.0),
        }
        return y.update(message, state=Row(new, jnp.ones((), bool)))

    def server(params, state, total, round):
        return common.add_mean_step(params, total, server_lr), Controls(
            tree.add(state.c, total["drift"]), state.seen + total["new"]
        )

    return core.algorithm(
        client,
        server,
        broadcast=lambda params, state: (params, (state.c, state.seen)),
        init=lambda params: Controls(tree.zeros_like(params), jnp.zeros(())),
        client_init=lambda params, id: Row(tree.zeros_like(params), jnp.zeros((), bool)),
        weighting=weighting,
    )
