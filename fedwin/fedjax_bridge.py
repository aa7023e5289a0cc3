"""Every algorithm as a fedjax.FederatedAlgorithm, for programs written around FedJAX's samplers and data sets.

    fed = fedwin.as_fedjax(algorithm)
    state = fed.init(params)
    for _ in range(num_rounds):
      state, diagnostics = fed.apply(state, sampler.sample())
    fedjax.evaluate_model(model, state.params, batches)

A round is engine.one_round on a store that holds this cohort alone. Rows live in the server state, keyed by FedJAX's
client ids; they travel through a small table with one slot per client of the cohort, beside the client's rng and what
is reported of it.
"""

import functools
import zlib
from typing import Any, NamedTuple

import fedjax
import jax
import jax.numpy as jnp
import numpy as np

from fedwin import core, engine, tree
from fedwin.core import Algorithm, Observer, Phase, Variables
from fedwin.data.store import make_store
from fedwin.engine import strategy as strategies
from fedwin.errors import UserError

# What apply tells of every client, where its algorithm has it: mean training loss and the norm of its step.
REPORTED = ("loss", "delta_l2_norm")


class ServerState(NamedTuple):
    """What FedJAX passes from round to round; a value like any other, old ones stay valid.

    params: the model to evaluate; run: the engine's Run without its table (its `params` are those that train, its
    `observers` what engine.read_out reads); rows: client id -> row, of the clients seen so far; initial: the first
    params, which new rows are made from (() where clients keep nothing).
    """

    params: Any
    run: engine.RunState
    rows: dict[bytes, Any]
    initial: Any


class Padding(NamedTuple):
    """What a cohort is padded to: clients, examples of the largest client, examples of all of them."""

    clients: int
    largest: int
    total: int


class Capacity:
    """The Padding of every cohort: few different ones, since each is a compilation.

    The first cohort gets room for twice its examples. What is outgrown grows together with all else, or one dimension
    after the other would compile: examples by 4 the first time and by 16 from then on; clients, whose padding costs most,
    by 3, and only if their number varies at all. What was promised stays unless it is broken. Of 1,000 simulated programs
    (200 rounds, 2,000 log-normal clients, 10 or Bernoulli or 1 to 20 of them a round), at most 4 compiled more than three
    times at sigma <= 1.5, and 41 at sigma = 2.

    Args:
      max_clients, largest: what no cohort exceeds, or None; total: examples of all clients there are, or None.
      multiple: number of clients -> the number that a strategy pads them to.
    """

    def __init__(
        self, max_clients: int | None, largest: int | None, total: int | None, multiple=lambda clients: clients
    ):
        self.promised, self.total, self.multiple = (max_clients, largest), total, multiple
        self.padding: Padding | None = None
        self.grown = 0
        self.numbers: set[int] = set()

    def hold(self, need: Padding) -> Padding:
        """Returns what a cohort is padded to; later ones are padded to at least as much."""
        self.numbers.add(need.clients)
        if self.padding is None:
            self.padding = self._with_room(need, 1, 2)
        elif any(wish > have for wish, have in zip(need, self.padding)):
            most = Padding(*map(max, self.padding, need))
            self.padding = self._with_room(most, 3 if len(self.numbers) > 1 else 1, 16 if self.grown else 4)
            self.grown += 1
        return self.padding

    def _with_room(self, most: Padding, more_clients: int, more_examples: int) -> Padding:
        """Returns `most` times what is asked for, or what was promised where that is enough."""
        asked = zip(self.promised, most, (more_clients, more_examples))
        clients, largest = (limit if limit and limit >= wish else by * wish for limit, wish, by in asked)
        clients = self.multiple(clients)
        # A cohort holds no more than its clients can; two promises make a third.
        total = clients * largest if all(self.promised) else min(more_examples * most.total, clients * largest)
        return Padding(clients, largest, max(most.total, min(total, self.total or total)))


class _Row(NamedTuple):
    """A slot of the round's table: the algorithm's row, the client's rng, what is reported of the client."""

    row: Any
    key: Any
    report: dict[str, Any]


class _Unknown:
    """Stands for the client's share of all examples where nobody said how many there are."""

    def __jax_array__(self, *_):
        raise UserError("as_fedjax: this algorithm weighs clients by their share of all examples; set total_examples.")

    __mul__ = __rmul__ = __truediv__ = __rtruediv__ = __add__ = __radd__ = __jax_array__


class _NoCounts(dict):
    """Stands for the label counts where nobody said how many classes there are."""

    def __contains__(self, name):
        return True

    def __missing__(self, name):
        raise UserError(f"as_fedjax: the loss or algorithm reads label counts ('{name}'); set num_classes.")


