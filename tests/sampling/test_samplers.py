"""Samplers: inclusion frequencies, corrections, chains, traces, and what they refuse."""

import numpy as np
import pytest

from fedwin import sampling
from fedwin.sampling import SAMPLERS, Population, make_sampler
from fedwin.sampling.available import random_order, states
from fedwin.sampling.drawing import inclusion_probabilities
from tests.refusals import refused

K, C = 20, 5
SIZES = np.array([1, 1, 2, 3, 5, 8, 13, 21, 34, 200, 4, 4, 4, 4, 4, 9, 9, 9, 9, 2])
POPULATION = Population(K, C, 3000, (0, 1), lambda seed: SIZES)
TRACE = "client,start,end\n" + "".join(f"{client},{client % 4},{client % 4 + 2}\n" for client in range(0, K, 2))


def trace(folder, text=TRACE):
    """Returns the sampler of a trace, which is written to a file."""
    (folder / "trace.csv").write_text(text)
    return f"file:path={folder / 'trace.csv'}"


def included(sampler, rounds=3000, seed=0):
    """Which clients take part in which round, bool [rounds, K]."""
    found = np.zeros((rounds, sampler.num_clients), bool)
    for round in range(rounds):
        found[round, sampler.cohort(seed, round).participants] = True
    return found


def close(counts, chances, rounds):
    """Whether binomial counts are within 5 standard deviations."""
    deviation = np.sqrt(rounds * np.asarray(chances) * (1 - np.asarray(chances)))
    return (np.abs(counts - rounds * np.asarray(chances)) <= 5 * deviation + 1e-9).all()


def test_a_cohort_is_a_function_of_seed_and_round(tmp_path):
    given = {"file": f"{trace(tmp_path)},period=5", "markov": "markov:up=0.3,down=0.3", "diurnal": "diurnal:period=4"}
    for choice in [given.get(name, name) for name in SAMPLERS]:
        first, second = (make_sampler(choice, POPULATION, 0.2) for _ in range(2))
        forward = [first.cohort(1, round) for round in range(12)]
        for round in reversed(range(12)):
            again = second.cohort(1, round)
            np.testing.assert_array_equal(again.ids, forward[round].ids, err_msg=choice)
            np.testing.assert_array_equal(again.answers, forward[round].answers)
        assert any(len(a.ids) != len(b.ids) or (a.ids != b.ids).any() for a, b in zip(forward[1:], forward))
        assert any(list(second.cohort(0, round).ids) != list(forward[round].ids) for round in range(12)), choice
        for drawn in forward:
            assert len(set(drawn.ids.tolist())) == len(drawn.ids) and drawn.ids.dtype == np.int32
            assert first.smallest <= len(drawn.ids) <= first.largest


def test_uniform_cohorts_are_those_of_earlier_versions():
    sampler = make_sampler("uniform", POPULATION)
    assert not (sampler.varies or sampler.weighted) and sampler.participation == C / K
    # Written down before samplers were a registry.
    assert sampler.cohort(3, 7).ids.tolist() == [1, 8, 4, 3, 12]


def test_weighted_cohorts_have_their_inclusion_probabilities():
    sampler = make_sampler("weighted", POPULATION)
    # Computed separately: two clients are too large and certain.
    expected = SIZES / SIZES.sum() * C
    for _ in range(3):
        certain = expected >= 1
        expected = np.where(certain, 1, (C - certain.sum()) * SIZES / SIZES[~certain].sum())
    np.testing.assert_allclose(inclusion_probabilities(SIZES, C), expected)
    assert expected.sum() == pytest.approx(C) and expected.max() == 1
    counts = included(sampler).sum(0)
    assert close(counts, expected, 3000) and not close(counts, np.full(K, C / K), 3000)


