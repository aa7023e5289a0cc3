"""Parts of the model, or its statistics, that stay with the client."""

from collections.abc import Callable
from typing import Literal, NamedTuple

import jax
import jax.numpy as jnp

from fedwin import core, tree
from fedwin.errors import UserError
from fedwin.local.batches import exact_share, share_of
from fedwin.observers.wima import mask_of_part, select
from fedwin.registry.ranges import Decay
from fedwin.tree import PyTree
from fedwin.wrappers.base import (
    WRAPPERS,
    Wrapper,
    check_no_old_models,
    initial_stats,
    single_round_trip,
    with_own_rows,
)
from fedwin.wrappers.messages import step_of


class LocalPart(NamedTuple):
    """State of a client.

    Attributes:
      inner: the wrapped algorithm's client state.
      seen: whether the client has taken part, bool [].
      part: its own values of the local part, a list of arrays, or its own statistics.
    """

    inner: PyTree
    seen: jax.Array
    part: PyTree


def part_mask(params, part: str, setting: core.Setting):
    """Returns a tree of booleans that is true on the leaves of a part of the model.

    Raises:
      UserError: when the model has no such part.
    """
    if part != "norm":
        return mask_of_part(params, part, () if setting.model is None else setting.model.classifier_path, "local")
    paths = [path for path, _ in jax.tree_util.tree_leaves_with_path(params)]
    norms = {path[:-1] for path in paths if jax.tree_util.keystr(path[-1:], simple=True) == "scale"}
    if not norms:
        raise UserError("local: part=norm: no layer has a 'scale', as normalization has; choose part=classifier.")
    return jax.tree_util.tree_map_with_path(lambda path, leaf: path[:-1] in norms, params)


def leaves_of(mask, params) -> list:
    """Returns the leaves of params on which the mask is true."""
    return [leaf for inside, leaf in zip(jax.tree.leaves(mask), jax.tree.leaves(params), strict=True) if inside]


def with_leaves(mask, params, part: list):
    """Returns params with the leaves on which the mask is true replaced with the leaves of a list.

    Example:
      >>> with_leaves({"a": True, "b": False}, {"a": 1, "b": 2}, [3])
      {'a': 3, 'b': 2}
    """
    part = list(part)
    return jax.tree.map(lambda inside, leaf: part.pop(0) if inside else leaf, mask, params)


def _own_params(mask, params, row: LocalPart):
    """Returns the parameters with the client's own part, or the received ones before its first participation."""
    return with_leaves(mask, params, tree.where(row.seen, row.part, leaves_of(mask, params)))


def _taking_turns(share: float, mask_of: Callable) -> Callable:
    """Returns local.Solver.frozen: all but the local part in the first steps of a client, the local part afterwards.

    Args:
      share: share of its local steps, rounded up, that count as the first ones.
      mask_of: params -> tree of booleans that is true on the local part.
    """

    def frozen(s):
        first = s.j < share_of(exact_share(share), s.steps)
        return jax.tree.map(lambda inside: ~first if inside else first, mask_of(s.params))

    return frozen


def _local_phase(phase: core.Phase, mask_of: Callable) -> core.Phase:
    """Returns the phase with parameters that stay with the client; mask_of: params -> tree of booleans."""
    cleared = lambda mask, step: step._replace(total=select(mask, tree.zeros_like(step.total), step.total))

    def client(down, c):
        params, state = down
        check_no_old_models("local", state)
        mask = mask_of(params)
        start = _own_params(mask, params, c.state)
        update, inner = core.on_inner_row(phase.client, phase.broadcast(start, state), c)
        step = core.mean_step_of(update.message)
        if step is None or len(jax.tree.leaves(update.message)) > len(jax.tree.leaves(step)):
            raise UserError(
                "local: clients of this algorithm send other messages than their mean step, so the part would not stay "
                "local; omit --wrap=local."
            )
        step_of("local", update.message, whole=True)
        # A client without examples has weight 0, and 0 / 0 would be NaN.
        trained = tree.where(step.weight > 0, tree.add(start, step.value), start)
        return update._replace(
            message=core.with_mean_step(update.message, cleared(mask, step)),
            state=LocalPart(inner, jnp.ones((), bool), leaves_of(mask, trained)),
        )

    def server(params, state, total, round):
        mask = mask_of(params)
        # Noise of an outer wrapper must not reach the clients' part, not even by way of momentum (FedCM).
        total = core.map_mean_steps(lambda step: cleared(mask, step), total)
        new, state = phase.server(params, state, total, round)
        return select(mask, params, new), state

    def wire(down, message):
        others = jax.tree.map(lambda inside: not inside, mask_of(down[0]))
        # In the model, in the step, and in a momentum that is sent with the model, which is 0 in the local part.
        is_model = lambda node: jax.tree.structure(node) == jax.tree.structure(others)
        shared = lambda node: leaves_of(others, node) if is_model(node) else node
        whole = phase.wire(jax.eval_shape(phase.broadcast, *down), message)
        return jax.tree.map(shared, whole, is_leaf=is_model)

    broadcast = lambda params, state: (params, state)
    return phase._replace(broadcast=broadcast, client=client, server=server, wire=wire)


