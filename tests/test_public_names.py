"""The names that `fedwin` exports."""

import fedwin


def test_every_export_exists():
    assert [name for name in fedwin.__all__ if getattr(fedwin, name) is None] == []
