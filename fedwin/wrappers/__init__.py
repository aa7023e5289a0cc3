"""Wrappers: what changes training around any algorithm. IMA, SWA with its learning-rate cycle, clipping, local BatchNorm."""

from fedwin.wrappers import clip, local_bn, swa  # noqa: F401 (they fill the registry)
from fedwin.wrappers.base import WRAPPERS, Wrapped, Wrapper, after, before, unchanged
from fedwin.wrappers.ima import SCHEDULES, ima_rate

__all__ = ["SCHEDULES", "WRAPPERS", "Wrapped", "Wrapper", "after", "before", "ima_rate", "unchanged"]
