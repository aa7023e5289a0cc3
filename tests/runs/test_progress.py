"""Progress: a bar on a terminal, plain lines otherwise."""

import io

import pytest

from fedwin.runs import train

NOTE = "train loss 0.0012  accuracy after round 7: ema 0.9874, model 0.9849"


class Terminal(io.StringIO):
    def isatty(self):
        return True


@pytest.mark.parametrize("stream", [io.StringIO, Terminal])
def test_rounds_pace_and_note_are_shown(monkeypatch, stream):
    screen = stream()
    monkeypatch.setattr(train.sys, "stderr", screen)
    silent = train.Progress(None, 300, 0)
    silent.update(300, 1.0, 0.0, NOTE)
    silent.close()
    assert not screen.getvalue()
    shown = train.Progress("seed 0", 300, 100)
    shown.update(101, 4.0, 3.5, NOTE)
    shown.update(300, 2.0, 0.0, NOTE)
    shown.close()
    shown.close()
    last = screen.getvalue().replace("\r", "\n").strip().splitlines()[-1]
    assert last.startswith("seed 0: ") and "300/300" in last and NOTE in last, last
    if not screen.isatty():
        # The dispatch that compiled does not count.
        assert "seed 0: compiled in 3.5 s\n" in screen.getvalue() and "  99.5 rounds/s  0 s left  " in last
