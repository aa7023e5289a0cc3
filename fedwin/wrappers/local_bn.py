"""BatchNorm statistics that stay with the client."""

from typing import NamedTuple

import jax
import jax.numpy as jnp

from fedwin import core, tree
from fedwin.core import Setting
from fedwin.errors import UserError
from fedwin.tree import PyTree
from fedwin.wrappers.base import WRAPPERS, Wrapper, initial_stats, personal_model


class LocalStatistics(NamedTuple):
    """State of a client.

    Attributes:
      inner: the wrapped algorithm's client state.
      seen: whether the client has taken part, bool [].
      stats: its own statistics.
    """

    inner: PyTree
    seen: jax.Array
    stats: PyTree


@WRAPPERS.register("local_bn", paper=("andreux2020siloed", "li2021fedbn"))
def local_bn(setting: Setting) -> Wrapper:
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
            own = tree.where(row.seen, row.stats, c.stats)
            # MIME's first round trip returns neither a client state nor statistics.
            update, inner = core.on_inner_row(phase.client, down, c, stats=own)
            stats = own if tree.is_empty(update.stats) else update.stats
            return update._replace(state=LocalStatistics(inner, jnp.ones((), bool), stats))

        return phase._replace(client=client)

    def own_statistics(model, row):
        return model._replace(stats=tree.where(row.seen, row.stats, model.stats))

    def wrap(algorithm):
        if tree.is_empty(jax.eval_shape(lambda key: initial_stats(setting, key), jax.random.key(0))):
            raise UserError("local_bn: the model has no BatchNorm statistics; omit --wrap=local_bn.")
        return algorithm._replace(
            phases=tuple(local_phase(phase) if phase.client else phase for phase in algorithm.phases),
            client_init=lambda params, id, key: LocalStatistics(
                algorithm.client_init(params, id, key), jnp.zeros((), bool), initial_stats(setting, key)
            ),
            client_model=personal_model(algorithm, own_statistics),
        )

    return Wrapper("local_bn", wrap)
