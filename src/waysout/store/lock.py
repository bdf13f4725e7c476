"""One writer per run: a lock file beside it, which the system releases when a process dies."""

from __future__ import annotations

import os
import stat
import time
from contextlib import suppress
from pathlib import Path
from typing import IO, Self
from weakref import WeakSet

from waysout.errors import UnavailableError
from waysout.files import try_lock
from waysout.store.tables import faults

# A process that only looks whether there is a writer (`is_locked`) holds the lock for a moment.
_TRIES, _PAUSE = 5, 0.02
# Anyone may have put something in the place of a lock file: follow no link, wait for no pipe.
_AS_IT_IS = getattr(os, "O_NOFOLLOW", 0) | getattr(os, "O_NONBLOCK", 0)


def lock_path(path: Path) -> Path:
    """Return where the lock file of a run is."""
    return path.with_name(f"{path.name}.lock")


class WriterLock:
    """The right to write a run, held from `take` to `release`, or until the process dies."""

    def __init__(self, path: Path, file: IO[bytes]) -> None:
        self._path = path
        self._file = file
        _held.add(self)

    @classmethod
    def take(cls, path: Path) -> WriterLock:
        """Lock a run without waiting, or say who holds it. The run need not exist yet."""
        place = lock_path(path)
        with faults(path):
            path.parent.mkdir(parents=True, exist_ok=True)
            for _ in range(_TRIES):
                file = _opened(place, os.O_CREAT)
                if try_lock(file) and _is_at(file, place):
                    # The first byte is the locked one: on Windows no other process may read it.
                    with suppress(OSError):  # a disk may be full, and a run to be deleted for that
                        file.write(f" {os.getpid():<20}\n".encode())
                    return cls(place, file)
                file.close()
                time.sleep(_PAUSE)
        holder = ""
        with suppress(OSError, ValueError), place.open("rb", buffering=0) as file:
            file.seek(1)
            holder = f" (pid {int(file.read(20))})"
        raise UnavailableError(
            f"{path} is being written by another process{holder}; wait for its end or stop it. "
            "Reading is possible meanwhile"
        )

    def release(self) -> None:
        """Let another process write the run."""
        if self._file.closed:
            return
        # Removed while still locked: a process that opened it meanwhile sees it is another file.
        with suppress(OSError):
            self._path.unlink()
        self._file.close()

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *_: object) -> None:
        self.release()


def is_locked(path: Path) -> bool:
    """Whether a live process is writing a run."""
    try:
        file = _opened(lock_path(path))
    except (OSError, UnavailableError):
        return False
    with file:
        return not try_lock(file)


def _opened(place: Path, how: int = 0) -> IO[bytes]:
    """Open a lock file; refuse what is none, such as a link to another file."""
    with suppress(FileNotFoundError):
        if not stat.S_ISREG(place.lstat().st_mode):
            raise UnavailableError(
                f"{place} is not a file but a link, a pipe or the like, where a lock file of ours "
                "would be: remove it"
            )
    return os.fdopen(os.open(place, os.O_RDWR | how | _AS_IT_IS, 0o600), "r+b", buffering=0)


_held: WeakSet[WriterLock] = WeakSet()


def _let_go() -> None:
    """Close what a forked process has of our locks: while it lives, they would be held after us."""
    for lock in _held:
        lock._file.close()


if hasattr(os, "register_at_fork"):
    os.register_at_fork(after_in_child=_let_go)


def _is_at(file: IO[bytes], place: Path) -> bool:
    """Whether an open file is still the one that other processes would open."""
    try:
        return os.path.samestat(os.fstat(file.fileno()), place.lstat())
    except OSError:
        return False
