"""Everything stands in setup.cfg."""

from setuptools import setup

setup()
