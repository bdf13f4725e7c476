"""Standard output and error that never stop a command: what was lost is told at its end.

A command that fails where it prints would leave its files half made. So a write that fails is
noted, the rest is thrown away, and the command does its work; `main` then says what was lost. A
reader that went away (``waysout … | head``) has what it wanted: that is no error, and the command
ends with its own exit code. (To die of SIGPIPE, as ``ls`` does, would lose the run.)

Models run in the same process. They may print, in Python or past it, and close the streams of `sys`
or put others in their place; our output goes to streams that we hold on to.
"""

from __future__ import annotations

import errno
import io
import os
import select
import sys
from collections.abc import Iterator
from contextlib import AbstractContextManager, contextmanager, suppress
from typing import Any, BinaryIO, TextIO, cast

_STDOUT, _STDERR = 1, 2
# The streams of our own output, innermost last; those of `sys` are everybody's.
_stdouts: list[TextIO] = []
_stderrs: list[TextIO] = []


class Outlet(io.RawIOBase):
    """Writes everything to a file, or notes in ``problem`` why it could not; ``None`` is closed."""

    def __init__(self, file: Any) -> None:
        self._file = file
        self.problem: OSError | None = None

    def writable(self) -> bool:
        """Whether it takes data: always."""
        return True

    def close(self) -> None:
        """Stay open: a model may close the streams of `sys`, and others print after it."""

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
def outlets() -> Iterator[io.TextIOWrapper]:
    """Put an `Outlet` behind standard output and error; yield our own output."""
    _open_closed()
    sys.stdin = sys.stdin or io.StringIO()  # closed: there is nothing to read
    before = sys.stdout, sys.stderr
    with _own_stdout(_file_of(sys.stdout)) as file:
        files = Outlet(file), Outlet(_file_of(sys.stderr))
        stdout, stderr = map(_text, files, before)
        # Others than ours: a model may detach them, or change their encoding.
        others = [*map(_text, files, before)]
        sys.stdout, sys.stderr = others
        try:
            with our_stdout_is(stdout), our_stderr_is(stderr):
                yield stdout
        finally:
            for stream in (*others, stdout, stderr):
                with suppress(ValueError):  # it is detached
                    stream.flush()
            sys.stdout, sys.stderr = before


def loss(stdout: io.TextIOWrapper) -> str:
    """Say why something was lost of what was written to the output of `outlets`, if it was."""
    stdout.flush()
    return cast(Outlet, stdout.buffer).loss


def models_may_print() -> None:
    """Send what others print to stderr, by Python or past it, for as long as the process lives.

    Before models, rules or methods run: a result on stdout is one document. Nothing is put back, as
    a model may have threads that outlive its calls, and text that C writes when the process ends.
    """
    if not _stdouts:  # no command runs
        return
    sys.stdout = sys.stderr
    if our_stdout_number() != _STDOUT:  # else it is no file, as in tests
        with suppress(OSError):  # a model may have closed number 2
            os.dup2(_STDERR, _STDOUT)


def our_stdout() -> TextIO:
    """Return standard output, whatever `sys` has in its place."""
    return _stdouts[-1] if _stdouts else sys.stdout


def our_stdout_number() -> int:
    """Return the number of the file that is standard output, whatever 1 is just now."""
    try:
        return our_stdout().fileno()
    except OSError:
        return _STDOUT


def our_stderr() -> TextIO:
    """Return standard error, whatever `sys` has in its place."""
    return _stderrs[-1] if _stderrs else sys.stderr


def our_stdout_is(stream: TextIO) -> AbstractContextManager[None]:
    """Have our output written to a stream."""
    return _on_top(_stdouts, stream)


def our_stderr_is(stream: TextIO) -> AbstractContextManager[None]:
    """Have our messages written to a stream."""
    return _on_top(_stderrs, stream)


@contextmanager
def _on_top(streams: list[TextIO], stream: TextIO) -> Iterator[None]:
    streams.append(stream)
    try:
        yield
    finally:
        streams.pop()


@contextmanager
def _own_stdout(file: Any) -> Iterator[Any]:
    """Yield a duplicate of a file that has the number of standard output; any other as it is."""
    if not (isinstance(file, io.FileIO) and file.fileno() == _STDOUT):
        yield file
        return
    with io.FileIO(os.dup(_STDOUT), "w") as own:
        yield own


def _open_closed() -> None:
    """Keep a file that is opened from getting the number of a closed stream, and its text."""
    with suppress(OSError):
        while (number := os.open(os.devnull, os.O_RDWR)) <= 2:
            pass
        os.close(number)


def _file_of(stream: Any) -> Any:
    if stream is None:
        return None
    stream.flush()
    # Not the buffer: what it cannot write it keeps, and tries again when Python ends.
    buffer = getattr(stream, "buffer", stream)
    return getattr(buffer, "raw", buffer)


def _text(outlet: Outlet, stream: Any) -> io.TextIOWrapper:
    # A terminal that cannot show a character shows its number instead.
    return io.TextIOWrapper(
        cast(BinaryIO, outlet),
        encoding=getattr(stream, "encoding", None) or "utf-8",
        errors="backslashreplace",
        line_buffering=bool(getattr(stream, "line_buffering", True)),
        write_through=bool(getattr(stream, "write_through", False)),
    )
