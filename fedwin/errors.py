"""The one error that a user can cause and mend."""


class UserError(ValueError):
    """A bad flag, file or argument: one line that names the culprit and the remedy.

    Binaries print it on stderr without a traceback and exit with status 2.
    """
