"""Contract tests of what users register besides algorithms: observers, losses, aggregators, wrappers and so on.

Each takes a builder, as registered, or a choice such as 'ema:decay=0.5', and what to test it on: by default a
classifier with three classes or 80 vectors from four. It raises an AssertionError of one sentence if the engine could
not rely on what was built, a UserError if a user's function fails, and prints one line on success.
"""

import functools
from collections.abc import Callable

import jax
import jax.numpy as jnp
import numpy as np

from fedwin import core, tree
from fedwin.aggregation import AGGREGATORS
from fedwin.data import PARTITIONS
from fedwin.engine.algorithm_check import check_round
from fedwin.errors import UserError, describe
from fedwin.losses import LOSSES
from fedwin.observers import OBSERVERS, ReadOut, wima_of
from fedwin.sampling import SAMPLERS, Population, Sampler
from fedwin.testing import federations
from fedwin.testing.contract import Bench, check_loop, check_padding, check_strategy, default_strategies
from fedwin.testing.families import classification
from fedwin.testing.problems import KEY, build, compile_options
from fedwin.wrappers import WRAPPERS


def _contract(registry):
    """Makes a generator of (holds, sentence), whose first argument builds, a function that checks all of them."""

    def decorate(check: Callable) -> Callable:
        @functools.wraps(check)
        def checked(builder, *args, **options) -> None:
            name = builder if isinstance(builder, str) else getattr(builder, "__name__", check.__name__)
            own = lambda *context: registry.checked(builder(*context), name)
            make = functools.partial(registry.build, builder) if isinstance(builder, str) else own
            try:
                for holds, sentence in check(make, *args, **options):
                    if not holds:
                        raise AssertionError(f"{name}: {sentence}.")
            except (AssertionError, UserError):
                raise
            except Exception as error:  # the user's code may raise anything
                raise UserError(f"{name}: {describe(error)}") from error
            print(f"{name}: the contract holds.")

        return checked

    return decorate


def _same(a, b, rounding: float = 0.0) -> bool:
    """Whether two trees are equal, up to rounding."""
    close = lambda x, y: np.allclose(x, y, rtol=rounding, atol=rounding, equal_nan=True)
    same = jax.tree.structure(a) == jax.tree.structure(b)  # type: ignore[operator]
    return same and all(map(close, jax.tree.leaves(a), jax.tree.leaves(b)))


def _finite(values) -> bool:
    return all(np.isfinite(leaf).all() for leaf in jax.tree.leaves(values))


@_contract(OBSERVERS)
def check_observer(make, p=None, rounds: int = 6):
    """Checks an observer: constant shapes of its state, read-outs like the model at any time, and exact resuming."""
    p = classification() if p is None else p

    def observer():
        setting = p.setting._replace(num_rounds=rounds)
        built = make(setting)
        return wima_of([built], setting) if isinstance(built, ReadOut) else built

    def followed(observer, state, first):
        states = [state]
        for round in range(first, rounds):
            # Traced anew, so that a list or a counter that lives between calls shows.
            update = jax.jit(lambda *args: observer.update(*args), compiler_options=compile_options())
            states.append(update(np.int32(round), models[round], states[-1]))
        return states

    models = [
        tree.map(lambda x, r=r: x + 0.1 * jax.random.normal(KEY, x.shape) * r, p.variables) for r in range(rounds)
    ]
    own, other, half = observer(), observer(), rounds // 2
    states = followed(own, own.init(p.variables), 0)
    yield tree.alike(states[0], states[-1]), "update changes the structure, a shape or a dtype of the state of init"
    for model, state in ((p.variables, states[0]), (models[-1], states[-1])):
        read = own.read(model, state)
        yield isinstance(read, dict) and read, "read returns no dict of name -> core.Variables"
        for name, value in read.items():
            yield tree.alike(value, model), f"the read-out '{name}' has other parts, shapes or dtypes than the model"
            yield _finite(value), f"the read-out '{name}' is NaN or infinite"
    again = followed(other, jax.tree.map(np.array, states[half]), half)[-1]
    resumes = _same(other.read(models[-1], again), read)
    yield resumes, "a run that resumes reads another model; keep everything that update needs in the state"


@_contract(LOSSES)
def check_loss(make, p=None):
    """Checks a loss: a mean over the real examples of a batch, with the model's statistics, and finite gradients."""
    p = classification() if p is None else p
    loss, info, params = make(p.setting.model), p.client(0).info, p.variables.params
    rows = {name: values[:6] for name, values in p.store.examples.items()}
    batch = rows | {"mask": jnp.array([1.0, 1, 1, 1, 0, 0])}
    value = lambda params, batch: loss(params, p.variables.stats, batch, jax.random.key(0), info)
    number, stats = jax.eval_shape(value, params, batch)
    use = "return losses.masked_mean(values, batch)"
    yield number.shape == (), f"the loss has the shape {list(number.shape)} and is not a number; {use}"
    own = p.variables.stats
    yield tree.alike(stats, own), "the second value is not like the model's statistics; return (loss, stats)"
    of = jax.jit(jax.value_and_grad(value, has_aux=True), compiler_options=compile_options())
    result = of(params, batch)
    yield _finite(result), "the loss or its gradient is NaN or infinite"
    yield any(np.any(leaf) for leaf in jax.tree.leaves(result[1])), "the gradient is 0: no parameter has an effect"
    padded = jax.tree.map(lambda x: jnp.concatenate([x[:4], x[:2]]), rows) | {"mask": batch["mask"]}
    yield _same(of(params, padded), result, 1e-5), f"padding counts, the rows where batch['mask'] is 0; {use}"
    twice = jax.tree.map(lambda x: jnp.concatenate([x, x]), batch)
    yield _same(of(params, twice), result, 1e-4), f"a batch twice over has a different loss: it is not a mean; {use}"
    yield _finite(of(params, batch | {"mask": jnp.zeros(6)})), f"a batch of padding alone gives NaN; {use}"
    yield _finite(of(tree.scale(1000.0, params), batch)), "logits in the hundreds give NaN or infinity; use losses.nll"


