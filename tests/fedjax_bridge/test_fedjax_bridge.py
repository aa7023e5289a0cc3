"""fedwin's algorithms in FedJAX programs: samplers, data sets, loop and evaluation."""

import fedjax
import jax
import numpy as np
import pytest

from fedwin import core, engine, local, losses, models, observers, wrappers
from fedwin.aggregation import AGGREGATORS, aggregated
from fedwin.engine.strategy import Strategy
from fedwin.fedjax_bridge import Capacity, Padding, as_fedjax
from fedwin.testing import compile_options, federations, problems
from tests.algorithms.identities import leaves
from tests.fedjax_bridge import problem
from tests.refusals import refused

QUICK = compile_options()


def build(name, network=None, wrap=(), loss=losses.cross_entropy):
    """The algorithm `name` on the problem's model, or on fedwin's `network`."""
    network = network or models.from_fedjax(problem.model(), problem.sample_batch())
    solve = local.Solver(loss(network), problem.LR, problem.BATCH, problem.EPOCHS)
    setting = core.Setting(12, 4, 20, init_fn=lambda key: network.init(key).params, model=network)
    return problems.build(name, setting, solve, [wrappers.WRAPPERS.build(text, setting) for text in wrap])


def started(algorithm, **options):
    """An algorithm, given or by name, in FedJAX's form, and its first state on the problem's model."""
    algorithm = build(algorithm) if isinstance(algorithm, str) else algorithm
    fed = as_fedjax(algorithm, compiler_options=QUICK, **options)
    return fed, fed.init(problem.initial(problem.model()))


def paddings(needs, **promised) -> int:
    """How many different paddings a sequence of cohorts (clients, largest, total) gets."""
    capacity = Capacity(promised.get("max_clients"), promised.get("largest"), promised.get("total"))
    found = [capacity.hold(Padding(*need)) for need in needs]
    assert all(have >= wish for padding, need in zip(found, needs) for have, wish in zip(padding, need))
    return len(dict.fromkeys(found))


def test_a_broken_promise_compiles_again():
    capacity = Capacity(None, None, None)  # without a promise, a constant number of clients is not padded
    assert {capacity.hold(Padding(7, largest, 7 * largest)).clients for largest in (5, 50, 500)} == {7}
    promised = dict(max_clients=3, largest=10)
    assert paddings([(3, 10, 30), (4, 10, 40), (9, 10, 90)], **promised) == 2
    assert paddings([(3, 10, 30), (4, 10, 40), (9, 12, 90)], **promised) == 3


def test_clients_without_examples_take_no_part():
    clients = problem.sampler(problem.federated_data(clients=5), 3).sample()
    nothing = fedjax.ClientDataset({name: values[:0] for name, values in clients[0][1].raw_examples.items()})
    fed, start = started("fedavg:weighting=uniform")
    with_it, told = fed.apply(start, [(b"empty", nothing, clients[0][2]), *clients])
    without, _ = fed.apply(start, clients)
    np.testing.assert_array_equal(leaves(with_it.params), leaves(without.params))
    assert set(told) == {id for id, _, _ in clients} and len(fed.apply.traces) == 1
    refused("no client", fed.apply, start, [(b"empty", nothing, clients[0][2])])


def test_changing_cohorts_compile_at_most_three_times():
    data, generator = problem.federated_data(clients=40, most=60), np.random.default_rng(0)
    fed, state = started("fedavg")
    for round in range(15):
        ids = generator.choice(40, generator.integers(3, 9), replace=False)
        # Names need not be bytes.
        clients = [(str(k), data.get_client(b"client%03d" % k), jax.random.PRNGKey(round)) for k in ids]
        state, diagnostics = fed.apply(state, clients)
        assert len(diagnostics) == len(ids)
    assert 1 <= len(fed.apply.traces) <= 3