def test_the_correction_makes_the_weighted_mean_unbiased():
    sampler, x = make_sampler("weighted", POPULATION), np.random.default_rng(0).normal(size=K) + SIZES / 20
    corrected, plain = [], []
    for round in range(3000):
        ids, importance = sampler.cohort(0, round)[:2]
        weights = SIZES[ids] * importance
        # The denominator is a constant: the ratio is the Horvitz-Thompson estimator itself.
        assert weights.sum() == pytest.approx(C / K * SIZES.sum())
        corrected.append((weights * x[ids]).sum() / weights.sum())
        plain.append((SIZES[ids] * x[ids]).sum() / SIZES[ids].sum())
    truth, error = (SIZES * x).sum() / SIZES.sum(), np.std(corrected) / np.sqrt(3000)
    assert abs(np.mean(corrected) - truth) < 5 * error
    assert abs(np.mean(plain) - truth) > 5 * error


def test_poisson_cohorts_are_independent_coin_flips():
    sampler = make_sampler("poisson:rate=0.15", POPULATION)
    found = included(sampler)
    assert close(found.sum(0), 0.15, 3000)
    assert close((found[:, 0] & found[:, 1]).sum(), 0.15**2, 3000)  # not so without replacement
    sizes = found.sum(1)
    assert abs(sizes.var() / (K * 0.15 * 0.85) - 1) < 5 * np.sqrt(2 / 3000)
    both = np.concatenate([sizes, included(sampler, seed=1).sum(1)])
    assert (sampler.largest, sampler.smallest) == (both.max(), both.min()) and close(both.sum(), 0.15, 6000 * K)
    assert sampler.rate == 0.15 and sampler.participation == pytest.approx(0.15)
    assert make_sampler("poisson", POPULATION).rate == C / K
    assert make_sampler("poisson:rate=1e-9", POPULATION).largest == 1  # of empty cohorts alone
    few = make_sampler("poisson:rate=0.15", POPULATION._replace(num_rounds=9))
    np.testing.assert_array_equal(few.cohort(0, 9).ids, sampler.cohort(0, 9).ids)  # a longer run's, beyond the last


def test_a_million_clients_and_twenty_thousand_rounds():
    large = Population(10**6, 100, 20_000, (0,), lambda seed: np.ones(1))
    sampler = make_sampler("poisson:rate=0.00005", large)
    assert 50 < sampler.largest < 100 and len(sampler.cohort(0, 19_999).ids) <= sampler.largest
    assert len(make_sampler("markov:up=0.001,down=0.01", large).cohort(0, 19_999).ids) == 100