def _in_rows(algorithm: Algorithm, counted: bool, weighed: bool, written: set[str]) -> Algorithm:
    """The algorithm with table rows _Row: clients take their key from the row and leave their report in it.

    Args:
      counted, weighed: whether label counts and shares of all examples are known; written: gets the names reported.
    """

    def phase_in_rows(number: int, phase: Phase) -> Phase:
        if phase.client is None:
            return phase

        def client(down, c):
            mine = c.state
            c = c._replace(state=mine.row, key=jax.random.fold_in(jax.random.wrap_key_data(mine.key), number))
            c = c if counted else c._replace(info=_NoCounts())
            c = c if weighed else c._replace(weight=_Unknown())
            update = phase.client(down, c)
            row = update.state if jax.tree.leaves(update.state) else mine.row
            known = {}
            if "loss" in update.metrics:
                known["loss"] = update.metrics["loss"].value
            delta = update.message.get("delta") if isinstance(update.message, dict) else None
            if isinstance(delta, core.Mean):
                known["delta_l2_norm"] = tree.norm(delta.value)
            written.update(known)
            report = mine.report | {name: jnp.asarray(value, jnp.float32) for name, value in known.items()}
            return update._replace(state=_Row(row, mine.key, report))

        return phase._replace(client=client)

    return algorithm._replace(phases=tuple(phase_in_rows(i, p) for i, p in enumerate(algorithm.phases)))


def _pack(clients, padding: Padding, num_classes: int | None, total_examples: int | None) -> engine.Store:
    """Puts the cohort's examples, preprocessed, into one flat store of padded capacity."""
    flat = {}
    for name, values in clients[0][1].items():
        arrays = [np.asarray(examples[name]) for _, examples, _ in clients]
        if values.dtype.kind not in "biuf":
            continue  # text and the like: no array of jax
        flat[name] = np.zeros((padding.total, *arrays[0].shape[1:]), arrays[0].dtype)
        np.concatenate(arrays, out=flat[name][: sum(map(len, arrays))])
    sizes = np.zeros(padding.clients, np.int64)
    sizes[: len(clients)] = [_size(examples) for _, examples, _ in clients]
    info = {}
    if num_classes is not None:
        counts = np.zeros((padding.clients, num_classes), np.int32)
        for k, (_, examples, _) in enumerate(clients):
            counts[k] = np.bincount(np.asarray(examples["y"]).reshape(-1), minlength=num_classes)[:num_classes]
        info = {"train": counts, "validation": np.zeros_like(counts)}
    weight = (sizes / (total_examples or max(sizes.sum(), 1))).astype(np.float32)
    order = np.arange(padding.total, dtype=np.int32)
    return make_store(flat, sizes, order=order, info=info, weight=weight)


def _size(examples) -> int:
    return len(next(iter(examples.values())))


def _key_data(rng) -> np.ndarray:
    """Returns the uint32 [2] of FedJAX's rng, an old-style key or a new one."""
    return np.asarray(jax.random.key_data(rng) if jnp.issubdtype(rng.dtype, jax.dtypes.prng_key) else rng)


