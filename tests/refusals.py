"""The check of what is refused."""

import pytest

from fedwin.errors import UserError


def refused(match: str, function, *args, **keywords) -> str:
    """The call must end in a UserError of one line, which is returned."""
    with pytest.raises(UserError, match=match) as error:
        function(*args, **keywords)
    assert "\n" not in str(error.value)
    return str(error.value)
