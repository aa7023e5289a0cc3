"""Algorithms as fedjax.FederatedAlgorithm, for programs written around FedJAX's samplers and data sets.

    fed = fedwin.as_fedjax("fedprox:mu=0.1", model=model, batch_hparams=batch_hparams, client_lr=0.1)
    state = fed.init(params)
    for _ in range(num_rounds):
      state, diagnostics = fed.apply(state, sampler.sample())
    fedjax.evaluate_model(model, state.params, batches)

`init` takes params, or Variables for a model with statistics. `apply` returns the new ServerState and client id ->
{'loss': ..., 'delta_l2_norm': ...}: the mean training loss and the norm of the step, the latter where clients send
their mean step as 'delta' (all algorithms but fedacg, fedgloss, fednova and qffl). `apply.traces` lists the Padding of
every compiled round.

Cohorts may vary in number and size of clients. They are padded, and a round is compiled again only when a cohort
exceeds the padding, which then grows with room to spare (Capacity): two or three times in nearly every program, once if
max_clients and largest are given. Clients without examples take no part and are not reported. FedJAX's client rng is
the client's key; the seed of a program is its sampler's. Leave Solver.equal_size of a built algorithm unset unless all
clients have that many examples.

Clients' rows are part of the server state, keyed by FedJAX's client ids. Rows of absent clients are not moved;
jax.device_get(state) is a valid state, too. A round is one program, in which padded clients are not computed where
clients run one by one (on a CPU); several devices train clients of similar size at the same time.
"""

from fedwin.fedjax_bridge.bridge import as_fedjax
from fedwin.fedjax_bridge.cohort import Capacity, Padding
from fedwin.fedjax_bridge.rounds import ServerState

__all__ = ["Capacity", "Padding", "ServerState", "as_fedjax"]
