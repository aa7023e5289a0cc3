"""What holds of every partitioner, and of each one."""

import dataclasses
import math
import os
import subprocess
import sys
import warnings

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from experiments import partition as partition_binary
from fedwin import data
from fedwin.data.dataset import Partition
from fedwin.data.partitions import fill
from fedwin.errors import UserError

from .balanced import balanced, labelled

QUICK = settings(max_examples=25, deadline=None)

# Every label partitioner with options that suit a small data set.
EVERY = (
    "iid",
    "iid:equal=true",
    "shards:per_client=2",
    "dirichlet:alpha=0.3",
    "dirichlet:alpha=0.3,order=rotate",
    "dirichlet:alpha=0.02,prior=symmetric",
    "dirichlet:alpha=0",
    "dirichlet:alpha=inf",
    "yurochkin:alpha=0.5,min_size=1",
    "quantity:classes=2",
    "ghb_code:alpha=0.5,tries=3",
    "ghb_code:alpha=0",
    "pachinko",
)


def tree_set(labels) -> data.Dataset:
    return labelled(labels, 10, coarse=np.asarray(labels, np.int32) // 2)


@pytest.mark.parametrize("text", EVERY)
@given(
    labels=st.lists(st.integers(0, 9), min_size=60, max_size=200), clients=st.integers(1, 9), seed=st.integers(0, 99)
)
@QUICK
def test_every_partition_deals_each_example_at_most_once(text, labels, clients, seed):
    dataset = tree_set(labels)
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        part = data.deal(dataset, text, clients, seed, allow_empty=True)
        again = data.deal(dataset, text, clients, seed, allow_empty=True)
    assert part.num_clients == clients
    assert len(np.unique(part.order)) == len(part.order)
    assert part.order.dtype == np.int32 and part.offset.dtype == np.int64
    assert part.order.size == 0 or (0 <= part.order.min() and part.order.max() < len(labels))
    assert part.sizes.sum() + part.report["left_out"] == len(labels)
    expected = [np.bincount(np.asarray(labels)[part.client(k)], minlength=10) for k in range(clients)]
    np.testing.assert_array_equal(part.report["histogram"], expected)
    np.testing.assert_array_equal(part.report["sizes"], part.sizes)
    assert part.order.tobytes() == again.order.tobytes() and part.offset.tobytes() == again.offset.tobytes()


@pytest.mark.parametrize("text", [t for t in EVERY if not t.startswith("shards")])
def test_another_seed_deals_differently(text):
    dataset = tree_set(np.arange(800) % 10)
    first, second = (data.deal(dataset, text, 10, seed) for seed in (0, 1))
    assert first.order.tobytes() != second.order.tobytes()


def test_the_deal_depends_on_no_global_state():
    code = (
        "import numpy as np, random, sys; np.random.seed(int(sys.argv[1])); random.seed(int(sys.argv[1]))\n"
        "from fedwin import data; d = data.load('digits')\n"
        "import hashlib; h = hashlib.sha256()\n"
        "for t in ('iid', 'shards', 'dirichlet:alpha=0.5', 'yurochkin:alpha=0.5', 'quantity:classes=3'):\n"
        "    h.update(data.deal(d, t, 20, 3).order.tobytes())\n"
        "print(h.hexdigest())"
    )
    out = [
        subprocess.run(
            [sys.executable, "-c", code, str(seed)],
            env={**os.environ, "PYTHONHASHSEED": str(seed)},
            capture_output=True,
            text=True,
            check=True,
        ).stdout
        for seed in (1, 2)
    ]
    assert out[0] == out[1] and len(out[0]) == 65


@given(n=st.integers(1, 300), clients=st.integers(1, 20), equal=st.booleans())
@QUICK
def test_iid_sizes_differ_by_at_most_one(n, clients, equal):
    dataset = labelled(np.zeros(n), 1)
    if clients > n:
        with pytest.raises(UserError, match="more than the"):
            data.deal(dataset, f"iid:equal={equal}", clients, 0)
        return
    part = data.deal(dataset, f"iid:equal={equal}", clients, 0)
    assert np.ptp(part.sizes) <= (0 if equal else 1)
    assert part.report["left_out"] == (n % clients if equal else 0)


@given(s=st.integers(1, 4), clients=st.integers(1, 12), labels=st.lists(st.integers(0, 9), min_size=48, max_size=150))
@QUICK
def test_shards_have_equal_sizes_and_few_classes(s, clients, labels):
    part = data.deal(labelled(labels, 10), f"shards:per_client={s}", clients, 0)
    size = len(labels) // (clients * s)
    assert (part.sizes == s * size).all()
    # A shard of a sorted list spans at most the classes that fit in it, and no more than two where classes are larger.
    counts = np.bincount(labels, minlength=10)
    if counts.min() >= size:
        assert ((part.report["histogram"] > 0).sum(1) <= 2 * s).all()


def test_shards_of_balanced_classes_hold_one_to_s_classes():
    part = data.deal(balanced(10, 50_000), "shards", 100, 0)
    classes = (part.report["histogram"] > 0).sum(1)
    assert (part.sizes == 500).all() and classes.min() >= 1 and classes.max() == 2
    assert set(np.unique(part.report["histogram"])) <= {0, 250, 500}


@pytest.mark.parametrize("num_classes, clients, holders", [(10, 100, 10), (10, 500, 50), (100, 100, 1), (100, 500, 5)])
def test_alpha_zero_gives_each_client_one_class(num_classes, clients, holders):
    part = data.deal(balanced(num_classes, 50_000), "dirichlet:alpha=0", clients, 0)
    assert ((part.report["histogram"] > 0).sum(1) == 1).all()
    assert ((part.report["histogram"] > 0).sum(0) == holders).all()
    assert part.report["left_out"] == 0 and "warning" not in part.report


def test_alpha_zero_warns_where_classes_do_not_divide():
    with pytest.warns(UserWarning, match="two classes"):
        part = data.deal(labelled(np.repeat(np.arange(3), [5, 7, 8]), 3), "dirichlet:alpha=0", 4, 0)
    assert (part.sizes == 5).all() and (part.report["histogram"] > 0).sum(1).max() == 2
    assert "warning" in part.report


@pytest.mark.parametrize("order", ["sequential", "rotate"])
@given(
    alpha=st.floats(1e-12, 1e6),
    clients=st.integers(1, 12),
    labels=st.lists(st.integers(0, 4), min_size=12, max_size=90),
)
@QUICK
def test_dirichlet_fills_every_client(order, alpha, clients, labels):
    part = data.deal(labelled(labels, 5), f"dirichlet:alpha={alpha},order={order}", clients, 1)
    assert (part.sizes == len(labels) // clients).all()
    assert part.report["left_out"] == len(labels) % clients
    assert 0 <= part.report["fallbacks"] <= len(labels)


@pytest.mark.parametrize(
    "alpha, low, high",
    [(0.05, 1.32 * 0.65, 1.32 * 1.35), (0.1, 1.54 * 0.65, 1.54 * 1.35), (0.5, 2.32, 4.82), (1, 3.1, 6.45)],
)
def test_dirichlet_reproduces_the_published_number_of_classes(alpha, low, high):
    dataset = balanced(10, 50_000)
    means = [
        (data.deal(dataset, f"dirichlet:alpha={alpha}", 100, seed).report["histogram"] > 0).sum(1).mean()
        for seed in range(3)
    ]
    assert low < np.mean(means) < high


# Classes per client and share of the top class of reference simulations, CIFAR-10 sizes, 100 clients.
SHARES = {
    "alpha=0.05": (1.385, 0.945),
    "alpha=0.1": (1.62, 0.92),
    "alpha=0.5": (3.215, 0.80),
    "alpha=1": (4.3, 0.68),
    "alpha=10": (9.5, 0.31),
    "alpha=100": (9.8, 0.17),
    "alpha=0.05,order=rotate": (3.1, 0.88),
    "alpha=0.1,order=rotate": (3.25, 0.86),
    "alpha=0.5,order=rotate": (4.8, 0.71),
    "alpha=1,order=rotate": (5.85, 0.60),
    "alpha=10,order=rotate": (9.9, 0.29),
    "alpha=100,order=rotate": (10, 0.16),
    "alpha=0.05,prior=symmetric": (3.25, 0.80),
    "alpha=0.1,prior=symmetric": (4.3, 0.68),
    "alpha=0.5,prior=symmetric": (8.7, 0.40),
    "alpha=1,prior=symmetric": (9.5, 0.31),
    "alpha=10,prior=symmetric": (9.8, 0.16),
    "alpha=100,prior=symmetric": (9.9, 0.13),
}


@pytest.mark.parametrize("options", SHARES)
def test_dirichlet_matches_the_reference_statistics(options):
    classes, share = SHARES[options]
    histograms = [data.deal(balanced(10, 50_000), f"dirichlet:{options}", 100, s).report["histogram"] for s in range(3)]
    assert np.mean([(h > 0).sum(1).mean() for h in histograms]) == pytest.approx(classes, rel=0.1)
    assert np.mean([(h.max(1) / h.sum(1)).mean() for h in histograms]) == pytest.approx(share, rel=0.06)


def test_a_hundred_classes_at_a_large_alpha():
    classes = (data.deal(balanced(100, 50_000), "dirichlet:alpha=1000", 100, 0).report["histogram"] > 0).sum(1)
    assert (
        classes.mean() == pytest.approx(95.5, rel=0.01) and classes.max() == 100 and classes.min() < 60
    )  # the last filled


def test_the_prior_matters_by_an_order_of_magnitude_on_a_hundred_classes():
    dataset = balanced(100, 50_000)
    empirical, symmetric = (
        (data.deal(dataset, f"dirichlet:alpha=0.5,prior={p}", 100, 0).report["histogram"] > 0).sum(1).mean()
        for p in ("empirical", "symmetric")
    )
    assert 3.2 < empirical < 5.2 and 58 < symmetric < 72


def test_the_clients_filled_last_are_the_most_skewed():
    part = data.deal(balanced(10, 50_000), "dirichlet:alpha=10", 100, 0)
    classes = (part.report["histogram"] > 0).sum(1)[part.report["visit"]]
    assert classes[:33].mean() - classes[-33:].mean() > 0.5


def test_empirical_and_symmetric_agree_draw_for_draw_on_balanced_classes():
    dataset = balanced(10, 5_000)
    one = data.deal(dataset, "dirichlet:alpha=1,prior=empirical", 50, 4)
    other = data.deal(dataset, "dirichlet:alpha=0.1,prior=symmetric", 50, 4)
    np.testing.assert_array_equal(one.order, other.order)


def test_a_large_alpha_approaches_the_class_shares():
    labels = np.repeat(np.arange(4), [4000, 3000, 2000, 1000])
    for text in ("dirichlet:alpha=1e6,order=rotate", "dirichlet:alpha=inf,order=rotate"):
        histogram = data.deal(labelled(labels, 4), text, 20, 0).report["histogram"]
        expected = 500 * np.array([0.4, 0.3, 0.2, 0.1])
        chi2 = ((histogram - expected) ** 2 / expected).sum(1)
        assert chi2.mean() < 8 and histogram.std() > 0  # three degrees of freedom; not exactly equal


def test_exhausted_clients_fall_back_to_what_is_left():
    # Everyone wants class 0 or 1 alone at this alpha; the sizes force most clients to other classes at the end.
    part = data.deal(labelled(np.repeat([0, 1], [10, 990]), 2), "dirichlet:alpha=1e-9,prior=symmetric", 10, 0)
    assert part.report["fallbacks"] > 0 and (part.sizes == 100).all() and part.report["left_out"] == 0


def one_at_a_time(q, sizes, turns, rng):
    """The rule as it is written: weights on pools that are not empty, else the pools' sizes; one draw per turn."""
    left, histogram, fallbacks = np.array(sizes), np.zeros(q.shape), 0
    for k in turns:
        weights = q[k] * (left > 0)
        if weights.sum() == 0:
            weights, fallbacks = left, fallbacks + 1
        c = rng.choice(len(left), p=weights / weights.sum())
        left[c] -= 1
        histogram[k, c] += 1
    return np.append(histogram.ravel(), fallbacks)


@pytest.mark.parametrize("order", ["sequential", "rotate"])
def test_block_draws_follow_the_one_at_a_time_law(order):
    q, sizes, repeats = np.array([[0.5, 0.5, 0], [0, 0, 1.0], [0, 0.2, 0.8]]), [4, 3, 2], 1500
    pool = np.repeat(np.arange(3), sizes)
    blocks, singles = [], []
    for seed in range(repeats):
        rng = np.random.default_rng(seed)
        pools = fill.Pools(pool, 3, rng)
        if order == "rotate":
            lists, fallbacks = fill.rotating(pools, q, 3, rng)
            turns = np.concatenate([rng.permutation(3) for _ in range(3)])
        else:
            lists, fallbacks = fill.sequential(pools, lambda k, is_open: q[k] * is_open, [1, 2, 0], 3, rng)
            turns = np.repeat([1, 2, 0], 3)
        histogram = np.array([np.bincount(pool[rows], minlength=3) for rows in lists])
        blocks.append(np.append(histogram.ravel(), fallbacks))
        singles.append(one_at_a_time(q, sizes, turns, rng))
    blocks, singles = np.array(blocks), np.array(singles)
    error = np.sqrt((blocks.var(0) + singles.var(0)) / repeats) + 1e-9
    assert np.abs((blocks.mean(0) - singles.mean(0)) / error).max() < 4.5
    assert blocks[:, -1].mean() > 0.5  # the case does exercise the fallback


@given(
    alpha=st.floats(0.05, 50), clients=st.integers(2, 8), labels=st.lists(st.integers(0, 4), min_size=100, max_size=300)
)
@QUICK
def test_yurochkin_deals_everything_under_its_bounds(alpha, clients, labels):
    part = data.deal(labelled(labels, 5), f"yurochkin:alpha={alpha},min_size=3", clients, 0)
    assert part.report["left_out"] == 0 and part.sizes.min() >= 3
    assert part.sizes.max() <= len(labels) / clients + np.bincount(labels).max()


def test_yurochkin_sizes_differ_and_impossible_minima_are_refused():
    part = data.deal(balanced(10, 20_000), "yurochkin:alpha=0.1", 50, 0)
    assert part.sizes.min() >= 10 and part.sizes.std() > 50
    with pytest.raises(UserError, match="more than the"):
        data.deal(balanced(10, 100), "yurochkin:alpha=1", 20, 0)
    with pytest.raises(UserError, match="in 2 tries"):
        data.deal(balanced(10, 220), "yurochkin:alpha=0.01,max_tries=2", 20, 0)


@given(s=st.integers(1, 6), clients=st.integers(6, 20))
@QUICK
def test_quantity_gives_exactly_s_classes(s, clients):
    part = data.deal(balanced(6, 600), f"quantity:classes={s}", clients, 0)
    assert ((part.report["histogram"] > 0).sum(1) == s).all()
    assert (part.report["histogram"] > 0)[np.arange(clients), np.arange(clients) % 6].all()
    assert part.report["left_out"] == 0
    for column in part.report["histogram"].T:
        assert np.ptp(column[column > 0]) <= 1


def test_ghb_code_has_equal_sizes_after_moving_the_surplus():
    part = data.deal(balanced(10, 5_003), "ghb_code:alpha=0.5,tries=5", 50, 0)
    assert set(part.sizes) == {100, 101} and part.report["left_out"] == 0 and part.report["moved"] > 0
    runs = data.deal(balanced(10, 5_000), "ghb_code:alpha=0", 50, 0)
    assert ((runs.report["histogram"] > 0).sum(1) == 1).all()


@pytest.mark.parametrize(
    "clients, n, coarse, fine", [(500, 50_000, 6.6, 21.8), (100, 10_000, 6.1, None), (100, 50_000, 7.7, 29.8)]
)
def test_pachinko_matches_the_reference_statistics(clients, n, coarse, fine):
    part = data.deal(balanced(100, n), "pachinko", clients, 0)
    histogram = part.report["histogram"]
    by_coarse = histogram.reshape(clients, 20, 5).sum(2)
    found = (by_coarse > 0).sum(1)
    assert (part.sizes == n // clients).all() and part.report["left_out"] == 0
    assert abs(found.mean() / coarse - 1) < 0.15
    if fine:
        assert abs((histogram > 0).sum(1).mean() / fine - 1) < 0.15
    if clients == 500:
        assert found.min() == 1 and 11 <= found.max() <= 15
        assert found[:100].mean() == pytest.approx(6.9, rel=0.1) and found[-100:].mean() == pytest.approx(5.2, rel=0.15)
        assert abs((by_coarse.max(1) / 100).mean() / 0.54 - 1) < 0.15


def domains(num_domains, per_domain):
    n = num_domains * per_domain
    dataset = labelled(np.arange(n) % 10, 10, domain=np.repeat(np.arange(num_domains, dtype=np.int32), per_domain))
    return dataset


@pytest.mark.parametrize("inner", ["shards", "yurochkin:alpha=0.5;min_size=2", "quantity:classes=2", "iid"])
def test_domain_clients_hold_one_domain_and_domains_are_complete(inner):
    dataset = domains(5, 800)
    part = data.deal(dataset, f"domain:inner={inner}", 100, 0)
    of_example = dataset.train["domain"]
    assert np.bincount(part.domain).tolist() == [20] * 5
    for k in range(100):
        assert (of_example[part.client(k)] == part.domain[k]).all()
    assert part.report["left_out"] == 0
    assert not (np.sort(part.domain) == part.domain).all()  # the order of the clients does not reveal the domain


@given(fraction=st.floats(0, 0.99), clients=st.integers(1, 10), seed=st.integers(0, 9))
@QUICK
def test_validation_split_keeps_every_example_once(fraction, clients, seed):
    part = data.deal(balanced(10, 100), "iid", clients, 0)
    train, val = data.split_validation(part, fraction, seed)
    for k in range(clients):
        both = np.concatenate([train.client(k), val.client(k)])
        assert sorted(both) == sorted(part.client(k))
        assert len(val.client(k)) == math.floor(fraction * part.sizes[k] + 1e-9)


def test_validation_split_sizes_of_the_thesis():
    for clients, n, held in ((100, 500, 50), (20, 2500, 250)):
        train, val = data.split_validation(data.deal(balanced(10, 50_000), "iid", clients, 0), 0.1, 0)
        assert (train.sizes == n - held).all() and (val.sizes == held).all()
    other = data.split_validation(data.deal(balanced(10, 50_000), "iid", 20, 0), 0.1, 1)[1]
    assert other.order.tobytes() != val.order.tobytes()
    assert data.split_validation(data.deal(balanced(10, 100), "iid", 1, 0), 0.29, 0)[1].sizes.tolist() == [29]


def test_natural_clients_and_a_seeded_choice_of_them():
    lists = [np.arange(k * 3, k * 3 + 3) for k in range(10)]
    natural = Partition.from_lists(lists, ids=np.array([f"w{9 - k}" for k in range(10)]))
    dataset = labelled(np.arange(30) % 10, 10)
    dataset = data.Dataset("own", dataset.train, dataset.test, 10, natural=natural)
    assert data.deal(dataset, None, None, 0).ids.tolist() == natural.ids.tolist()
    chosen = data.deal(dataset, "natural", 4, 0)
    assert chosen.num_clients == 4 and chosen.report["chosen_from"] == 10
    for k in range(4):
        source = natural.ids.tolist().index(chosen.ids[k])
        np.testing.assert_array_equal(chosen.client(k), natural.client(source))
    assert set(data.deal(dataset, "natural", 4, 1).ids) != set(chosen.ids)
    assert "clients            4 of 10 clients\n" in partition_binary.describe(chosen)
    assert "clients            10\n" in partition_binary.describe(data.deal(dataset, None, None, 0))
    with pytest.raises(UserError, match="11 were asked for"):
        data.deal(dataset, "natural", 11, 0)


def test_a_hundred_clients_unless_someone_else_knows(tmp_path):
    dataset = balanced(10, 400)
    for text in (None, "iid", "dirichlet:alpha=0.5", "shards"):
        assert data.deal(dataset, text, None, 0).num_clients == 100
    own = dataclasses.replace(dataset, natural=Partition.from_lists(np.arange(400).reshape(8, 50)))
    assert data.deal(own, None, None, 0).num_clients == data.deal(own, "natural", None, 0).num_clients == 8
    assert data.deal(own, "iid", None, 0).num_clients == 100
    (tmp_path / "split.csv").write_text("user_id,image_id\n0,1\n1,0\n")
    assert data.deal(own, f"csv:path={tmp_path / 'split.csv'}", None, 0).num_clients == 2


@pytest.mark.parametrize(
    "text, clients, message",
    [
        ("dirichlet:alpha=-1", 10, "alpha=-1"),
        ("dirichlet:alpha=nan", 10, "alpha=nan"),
        ("dirichlet:alpha=much", 10, "alpha=much"),
        ("dirichlet", 10, "needs alpha"),
        ("dirichlet:alpha=1,prior=flat", 10, "prior=flat"),
        ("dirichlet:alpha=1,order=none", 10, "order="),
        ("dirichlet:alpha=1,per_client=20", 10, "more than the 100"),
        ("dirichlet:alfa=1", 10, "Did you mean 'alpha'"),
        ("dirichlett:alpha=1", 10, "Did you mean 'dirichlet'"),
        ("yurochkin:alpha=0", 10, "alpha=0"),
        ("quantity:classes=0", 10, "classes=0"),
        ("quantity:classes=11", 10, "classes=11"),
        ("pachinko", 10, "coarse and fine"),
        ("pachinko:beta=0", 10, "beta=0"),
        ("domain", 10, "has none"),
        ("natural", None, "no clients of its own"),
        ("iid", 0, "num_clients"),
        ("shards", 51, "more than the 100"),
    ],
)
def test_bad_partitions_are_refused_in_one_line(text, clients, message):
    with pytest.raises(UserError, match=message) as error:
        data.deal(balanced(10, 100), text, clients, 0)
    assert "\n" not in str(error.value)


def test_negative_seeds_and_empty_clients_are_refused():
    with pytest.raises(UserError, match="seed -1"):
        data.deal(balanced(10, 100), "iid", 10, -1)
    with pytest.raises(UserError, match="client 1 has no examples|has no examples"):
        data.deal(labelled([0, 1, 1, 1], 2), "quantity:classes=1", 4, 0)
    assert data.deal(labelled([0, 1, 1, 1], 2), "quantity:classes=1", 4, 0, allow_empty=True).sizes.min() == 0


def test_sequences_have_no_label_to_split_by():
    y = np.ones((6, 3), np.int32)
    dataset = data.Dataset("text", {"x": y, "y": y}, {"x": y, "y": y}, 5, task="sequence")
    with pytest.raises(UserError, match="one label per example"):
        data.deal(dataset, "shards", 2, 0)
    assert data.deal(dataset, "iid", 2, 0).report["histogram"] is None
