"""What can go wrong with a run directory."""

import errno

PASSING = (  # errors of a file system that is away, and comes back: no word about what is on it
    errno.ESTALE, errno.ETIMEDOUT, errno.ENOTCONN, errno.EHOSTDOWN, errno.EHOSTUNREACH,
    errno.ESHUTDOWN,
)  # fmt: skip


class Refused(Exception):
    """This directory must not be used for this run; nothing was changed. Exit code 2."""


class Unreadable(Exception):
    """A file is damaged, or no checkpoint can be read; nothing was changed. Exit code 65."""


class OtherSchema(Unreadable):
    """A sound file of another version of esac_mpi."""


class Unsaved(Exception):
    """A file could not be written; the one it would have replaced stays. Exit code 74."""


class Away(Unreadable, Unsaved):
    """The file system is away: no word about what is on it. Exit code 74."""


def unread(path: object, error: OSError) -> Unreadable:
    """Translate a file system's error at reading: nothing to read, or that it is away."""
    if error.errno in PASSING:
        return Away(
            f"{path}: {error.strerror}: the file system is away; the same command goes on when it "
            "is back"
        )
    return Unreadable(f"{path}: {error.strerror}")