@_contract(AGGREGATORS)
def check_aggregator(make):
    """Checks an aggregator: a vector within the range of the steps, for any order, padding and scale of weights."""
    clients, length, random = 7, 5, np.random.default_rng(0)
    combine = make(core.Setting(clients, clients, 10)).combine
    if combine is None:  # the algorithm's own mean
        return
    steps = random.uniform(1, 2, (clients, length)).astype(np.float32)
    weights, present = np.arange(1, clients + 1, dtype=np.float32), np.ones(clients, bool)
    run = jax.jit(combine, compiler_options=compile_options())
    result, order = run(steps, weights, present), random.permutation(clients)
    same = lambda *arguments: _same(run(*arguments), result, 1e-5)
    yield jnp.shape(result) == (length,), f"combine returns {list(jnp.shape(result))}, not one step [{length}]"
    yield same(steps[order], weights[order], present), "the order of the clients changes the result"
    absent = (np.concatenate([values, np.zeros_like(values[:2])]) for values in (steps, weights, present))
    yield same(*absent), "clients that do not take part change the result; leave out rows where `present` is False"
    yield same(steps, 3 * weights, present), "weights three times as large change the result; divide by their sum"
    inside = bool(np.all((result > -1e-3) & (result < steps.max(0) + 1e-3)))
    yield inside, "the result is outside of the range of the clients' steps: a sum, where a mean is needed"


@_contract(WRAPPERS)
def check_wrapper(make, p=None, algorithm: str = "fedavg", strategies=None, rounds: int = 6):
    """Checks a wrapper by the contract of an algorithm inside it: resuming, padding, vmapped and sharded cohorts.

    Args:
      algorithm: a choice; strategies and rounds are those of `check_algorithm`.
    """
    p = classification(shuffle=False) if p is None else p
    check_round(build(algorithm, p.setting, p.solve, [make(p.setting)]), p.variables, p.store, p.n_max)
    bench = Bench(algorithm, p, (make,), rounds)
    check_loop(bench)
    check_padding(bench)
    for strategy in default_strategies() if strategies is None else strategies:
        check_strategy(bench, strategy)
    yield True, ""


@_contract(PARTITIONS)
def check_partition(make, dataset=None, num_clients: int = 8, seed: int = 0):
    """Checks a partition: every example at most once, no empty client, and a function of the seed alone."""
    dataset = federations.dataset() if dataset is None else dataset
    before = {name: np.array(values) for name, values in dataset.train.items()}
    found, again = (make(dataset, num_clients, seed) for _ in range(2))
    order, count, clients = found.order, len(before["y"]), found.num_clients
    yield found.offset[-1] == order.size, "offset does not end where order does; use data.Partition.from_lists"
    yield not order.size or 0 <= order.min() <= order.max() < count, f"it has an example that is not in 0..{count - 1}"
    twice, empty = np.flatnonzero(np.bincount(order) > 1), np.flatnonzero(found.sizes < 1)
    yield not twice.size, f"example {twice[:1].sum()} belongs to two clients"
    yield clients == num_clients or found.ids is not None, f"it has {clients} clients, not num_clients={num_clients}"
    yield not empty.size, f"client {empty[:1].sum()} has no examples, which a run refuses"
    same = _same((order, found.offset), (again.order, again.offset))
    yield same, "the same seed gives two partitions; draw from np.random.default_rng(seed)"
    yield _same(before, dict(dataset.train)), "it changes the data set's arrays; sort or shuffle a copy"


@_contract(SAMPLERS)
def check_sampler(make, population=None, rounds: int = 20):
    """Checks a sampler: distinct clients that exist, as many as it says, and a function of seed and round alone."""
    population = population or Population(12, 4, rounds, (0, 1), lambda seed: np.arange(1, 13))

    def sampler():
        built, most = make(population), population.clients_per_round
        return built if isinstance(built, Sampler) else Sampler(built, population.num_clients, most, 0, most)

    turns = [(seed, round) for seed in population.seeds for round in range(rounds)]
    own, other = sampler(), sampler()
    forward = [own.cohort(*turn) for turn in turns]
    backward = [other.cohort(*turn) for turn in reversed(turns)]
    for draw, again in zip(forward, reversed(backward)):
        size, least, most = len(draw.ids), own.smallest, own.largest
        yield least <= size <= most, f"a round draws {size} clients, and the sampler says {least} to {most}"
        yield _same(draw.ids, again.ids), "a round's clients depend on earlier rounds; draw from (seed, round) alone"
        yield draw.importance is None or np.all(draw.importance >= 0), "an importance is below 0"
