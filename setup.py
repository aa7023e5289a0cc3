"""What needs code beside setup.cfg: the packages, and what a source distribution holds.

The folder `experiments` is installed as `fedwin.experiments`: FedJAX already installs a top-level package of that name.
`find:` in setup.cfg would drop a package that is mapped to another folder.
"""

import pathlib

from setuptools import find_packages, setup
from setuptools.command.sdist import sdist

# What the tests read besides the packages.
ALSO = (".ci/run", ".ruff.toml", ".gitignore", "constraints.txt", "BUILD_NOTES.md", "tests/**/*", "experiments/**/*")


class Sdist(sdist):
    """A source distribution from which the tests can be run."""

    def make_distribution(self):
        """Adds what ALSO names to the files that setuptools finds."""
        found = (path for pattern in ALSO for path in pathlib.Path().glob(pattern) if path.is_file())
        self.filelist.extend(str(path) for path in found if "__pycache__" not in path.parts)
        self.filelist.sort()
        self.filelist.remove_duplicates()
        super().make_distribution()


setup(
    packages=find_packages(include=["fedwin", "fedwin.*"])
    + [f"fedwin.{name}" for name in find_packages(include=["experiments", "experiments.*"])],
    package_dir={"fedwin.experiments": "experiments"},
    cmdclass={"sdist": Sdist},
)
