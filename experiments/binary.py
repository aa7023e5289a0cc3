"""How every binary starts: flags, presets, the user's own code, help, and errors as one line."""

import os
import pathlib
import sys
import traceback
import warnings
from collections.abc import Callable, Mapping, Sequence

from absl import app, flags, logging

import fedwin
from fedwin import multi_process, plugins
from fedwin.engine import devices
from fedwin.errors import StorageError, UserError
from fedwin.files import RECOVERABLE_ERRNOS
from fedwin.runs import signals

from . import flag_errors, helptext, jit_cache, presets, processes

# What `define_flags` of a binary returns: title -> names of its flags, for --help.
Groups = Mapping[str, Sequence[str]]
HELP = ("--help", "-help", "-h", "-?", "--helpshort", "-helpshort")
COMMON = {"every binary": ("import",)}


def define_import(known: flags.FlagValues = flags.FLAGS) -> None:
    """Defines --import, the field `imports` of Config."""
    told = "Module or .py file whose registrations are run first: own algorithms, data sets, models ...; repeats."
    flags.DEFINE_multi_string("import", [], told, flag_values=known)


def run(
    main: Callable[[list[str]], None],
    define_flags: Callable[[], Groups],
    argv: Sequence[str] | None = None,
    *,
    words: bool = False,
) -> None:
    """Runs a binary and ends the process: with status 2 and one line on stderr for whatever the user can mend.

    Args:
      main: what it does, called with the arguments that are not flags.
      define_flags: defines its flags and returns them in groups.
      argv: the command line; None means that of the process.
      words: whether it takes arguments that are not flags.
    """
    groups = define_flags()
    define_import()
    line = list(sys.argv if argv is None else argv)
    doc = sys.modules[main.__module__].__doc__ or ""
    if argv is None:
        module = sys.modules[main.__module__].__spec__
        line[0] = f"python -m {module.name}" if module else line[0]

    def parse(arguments: Sequence[str]) -> list[str]:
        asked = [word for word in arguments[1:] if word in HELP or word == "--helpfull"]
        if asked:
            shown = helptext.full(arguments[0], doc) if asked[0] == "--helpfull" else None
            print(shown or helptext.text(arguments[0], doc, {**groups, **COMMON}))
            sys.exit(0)
        try:
            rest = flags.FLAGS(presets.resolve(arguments))
            if len(rest) > 1 and not words:
                raise UserError(f"'{rest[1]}' is not a flag; flags begin with --, see --help.")
            return rest
        except flag_errors.ERRORS as error:
            sys.exit(failed(error))

    try:
        app.run(guarded(main), line, flags_parser=parse)
    except BrokenPipeError:  # `| head` has seen enough
        _mute_output()


def _mute_output() -> None:
    """Lets standard output lead nowhere: Python would try once more to write what it holds, and complain."""
    os.dup2(os.open(os.devnull, os.O_WRONLY), sys.stdout.fileno())


def failed(error: Exception, status: int = 2) -> int:
    """Prints an error as one line; returns the exit status."""
    print(f"error: {' '.join(flag_errors.told(error).split())}", file=sys.stderr)
    return status


def end(status: int) -> None:
    """Ends the process, without waiting for others that compute the same run."""
    multi_process.leave_at_once(status)
    sys.exit(status)


def guarded(main: Callable[[list[str]], None]) -> Callable[[list[str]], None]:
    """Loads the user's own code before `main`, and turns a UserError into one line on stderr and exit status 2."""

    def run(argv):
        if not flags.FLAGS["verbosity"].present:
            logging.set_verbosity(logging.WARNING)  # orbax tells every file that it touches
        warnings.showwarning = one_line(warnings.showwarning)
        try:
            with signals.watched():
                jit_cache.keep_programs()
                processes.join()
                if flags.FLAGS["import"].value:
                    devices.use_every_core()  # the user's code may start the backend
                plugins.load(flags.FLAGS["import"].value)
                main(argv)
        except (UserError, app.UsageError) as error:
            end(failed(error))
        except StorageError as error:
            end(failed(error, status=1))
        except BrokenPipeError:
            raise
        except OSError as error:  # a picture, a table, standard output
            if error.errno not in RECOVERABLE_ERRNOS:
                raise
            _mute_output()
            place = f"{error.filename} can't" if error.filename else "the output can't"
            end(failed(StorageError(f"{place} be written ({error.strerror})."), status=1))
        except signals.Interrupted as error:
            print(error, file=sys.stderr)
            end(error.status)
        except Exception as error:
            if multi_process.is_lost(error):
                multi_process.tell_lost()
                end(1)
            if multi_process.is_joined():
                traceback.print_exc()
                multi_process.leave_at_once(1)
            raise

    return run


def one_line(show):
    """Prints a warning of fedwin's as one line on stderr; those of other packages by `show`, as usual."""
    own = [pathlib.Path(__file__).parent, pathlib.Path(fedwin.__file__).parent]

    def told(message, category, filename, lineno, file=None, line=None):
        if category is UserWarning and any(pathlib.Path(filename).is_relative_to(place) for place in own):
            print(f"warning: {message}", file=sys.stderr, flush=True)
        else:
            show(message, category, filename, lineno, file, line)

    return told
