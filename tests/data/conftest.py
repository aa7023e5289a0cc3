"""Isolates the data tests from the user's caches, and lets them read files that are not the originals."""

import hypothesis
import pytest

hypothesis.settings.register_profile("quick", max_examples=25, deadline=None)
hypothesis.settings.load_profile("quick")


def pytest_itemcollected(item):
    item.add_marker(pytest.mark.filterwarnings("ignore:.*unverified"))


@pytest.fixture(autouse=True)
def cache_dir(tmp_path_factory, monkeypatch):
    """The user's cache directory, a new one for each test."""
    folder = tmp_path_factory.mktemp("cache")
    monkeypatch.setenv("FEDWIN_CACHE_DIR", str(folder))
    return folder
