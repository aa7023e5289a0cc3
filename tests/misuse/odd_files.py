"""Files whose content does not match their name."""

import pathlib

LONG_NAME = 300 * "a"
SLIP = """
from fedwin import ALGORITHMS


@ALGORITHMS.register("{name}")
def {name}(setting, solve):
    return {returned}
"""
FILES: dict[str, str | bytes] = {
    "afile": "x",
    "strangers/x.txt": "",
    "latin.flags": b"--num_rounds=3\n# \xe9\xff\n",
    "folder/config.json/x": "",
    "fieldless/config.json": '{"format": 1, "config": {"algorithm": "fedavg"}}',
    "own/leaves.py": "import sys\nsys.exit(3)\n",
    "own/number.py": SLIP.format(name="number", returned="3"),
    "own/divides.py": SLIP.format(name="divides", returned="1 / 0"),
    "columns.csv": "a,b\n1,2\n",
}


def write(folder: pathlib.Path) -> None:
    """Writes them all."""
    for name, content in FILES.items():
        path = folder / name
        path.parent.mkdir(parents=True, exist_ok=True)
        path.write_bytes(content if isinstance(content, bytes) else content.encode())