def as_clients(fed, ids, key, round):
    """The cohort of a fedwin federation as FedJAX would hand it over, with the rngs that the engine derives."""
    round_key = jax.random.fold_in(key, round)
    out = []
    for k in ids:
        rows = fed.partition.client(k)
        examples = {name: fed.dataset.train[name][rows] for name in ("x", "y")}
        out.append((b"%d" % k, fedjax.ClientDataset(examples), jax.random.fold_in(round_key, k)))
    return out


@pytest.mark.parametrize(
    "name, wrap, strategy",
    [
        ("scaffold", (), "sharded:devices=2"),
        ("mime:beta=0.9", (), "chunked:k=1"),
        ("median", (), "chunked:k=1"),  # whose server needs every message
        ("fedavg", ("ima:window=2,start=1",), "chunked:k=1"),
        ("fedadam", (), "chunked:k=1"),
        ("ghb:tau=2", (), "chunked:k=1"),
        ("fednova", (), "chunked:k=1"),  # which has no step to measure
    ],
)
def test_equals_the_engine(name, wrap, strategy):
    fed = federations.federation(equal=False)
    algorithm = build("fedavg" if name == "median" else name, federations.network(), wrap)
    if name == "median":
        algorithm = aggregated(algorithm, AGGREGATORS.build("median", federations.setting(fed)))
    watch = {"wima": observers.wima((observers.ReadOut("wima3", 3),))}
    run, store = federations.start(algorithm, watch, fed)
    bridge = as_fedjax(algorithm, observers=watch, strategy=strategy, compiler_options=QUICK)
    state = bridge.init(federations.network().init(jax.random.key(0)))
    cohorts, key = federations.cohorts(fed, 3), jax.numpy.copy(run.key)  # run is donated
    expected, _, _ = engine.Dispatch(algorithm, watch, Strategy(), compiler_options=QUICK)(
        run, store, cohorts, (), 3, np.zeros(3, bool), n_max=int(fed.sizes.max())
    )
    for round, ids in enumerate(cohorts.ids):
        state, told = bridge.apply(state, as_clients(fed, ids, key, round))
    want = engine.read_out(algorithm, watch, expected)
    got = engine.read_out(algorithm, watch, state.run)
    for reading in want:
        np.testing.assert_allclose(leaves(got[reading].params), leaves(want[reading].params), rtol=1e-5, atol=1e-6)
    np.testing.assert_allclose(leaves(state.params), leaves(want["model"].params), rtol=1e-5, atol=1e-6)
    assert len(bridge.apply.traces) == 1
    measured = {"loss"} if name == "fednova" else {"loss", "delta_l2_norm"}
    assert len(told) == len(ids) and all(set(d) == measured for d in told.values())


def test_what_is_missing_is_named():
    data = problem.federated_data(clients=5)
    clients = problem.sampler(data, 4).sample()
    for total, words in (None, "set total_examples"), (5, "total_examples=5, but a round has"):
        fed, start = started("scaffold:control_weighting=samples", total_examples=total)
        refused(words, fed.apply, start, clients)
    halves = problem.sampler(data.preprocess_batch(lambda batch: batch | {"y": batch["y"] / 2}), 4).sample()
    for classes, cohort, words in (None, clients, ""), (2, clients, "integers in 0..1; "), (3, halves, "in 0..2; "):
        fed, start = started(build("fedavg", loss=losses.wsm), num_classes=classes)
        refused(f"{words}set num_classes", fed.apply, start, cohort)
    fed, start = started("fedavg")
    refused("twice", fed.apply, start, [clients[0], clients[0]])
    for rng, words in (3, "'int' object"), (np.ones(2), "rng is float64"), (jax.random.key(0, impl="rbg"), "; set "):
        refused(f"clients must be .*{words}", fed.apply, start, [(*clients[0][:2], rng)])
    odd = [(name, fedjax.ClientDataset({"y": own.all_examples()["y"]}), key) for name, own, key in clients[:1]]
    refused("'x' is missing or different in some clients", fed.apply, start, odd + clients[1:])
