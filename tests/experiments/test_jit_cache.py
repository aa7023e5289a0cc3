"""The cache of compiled programs: location, pruning and reuse."""

import os
import sys
import warnings

import jax
import pytest

from experiments.cli import jit_cache
from tests.programs import output_of


@pytest.fixture
def nothing_chosen(monkeypatch, tmp_path):
    """As in a process whose user chose no directory."""
    before = jax.config.jax_compilation_cache_dir, jax.config.jax_persistent_cache_min_compile_time_secs
    jax.config.update("jax_compilation_cache_dir", None)
    monkeypatch.setenv("FEDWIN_CACHE_DIR", str(tmp_path / "own"))
    yield tmp_path / "own" / "jit"
    jax.config.update("jax_compilation_cache_dir", before[0])
    jax.config.update("jax_persistent_cache_min_compile_time_secs", before[1])


def test_programs_are_cached_in_the_users_cache_directory_by_processor(nothing_chosen):
    jit_cache.enable()
    assert jax.config.jax_compilation_cache_dir == str(nothing_chosen / jit_cache.instruction_set())
    assert (nothing_chosen / jit_cache.instruction_set()).is_dir()


def test_the_users_own_choices_come_first(nothing_chosen, monkeypatch):
    jax.config.update("jax_compilation_cache_dir", "/elsewhere")
    jit_cache.enable()
    assert jax.config.jax_compilation_cache_dir == "/elsewhere"
    jax.config.update("jax_compilation_cache_dir", None)
    jax.config.update("jax_enable_compilation_cache", False)
    jit_cache.enable()
    jax.config.update("jax_enable_compilation_cache", True)
    assert jax.config.jax_compilation_cache_dir is None and not nothing_chosen.exists()


def test_programs_that_others_could_have_written_are_not_loaded(nothing_chosen):
    own = nothing_chosen / jit_cache.instruction_set()
    own.mkdir(parents=True)
    for name, mode in (("mine", 0o644), ("anyones", 0o666)):
        (own / name).write_text("")
        (own / name).chmod(mode)
    own.chmod(0o777)
    with pytest.warns(UserWarning, match="compiled programs are not cached: others may write to .*; `chmod go-w"):
        jit_cache.enable()
    assert jax.config.jax_compilation_cache_dir is None
    own.chmod(0o755)
    jit_cache.enable()
    assert jax.config.jax_compilation_cache_dir == str(own)
    assert [path.name for path in own.iterdir()] == ["mine"] and own.stat().st_mode & 0o777 == 0o700


def test_without_a_cache_directory_nothing_is_cached(nothing_chosen):
    nothing_chosen.parent.write_text("a file")
    jit_cache.enable()
    assert jax.config.jax_compilation_cache_dir is None


@pytest.mark.parametrize("directory", [None, "/elsewhere"])
def test_a_program_that_cannot_be_cached_is_no_message(nothing_chosen, directory):
    """A full disk is one line of error, not one more for every program, in the user's own directory, too."""
    jax.config.update("jax_compilation_cache_dir", directory)
    with warnings.catch_warnings(record=True) as caught:
        warnings.simplefilter("always")
        jit_cache.enable()
        warnings.warn("Error writing persistent compilation cache entry for 'jit_f': OSError: [Errno 27]", stacklevel=1)
        warnings.warn("another", stacklevel=1)
    assert [str(warning.message) for warning in caught] == ["another"]


def test_the_least_recently_used_programs_are_pruned(tmp_path, monkeypatch):
    (tmp_path / "cpu").mkdir()
    for age, name in enumerate("abcd"):
        (tmp_path / "cpu" / name).write_bytes(bytes(10))
        os.utime(tmp_path / "cpu" / name, (1000 - age, 1000 - age))
    monkeypatch.setattr(jit_cache, "MOST_BYTES", 25)
    jit_cache.prune_cache(tmp_path)
    assert sorted(path.name for path in (tmp_path / "cpu").iterdir()) == ["a", "b"]


def test_a_short_run_on_digits_imports_neither_scikit_learn_nor_matplotlib():
    code = (
        "import sys, experiments.train; from fedwin import data; data.load('digits'); "
        "print([name for name in ('sklearn', 'matplotlib', 'tensorflow', 'fedjax', 'haiku') if name in sys.modules])"
    )
    assert output_of(sys.executable, "-c", code).strip() == "[]"
