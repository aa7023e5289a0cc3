"""Wrappers: argument checks, and combinations with statistics, schedules and each other."""

import dataclasses

import jax
import jax.numpy as jnp
import numpy as np
import pytest

from fedwin import core, engine, local, observers, testing, tree
from fedwin.algorithms import ALGORITHMS
from fedwin.core import Setting
from fedwin.engine.communication import communication
from fedwin.wrappers import WRAPPERS
from tests.algorithms.identities import leaves
from tests.problems import built, one_round
from tests.refusals import refused

SETTING = Setting(10, 2, 100)


@pytest.mark.parametrize("begun", [0, 2], ids=["whole", "fork"])
@pytest.mark.parametrize("placement", ["post", "pre"])
def test_ima_averages_statistics_like_parameters(placement, begun):
    p = testing.classification(shuffle=False, num_rounds=6)
    ima = f"ima:window=3,start=1,schedule=none,reset=none,placement={placement}"
    algorithms = [built(p, "fedavg", *texts) for texts in ((), (ima,))]
    base, averaged = (
        testing.trajectory(p, algorithm, 3, run=p.start(algorithm)._replace(round=jnp.int32(begun)))
        for algorithm in algorithms
    )
    # From the third round on the window holds three aggregates; before, in a fork too, all is the base method's.
    for run, plain in zip(averaged[:2], base):
        np.testing.assert_array_equal(leaves(run.stats), leaves(plain.stats))
        np.testing.assert_allclose(leaves(run.params), leaves(plain.params), rtol=1e-6)
    mean = lambda field: np.mean([leaves(getattr(run, field)) for run in base], axis=0)
    np.testing.assert_allclose(leaves(averaged[2].stats), mean("stats"), rtol=1e-6)
    np.testing.assert_allclose(leaves(averaged[2].params), mean("params"), rtol=1e-5, atol=1e-6)


def small(rounds):
    """A problem of one number that compiles fast."""
    return testing.quadratic([1.0, 2.0], [3.0, -2.0], [1.0], steps=1, lr=0.1, schedule=[[0, 1]], num_rounds=rounds)


@pytest.mark.parametrize("choice", ["adabest:eval_model=average", "feddyn:alpha=0.1,eval_model=average"])
def test_ima_is_evaluated_in_place_of_the_base_methods_model(choice):
    p = small(5)
    averaged, alone = (built(p, choice, f"ima:window={w},start=2,schedule=none") for w in (2, 1))
    base = p.build(choice)
    shown = lambda algorithm, run: leaves(engine.read_out(algorithm, {}, run)["model"])
    runs, plain = testing.trajectory(p, averaged, 5), testing.trajectory(p, base, 5)
    assert np.abs(shown(base, plain[4]) - leaves(plain[4].params)).max() > 1e-3
    for t in range(5):
        expected = leaves(runs[t].params) if t >= 2 else shown(base, plain[t])
        np.testing.assert_array_equal(shown(averaged, runs[t]), expected)
    # A window of one model is the base method throughout.
    for run, other in zip(testing.trajectory(p, alone, 5), plain):
        np.testing.assert_array_equal(shown(alone, run), shown(base, other))


def test_averages_before_the_server_nest():
    p, text = small(3), "ima:window={},start=0,schedule=none,placement=pre,reset=none"
    two, one, base = (
        testing.trajectory(p, built(p, "fedavg", *map(text.format, windows)), 3) for windows in ((1, 2), (2,), ())
    )
    for a, b in zip(two, one):
        np.testing.assert_allclose(a.params["x"], b.params["x"], rtol=1e-6)
    assert abs(float(two[-1].params["x"][0] - base[-1].params["x"][0])) > 1e-3


def before_the_server(choice, reset):
    p = small(4)
    texts = ("swa:start=0,cycle=1", f"ima:window=2,start=2,schedule=none,placement=pre,reset={reset}")
    return testing.trajectory(p, built(p, choice, *texts), 4)


@pytest.mark.parametrize("choice", ["ghb:tau=2,beta=0.5", "fedavgm"])
def test_a_reset_leaves_all_but_adaptive_moments(choice):
    never, at_start = (before_the_server(choice, reset)[-1] for reset in ("none", "at_start"))
    np.testing.assert_array_equal(leaves((never.params, never.state)), leaves((at_start.params, at_start.state)))


def test_a_reset_renews_adaptive_moments_inside_another_wrapper():
    never, at_start, once = (
        before_the_server("fedadam:server_lr=0.1", reset) for reset in ("none", "at_start", "one_round_only")
    )
    moments = lambda run: leaves(run.state.inner.inner)
    np.testing.assert_array_equal(leaves(at_start[1].state), leaves(never[1].state))
    assert np.abs(moments(at_start[2]) - moments(never[2])).max() > 1e-3
    # Reset moments that served one round: what was there before comes back.
    np.testing.assert_array_equal(leaves(once[2].params), leaves(at_start[2].params))
    np.testing.assert_array_equal(moments(once[2]), moments(never[1]))
    # SWA's inner average continues: rounds 1 to 3 were collected in spite of the reset.
    for runs in (never, at_start, once):
        assert int(runs[3].state.inner.own.count) == 3
        np.testing.assert_allclose(
            leaves(runs[3].state.inner.own.model), np.mean([leaves(run.params) for run in runs[1:]], 0), rtol=1e-5
        )


