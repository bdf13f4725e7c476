"""Standard output and error that never stop a command: what was lost is told at its end.

A command that fails where it prints would leave its files half made. So a write that fails is
noted, the rest is thrown away, and the command does its work; `main` then says what was lost. A
reader that went away (``waysout … | head``) has what it wanted: that is no error, and the command
ends with its own exit code. (To die of SIGPIPE, as ``ls`` does, would lose the run.)
"""

from __future__ import annotations

import errno
import io
import os
import select
import sys
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from typing import Any, BinaryIO, cast


class Outlet(io.RawIOBase):
    """Writes everything to a file, or notes in ``problem`` why it could not; ``None`` is closed."""

    def __init__(self, file: Any) -> None:
        self._file = file
        self.problem: OSError | None = None

    def writable(self) -> bool:
        """Whether it takes data: always."""
        return True

    def isatty(self) -> bool:
        """Whether somebody looks at it."""
        return self._file is not None and bool(self._file.isatty())

    def fileno(self) -> int:
        """Return the file's number, where it has one."""
        if self._file is None:
            raise io.UnsupportedOperation("fileno")
        return int(self._file.fileno())

    def write(self, data: Any) -> int:
        """Write all of the data: a file without a buffer of its own may take a part of it."""
        view = memoryview(data).cast("B")
        done = 0
        try:
            while done < len(view) and self.problem is None:
                if self._file is None:
                    raise OSError(errno.EBADF, "it is closed")
                taken = self._file.write(view[done:])
                if taken is None:  # it takes nothing just now, and was told not to wait
                    select.select([], [self._file], [])
                done += taken or 0
        except OSError as error:
            self.problem = error
        return len(view)

    @property
    def loss(self) -> str:
        """Say why something was lost; nothing where all was written, or nobody reads any more."""
        if self.problem is None or isinstance(self.problem, BrokenPipeError):
            return ""
        return self.problem.strerror or str(self.problem)


@contextmanager
def outlets() -> Iterator[Outlet]:
    """Put an `Outlet` behind standard output and error; yield that of the output."""
    _open_closed()
    sys.stdin = sys.stdin or io.StringIO()  # closed: there is nothing to read
    before = sys.stdout, sys.stderr
    stdout, stderr = (_behind(stream) for stream in before)
    sys.stdout, sys.stderr = (_text(o, s) for o, s in zip((stdout, stderr), before, strict=True))
    try:
        yield stdout
    finally:
        sys.stdout.flush()
        sys.stderr.flush()
        sys.stdout, sys.stderr = before


def _open_closed() -> None:
    """Keep a file that is opened from getting the number of a closed stream, and its text."""
    with suppress(OSError):
        while (number := os.open(os.devnull, os.O_RDWR)) <= 2:
            pass
        os.close(number)


def _behind(stream: Any) -> Outlet:
    if stream is None:
        return Outlet(None)
    stream.flush()
    # Not the buffer: what it cannot write it keeps, and tries again when Python ends.
    buffer = getattr(stream, "buffer", stream)
    return Outlet(getattr(buffer, "raw", buffer))


def _text(outlet: Outlet, stream: Any) -> io.TextIOWrapper:
    # A terminal that cannot show a character shows its number instead.
    return io.TextIOWrapper(
        cast(BinaryIO, outlet),
        encoding=getattr(stream, "encoding", None) or "utf-8",
        errors="backslashreplace",
        line_buffering=bool(getattr(stream, "line_buffering", True)),
        write_through=bool(getattr(stream, "write_through", False)),
    )
