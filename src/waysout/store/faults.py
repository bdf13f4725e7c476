"""What SQLite and the disk complain of, in our own words."""

from __future__ import annotations

import errno
import sqlite3
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

from waysout.errors import InputError, IntegrityError, UnavailableError, WaysoutError

_LONGEST = 100
_KEPT = "everything recorded so far is kept"


@contextmanager
def faults(path: Path) -> Iterator[None]:
    """Turn every error of SQLite or of the disk into one that says what to do."""
    try:
        yield
    except sqlite3.Error as error:
        raise _translated(path, error) from None
    except OSError as error:
        reason = error.strerror or str(error)
        raise full(path) if error.errno == errno.ENOSPC else _unusable(path, reason) from None


def damaged(path: Path, why: str = "") -> IntegrityError:
    """Say that a run is damaged, and how to save what is left."""
    reason = f" ({why})" if why else ""
    return IntegrityError(
        f"{path} is damaged{reason}; to save what can be read: waysout runs repair {path}"
    )


def no_run(path: Path) -> InputError:
    """Say that a file is no run."""
    return InputError(
        f"{path} is no Waysout run; if it was one, and its beginning is destroyed: "
        f"waysout runs repair {path}"
    )


def full(path: Path) -> UnavailableError:
    """Say that the disk is full."""
    return UnavailableError(f"cannot write {path}: the disk is full; {_KEPT}. Free some space")


def _unusable(path: Path, reason: str) -> UnavailableError:
    return UnavailableError(f"cannot use {path}: {reason}; {_KEPT}")


def _translated(path: Path, error: sqlite3.Error) -> WaysoutError:
    # The low byte is the kind of error, the rest its details. What Python itself complains of has
    # no code: a connection that is closed, or text that is none.
    torn = isinstance(error, sqlite3.OperationalError)
    unnamed = sqlite3.SQLITE_CORRUPT if torn else sqlite3.SQLITE_MISUSE
    code = getattr(error, "sqlite_errorcode", unnamed) & 0xFF
    if code == sqlite3.SQLITE_FULL:
        return full(path)
    if code == sqlite3.SQLITE_NOTADB:
        return no_run(path)
    if code in (sqlite3.SQLITE_CORRUPT, sqlite3.SQLITE_ERROR, sqlite3.SQLITE_CONSTRAINT):
        return damaged(path, str(error)[:_LONGEST])
    if code == sqlite3.SQLITE_READONLY:
        return _unusable(path, "it is open for reading only")
    return _unusable(path, str(error))
