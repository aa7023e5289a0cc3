"""Runs a subcommand: flags, presets, user code, help, and errors as one line."""

import errno
import importlib
import os
import pathlib
import sys
import traceback
import warnings
from collections.abc import Callable, Mapping, Sequence

from absl import app, flags, logging

import fedwin
from fedwin import jax_config, multi_process, plugins
from fedwin.errors import StorageError, UserError, escape
from fedwin.files import RECOVERABLE_ERRNOS
from fedwin.runs import signals

from . import early, flag_errors, helptext, jit_cache, processes, terminal

# What `define_flags` of a subcommand returns: title -> names of its flags, for --help.
Groups = Mapping[str, Sequence[str]]
HELP = ("--help", "-help", "-h", "-?", "--helpshort", "-helpshort")
COMMON = {"every subcommand": ("import",)}


def define_import(flag_values: flags.FlagValues = flags.FLAGS) -> None:
    """Defines --import, the field `imports` of Config."""
    text = "Module or .py file whose registrations run first: own algorithms, data sets, models ...; may be repeated."
    flags.DEFINE_multi_string("import", [], text, flag_values=flag_values)


def run(
    main: Callable[[list[str]], None], define_flags: Callable[[], Groups], argv: Sequence[str] | None = None
) -> None:
    """Runs a subcommand and ends the process, with status 2 and one line on stderr for an error that the user can fix.

    Its module may set `ARGUMENTS`, how --help names them; without it any argument that is not a flag is an error.

    Args:
      argv: the command line; None: that of the process.
    """
    groups = define_flags()
    define_import()
    command_line = list(sys.argv if argv is None else argv)
    module = sys.modules[main.__module__]
    arguments_taken, doc = getattr(module, "ARGUMENTS", ""), module.__doc__ or ""
    if argv is None and module.__spec__:
        command_line[0] = f"python -m {module.__spec__.name}"

    def parse(arguments: Sequence[str]) -> list[str]:
        if any(argument in HELP for argument in arguments[1:]):
            print(helptext.text(f"{arguments[0]} {arguments_taken}".rstrip(), doc, {**groups, **COMMON}))
            sys.exit(0)
        try:
            for text in (*arguments, os.getcwd()):  # bytes that are not characters; few libraries take such names
                if any("\ud800" <= character <= "\udfff" for character in text):
                    reason = f"is not in the locale's encoding, {sys.getfilesystemencoding()}"
                    raise UserError(f"{ascii(text)} {reason}; rename it, or set LC_ALL=C.UTF-8.")
            rest = flags.FLAGS(_with_presets(arguments))
            if len(rest) > 1 and not arguments_taken:
                raise UserError(f"'{rest[1]}' is not a flag; flags begin with --, see --help.")
            return rest
        except FileNotFoundError:  # of getcwd
            sys.exit(report_error(UserError("the working directory has been removed; change to another one.")))
        except flag_errors.ERRORS as error:
            sys.exit(report_error(error))

    try:
        with terminal.escaped_output():
            app.run(guarded(main), command_line, flags_parser=parse)
    except BrokenPipeError:  # the reader has closed the pipe, as `| head` does
        _mute_output()


def _with_presets(arguments: Sequence[str]) -> Sequence[str]:
    """Returns the command line with presets replaced by their flags; those of the papers are loaded only if needed."""
    if not any(argument.lstrip("-").partition("=")[0] == "flagfile" for argument in arguments):
        return arguments
    return importlib.import_module("..papers.presets", __package__).resolve(arguments)


def _mute_output() -> None:
    """Redirects standard output to /dev/null: Python would flush its buffer at exit, and complain."""
    os.dup2(os.open(os.devnull, os.O_WRONLY), sys.stdout.fileno())


def report_error(error: Exception, status: int = 2) -> int:
    """Prints an error as one line on stderr; returns the exit status."""
    print(f"error: {' '.join(flag_errors.message(error).split())}", file=sys.stderr)
    return status


def end(status: int) -> None:
    """Ends the process, without waiting for others that compute the same run."""
    multi_process.exit_immediately(status)
    sys.exit(status)


def guarded(main: Callable[[list[str]], None]) -> Callable[[list[str]], None]:
    """Returns `main` with the user's code loaded first, and with errors reported as one line on stderr."""

    def run(argv):
        early.imported()
        if not flags.FLAGS["verbosity"].present:
            logging.set_verbosity(logging.WARNING)  # orbax logs every file that it touches
        warnings.showwarning = one_line(warnings.showwarning)
        try:
            with signals.watched():
                jit_cache.enable()
                processes.join()
                if flags.FLAGS["import"].value:
                    jax_config.use_every_core()  # the user's code may start the backend
                plugins.load(flags.FLAGS["import"].value)
                main(argv)
        except (UserError, app.UsageError) as error:
            end(report_error(error))
        except StorageError as error:
            end(report_error(error, status=1))
        except BrokenPipeError:
            raise
        except OSError as error:  # a picture, a table, standard output
            if error.errno == errno.ENAMETOOLONG:
                end(report_error(UserError(f"the name {error.filename} is too long; check the arguments.")))
            if error.errno not in RECOVERABLE_ERRNOS:
                raise
            _mute_output()
            target = error.filename or "the output"
            end(report_error(StorageError(f"{target} can't be written ({error.strerror})."), status=1))
        except signals.Interrupted as error:
            print(error, file=sys.stderr)
            end(error.status)
        except Exception as error:
            if multi_process.is_lost_process(error):
                line = "another process of this run has ended; the same command on all of them resumes the run."
                end(report_error(RuntimeError(line), status=1))
            if multi_process.is_joined():
                traceback.print_exc()
                multi_process.exit_immediately(1)
            raise

    return run


def one_line(show: Callable[..., None]) -> Callable[..., None]:
    """Returns a `warnings.showwarning` that prints fedwin's own warnings as one line, and others by `show`."""
    own_folders = [pathlib.Path(__file__).parents[1], pathlib.Path(fedwin.__file__).parent]

    def show_warning(message, category, filename, lineno, file=None, line=None):
        if category is UserWarning and any(pathlib.Path(filename).is_relative_to(folder) for folder in own_folders):
            print(f"warning: {escape(message)}", file=sys.stderr, flush=True)
        else:
            show(message, category, filename, lineno, file, line)

    return show_warning
