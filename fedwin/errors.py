"""The errors that are reported in one line."""


class UserError(ValueError):
    """A bad flag, file or argument: one line that names the culprit and the remedy.

    Binaries print it on stderr without a traceback and exit with status 2.
    """


class StorageError(OSError):
    """A write that failed (a full disk, a lost mount): one line that names file and reason.

    What was saved before stays intact; the same command resumes once there is room. Binaries print it on stderr without
    a traceback and exit with status 1.
    """
