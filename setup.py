"""Packages of the wheel and files of the source distribution, which setup.cfg can not describe.

The folder `experiments` is installed as `fedwin.experiments`: FedJAX already installs a top-level package of that name.
`find:` in setup.cfg would drop a package that is mapped to another folder. The wheel leaves out the commands of a
checkout.
"""

import pathlib
import shutil

from setuptools import find_packages, setup
from setuptools.command.build_py import build_py
from setuptools.command.sdist import sdist

# What the tests need besides the packages.
ADDITIONAL = (
    ".ci/run",
    ".github/**/*",
    ".gitattributes",
    ".gitignore",
    ".pre-commit-config.yaml",
    ".readthedocs.yaml",
    ".ruff.toml",
    "constraints.txt",
    "BUILD_NOTES.md",
    "CHANGELOG.md",
    "CITATION.cff",
    "tests/**/*",
    "experiments/**/*",
)

# Commands of a checkout, and the package of their parts.
TOOLS = ("bench", "check", "docs", "readme")
PARTS = ["experiments.tools", "experiments.tools.*"]


class Sdist(sdist):
    """A source distribution from which the tests can be run."""

    def make_distribution(self):
        """Adds the files of ADDITIONAL to those that setuptools finds."""
        files = (path for pattern in ADDITIONAL for path in pathlib.Path().glob(pattern) if path.is_file())
        self.filelist.extend(str(path) for path in files if "__pycache__" not in path.parts)
        self.filelist.sort()
        self.filelist.remove_duplicates()
        super().make_distribution()


class BuildPy(build_py):
    """The packages without the commands of a checkout, and without what an earlier build of this folder has left."""

    def run(self):
        """Builds in an empty folder: removed modules would be installed and imported, and removed results read."""
        shutil.rmtree(pathlib.Path(self.build_lib) / "fedwin", ignore_errors=True)
        super().run()

    def find_package_modules(self, package, package_dir):
        """Returns (package, module, file) of the modules of a package."""
        found = super().find_package_modules(package, package_dir)
        return [each for each in found if package != "fedwin.experiments" or each[1] not in TOOLS]


setup(
    packages=find_packages(include=["fedwin", "fedwin.*"])
    + [f"fedwin.{name}" for name in find_packages(include=["experiments", "experiments.*"], exclude=PARTS)],
    package_dir={"fedwin.experiments": "experiments"},
    cmdclass={"sdist": Sdist, "build_py": BuildPy},
)
