"""Output of a subcommand: what names contain must not control the terminal."""

import contextlib
import re
import sys
from collections.abc import Iterator
from typing import Any, TextIO

from fedwin.errors import UNPRINTABLE, escape

# Lines, columns and progress bars.
_LAYOUT = re.compile(r"[\n\t\r]+")


class EscapedStream:
    """A text stream that shows control and direction characters as escapes, other than those of lines and columns."""

    def __init__(self, stream: TextIO):
        self.stream = stream

    def write(self, text: str) -> int:
        """Writes a text; returns its length."""
        return self.stream.write(UNPRINTABLE.sub(lambda m: m[0] if _LAYOUT.match(m[0]) else escape(m[0]), text))

    def __getattr__(self, name: str) -> Any:
        return getattr(self.stream, name)


@contextlib.contextmanager
def escaped_output() -> Iterator[None]:
    """Escapes what the body prints on standard output and standard error."""
    before = sys.stdout, sys.stderr
    sys.stdout, sys.stderr = map(EscapedStream, before)  # type: ignore[assignment]
    try:
        yield
    finally:
        sys.stdout, sys.stderr = before