def as_fedjax(
    algorithm: Algorithm,
    *,
    observers: dict[str, Observer] | None = None,
    strategy: str = "default",
    num_classes: int | None = None,
    total_examples: int | None = None,
    max_clients: int | None = None,
    largest: int | None = None,
    compiler_options: dict | None = None,
) -> fedjax.FederatedAlgorithm:
    """Returns `algorithm` as FedJAX knows algorithms: init(params) and apply(server_state, clients).

    Cohorts may change in number and size: they are padded, and a round is compiled again only when one outgrows all
    before it, with ample room to spare (Capacity): two or three times in nearly every program, once if max_clients and
    largest are given. Clients without examples take no part and are not reported. FedJAX's client rng is the client's key;
    the seed of a program is its sampler's. Leave Solver.equal_size unset unless all clients have that many examples.

    Args:
      algorithm: any algorithm, wrapped or not; its clients see every feature of the data sets that is an array.
      observers: name -> Observer; `engine.read_out(algorithm, observers, state.run)` returns their models.
      strategy: how a cohort is mapped, e.g. 'chunked:k=1'; 'default' is the measured table.
      num_classes: lets losses and algorithms that need them see each client's label counts.
      total_examples: of all clients together, for algorithms that weigh a client by its share.
      max_clients: the most clients of a cohort; largest: the most examples of a client. More than that compiles again.
      compiler_options: handed to jax.jit.

    Returns:
      a fedjax.FederatedAlgorithm. init takes params, or Variables for a model with statistics; apply returns the new
      ServerState and client id -> {'loss': ..., 'delta_l2_norm': ...}: the mean training loss and the norm of the step,
      the latter where clients send their mean step as 'delta' (all algorithms but fedacg and fednova). `apply.traces`
      lists the Padding of every compiled round.
    """
    observers = observers or {}
    if strategy == "default":
        strategy = strategies.default_name(jax.default_backend(), jax.local_device_count())
    mapping = strategies.STRATEGIES.build(strategy)
    capacity = Capacity(max_clients, largest, total_examples, mapping.multiple)
    traces: list[Padding] = []
    written: set[str] = set()
    inner = _in_rows(algorithm, num_classes is not None, total_examples is not None, written)

    def init(params) -> ServerState:
        model = params if isinstance(params, Variables) else Variables(params)
        # Rows are made when a client is first seen.
        run = engine.init(
            algorithm._replace(client_init=lambda params, id, key: ()),
            observers,
            model,
            1,
            jax.random.PRNGKey(0),
            jax.random.key(0),
        )
        stateful = jax.tree.leaves(
            jax.eval_shape(algorithm.client_init, model.params, jnp.zeros((), jnp.int32), jax.random.key(0))
        )
        initial = jax.tree.map(jnp.copy, model.params) if stateful else ()
        return ServerState(algorithm.eval_model(model, run.state).params, run, {}, initial)

    @functools.partial(jax.jit, static_argnames="padding", compiler_options=compiler_options)
    def one(run: engine.RunState, initial, rows, known, keys, store, ids, padding: Padding):
        traces.append(padding)  # once per trace
        fresh = jax.vmap(algorithm.client_init, (None, 0, None))(initial, jnp.maximum(ids, 0), jax.random.key(0))
        rows = jax.vmap(tree.where)(known, rows, fresh)
        table = _Row(rows, keys, {name: jnp.zeros(padding.clients) for name in REPORTED})
        place = jnp.arange(padding.clients, dtype=jnp.int32)
        slots = jnp.where(ids >= 0, place, padding.clients)
        run, _ = engine.one_round(
            inner, observers, mapping, padding.largest, run._replace(table=table), store, ids, place, slots
        )
        model = algorithm.eval_model(Variables(run.params, run.stats), run.state)
        return model.params, run._replace(table=()), run.table.row, run.table.report

    def padded(clients) -> Padding:
        sizes = [_size(examples) for _, examples, _ in clients]
        if not sizes:
            raise UserError("as_fedjax: no client of this round has an example.")
        return capacity.hold(Padding(len(sizes), max(sizes), sum(sizes)))

    def apply(state: ServerState, clients) -> tuple[ServerState, dict[bytes, Any]]:
        clients = [(name, dict(dataset.all_examples()), rng) for name, dataset, rng in clients if len(dataset)]
        names = [name for name, _, _ in clients]
        if len(set(names)) < len(names):
            raise UserError("as_fedjax: a client stands twice in one round; sample without replacement.")
        padding = padded(clients)
        row = jax.eval_shape(algorithm.client_init, state.initial, jnp.zeros((), jnp.int32), jax.random.key(0))
        rows = tree.map(lambda s: np.zeros((padding.clients, *s.shape), s.dtype), row)
        known, keys = np.zeros(padding.clients, bool), np.zeros((padding.clients, 2), np.uint32)
        ids = np.full(padding.clients, -1, np.int32)
        for k, (name, _, rng) in enumerate(clients):
            keys[k] = _key_data(rng)
            # A number that depends on the name alone, not on who was seen before.
            ids[k] = zlib.crc32(name) & 0x7FFFFFFF
            if name in state.rows:
                known[k] = True
                jax.tree.map(lambda all, mine: all.__setitem__(k, mine), rows, state.rows[name])
        store = _pack(clients, padding, num_classes, total_examples)
        inputs = mapping.place((state.run, state.initial, rows, known, keys, store, ids))
        params, run, rows, report = one(*inputs, padding=padding)
        rows, report = jax.device_get((rows, report))
        after = dict(state.rows)
        if jax.tree.leaves(rows):
            # Copies: a view of one row would keep the whole cohort's table alive.
            after |= {name: tree.map(lambda leaf: np.array(leaf[k]), rows) for k, name in enumerate(names)}
        told = sorted(written)
        return ServerState(params, run, after, state.initial), {
            name: {key: float(report[key][k]) for key in told} for k, name in enumerate(names)
        }

    apply.traces = traces
    return fedjax.FederatedAlgorithm(init, apply)
