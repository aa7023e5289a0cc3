"""Public names, and docstrings of registered builders: hyper-parameters and an example that runs as a doctest."""

import inspect

import pytest

import fedwin
from fedwin.plugins import REGISTRIES

ENTRIES = [
    pytest.param(registry, entry, id=f"{registry.kind}-{name}")
    for kind, registry in REGISTRIES.items()
    if kind not in ("asynchronous", "datasets", "models")
    for name, entry in registry.entries.items()
    if entry.builder.__module__.startswith("fedwin.")  # other tests register further methods
]


@pytest.mark.parametrize("registry, entry", ENTRIES)
def test_a_registered_builder_is_documented(registry, entry):
    text = inspect.getdoc(entry.builder) or ""
    assert "\nExample:\n" in text, f"{registry.kind} '{entry.name}': its docstring has no section 'Example:'"
    example = text.partition("\nExample:\n")[2]
    assert ">>> " in example, f"{registry.kind} '{entry.name}': its example has no doctest prompt '>>>'"
    missing = [h.name for h in entry.hyperparameters if not h.meaning]
    assert not missing, f"{registry.kind} '{entry.name}': Args does not describe {', '.join(missing)}"


def test_every_export_exists():
    assert [name for name in fedwin.__all__ if getattr(fedwin, name) is None] == []
