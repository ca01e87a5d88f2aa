"""What can go wrong on a person's machine, said in one sentence."""

import errno
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

DISK_FULL = "No space left on device"


class StackError(Exception):
    """A fault of the local stack that a person can mend; its text says what happened and how to mend it."""


@contextmanager
def disk_faults(directory: Path) -> Iterator[None]:
    """Say in one sentence that a disk is full or a directory cannot be written.

    Parameters
    ----------
    directory
        The stack's directory, named in the sentence.

    Raises
    ------
    StackError
        In place of an `OSError` of that kind, and of a `StackError` whose program complained of a full disk.
    """
    try:
        yield
    except OSError as error:
        if error.errno in (errno.ENOSPC, errno.EDQUOT):
            raise StackError(_full(directory)) from error
        if error.errno in (errno.EACCES, errno.EPERM, errno.EROFS, errno.ENOTDIR, errno.EEXIST):
            raise StackError(
                f"{directory} cannot be written ({error.strerror}); "
                "make it writable, or set ALMAGEST_DIR to a directory that is."
            ) from error
        raise
    except StackError as error:
        if DISK_FULL in str(error):
            raise StackError(_full(directory)) from error
        raise


def _full(directory: Path) -> str:
    return f"The disk that holds {directory} is full; free some space there, or set ALMAGEST_DIR to a larger disk."
