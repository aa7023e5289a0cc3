"""Fingerprints: whatever changes the numbers of a run either is set by fedwin or changes its fingerprint."""

import dataclasses
import os
import pathlib
import unittest.mock

import jax
import jaxlib
import numpy as np
import pytest

import fedwin
from fedwin import jax_config, multi_process
from fedwin.models.convolution import onednn
from fedwin.runs import directory as directories
from fedwin.runs import machine, run
from fedwin.runs.prepare import prepare
from tests.refusals import refused
from tests.runs.conftest import RUN
from tests.small_runs import SMALL, placed

# What changes -> (how, the name in the environment of the fingerprint).
CHANGES = {
    "fast math": (lambda m: m.setenv("XLA_FLAGS", "--xla_cpu_enable_fast_math=true"), "XLA_FLAGS"),
    "oneDNN": (lambda m: m.setenv("FEDWIN_ONEDNN", "off"), "oneDNN"),
    "instruction set": (lambda m: m.setattr(onednn, "cpu_features", lambda: ("avx2",)), "processor"),
    "cores": (lambda m: m.setattr(os, "sched_getaffinity", lambda process: set(range(97))), "cores"),
    "threads": (lambda m: m.setenv("NPROC", "3"), "NPROC"),
    "jaxlib": (lambda m: m.setattr(jaxlib, "__version__", "0.0.1"), "jaxlib"),
    "fedwin": (lambda m: m.setattr(machine, "__version__", "0.0.1"), "fedwin"),
}


@pytest.fixture(scope="module")
def prepared():
    return prepare(SMALL)


def identity(prepared, **changes):
    dataset = dataclasses.replace(prepared.dataset, **changes)
    return directories.identity(SMALL, {"0": "ab"}, "vmapped", {}, {}, dataset)


def test_normalization_and_options_of_jax_are_in_the_fingerprint_and_flags_of_waiting_are_not(prepared, monkeypatch):
    before, after = identity(prepared, mean=(0.5,), std=(0.25,)), identity(prepared, mean=(0.1,), std=(0.25,))
    assert after.fingerprint != before.fingerprint
    assert after.differences(before) == "normalisation was mean 0.5, std 0.25 and is mean 0.1, std 0.25"
    before = identity(prepared)
    with jax.disable_jit():
        assert identity(prepared).differences(before) == "jax_disable_jit was False and is True"
    monkeypatch.delenv("XLA_FLAGS")
    before = identity(prepared)
    monkeypatch.setenv("XLA_FLAGS", "--xla_dump_to=/nowhere --xla_force_host_platform_device_count=3")
    assert identity(prepared).fingerprint == before.fingerprint


@pytest.mark.parametrize("change", CHANGES)
def test_what_fedwin_does_not_set_is_in_the_fingerprint(change, prepared, monkeypatch):
    if change == "oneDNN" and onednn.missing() is not None:
        pytest.skip("no convolution is oneDNN's here")
    monkeypatch.setenv(onednn.SWITCH, "on")
    before = identity(prepared)
    apply, name = CHANGES[change]
    apply(monkeypatch)
    after = identity(prepared)
    assert after.fingerprint != before.fingerprint
    assert f"{name} was " in after.differences(before) and "\n" not in after.differences(before)


def test_the_library_is_that_of_the_convolutions(prepared, monkeypatch):
    """With a compiler that fails, XLA computes them."""
    monkeypatch.setattr(onednn, "locate", lambda switch: (None, pathlib.Path(__file__), None))
    monkeypatch.setattr(onednn, "status", lambda: "c++ fails")
    of = lambda *convolves: directories.identity(SMALL, {}, "vmapped", {}, {}, prepared.dataset, *convolves)
    assert "oneDNN was test_fingerprint.py" in of(True).differences(of())
    assert of(True).environment["oneDNN"] == "not used"
    with_kernels = prepare(dataclasses.replace(SMALL, model="cnn"))
    assert run._calls_onednn(with_kernels) and not run._calls_onednn(prepared)


def test_hosts_may_differ_in_the_paths_of_imported_files(prepared, monkeypatch):
    sent, own = [], identity(prepared)
    monkeypatch.setattr(multi_process, "all_gather_text", lambda text: sent.append(text) or sent)
    of = lambda path, code: dataclasses.replace(own, config={"imports": [path]}, imports={path: code})
    directories.check_identity(of("a/own.py", "ab"))
    directories.check_identity(of("b/own.py", "ab"))
    refused("other code of --import than process 0", directories.check_identity, of("a/own.py", "cd"))


@pytest.mark.parametrize("error", [AssertionError(), RuntimeError("no such device is known\nmore")])
def test_platforms_without_a_device_are_one_line(error, monkeypatch):
    monkeypatch.setattr(jax, "default_backend", unittest.mock.Mock(side_effect=error))
    refused("JAX_PLATFORMS=.*: no such device is .*; unset it, or set cpu.$", fedwin.run, SMALL)


@pytest.mark.parametrize(
    "option, value",
    [("jax_threefry_partitionable", False), ("jax_default_prng_impl", "rbg"), ("jax_random_seed_offset", 3)],
)
def test_random_numbers_do_not_depend_on_the_users_options(option, value, prepared):
    """The same bits, initial parameters and draws of other shapes: these options are fedwin's."""

    def draw(prepared):
        with jax_config.settings("float32"):
            normal = jax.random.normal(prepared.start(0, 1).key, (3, 5))
            return prepared.start(0, 1).params, normal, jax.random.permutation(jax.random.key(1), 7)

    before, kept = draw(prepared), jax.config.values[option]
    jax.config.update(option, value)
    try:
        after = draw(prepare(SMALL))
        assert jax.config.values[option] == value
    finally:
        jax.config.update(option, kept)
    jax.tree.map(np.testing.assert_array_equal, after, before)


def test_a_finished_run_names_the_changes_and_keeps_numbers_and_fingerprint(finished, copied, monkeypatch, capsys):
    config, version = placed(RUN, copied), jaxlib.__version__
    monkeypatch.setattr(jaxlib, "__version__", "0.0.1")
    again = fedwin.run(config)
    assert f"note: jaxlib was {version} and is 0.0.1; the numbers of {copied} are from" in capsys.readouterr().out
    assert again["fingerprint"] == finished[1]["fingerprint"] and again["over_seeds"] == finished[1]["over_seeds"]
