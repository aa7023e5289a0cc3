"""Writes a trained model to a .safetensors or .npz file, with its normalization, input shape and configuration.

fedwin export runs/a --out=model.safetensors
fedwin export runs/a@300:wima50 --seed=1 --out=model.npz
fedwin export runs/a --layout=torch --out=model.npz > model.py      # a state dict and its torch.nn.Module
fedwin train --init_from=model.npz
"""

from absl import flags

import fedwin
from fedwin.errors import UserError, escape
from fedwin.models import interchange
from fedwin.runs.config import MOST

from .cli import subcommand
from .figures import models
from .records import config_of

ARGUMENTS = "MODEL"


def define_flags() -> dict[str, list[str]]:
    """Defines the flags; returns title -> names."""
    flags.DEFINE_string("out", "", "The new file, *.safetensors or *.npz.")
    flags.DEFINE_integer("seed", 0, "Seed of the run.", lower_bound=0, upper_bound=MOST)
    flags.DEFINE_string("data_dir", "", "Folder of the data set's files; empty: as in the run's configuration.")
    text = "Names and layouts of the arrays: jax, or torch, a state dict whose torch.nn.Module is printed."
    flags.DEFINE_enum("layout", "jax", ["jax", "torch"], text)
    flags.DEFINE_bool("overwrite", False, "Replace an existing file.")
    return {"flags": ["out", "seed", "layout", "data_dir", "overwrite"]}


def main(argv: list[str]) -> None:
    """Writes one file."""
    options = flags.FLAGS
    if len(argv) != 2:
        raise UserError("name one model: fedwin export DIR, DIR@ROUND, DIR:READOUT or DIR@ROUND:READOUT.")
    if not options.out:
        raise UserError("name the new file with --out=model.safetensors or --out=model.npz.")
    interchange.check_target(options.out, options.overwrite)
    address = models.address(argv[1])
    config_of(address.directory)
    path = fedwin.export(
        address.directory,
        options.out,
        options.seed,
        address.round,
        address.readout,
        data_dir=options.data_dir or None,
        overwrite=options.overwrite,
        layout=options.layout,
    )
    is_torch = options.layout == "torch"
    print("# " * is_torch + escape(f"{path}: {path.stat().st_size:,} bytes, {address.label}, seed {options.seed}"))
    if is_torch:
        print(interchange.read(path).metadata["source"], end="")


if __name__ == "__main__":
    subcommand.run(main, define_flags)
