"""The privacy account of runs that start from others: continued, refused, or said to count one run alone."""

import dataclasses
import re

import pytest

import fedwin
from fedwin.runs.run import prepare_and_check
from tests.refusals import refused
from tests.small_runs import lines, run_in, small
from tests.wrappers.test_accounting import needs_package

pytestmark = needs_package

DP = "dp:clip=1,noise=1,delta=1e-3"
SMALL = small(
    sampling="poisson:rate=0.25", weighting="uniform", wrap=[DP], num_rounds=2, eval_every=1, checkpoint_every=1
)


@pytest.fixture(scope="module")
def parents(tmp_path_factory):
    """The directory of a private run, one that is not private, and a file of a model."""
    folder = tmp_path_factory.mktemp("parents")
    run_in(SMALL, folder / "private")
    run_in(SMALL, folder / "public", wrap=[])
    fedwin.export(folder / "public", folder / "model.npz")
    return folder


def guarantee(parents, **changes):
    flags = {name: text.format(parents) if isinstance(text, str) else text for name, text in changes.items()}
    config = dataclasses.replace(SMALL, **({"out_dir": str(parents / "new"), "num_rounds": 4} | flags))
    return prepare_and_check(config, None, None).plan.prepared.privacy


def epsilon(*parts):
    """RDP of Poisson-sampled Gaussian rounds (noise, rate, count), composed by dp-accounting."""
    from dp_accounting import GaussianDpEvent, PoissonSampledDpEvent, rdp

    accountant = rdp.RdpAccountant()
    for noise, rate, count in parts:
        accountant.compose(PoissonSampledDpEvent(rate, GaussianDpEvent(noise)), count)
    return pytest.approx(accountant.get_epsilon(1e-3), rel=1e-9)


FORK, WARM = {"fork_from": "{}/private@1"}, {"init_from": "{}/private@2"}
OTHER_SEED = {"seeds": [3], "partition_seed": 0}


@pytest.mark.parametrize(
    "changes, expected",
    [
        (FORK, [(1, 0.25, 4)]),
        (FORK | {"wrap": ["dp:clip=2,noise=3,delta=1e-3"]}, [(1, 0.25, 1), (3, 0.25, 3)]),
        (FORK | {"sampling": "poisson:rate=0.5", "dropout": 0.2}, [(1, 0.25, 1), (1, 0.5, 3)]),
        (WARM | OTHER_SEED | {"wrap": ["dp:clip=1,noise=2,delta=1e-3"]}, [(1, 0.25, 2), (2, 0.25, 4)]),
    ],
    ids=str,
)
def test_an_account_goes_on(changes, expected, parents):
    privacy = guarantee(parents, **changes)
    assert privacy.epsilon(4) == epsilon(*expected) and not privacy.alone
    assert privacy.report(4)["rounds"] == sum(count for _, _, count in expected)
    assert privacy.report(4)["epsilon"]["pld"] < privacy.epsilon(4)


@pytest.mark.parametrize(
    "changes, reason",
    [
        (WARM, "seed 0 draws the cohorts and noise of .*/private again"),
        (WARM | OTHER_SEED | {"sampling": "uniform", "wrap": [f"{DP},neighbors=replace_one"]}, "neighbors=add_remove"),
        (WARM | {"seeds": [3]}, "its clients, or their examples, are not those of .*/private"),
        ({"init_from": "{}/public@2", "partition": "dirichlet:alpha=0.1"}, "are not those of .*/public"),
        ({"init_from": "{}/model.npz"}, "the model of .*/model.npz is taken as public"),
    ],
    ids=str,
)
def test_what_does_not_count_is_said(changes, reason, parents):
    privacy = guarantee(parents, **changes)
    assert privacy.spent(4) == ((privacy.mechanism, 4),)
    assert re.search(f"; epsilon counts this run alone: .*{reason}", privacy.describe(4))


@pytest.mark.parametrize(
    "changes",
    [
        {"partition": "dirichlet:alpha=0.1"},
        {"partition_seed": 3},
        {"val_fraction": 0.2},
        {"fork_from": "{}/public@1"},
        {"init_from": "{}/public@1", "fork_from": ""},
        {"sampling": "uniform", "wrap": [f"{DP},neighbors=replace_one"]},
    ],
    ids=str,
)
def test_what_has_no_epsilon_is_refused(changes, parents):
    words = "dp accounts for all rounds, and .* start from a private run on the same"
    refused(words, guarantee, parents, **FORK | changes)


@pytest.mark.slow
def test_the_account_is_part_of_the_directory(parents, tmp_path):
    """A resumed run takes it from config.json."""
    changes = dict(OTHER_SEED, init_from=f"{parents}/private@2", num_rounds=1, out_dir=str(tmp_path / "a"))
    config = dataclasses.replace(SMALL, **changes)
    fedwin.run(config, quiet=True)
    assert [line["epsilon"] for line in lines(tmp_path / "a")] == [epsilon((1, 0.25, n)) for n in (2, 3)]
    resumed = prepare_and_check(config, None, None).plan.prepared.privacy
    assert resumed.spent(1) == ((resumed.mechanism, 3),) and resumed.seeds == (0, 3)