def test_swa_can_leave_its_average_to_an_observer():
    p = small(6)
    options = dict(start=2, cycle=2, phase="swa")
    text = "swa:start=2,cycle=2,phase=swa"
    hidden, both = (built(p, "fedavg", t) for t in (text, text + ",evaluate=model"))
    watch = {"swa": observers.swa(p.setting, **options)}
    for a, b in zip(testing.trajectory(p, hidden, 6), testing.trajectory(p, both, 6, watch)):
        read = engine.read_out(both, watch, b)
        np.testing.assert_array_equal(leaves(read["model"]), leaves(a.params))
        np.testing.assert_array_equal(leaves(read["swa"]), leaves(engine.read_out(hidden, {}, a)["model"]))


def test_a_wrapper_leaves_constants_constant():
    p = testing.classification()
    none = WRAPPERS.build("ima:schedule=none", SETTING).solver(p.solve)
    assert none.lr == p.solve.lr and none.epochs == p.solve.epochs and none.max_epochs is None
    epoch = WRAPPERS.build("ima:schedule=epoch,start=50,period=10", SETTING).solver(
        dataclasses.replace(p.solve, epochs=3)
    )
    assert epoch.max_epochs == 3
    assert [int(epoch.epochs(jnp.int32(t))) for t in (0, 49, 50, 60, 99)] == [3, 3, 3, 2, 1]


@pytest.mark.parametrize("phase, shares", [("code", [3, 1, 2, 3]), ("swa", [1, 2, 3, 1])])
def test_swa_learning_rates_fall_to_the_second_rate_in_every_cycle(phase, shares, double):
    base, setting = local.exponential(0.01, 0.02), Setting(10, 2, 20)
    for text, low in (("", 0.01), (",second_lr=0.002", None)):
        swa = WRAPPERS.build(f"swa:start=5,cycle=3,phase={phase}{text}", setting)
        high = np.asarray(jax.vmap(base)(jnp.arange(9)))
        bottom = low * high if low else np.full(9, 0.002)
        u = np.array([0, 0, 0, 0, 0, *shares]) / 3
        np.testing.assert_allclose(jax.vmap(swa.rate(base))(jnp.arange(9)), (1 - u) * high + u * bottom, atol=1e-14)


@pytest.mark.parametrize("text", ["quantize:bits=32", "topk:share=1"])
def test_all_entries_and_bits_are_no_compression(text):
    algorithm = (p := small(1)).build("scaffold")
    assert WRAPPERS.build(text, p.setting).algorithm(algorithm) is algorithm


def test_local_statistics_continue_from_the_clients_own():
    # Client 0 takes part in every round, next to another one.
    p = testing.classification(schedule=((0, 1), (0, 2), (0, 3), (0, 1)), shuffle=False)
    runs, shared = (testing.trajectory(p, built(p, "scaffold", *texts), 4) for texts in (["local_bn"], []))
    for run, plain in zip(runs, shared):
        # Training never reads running statistics: parameters and controls are those of the base method.
        np.testing.assert_array_equal(leaves((run.params, run.state)), leaves((plain.params, plain.state)))
        np.testing.assert_array_equal(leaves(run.table.inner), leaves(plain.table))
    assert [run.table.seen.tolist() for run in runs[:3]] == [[1, 1, 0, 0], [1, 1, 1, 0], [1, 1, 1, 1]]
    # All start from the server's; the second round of client 0 does not.
    np.testing.assert_array_equal(leaves(runs[0].stats), leaves(shared[0].stats))
    assert np.abs(leaves(runs[1].stats) - leaves(shared[1].stats)).max() > 1e-3
    # The evaluated statistics are the mean of the cohort's, weighted like the parameters.
    own, n = np.asarray(runs[3].table.part["mean"]), np.array([4, 2])
    np.testing.assert_allclose(runs[3].stats["mean"], n @ own[:2] / n.sum(), rtol=1e-6)


def test_a_personal_model_has_the_clients_own_statistics():
    p = testing.classification(schedule=((0, 1),), shuffle=False)
    algorithm = built(p, "fedavg", "local_bn")
    run = testing.trajectory(p, algorithm, 1)[-1]
    server = core.Variables(run.params, run.stats)
    models = [algorithm.client_model(server, jax.tree.map(lambda leaf: leaf[id], run.table)) for id in (0, 2)]
    np.testing.assert_array_equal(models[0].stats["mean"], run.table.part["mean"][0])
    # A client that has not taken part has none.
    np.testing.assert_array_equal(models[1].stats["mean"], run.stats["mean"])
    assert all(model.params is run.params for model in models)


