"""DiLoCo: AdamW or Muon on workers that keep its state, many local steps, and an outer Nesterov step on their mean.

A worker's row of the client table is the state of its inner optimizer. With F > 1 fragments (Streaming DiLoCo) round t
synchronizes the parameters of fragment f = t mod F alone:

    worker   y_i <- H steps from its own parameters, after it has received fragment (t - 1) mod F
    server   Delta_f = sum_i p_i (x - y_i)_f,   x_f <- x_f - OUTEROPT_f(Delta_f)

so that a fragment is synchronized every F H local steps, and its outer optimizer has its own state; the row also holds
the worker's parameters. A worker that was absent receives every fragment that has changed since. With an overlap,
communication takes the time of `delay` local steps, in which workers continue from what they have:

    worker   y_i <- `delay` steps;   y_i,f <- mixing y_i,f + (1 - mixing) x_f, f = (t - 1) mod F;   y_i <- other steps

or after its last step if it takes fewer. Delta_f remains the distance from x. Only a worker that took part in the last
round has something to continue from; any other worker receives everything before its first step.
"""

import functools
import re
from typing import Literal, NamedTuple

import jax
import jax.numpy as jnp
import optax
from jax import lax

from fedwin import core, local, tree
from fedwin.algorithms.common import Server, Weighting, fedavg_with
from fedwin.algorithms.fedopt import Optimizer, named_server
from fedwin.algorithms.registry import ALGORITHMS, facts
from fedwin.errors import UserError
from fedwin.local.optimizers import has_memory, is_sgd, muon, with_decoupled_decay
from fedwin.registry.ranges import Decay, NonNegative, NonNegativeInt, Positive, PositiveInt
from fedwin.tree import PyTree

# What surrounds a name in the path of a leaf.
BRACKETS = "[]'."
Pattern = Literal["strided", "sequential"]


class Worker(NamedTuple):
    """Row of a worker whose model is synchronized in fragments, or with an overlap.

    Attributes:
      optimizer: state of the inner optimizer.
      params: its parameters after its last round.
      rounds: number of the first round after its last one, int32 []; 0 before its first.
    """

    optimizer: PyTree
    params: PyTree
    rounds: jax.Array


def with_inner(solve: local.Solver, inner: str, b1, b2, eps, beta, matrix_lr) -> local.Solver:
    """Returns a solver of plain SGD with AdamW or Muon, which decay weights themselves; arguments as for `diloco`.

    Raises:
      UserError: the solver already has another optimizer.
    """
    if not is_sgd(solve.optimizer) or has_memory(solve.optimizer):
        raise UserError(
            f"diloco: a local optimizer is set (--client_optimizer or --client_momentum), but inner={inner} replaces "
            "it; omit those flags, or set inner=client_optimizer."
        )
    adamw = lambda decay: optax.adamw(1.0, b1, b2, eps, weight_decay=decay)
    with_muon = lambda decay: muon(decay, matrix_lr, beta=beta, eps=eps, adam_b1=b1, adam_b2=b2)
    return with_decoupled_decay(solve, with_muon if inner == "muon" else adamw)