@WRAPPERS.register("local", paper=("arivazhagan2019federated", "li2021fedbn", "collins2021exploiting"))
def local(
    setting: core.Setting, *, part: Literal["classifier", "features", "norm"] = "classifier", alternate: Decay = 0.0
) -> Wrapper:
    """Part of the model is never sent: every client trains its own, together with the shared rest.

        (u, w_i) <- local training from (u, w_i);   u <- server's step on u;   w_i stays with client i

    u are the shared parameters, w_i the local part. FedPer is part=classifier, LG-FedAvg part=features; FedBN is
    part=norm, with --wrap=local_bn for the statistics. FedRep is part=classifier,alternate=0.9: of ten local epochs,
    nine train w_i with the received u, and the last one trains u with the resulting w_i. The server keeps the initial
    w, from which clients start. The server's own model, 'model' in the evaluations, has that w; the models that matter
    are the clients', u with w_i (`fedwin train --eval_clients`). Name this wrapper before those that change messages
    (topk, quantize): after them, it would read a changed w_i.

    Args:
      part: 'classifier', 'features' (everything else) or 'norm' (of normalization layers: in flax and haiku, those with
        a parameter 'scale').
      alternate: share of the local steps, rounded up (a single one does not train u), that train w_i before the others
        train u; the optimizer's state (Adam's moments) sees zeros for the part that rests. 0: all steps train both.

    Raises:
      UserError: when the model has no such part, or clients send anything but their mean step.

    Source: Arivazhagan et al., Federated Learning with Personalization Layers, 2019, https://arxiv.org/abs/1912.00818.
    Li et al., FedBN: Federated Learning on Non-IID Features via Local Batch Normalization, 2021,
    https://arxiv.org/abs/2102.07623. Collins et al., Exploiting Shared Representations for Personalized Federated
    Learning, 2021, https://arxiv.org/abs/2102.07078.

    Example:
      >>> from fedwin import testing
      >>> testing.run_rounds("fedavg", wrappers=["local:part=classifier"], problem=testing.classification())
      {'model': [0.988, 0.918, 0.89]}
    """

    mask_of = lambda params: part_mask(params, part, setting)

    def own_part(model, row):
        return model._replace(params=_own_params(mask_of(model.params), model.params, row))

    def wrap(algorithm):
        single_round_trip(algorithm, "local")
        init = lambda inner, params, key: LocalPart(inner, jnp.zeros((), bool), leaves_of(mask_of(params), params))
        return with_own_rows(algorithm, init, lambda phase: _local_phase(phase, mask_of), own_part)

    return Wrapper("local", wrap, frozen=_taking_turns(alternate, mask_of) if alternate else None)


@WRAPPERS.register("local_bn", paper=("andreux2020siloed", "li2021fedbn"))
def local_bn(setting: core.Setting) -> Wrapper:
    """Every client continues from its own BatchNorm statistics, not from the server's (bn_aggregation=local).

        stats_i <- statistics after client i's local training, which starts from stats_i

    A new client starts from the server's statistics. The mean of the cohort's statistics is evaluated; each client's
    own are part of its state, and its personal model has them (core.Algorithm.client_model). Only statistics stay
    local, as in SiloBN: scales and offsets, which FedBN also keeps local, are parameters here and are trained and
    averaged as without the wrapper.

    Raises:
      UserError: when the model has no statistics.

    Source: Andreux et al., Siloed Federated Learning for Multi-Centric Histopathology Datasets, 2020,
    https://arxiv.org/abs/2008.07424. Li et al., FedBN: Federated Learning on Non-IID Features via Local Batch
    Normalization, 2021, https://arxiv.org/abs/2102.07623.

    Example:
      >>> from fedwin import testing
      >>> testing.run_rounds("fedavg", wrappers=["local_bn"], problem=testing.classification())
      {'model': [0.777, 0.506, 0.36]}
    """

    def local_phase(phase):
        def client(down, c):
            row = c.state
            own = tree.where(row.seen, row.part, c.stats)
            # MIME's first round trip returns neither a client state nor statistics.
            update, inner = core.on_inner_row(phase.client, down, c, stats=own)
            stats = own if tree.is_empty(update.stats) else update.stats
            return update._replace(state=LocalPart(inner, jnp.ones((), bool), stats))

        return phase._replace(client=client)

    own = lambda model, row: model._replace(stats=tree.where(row.seen, row.part, model.stats))

    def wrap(algorithm):
        if tree.is_empty(core.stats_shapes(setting)):
            raise UserError("local_bn: the model has no BatchNorm statistics; omit --wrap=local_bn.")
        init = lambda inner, params, key: LocalPart(inner, jnp.zeros((), bool), initial_stats(setting, key))
        return with_own_rows(algorithm, init, local_phase, own)

    return Wrapper("local_bn", wrap)
