"""The check of what is refused, and a write that fails."""

import errno
import os
from collections.abc import Collection

import pytest

from fedwin.errors import UserError


def disk_is_full(*args) -> None:
    """Stands for a function of `os` that finds no space left."""
    raise OSError(errno.ENOSPC, os.strerror(errno.ENOSPC))


def refused(match: str | Collection[str], function, *args, error=UserError, **keywords) -> str:
    """The call must end in an error of one line, which is returned: `match` finds it, or it has all its words."""
    with pytest.raises(error, match=match if isinstance(match, str) else None) as caught:
        function(*args, **keywords)
    said = str(caught.value)
    assert "\n" not in said and (isinstance(match, str) or all(word in said for word in match)), said
    return said