@pytest.mark.parametrize(
    "texts", [["clip:norm=0.5"], ["ima:window=2,start=1", "local_bn"], ["topk:share=0.5"]], ids=str
)
def test_wrappers_keep_personal_models(texts):
    p = testing.classification()

    def doubled(setting, solve):
        algorithm = ALGORITHMS["scaffold"](setting, solve)
        return algorithm._replace(client_model=lambda model, row: model._replace(params=tree.scale(2.0, row)))

    algorithm = built(p, doubled, *texts)
    row = algorithm.client_init(tree.scale(0.5, p.variables.params), 0, jax.random.key(0))
    row = row._replace(inner=p.variables.params) if hasattr(row, "inner") else p.variables.params
    personal = algorithm.client_model(p.variables, row)
    np.testing.assert_array_equal(leaves(personal.params), 2 * leaves(p.variables.params))


def test_statistics_travel_once_a_round_and_direction():
    p = testing.classification()
    count = lambda choice: communication(p.build(choice), p.variables.params, p.store, p.n_max, p.variables.stats)
    # Params of 23 numbers, statistics of 4.
    assert count("mime") == count("mimelite") == (2 * 92 + 16, 2 * 92 + 16)
    assert count("fedavg") == (92 + 16, 92 + 16)


def test_a_phase_that_returns_no_statistics_keeps_the_local_ones():
    # MIME's first round trip returns neither a row nor statistics.
    p = testing.classification(schedule=((0, 1), (0, 2)), shuffle=False)
    kept = built(p, "mime", "local_bn")
    start, down = testing.trajectory(p, kept, 1)[0], p.variables
    row = jax.tree.map(lambda leaf: leaf[0], start.table)
    phase = kept.phases[0]
    client = jax.jit(phase.client, compiler_options=testing.compile_options())
    update = client(phase.broadcast(start.params, start.state), p.client(0, row))
    assert np.abs(leaves(row.part) - leaves(down.stats)).max() > 1e-3
    np.testing.assert_array_equal(leaves(update.state.part), leaves(row.part))
    assert bool(update.state.seen)


# What a wrapper can't do for an algorithm | the error. `dp` needs equal weights and cohorts of a fixed size.
DP = "dp:clip=1,noise=0,neighbors=replace_one"
REFUSED = """
ima:placement=pre       | mime      | one round trip
ima:placement=pre       | scaffold  | one mean step
swa:cycle=1,second_lr=0 | fedavg    | swa: second_lr=0 is that of a cycle
clip:norm=1             | scaffold  | clip: .* send 'drift'
clip:norm=1             | mime      | clip needs .* one round trip
clip:norm=1             | fednova   | clip: .* no mean step
clip:norm=1             | diloco:fragments=2 | clip: clients of this algorithm send a part
primal                  | ghb       | feeding back an average: the momentum of this algorithm
local:part=classifier   | ghb       | local: the momentum of this algorithm
topk:share=0.5          | mime      | topk needs .* one round trip
topk:share=0.5          | fednova   | topk: .* no mean step
topk:share=0.5          | feddyn    | topk: .* computes 'moved'
topk:share=0.5          | diloco:fragments=2 | topk: clients of this algorithm send a part
quantize                | feddyn    | quantize: the server of this algorithm computes 'moved'
quantize                | fedgloss  | quantize: the server of this algorithm computes 'moved'
local:part=classifier   | scaffold  | local: .* send other messages than their mean step
local:part=classifier   | mime      | local needs .* one round trip
local:part=classifier   | diloco:fragments=2 | local: clients of this algorithm send a part
local:part=norm         | fedavg    | local: part=norm: no layer has a 'scale'
dp                      | fedavg    | --weighting=uniform
dp                      | fedavg:weighting=uniform     | BatchNorm
dp                      | scaffold:weighting=uniform   | also send 'drift'
dp                      | fednova:weighting=uniform    | no mean step
dp                      | mime:weighting=uniform       | one round trip
dp clip:norm=1          | fedavg:weighting=uniform     | --wrap=clip before --wrap=dp
dp ima:window=2,start=0,placement=pre | fedavg:weighting=uniform | placement=pre before --wrap=dp
"""


@pytest.mark.parametrize(
    "line", REFUSED.strip().splitlines(), ids=lambda line: line.rpartition("|")[0].replace(" ", "")
)
def test_what_a_wrapper_can_not_do_is_one_line(line):
    texts, choice, reason = (part.strip() for part in line.split("|"))
    # A model with statistics, which dp refuses first, or one without.
    p = small(2) if texts.startswith("dp") and reason != "BatchNorm" else testing.classification()
    texts = [DP if text == "dp" else text for text in texts.split()]
    refused(reason, one_round, p, choice, *texts)


@pytest.mark.parametrize("text, reason", [("local_bn", "no BatchNorm statistics"), ("local", "local, part=classifier")])
def test_a_model_must_have_the_part_that_stays_local(text, reason):
    refused(reason, one_round, small(1), "fedavg", text)