def fragments_of(params, fragments: int, pattern: str) -> list[int]:
    """Returns the fragment of each leaf of the parameters; arguments as for `diloco`.

    Layers are the model's top-level modules in the order of their names, with numbers in names compared as numbers.

    Raises:
      UserError: there are fewer layers than fragments.

    Example:
      >>> params = {"block10": 1.0, "block2": {"a": 1.0, "b": 1.0}, "norm": 1.0}
      >>> fragments_of(params, 2, "strided")  # block2 is the first layer
      [1, 0, 0, 0]
    """
    paths = [path for path, _ in jax.tree_util.tree_leaves_with_path(params)]
    names = [jax.tree_util.keystr(path[:1]) for path in paths]
    by_number = lambda name: [int(part) if part.isdigit() else part for part in re.split(r"(\d+)", name)]
    layers = {name: number for number, name in enumerate(sorted(set(names), key=by_number))}
    if len(layers) < fragments:
        raise UserError(
            f"diloco: fragments={fragments}, but the model has {len(layers)} layer{'s' * (len(layers) > 1)} "
            f"({', '.join(name.strip(BRACKETS) for name in layers)}); choose at most that many."
        )
    if pattern == "strided":
        return [layers[name] % fragments for name in names]
    return [layers[name] * fragments // len(layers) for name in names]


@ALGORITHMS.register(
    "diloco",
    paper=("douillard2023diloco", "douillard2025streaming", "therien2025muloco"),
    instances=(
        "diloco:eps=0.001",
        "diloco:fragments=2,delay=1,mixing=0.3,restart=2,optimizer=adam,server_lr=0.1,eps=0.001",
    ),
    degenerate={"inner": "client_optimizer", "optimizer": "sgd", "server_lr": 1.0, "weighting": "samples"},
    **facts(up="1 (1 / F with F fragments)", server="1 + optimizer", client="2 (3 with fragments or an overlap)"),
)
def diloco(
    setting: core.Setting,
    solve: local.Solver,
    *,
    inner: Literal["adamw", "muon", "client_optimizer"] = "adamw",
    b1: Decay = 0.9,
    b2: Decay = 0.999,
    eps: NonNegative = 1e-8,
    beta: Decay = 0.95,
    matrix_lr: Positive = 1.0,
    optimizer: Optimizer | optax.GradientTransformation = "momentum",
    server_lr: Positive = 0.7,
    momentum: Decay = 0.9,
    nesterov: bool = True,
    server_b1: Decay = 0.9,
    server_b2: Decay = 0.99,
    server_eps: NonNegative | None = None,
    restart: NonNegativeInt = 0,
    fragments: PositiveInt = 1,
    pattern: Pattern = "strided",
    delay: NonNegativeInt = 0,
    mixing: Decay = 0.0,
    weighting: Weighting = "uniform",
) -> core.Algorithm:
    """DiLoCo: workers that keep AdamW's state; x <- x - OUTEROPT(Delta), Nesterov's momentum by default.

        y_i <- H steps of AdamW from x, whose state stays with worker i
        Delta = sum_i p_i (x - y_i),   m <- momentum m + Delta,   x <- x - server_lr (Delta + momentum m)

    --local_steps is H, --client_lr and --lr_schedule the inner rate, --weight_decay AdamW's decoupled decay. The paper
    has H = 500, an inner rate of 4e-4 with a warm-up and a cosine, and a decay of 0.1. Clients keep two models (moments
    of AdamW), three with fragments, and receive one per round; with fragments they receive and send 1 / F of it if all
    take part in every round. Otherwise a worker may receive up to the whole model, and that is what is counted.

    Args:
      inner: 'adamw', 'muon' (MuLoCo; AdamW in Nesterov's form for parameters of one axis), or 'client_optimizer' for
        that of --client_optimizer; its state persists across rounds.
      b1: first-moment decay of the inner AdamW.
      b2: second-moment decay of the inner AdamW.
      eps: added to the square root by the inner AdamW, and to the norm by Muon.
      beta: decay of the momentum of the inner Muon.
      matrix_lr: learning rate of Muon's matrices divided by that of other parameters.
      optimizer: outer optimizer, one of fedopt's: 'sgd', 'momentum', 'adam', 'yogi', 'adagrad', or an optax
        transformation (with its own learning rate).
      server_lr: learning rate of the outer optimizer.
      momentum: beta of the outer 'momentum'.
      nesterov: Nesterov's form of the outer 'momentum'.
      server_b1: first-moment decay of the outer 'adam' and 'yogi'.
      server_b2: second-moment decay of the outer 'adam' and 'yogi'.
      server_eps: added to their square root; none = 0.1 ('adam', 'yogi') or 0.01 ('adagrad').
      restart: rounds after which the state of the outer optimizer (its momentum) is reset, counted separately for each
        fragment; 0: never. Rounds without clients count, but leave the state unchanged.
      fragments: F, of which one is synchronized in each round, in turn; 1: the whole model.
      pattern: layer j of L belongs to fragment j mod F ('strided') or floor(j F / L) ('sequential').
      delay: local steps between sending a fragment and using it.
      mixing: alpha, the share of its own parameters that a worker keeps when it uses a fragment; 0 replaces them.

    Raises:
      UserError: when the model has fewer layers than fragments, a delay is no shorter than a round, or `inner` would
        replace another local optimizer.

    Source: Douillard et al., DiLoCo: Distributed Low-Communication Training of Language Models, 2023,
    https://arxiv.org/abs/2311.08105. Douillard et al., Streaming DiLoCo with Overlapping Communication: Towards a
    Distributed Free Lunch, 2025, https://arxiv.org/abs/2501.18512. Thérien et al., MuLoCo: Muon is a practical inner
    optimizer for DiLoCo, 2025, https://arxiv.org/abs/2505.23725.

    Example:
      >>> from fedwin import testing
      >>> testing.run_rounds("diloco")
      {'model': [6.984, 6.951, 6.912]}
    """
    server = named_server(optimizer, server_lr, momentum, nesterov, server_b1, server_b2, server_eps)
    if inner != "client_optimizer":
        solve = with_inner(solve, inner, b1, b2, eps, beta, matrix_lr)
    server = restarted(server, restart, fragments) if restart else server
    if solve.steps is not None and delay >= solve.steps:
        raise UserError(f"diloco: delay={delay} must be below the local steps of a round, --local_steps={solve.steps}.")
    if fragments > 1 or delay or mixing:
        return _streaming(setting, solve, server, fragments, pattern, delay, mixing, weighting)
    return fedavg_with(server, solve, weighting, keeps_optimizer=True)


def restarted(server: Server, period: int, fragments: int) -> Server:
    """Returns a server whose state starts anew before every `period`-th of its rounds; fragments take turns."""

    def step(params, state, total, round):
        anew = round // fragments % period == 0
        return server.step(params, tree.where(anew, server.init(params), state), total, round)

    return server._replace(step=step)


def _streaming(setting, solve, server: Server, fragments: int, pattern: Pattern, delay, mixing, weighting: Weighting):
    """Returns the DiLoCo that synchronizes one fragment per round and may overlap its communication."""
    places = lambda params: fragments_of(params, fragments, pattern)

    def select(of, chosen, otherwise):
        """Returns a tree whose leaves are of `chosen` where of(fragment) is true, and of `otherwise` elsewhere."""
        own = iter(places(otherwise))
        return jax.tree.map(lambda a, b: jnp.where(of(next(own)), a, b), chosen, otherwise)

    def client(params, c):
        # Fragment f was synchronized in the last round s < t with s mod F = f.
        synchronized = lambda f: c.round - 1 - (c.round - 1 - f) % fragments
        row = c.state
        received = lambda f: (row.rounds == 0) | (synchronized(f) >= row.rounds - 1)
        start, on_step = select(received, params, row.params), None
        if delay or mixing:
            late = lambda f: (row.rounds == c.round) & (c.round > 0) & (synchronized(f) == c.round - 1)
            merged = lambda y: select(late, tree.lerp(mixing, params, y), y)
            start = select(late, row.params, start)
            if delay:
                arrives = lambda s: s.j + 1 == jnp.minimum(delay, s.steps)
                on_step = lambda carry, y, s, last: (carry, tree.where(arrives(s), merged(y), y))
            else:
                start = merged(start)
        y = solve(start, c, optimizer=row.optimizer, on_step=on_step)
        step = select(lambda f: c.round % fragments == f, tree.sub(y.params, params), tree.zeros_like(params))
        delta = core.PartialStep(*core.mean_step(step, core.aggregation_weight(c, weighting)))
        return y.update({"delta": delta}, state=Worker(y.optimizer, y.params, c.round + 1))

    def by_fragment(params):
        leaves, own = jax.tree.leaves(params), places(params)
        return [[leaf for leaf, f in zip(leaves, own, strict=True) if f == fragment] for fragment in range(fragments)]

    def outer_step(params, states, total, round):
        own, models, steps = places(params), by_fragment(params), by_fragment(total["delta"].total)

        def step(fragment):
            message = {"delta": core.Mean(steps[fragment], total["delta"].weight)}
            new, state = server.step(models[fragment], states[fragment], message, round)
            parts = [iter(new if f == fragment else models[f]) for f in range(fragments)]
            leaves = [next(parts[f]) for f in own]
            return jax.tree.structure(params).unflatten(leaves), (*states[:fragment], state, *states[fragment + 1 :])

        return lax.switch(round % fragments, [functools.partial(step, fragment) for fragment in range(fragments)])

    def wire(down, message):
        # Sizes of fragments differ; over F rounds, 1 / F of the entries and of the arrays is sent per round.
        leaves = jax.tree.leaves(down)
        size, arrays = sum(leaf.size for leaf in leaves) // fragments, len(leaves) // fragments
        part = [jax.ShapeDtypeStruct(((size + place) // arrays,), leaves[0].dtype) for place in range(arrays)]
        return (part if setting.participation >= 1 and not getattr(setting.sampling, "varies", False) else down), part

    return core.algorithm(
        client,
        outer_step,
        init=lambda params: tuple(server.init(part) for part in by_fragment(params)),
        client_init=lambda params, id: Worker(solve.optimizer.init(params), params, jnp.zeros((), jnp.int32)),
        weighting=weighting,
        wire=wire,
        resettable=server.resettable,
    )
