"""The runs of `fedwin compare`."""

from experiments import compare
from fedwin.algorithms import ALGORITHMS
from fedwin.runs.config import Config
from tests.refusals import refused

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
