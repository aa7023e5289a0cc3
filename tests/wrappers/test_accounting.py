"""Privacy accounting: published values, and what a run reports."""

import importlib.util
import json
import math
import sys

import pytest

import fedwin
from fedwin.wrappers.accounting import Privacy
from tests.refusals import refused
from tests.small_runs import lines

needs_package = pytest.mark.skipif(
    importlib.util.find_spec("dp_accounting") is None, reason="dp-accounting is not installed"
)


@needs_package
@pytest.mark.parametrize(
    "examples,batch,noise,epochs,delta,epsilon",
    [(60_000, 150, 1.3, 15, 1e-5, 0.7242234026109595), (100_000, 100, 1.0, 30, 1e-7, 1.4154988495444845)],
)
def test_values_printed_by_tensorflow_privacy(examples, batch, noise, epochs, delta, epsilon):
    """compute_dp_sgd_privacy_test.py of TensorFlow Privacy: DP-SGD, whose examples are what clients are here."""
    privacy = Privacy(noise, "add_remove", examples, batch, delta)
    assert privacy.epsilon(epochs * examples // batch) == pytest.approx(epsilon, rel=1e-9)


@needs_package
def test_a_replaced_client_needs_twice_the_noise():
    noise, rounds, delta = 3.0, 40, 1e-5
    everybody = Privacy(noise, "add_remove", 10, 10, delta, "pld")
    # Replacing a client changes the sum by twice as much: as if there were half the noise.
    replaced = Privacy(2 * noise, "replace_one", 10, 10, delta)
    assert replaced.epsilon(rounds) == pytest.approx(Privacy(noise, "add_remove", 10, 10, delta).epsilon(rounds))
    assert everybody.epsilon(rounds) < replaced.epsilon(rounds)


@needs_package
def test_before_the_first_round_and_with_little_noise_or_none():
    assert [Privacy(z, "add_remove", 10, 1, 1e-5).epsilon(r) for z, r in ((1.0, 0), (0.0, 1))] == [0, math.inf]
    # On a grid that grows with epsilon, an upper bound: minutes and gigabytes otherwise.
    assert Privacy(0.1, "add_remove", 100, 10.0, 1e-3, "pld").epsilon(10) == pytest.approx(236.5137, rel=1e-5)
    # Where losses leave the range of floats, or rounds lose less than the grid, it is not above that of Renyi.
    for z, clients, delta, rounds in ((0.3, 100, 1e-6, 100), (30.0, 100_000, 1e-6, 1_000_000)):
        rdp, pld = (Privacy(z, "add_remove", clients, 100, delta, name).epsilon(rounds) for name in ("rdp", "pld"))
        assert pld <= rdp < 1000


def test_the_package_is_asked_for_before_the_run(monkeypatch, tmp_path):
    monkeypatch.setitem(sys.modules, "dp_accounting", None)
    config = fedwin.Config(
        model="digits_mlp", wrap=["dp:clip=1,noise=1"], weighting="uniform", sampling="poisson", out_dir=str(tmp_path)
    )
    refused(r"pip install 'fedwin\[dp\]'", fedwin.check, config)


@needs_package
@pytest.mark.slow
def test_a_run_reports_epsilon_with_every_evaluation_and_in_the_summary(tmp_path):
    settings = dict(num_rounds=6, eval_every=2, final_evals=1, weighting="uniform", model="digits_mlp")
    settings |= dict(sampling="poisson:rate=0.1", wrap=["dp:clip=0.5,noise=1,accountant=pld"])
    summary = fedwin.run(fedwin.Config(**settings, out_dir=str(tmp_path / "a")), quiet=True)
    privacy = Privacy(1.0, "add_remove", 100, 10.0, 1e-5, "pld")
    assert [line["epsilon"] for line in lines(tmp_path / "a")] == [privacy.epsilon(r) for r in (0, 2, 4, 6)]
    reported = summary["privacy"]
    assert reported["epsilon"]["pld"] == privacy.epsilon(6) < reported["epsilon"]["rdp"]
    assert (reported["delta"], reported["rounds"], reported["rate"]) == (1e-5, 6, 0.1)
    assert json.loads((tmp_path / "a" / "summary.json").read_text())["privacy"] == reported
