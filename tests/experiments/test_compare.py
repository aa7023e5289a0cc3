"""`fedwin compare`: its runs, and (slow) the papers' claims about the methods."""

import pytest

from experiments import compare
from fedwin.algorithms import ALGORITHMS
from fedwin.runs.config import Config
from tests.refusals import refused
from tests.small_runs import placed

BASE = Config(**compare.SETTING)


def test_every_algorithm_is_compared():
    configs = [compare.parse_method(method, BASE) for method in compare.every_method()]
    assert {ALGORITHMS.check(config.algorithm).name for config in configs} == set(ALGORITHMS.entries)
    assert len(set(compare.METHODS)) == len(compare.METHODS)


def test_a_method_brings_flags_of_its_own():
    config = compare.parse_method("fedcm:alpha=0.1 --client_lr=0.3 --wrap=ima --shuffle=false --num_rounds=7", BASE)
    assert (config.algorithm, config.client_lr, config.wrap, config.shuffle) == ("fedcm:alpha=0.1", 0.3, ["ima"], False)
    assert config.num_rounds == 7 and config.observe == BASE.observe
    kept = compare.parse_method("fedavg --keep_rounds=2,5", BASE)
    kept.check()
    assert kept.keep_rounds == [2, 5]
    for flag in ("--nothing=1", "--wrap"):
        refused("is not --flag=value", compare.parse_method, f"fedavg {flag}", BASE)


@pytest.mark.slow
def test_behavior_at_scale(tmp_path):
    """Digits, one class per client, 10 of 100 clients: means of the last rounds."""
    summaries = compare.compare(compare.every_method(), placed(BASE, tmp_path, seeds=["0", "1"]))
    found = {
        method: {name: values["accuracy"]["mean"] for name, values in summary["over_seeds"].items()}
        for method, summary in summaries.items()
    }
    accuracy = {method: values["model"] for method, values in found.items()}
    assert accuracy["scaffold"] > accuracy["fedavg"] and accuracy["fedhbm"] > accuracy["fedavg"]
    assert found["fedavg"]["wima20"] > accuracy["fedavg"]
    # Clients take equally many steps here.
    assert accuracy["fednova"] == pytest.approx(accuracy["fedavg"], abs=0.003)
    assert min(accuracy.values()) > 0.8, accuracy  # chance is 0.1
