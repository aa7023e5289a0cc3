"""Parameters of networks in files: .npz, .safetensors and PyTorch's state dicts."""

from fedwin.models.interchange.array_files import check_target, read, write
from fedwin.models.interchange.parameters import LAYOUTS, load
from fedwin.models.interchange.torch_module import convert

__all__ = ["LAYOUTS", "check_target", "convert", "load", "read", "write"]
