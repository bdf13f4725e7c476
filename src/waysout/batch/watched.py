"""The table of a batch, which must stay what it was when it was surveyed.

It is read a second time while parts are handed out, for hours; rows edited in between would be
searched for under the numbers of others, and joined to the wrong people.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from pathlib import Path

from waysout.batch.job import PartTask
from waysout.errors import IntegrityError, UnavailableError, WaysoutError
from waysout.files import file_sha256


class WatchedTable:
    """A table whose file is looked at before it is surveyed, and again whenever rows are read.

    Looking is cheap: size, times and the place on the disk. Where one of them is another, the
    digest decides, since times also change with permissions, and with a copy put back.
    """

    def __init__(self, path: Path, out: Path) -> None:
        self._path, self._out = path, out
        self._looks = self._look()
        self._sha256 = ""

    def surveyed(self, sha256: str) -> None:
        """Take a digest for that of the rows surveyed, unless the file has changed meanwhile."""
        self._sha256 = sha256
        if self._look() != self._looks:
            raise self._changed()

    def check(self, *, whole: bool = False) -> None:
        """Raise if it is not the table that was surveyed; ``whole`` compares all bytes."""
        looks = self._look()
        if looks == self._looks and not whole:
            return
        try:
            same = file_sha256(self._path) == self._sha256
        except OSError as error:
            raise self._gone(error) from None
        if not same:
            raise self._changed()
        self._looks = looks

    def checked(self, tasks: Iterable[PartTask]) -> Iterator[PartTask]:
        """Yield the parts of the table, each checked after its rows were read."""
        parts = iter(tasks)
        while True:
            try:
                task = next(parts, None)
            except WaysoutError:  # half a table cannot be read: what is wrong is that it changed
                self.check()
                raise
            self.check()
            if task is None:
                return
            yield task

    def _look(self) -> tuple[int, ...]:
        try:
            found = self._path.stat()
        except OSError as error:
            raise self._gone(error) from None
        return (
            found.st_dev, found.st_ino, found.st_size, found.st_mtime_ns, found.st_ctime_ns,
        )  # fmt: skip

    def _changed(self) -> IntegrityError:
        return IntegrityError(
            f"{self._path} was changed while the batch read it. What is done in {self._out} is of "
            "the table as it was, and is kept: put that table back and run the same command "
            "again, or begin with the new one in another folder"
        )

    def _gone(self, error: OSError) -> UnavailableError:
        return UnavailableError(
            f"cannot read {self._path} any more ({error.strerror or error}). What is done in "
            f"{self._out} is kept: put the table back and run the same command again"
        )
