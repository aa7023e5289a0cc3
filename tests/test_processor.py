"""What the processor can do."""

import pathlib
import platform

import pytest

from fedwin.models.convolution.processor import instructions

LISTED = pathlib.Path("/proc/cpuinfo")


@pytest.mark.skipif(not LISTED.exists() or platform.machine() != "x86_64", reason="Linux on x86-64 lists them so")
def test_instruction_sets_are_those_that_linux_lists():
    assert "sse2" in instructions()
    assert all(f" {name}" in LISTED.read_text() for name in instructions())


def test_elsewhere_python_is_asked(monkeypatch):
    monkeypatch.setattr(pathlib.Path, "read_text", lambda path: (_ for _ in ()).throw(FileNotFoundError))
    monkeypatch.setattr(platform, "processor", lambda: "arm")
    assert instructions.__wrapped__() == ("arm",)
