"""The machine in words."""

import os
import platform
import subprocess
from typing import Any

QUERY = ["nvidia-smi", "--query-gpu=name,memory.total,driver_version", "--format=csv,noheader"]


def driver() -> str:
    """Returns what NVIDIA's tool tells of the first GPU, its memory and its driver; '' where there is none."""
    try:
        told = subprocess.run(QUERY, capture_output=True, text=True, timeout=30, check=True).stdout
    except (OSError, subprocess.SubprocessError):
        return ""
    lines = told.strip().splitlines()
    if not lines:
        return ""
    *_, memory, version = (part.strip() for part in lines[0].split(","))
    return f"{memory}, driver {version}"


def in_words(about: dict[str, dict[str, Any]]) -> str:
    """Returns devices, memory, driver and versions.

    Args:
      about: who -> what it tells of itself, or {'missing': reason}.
    """
    known = about["fedwin"]
    room = known["memory_bytes"]
    told = [
        f"{known['devices']} x {known['device']}",
        driver() if known["backend"] in ("gpu", "cuda") else "",
        "" if room is None else f"{room / 2**30:.1f} GiB of it for jax",
        f"runtime: {known['runtime']}",
        f"host: {os.cpu_count()} cores ({platform.machine()}), {platform.system()}",
        f"Python {platform.python_version()}",
        *(each.get("version") or f"{who} is not here: {each['missing']}" for who, each in about.items()),
    ]
    return "; ".join(part for part in told if part)
