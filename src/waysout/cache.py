"""Where Waysout keeps its files: a cache it writes to, a folder it only reads; and their hashes."""

from __future__ import annotations

import errno
import hashlib
import os
import tempfile
from pathlib import Path

from waysout.errors import UnavailableError


def cache_dir() -> Path:
    """Return the folder Waysout may write to: ``WAYSOUT_CACHE``, else the user's cache.

    The folder need not exist yet.
    """
    named = os.environ.get("WAYSOUT_CACHE")
    if named:
        return Path(named).expanduser()
    import platformdirs

    return platformdirs.user_cache_path("waysout", appauthor=False)


def data_dir() -> Path | None:
    """Return the folder named by ``WAYSOUT_DATA``, which is read and never written, if any."""
    named = os.environ.get("WAYSOUT_DATA")
    return Path(named).expanduser() if named else None


def sha256(data: bytes) -> str:
    """Return the sha256 of some bytes, in hexadecimal."""
    return hashlib.sha256(data).hexdigest()


def write_atomically(path: Path, data: bytes) -> None:
    """Write a file so that a reader sees the old one or the new one, never half of it."""
    try:
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
    except OSError as error:
        raise UnavailableError(
            f"cannot write {path}: {error.strerror or error}; free some space or choose another "
            "place (WAYSOUT_CACHE moves the cache)"
        ) from None
