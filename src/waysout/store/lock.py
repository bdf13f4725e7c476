"""One writer per run: a lock file beside it, which the system lets go of when a process dies."""

from __future__ import annotations

import os
import time
from contextlib import suppress
from pathlib import Path
from typing import IO, Self

from waysout.errors import UnavailableError
from waysout.files import try_lock
from waysout.store.faults import faults

# Somebody who only looks whether there is a writer holds the lock for a moment.
_TRIES, _PAUSE = 5, 0.02


def lock_path(path: Path) -> Path:
    """Return where the lock of a run lies."""
    return path.with_name(f"{path.name}.lock")


class WriterLock:
    """The right to write a run. It is held from `take` to `release`, or to the process's death."""

    def __init__(self, path: Path, file: IO[bytes]) -> None:
        self._path = path
        self._file = file

    @classmethod
    def take(cls, path: Path) -> WriterLock:
        """Lock a run at once, or say who holds it. Neither it nor its folder need be there yet."""
        place = lock_path(path)
        with faults(path):
            path.parent.mkdir(parents=True, exist_ok=True)
            for _ in range(_TRIES):
                file = _opened(place)
                if try_lock(file) and _is_at(file, place):
                    # The first byte is the one that is locked: on Windows nobody may read it.
                    file.write(f" {os.getpid():<20}\n".encode())
                    return cls(place, file)
                file.close()
                time.sleep(_PAUSE)
        raise UnavailableError(
            f"{path} is being written by another process{_holder(place)}; wait for its end or "
            "stop it. Reading is possible meanwhile"
        )

    def release(self) -> None:
        """Let go."""
        # It goes while it is still held: whoever opened it meanwhile sees that it is another file.
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


def _opened(place: Path) -> IO[bytes]:
    handle = os.open(place, os.O_RDWR | os.O_CREAT, 0o600)
    return os.fdopen(handle, "r+b", buffering=0)


def _is_at(file: IO[bytes], place: Path) -> bool:
    """Whether the open file is still the one that everybody else would open."""
    try:
        return os.path.samestat(os.fstat(file.fileno()), place.stat())
    except OSError:
        return False


def _holder(place: Path) -> str:
    try:
        with place.open("rb", buffering=0) as file:
            file.seek(1)
            return f" (pid {int(file.read(20))})"
    except (OSError, ValueError):
        return ""
