"""The progress display on terminals of any width; messages are on separate lines."""

import io
import warnings

import pytest

from fedwin.runs import progress, signals

NOTE = "loss 0.0012  ema 0.9874  model 0.9849  wima20 0.9874"


class Terminal(io.StringIO):
    """Interprets what a display writes: text, newlines, and the sequences that move up and erase a line."""

    def __init__(self, columns: int):
        super().__init__()
        self.columns, self.rows, self.row, self.column = columns, [""], 0, 0

    def isatty(self):
        return True

    def write(self, text):
        while text:
            if text.startswith("\x1b[A"):
                self.row, text = self.row - 1, text[3:]
            elif text.startswith("\x1b[K"):
                self.rows[self.row], text = self.rows[self.row][: self.column], text[3:]
            elif text[0] == "\r":
                self.column, text = 0, text[1:]
            elif text[0] == "\n":
                self.row, self.column, text = self.row + 1, 0, text[1:]
                self.rows += [""] * (self.row == len(self.rows))
            else:
                line = self.rows[self.row].ljust(self.column)
                self.rows[self.row] = line[: self.column] + text[0] + line[self.column + 1 :]
                self.column, text = self.column + 1, text[1:]
                assert self.column < self.columns, "the line is wrapped by the terminal"


@pytest.mark.parametrize("columns", [40, 60, 80, 120, 200])
def test_no_line_is_wider_than_the_terminal_and_none_is_cut(columns):
    lines = progress.display_lines("seeds 0,1,2", 2850, 3000, 22.0, 223.5, NOTE, columns)
    assert max(map(len, lines)) <= columns - 3, lines
    shown = "  ".join(lines)
    assert all(item in shown for item in (*NOTE.split("  "), "2850/3000", "95 %", "223.5 rounds/s"))
    bars = [line.count("#") + line.count("-") for line in lines if "|" in line]
    assert all(cells >= 10 for cells in bars) and (len(bars) == 1) == (columns >= 80)
    assert (len(lines) == 1) == (columns == 200)


def test_messages_have_lines_of_their_own(monkeypatch):
    terminal = Terminal(80)
    monkeypatch.setattr(progress.sys, "stderr", terminal)
    monkeypatch.setattr(progress.Display, "columns", terminal.columns)
    monkeypatch.setattr(signals.os, "write", lambda descriptor, data: terminal.write(data.decode()))
    monkeypatch.setattr(warnings, "showwarning", lambda message, *_: terminal.write(f"warning: {message}\n"))
    shown = progress.Progress("seed 0", 300, 0)
    shown.update(100, 100, 1.0, 0.0, NOTE)
    terminal.write("^C")
    signals._print_error("interrupted: finishing")
    shown.update(150, 50, 0.5, 0.0, NOTE)
    with warnings.catch_warnings():
        warnings.simplefilter("always")
        warnings.showwarning("odd", UserWarning, "file", 1)
    shown.update(200, 50, 0.5, 0.0, NOTE)
    shown.close()
    terminal.write("saved")
    before, warned, bar, note, after = terminal.rows
    assert (before, warned, note, after) == ("interrupted: finishing", "warning: odd", NOTE, "saved")
    assert "200/300" in bar and "100.0 rounds/s" in bar
    assert not signals.before_message


def test_an_error_ends_the_display(monkeypatch):
    terminal = Terminal(80)
    monkeypatch.setattr(progress.sys, "stderr", terminal)
    monkeypatch.setattr(progress.Display, "columns", terminal.columns)
    shown = progress.Progress("seed 0", 300, 0)
    shown.close()
    terminal.write("error: x")
    assert terminal.rows[-1] == "error: x" and warnings.showwarning is not shown