@pytest.mark.parametrize("groups, shuffle", [(0, True), (4, False), (3, True)])
def test_groups_take_turns(groups, shuffle):
    sampler = make_sampler(f"cyclic:groups={groups},rounds=2,shuffle={shuffle}", POPULATION)
    count = groups or 4
    found = included(sampler, 120 * count)
    groups_of = [set(np.flatnonzero(found[group * 2 :: 2 * count].any(0))) for group in range(count)]
    assert sorted(sum(map(sorted, groups_of), [])) == list(range(K))
    for round in range(len(found)):
        assert set(np.flatnonzero(found[round])) <= groups_of[round // 2 % count]
    assert (groups_of[0] == {0, 1, 2, 3, 4}) == (not shuffle)
    assert sampler.largest == sampler.smallest == 5


def forward_chains(seed, rounds, clients, up, down):
    """The chains from round 0 on, one transition after the other."""
    numbers = sampling.uniforms(seed, 0x3A4C, np.arange(rounds)[:, None], np.arange(clients))
    state = [numbers[0] < up / (up + down)]
    for u in numbers[1:]:
        state.append(np.where(state[-1], u < 1 - down, u < up))
    return np.array(state)


@pytest.mark.parametrize("up, down", [(0.02, 0.05), (0.9, 0.8), (1.0, 1.0), (0.001, 0.0)])
def test_chains_without_earlier_states_are_the_chains(up, down):
    expected = forward_chains(5, 300, 40, up, down)
    for round in (0, 1, 2, 9, 63, 299):
        np.testing.assert_array_equal(states(5, round, np.arange(40), up, down), expected[round])


def test_too_few_available_clients_all_take_part():
    sampler = make_sampler("markov:up=0.05,down=0.4", POPULATION)
    sizes = []
    for round in range(900):
        there = set(np.flatnonzero(states(0, round, np.arange(K), 0.05, 0.4)))
        drawn = set(sampler.cohort(0, round).ids.tolist())
        assert drawn <= there and len(drawn) == min(len(there), C)
        sizes.append(len(drawn))
    assert {0, 1, 2, C} <= set(sizes) and sampler.participation == pytest.approx(np.mean(sizes) / K, rel=0.1)
    assert np.arange(C + 1) @ sampler.sizes == pytest.approx(sampler.expected)
    assert close(included(make_sampler("markov:up=1,down=0", POPULATION)).sum(0), C / K, 3000)  # all are available


def test_many_clients_are_put_in_random_order_piece_by_piece():
    *_, first, last = pieces = [*random_order(np.random.default_rng(0), 5000, 10)]
    np.testing.assert_array_equal(np.sort(np.concatenate(pieces)), np.arange(5000))
    assert all(abs(np.corrcoef(piece, np.arange(len(piece)))[0, 1]) < 5 / len(piece) ** 0.5 for piece in (first, last))


def test_diurnal_availability_follows_the_cosine():
    everyone = POPULATION._replace(clients_per_round=K)
    found = included(make_sampler("diurnal:period=4,low=0.2,high=0.8,zones=1", everyone))
    for time, chance in enumerate((0.8, 0.5, 0.2, 0.5)):
        assert close(found[time::4].sum(), chance, found[time::4].size)
    assert make_sampler("diurnal:period=4,low=0.2,high=0.8,zones=1", everyone).participation == pytest.approx(0.5)
    spread = included(make_sampler("diurnal:period=4", everyone))
    assert close(spread.sum(), 0.5, spread.size) and spread[::4].mean(0).std() > 0.3


def test_a_trace_says_who_is_there(tmp_path):
    sampler = make_sampler(f"{trace(tmp_path)},period=5", POPULATION._replace(clients_per_round=3))
    found = included(sampler, 500)
    for round in range(500):
        there = {client for client in range(0, K, 2) if client % 4 <= round % 5 < client % 4 + 2}
        assert set(np.flatnonzero(found[round])) <= there and found[round].sum() == min(3, len(there))
    assert close(found[::5, ::4].sum(0), 3 / 5, 100)  # drawn anew in every period
    assert (sampler.smallest, sampler.largest) == (0, 3) and len(sampler.digest) == 16
    everyone = make_sampler(f"{trace(tmp_path)},period=5,everyone=true", POPULATION._replace(clients_per_round=99))
    assert everyone.largest == 5 and everyone.cohort(0, 0).ids.size == 5
    assert make_sampler(f"{trace(tmp_path, TRACE + '1,0,1')},period=5", POPULATION).digest != sampler.digest


@pytest.mark.parametrize(
    "text, message",
    [
        ("client,start,end\n0,0,5000\n1,x,2\n", "line 3: '1,x,2' must be three integers"),
        ("client,start,end\n\n20,0,5\n", "line 3: there is no client 20; the federation has clients 0..19"),
        ("client,start,end\n0,0,5\n1,0,2\n0,4,9\n", "line 4 overlaps line 2: client 0 is already available"),
        ("client,start,end\n0,0,5\n", "ends before round 6 of 3000; set period=5 to repeat it"),
        ("client,start,end\n0,3000,4000\n", "nobody is available in rounds 1..3000; shift its intervals"),
    ],
)
def test_errors_in_a_trace_name_the_line(tmp_path, text, message):
    refused(message, make_sampler, trace(tmp_path, text), POPULATION)


@pytest.mark.parametrize("start", ["", "\ufeff"], ids=["plain", "byte-order-mark"])
def test_a_trace_without_an_end_costs_no_memory(tmp_path, start):
    few = POPULATION._replace(num_rounds=4)
    for end, period in ((10**40, ""), (2147483647, ",period=2147483647")):
        choice = trace(tmp_path, f"{start}client,start,end\n0,0,1\n0,1,{end}\n1,2,{end}\n")
        sampler = make_sampler(f"{choice}{period},everyone=true", few)
        assert [sorted(sampler.cohort(0, round).ids) for round in range(4)] == [[0], [0], [0, 1], [0, 1]]
        assert (sampler.smallest, sampler.largest, sampler.expected) == (1, 2, 1.5)


def test_dropout_is_one_draw_per_seed_round_and_client():
    plain, dropping = make_sampler("uniform", POPULATION), make_sampler("uniform", POPULATION, 0.3)
    everyone = make_sampler("uniform", POPULATION._replace(clients_per_round=K), 0.3)
    answers = np.zeros((1000, K), bool)
    for round in range(1000):
        drawn, full = dropping.cohort(0, round), everyone.cohort(0, round)
        np.testing.assert_array_equal(drawn.ids, plain.cohort(0, round).ids)
        answers[round, full.ids] = full.answers
        np.testing.assert_array_equal(drawn.answers, answers[round, drawn.ids])
    assert close(answers.sum(), 0.7, answers.size) and close(answers.sum(0), 0.7, 1000)
    assert dropping.varies and dropping.participation == pytest.approx(0.7 * C / K)


def mixed(x):
    mask = (1 << 64) - 1
    x = (x + 0x9E3779B97F4A7C15) & mask
    x = ((x ^ (x >> 30)) * 0xBF58476D1CE4E5B9) & mask
    x = ((x ^ (x >> 27)) * 0x94D049BB133111EB) & mask
    return x ^ (x >> 31)


def test_the_hash_is_that_of_integers():
    for seed, tag, round, client in ((0, 1, 0, 0), (2**31 - 1, 0xD407, 19_999, 10**6), (7, 2, 3, 4)):
        expected = mixed(mixed(mixed((seed << 32) + tag) ^ mixed(round)) ^ client)
        assert sampling.uniforms(seed, tag, round, client)[0] == (expected >> 11) / 2**53


def test_a_users_function_of_seed_and_round_is_a_sampler():
    SAMPLERS.register("mine", lambda population: lambda seed, round: np.arange(0, K, 2)[: round + 1])
    sampler = make_sampler("mine", POPULATION)
    assert sampler.cohort(0, 2).ids.tolist() == [0, 2, 4] and (sampler.smallest, sampler.largest) == (0, C)


def weighing(factors):
    return sampling.Sampler(lambda seed, round: sampling.Draw(np.arange(2), factors), K, 2, 2, 2, weighted=True)


@pytest.mark.parametrize(
    "draw, message",
    [
        (lambda seed, round: [0.5], r"client numbers, integers \[n\], not float64"),
        (lambda seed, round: [4, 3, 4], "the draw of round 3 has client 4 twice; draw without replacement"),
        (lambda seed, round: 1 / 0, "no clients could be drawn for round 3: ZeroDivisionError"),
        (lambda seed, round: sampling.Draw(np.arange(2), np.ones(2)), "weighted=True"),
        (weighing(np.ones(3)), "its importance must be 2 finite numbers >= 0, one per client"),
        (weighing(np.array([1, np.nan])), "its importance must be 2 finite numbers"),
    ],
)
def test_a_users_wrong_draw_is_one_line(draw, message):
    SAMPLERS.register("mine", lambda population: draw)
    refused(message, make_sampler("mine", POPULATION).cohort, 0, 2)


def test_more_clients_than_there_are():
    many = POPULATION._replace(clients_per_round=21)
    for choice in ("uniform", "weighted", "poisson", "cyclic", "markov:up=1,down=1", "diurnal:period=2"):
        refused("more than the federation's 20 clients", make_sampler, choice, many)
    assert make_sampler("poisson:rate=0.5", many).rate == 0.5
