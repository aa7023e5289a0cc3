"""Evaluation of models on each client's own examples: which examples these are, and the compiled pass over clients."""

import dataclasses
from collections.abc import Callable, Sequence
from typing import NamedTuple

import jax
import jax.numpy as jnp
import numpy as np
from jax import lax

from fedwin import tree
from fedwin.core import Cohort, Mean, Variables
from fedwin.data.changes import Changes
from fedwin.data.dataset import Partition, offsets
from fedwin.data.federation import Federation, ShardedStore, Store
from fedwin.data.rng import generator
from fedwin.engine.cohort import map_cohort
from fedwin.engine.evaluate import TEST_BYTES
from fedwin.engine.strategy import Strategy
from fedwin.errors import UserError
from fedwin.local import Batches
from fedwin.personalization import Personalizer
from fedwin.residence.examples import example_bytes
from fedwin.tree import PyTree

# Kinds of results besides the names of personalizers: a model as it is, and the clients' own models.
PLAIN, PERSONAL = "client", "personal"
# Added to the run's key, so that personalization draws no number that training draws.
PERSONALIZATION_TAG = 0x70657273
# Number of a client's first evaluation example: its noise differs from a training example's.
EVALUATED = 1 << 30
# What a step of the loop over batches costs besides its examples, in examples.
STEP_COST = 8


class EvaluatedClients(NamedTuple):
    """Clients that are evaluated, with the examples that they are evaluated on.

    Attributes:
      federation: every client's evaluation examples in place of its training examples; clients may have none.
      ids: the clients that are evaluated, ascending, int32 [n].
    """

    federation: Federation
    ids: np.ndarray


def evaluated_clients(
    federation: Federation, text: str, seed: int, changed: Callable = lambda federation, who: federation
) -> dict[str, EvaluatedClients]:
    """Returns the clients to evaluate on their own examples.

    These are the examples that --val_fraction holds out, else the clients' part of the test split of a data set with
    its own clients. Test clients that never train are evaluated on theirs in either case.

    Args:
      seed: decides which clients are drawn; fewer clients are a subset of more.
      changed: (federation, 'seen' or 'unseen') -> federation with what decides the changes of its examples.

    Returns:
      'seen' -> clients of the federation, and 'unseen' -> clients that have test examples only, if there are any; at
      most as many of each as asked for.

    Raises:
      UserError: it is not a number of clients, or clients have no examples to be evaluated on, or more than TEST_BYTES.
    """
    if text != "all" and not (text.isascii() and text.isdecimal() and 0 < int(text) < 2**31):
        raise UserError(f"eval_clients={text} must be 'all' or a number of clients, at least 1.")
    count = 0 if text == "all" else int(text)
    found = {}
    for name, examples in _evaluation_examples(federation).items():
        ids = np.flatnonzero(examples.sizes > 0).astype(np.int32)
        if count and count < len(ids):
            ids = np.sort(generator(seed, "evaluated clients", name).permutation(ids)[:count])
        if len(ids):
            found[name] = EvaluatedClients(changed(examples, name), ids)
    if not found:
        raise UserError(
            f"eval_clients: no client has an example to be evaluated on with seed {seed}; raise --val_fraction or use "
            f"fewer clients."
        )
    return found


def _evaluation_examples(federation: Federation) -> dict[str, Federation]:
    """Returns 'seen' and 'unseen' -> clients with their evaluation examples in place of training examples."""
    own, held_out, test = federation.partition, federation.validation, federation.dataset.test_natural
    found = {} if held_out is None else {"seen": Federation(federation.dataset, held_out, None, ())}
    if test is None or not _is_natural(federation):
        if not found:
            raise UserError(
                "eval_clients: clients have no examples of their own to be evaluated on; hold some out with "
                "--val_fraction, e.g. 0.2, or use a data set whose own clients have test examples."
            )
        return found
    if len(test.order) * example_bytes(federation.features) > TEST_BYTES:
        raise UserError(
            f"eval_clients: the {len(test.order):,} test examples are more than the {TEST_BYTES >> 30} GiB reserved "
            f"for evaluation; omit --eval_clients."
        )
    number_of = {name: number for number, name in enumerate(_names(test))}
    matched = np.array([number_of.get(name, -1) for name in _names(own)], int)
    unseen = test.select(np.setdiff1d(np.arange(test.num_clients), matched))
    sizes = np.where(matched >= 0, test.sizes[matched], 0)
    seen = Partition(test.select(matched[matched >= 0]).order, offsets(sizes), ids=own.ids)
    of_test = dataclasses.replace(federation.dataset, train=federation.dataset.test)
    return {"seen": Federation(of_test, seen, None, ())} | found | {"unseen": Federation(of_test, unseen, None, ())}


def _is_natural(federation: Federation) -> bool:
    """Whether the federation's clients are the data set's own, or some of them."""
    own, natural = federation.partition, federation.dataset.natural
    if natural is None or (own.ids is None) != (natural.ids is None):
        return False
    if own.ids is None or natural.ids is None:
        return np.array_equal(own.order, natural.order) and np.array_equal(own.offset, natural.offset)
    return bool(np.isin(own.ids, natural.ids).all())


