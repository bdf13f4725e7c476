"""One writer per run: a lock file beside it, which the system releases when a process dies."""

from __future__ import annotations

import os
import time
from contextlib import suppress
from pathlib import Path
from typing import IO, Self

from waysout.errors import UnavailableError
from waysout.files import try_lock
from waysout.store.tables import faults

# A process that only looks whether there is a writer (`is_locked`) holds the lock for a moment.
_TRIES, _PAUSE = 5, 0.02


def lock_path(path: Path) -> Path:
    """Return where the lock file of a run is."""
    return path.with_name(f"{path.name}.lock")


class WriterLock:
    """The right to write a run, held from `take` to `release`, or until the process dies."""

    def __init__(self, path: Path, file: IO[bytes]) -> None:
        self._path = path
        self._file = file

    @classmethod
    def take(cls, path: Path) -> WriterLock:
        """Lock a run without waiting, or say who holds it. The run need not exist yet."""
        place = lock_path(path)
        with faults(path):
            path.parent.mkdir(parents=True, exist_ok=True)
            for _ in range(_TRIES):
                file = os.fdopen(os.open(place, os.O_RDWR | os.O_CREAT, 0o600), "r+b", buffering=0)
                if try_lock(file) and _is_at(file, place):
                    # The first byte is the locked one: on Windows no other process may read it.
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
        file = lock_path(path).open("r+b", buffering=0)
    except OSError:
        return False
    with file:
        return not try_lock(file)


def _is_at(file: IO[bytes], place: Path) -> bool:
    """Whether an open file is still the one that other processes would open."""
    try:
        return os.path.samestat(os.fstat(file.fileno()), place.stat())
    except OSError:
        return False
