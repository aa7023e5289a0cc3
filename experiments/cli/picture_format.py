"""The flag --format and the paths of pictures, for all subcommands that draw."""

import pathlib

from absl import flags

from fedwin.errors import UserError

FORMATS = ("png", "pdf", "svg")
NAME = "format"


def define() -> list[str]:
    """Defines the flag; returns its name in a list."""
    text = "Format of the pictures; by default that of the suffix, or png. pdf and svg have their fonts embedded."
    flags.DEFINE_enum(NAME, None, FORMATS, text)
    return [NAME]


def chosen() -> str:
    """Returns the format of pictures whose names are not the user's."""
    return flags.FLAGS[NAME].value or FORMATS[0]


def file_path(text: str, usual: str) -> pathlib.Path:
    """Returns the path of a file to write; raises UserError if it is no file's name, or lies in no folder."""
    path = pathlib.Path(text)
    if len(path.name.encode()) > 250:
        raise UserError(f"out={text[:40]}...: the name is too long; choose a shorter --out.")
    if not path.name or path.is_dir():
        raise UserError(f"out={text}: this is not the name of a file; write --out={usual}.")
    if not path.parent.is_dir():
        raise UserError(f"out={text}: there is no folder {path.parent}; make it, or choose another --out.")
    return path


def path_of(text: str | None, usual: str, form: str | None = None, numbers: bool = True) -> str:
    """Returns the path of a picture, with the suffix of its format appended if it has none.

    Args:
      text: the value of --out; None: the default.
      usual: the default, without suffix.
      form: the value of --format; None: that of the suffix, or PNG.
      numbers: whether the data of the picture are written next to it as JSON.

    Raises:
      UserError: no file name, no such folder, an unsupported image format, a suffix of another format, or a JSON file
        in the place of the data that is not a picture's.
    """
    usual = f"{usual}.{form or FORMATS[0]}"
    text = usual if text is None else text
    path = file_path(text, usual)
    beside, of_run = path.with_suffix(".json"), path.stem == "summary" and path.with_name("config.json").is_file()
    if numbers and (of_run or (beside.is_file() and not beside.read_bytes().startswith(b'{"title": '))):
        raise UserError(f"out={text}: its numbers would replace {beside}; choose another --out.")
    if not path.suffix:
        return f"{text}.{form or FORMATS[0]}"
    if form and path.suffix[1:].lower() != form:
        raise UserError(f"out={text} ends in another format than --format={form}; give one of them.")
    from matplotlib.figure import Figure

    supported = Figure().canvas.get_supported_filetypes()
    if path.suffix[1:].lower() not in supported:
        raise UserError(f"out={text}: {path.suffix} is not an image format; use one of {', '.join(sorted(supported))}.")
    return text