def _names(partition: Partition) -> list:
    return list(range(partition.num_clients)) if partition.ids is None else partition.ids.tolist()


def batch_length(sizes: np.ndarray, most: int) -> int:
    """Returns the number of examples of a client's batches, up to `most`, with which a pass over clients costs least.

        min_B sum_k ceil(N_k / B) (B + STEP_COST),   B a power of two

    Example:
      >>> batch_length(np.array([3, 4, 3]), 500), batch_length(np.array([300, 100]), 500)
      (4, 64)
    """
    candidates = [b for b in (1 << n for n in range(31)) if b <= max(most, 1) and b < 2 * sizes.max()]
    return min(candidates, key=lambda b: int(np.ceil(sizes / b).sum()) * (b + STEP_COST))


class ProbedClient(NamedTuple):
    """Inputs of the pass that differ by client, with a leading axis C.

    Attributes:
      place: the cohort; its rows are those of the evaluation examples, `training_row` that of the training examples.
      state: row of the client table; empty where no model depends on it.
    """

    place: Cohort
    training_row: jax.Array
    state: PyTree


class ProbeInputs(NamedTuple):
    """Inputs of the pass that all clients share.

    Attributes:
      models: the evaluated models, leaves [M, ...]; the first is that of the algorithm.
      training: training examples; None where no client trains.
    """

    models: Variables
    round: jax.Array
    key: jax.Array
    examples: Store | ShardedStore
    training: Store | ShardedStore | None


@dataclasses.dataclass(frozen=True, eq=False)
class ClientProbe:
    """The pass over clients: (models, run, examples, training examples, clients) -> kind -> metric -> Mean [C, M].

    Kinds are 'client' (a model as it is), 'personal' (the client's own model; M is 1) and the personalizers' names.

    Attributes:
      apply: (Variables, batch) -> logits.
      measure: (logits, batch) -> metric -> Mean.
      batches: division of a client's evaluation examples.
      n_max: examples of the largest client; n_max_training: its training examples.
      client_model: the algorithm's, or None.
      strategy: how the clients of a block are executed; its chunk must be a number.
    """

    apply: Callable
    measure: Callable
    batches: Batches
    n_max: int
    n_max_training: int
    client_model: Callable | None
    personalizers: Sequence[Personalizer]
    strategy: Strategy
    changes: Changes = Changes()

    def __call__(self, models: dict[str, Variables], run, examples, training, cohort: Cohort, training_rows):
        """Evaluates a block of clients; may be traced.

        Args:
          models: name -> model, read from the state `run`.
          training: store of the training examples; None without personalizers.
          cohort: the clients, arrays [C]; its rows are those of `examples`, the evaluation examples.
          training_rows: their rows of `training`, int32 [C].
        """
        state: PyTree = ()
        if self.client_model is not None:
            state = self.strategy.everywhere(tree.map(lambda leaf: leaf.at[cohort.ids].get(mode="clip"), run.table))
        stacked = tree.map(lambda *leaves: jnp.stack(leaves), *models.values())
        key = jax.random.key_data(jax.random.fold_in(run.key, PERSONALIZATION_TAG))
        shared = ProbeInputs(stacked, run.round, key, examples, training)
        return map_cohort(self._client, shared, ProbedClient(cohort, training_rows, state), self.strategy)[1]

    def _client(self, shared: ProbeInputs, own: ProbedClient):
        """Returns ((), kind -> metric -> Mean [M]) of one client."""
        client = self._view(shared, shared.examples, own, own.place.rows, self.n_max, EVALUATED)
        results = {PLAIN: lax.map(lambda model: self._measured(model, client), shared.models)}
        if self.client_model is not None:
            model = self.client_model(tree.map(lambda leaf: leaf[0], shared.models), own.state)
            results[PERSONAL] = tree.map(lambda value: value[None], self._measured(model, client))
        for personalizer in self.personalizers:
            learner = self._view(shared, shared.training, own, own.training_row, self.n_max_training)
            adapted = lambda model: self._measured(personalizer.adapt(model, learner), client)
            results[personalizer.name] = lax.map(adapted, shared.models)
        return (), results

    def _view(self, shared: ProbeInputs, store: PyTree, own: ProbedClient, row, n_max: int, first: int = 0):
        place = own.place._replace(rows=row, slots=own.place.ids)
        key = jax.random.fold_in(jax.random.wrap_key_data(shared.key), shared.round)
        key = jax.random.fold_in(key, place.ids)
        client = store.client(place, key=key, round=shared.round, state=own.state, stats=(), n_max=n_max)
        return self.changes.of_client(client, shared.round - 1, first)

    def _measured(self, model: Variables, client) -> dict[str, Mean]:
        """Returns metric -> Mean of one model on a client's examples."""
        positions, steps = self.batches.one_pass(client)

        def sums(j):
            batch = self.batches.take(client, positions, j)
            return self.measure(self.apply(model, batch), batch)

        zeros = tree.zeros_like(jax.eval_shape(sums, 0))
        return lax.fori_loop(0, steps, lambda j, total: tree.add(total, sums(j)), zeros)
