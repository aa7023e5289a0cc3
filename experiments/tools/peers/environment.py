"""Virtual environment of the PyTorch contestants, in the user's cache directory."""

import hashlib
import pathlib
import shutil
import subprocess
import sys
from collections.abc import Callable

from fedwin.data.cache import cache_directory, require_cache_directory
from fedwin.errors import UserError

REQUIREMENTS = ("torch==2.13.0", "pfl==0.6.0", "flwr[simulation]==1.41.0", "setuptools<81")


def _folder() -> pathlib.Path:
    key = hashlib.blake2b(" ".join((sys.version, *REQUIREMENTS)).encode(), digest_size=6).hexdigest()
    return require_cache_directory() / f"peers-{key}"


def interpreter() -> str | None:
    """Returns the environment's interpreter; None if it has not been created."""
    if cache_directory() is None:
        return None
    return str(_folder() / "bin" / "python") if (_folder() / "made").exists() else None


def make(say: Callable[[str], None]) -> str:
    """Creates the environment, unless it exists; returns its interpreter.

    Args:
      say: called with each line of progress.

    Raises:
      UserError: the packages can't be installed.
    """
    if (python := interpreter()) is not None:
        return python
    folder = _folder()
    say(f"installing {', '.join(REQUIREMENTS)} in {folder}")
    try:
        shutil.rmtree(folder, ignore_errors=True)  # what was left of an attempt
        subprocess.run([sys.executable, "-m", "venv", str(folder)], check=True, capture_output=True, text=True)
        pip = [str(folder / "bin" / "python"), "-m", "pip", "install", "--quiet", *REQUIREMENTS]
        subprocess.run(pip, check=True, capture_output=True, text=True)
        (folder / "made").touch()
    except (OSError, subprocess.CalledProcessError) as error:
        lines = (getattr(error, "stderr", "") or str(error)).strip().splitlines()
        raise UserError(
            f"install_peers: {lines[-1] if lines else error}; make an environment by hand and name it with "
            f"--python_torch, or leave these peers out, --peers=fedjax."
        ) from error
    return str(folder / "bin" / "python")
