"""A model that the driver asks: in a process of its own, since the driver must outlive it.

On somebody's row a model may end its process, or keep it for ever in a call that holds the
interpreter's lock. A worker may be lost to that; the driver, which tries the model before there are
workers, and chooses pilots by it, may not. What a row does to that process becomes an `OracleError`
of this row, and the others are put to another process.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Sequence
from contextlib import suppress
from dataclasses import replace
from multiprocessing import Pipe
from multiprocessing.connection import Connection
from typing import Any

from waysout.batch.executor import SILENT_SECONDS
from waysout.batch.process import EXIT_SECONDS, end_process, settle_in, start_process
from waysout.domain.oracle import Answers, Oracle
from waysout.domain.problem import Problem
from waysout.domain.schema import Row
from waysout.errors import OracleError, OracleTimeout, UnavailableError, WaysoutError
from waysout.llm.shared import RemoteError
from waysout.oracles.answers import ask_checked
from waysout.oracles.watchdog import ROW_SECONDS, at_most, batch_seconds, most_seconds

MOST_LOST = 16
"""So many processes may be lost: more are not the fault of single rows."""
_LOOK_SECONDS = 1.0
_ABOUT = {
    "labels_only": False, "notes": (), "assumption": "", "yes_told": "", "extra_rows_left": 0,
}  # fmt: skip
_EXTRA = "extra_rows"


class OracleApart:
    """Asks the model of a problem, which ``make`` makes, in another process.

    That is started for the first question, unless `start` is called before.
    """

    watches = True  # in the other process

    def __init__(self, make: Callable[[], Problem]) -> None:
        self.name, self.labels_only, self.row_seconds = "", False, ROW_SECONDS
        self._make = make
        self.extra_rows = self.extra_rows_left = 0
        self._process: _Process | None = None
        self._lost = self._extra_of_lost = 0

    def start(self) -> None:
        """Have the model loaded there, while this process may do something else."""
        self._process = self._process or _Process(self._make)

    def put_into(self, problem: Problem) -> Problem:
        """Return a problem of the same model with this oracle, and so without that model here."""
        oracle = problem.oracle
        self.name, self.labels_only = oracle.name, oracle.labels_only
        self.row_seconds = getattr(oracle, "row_seconds", ROW_SECONDS)
        self.extra_rows_left = getattr(oracle, "extra_rows_left", 0)
        return replace(problem, oracle=self)

    def ask(self, rows: Sequence[Row]) -> Answers:
        """Answer for each row, in order."""
        if self._lost >= MOST_LOST:
            raise OracleError(f"the model has ended {self._lost} processes, and is asked no more")
        self.start()
        assert self._process is not None
        try:
            self._process.wait()
        except EOFError:
            raise UnavailableError(
                f"the process that is to try the model died as it loaded it ({self.close(0.0)}). "
                "Is there enough memory for the model?"
            ) from None
        most = most_seconds()
        limit = SILENT_SECONDS + min(most, batch_seconds(len(rows), self.row_seconds))
        try:
            answers, about = self._process.ask(rows, most, limit)
        except (EOFError, TimeoutError) as error:
            self._lost += 1
            self._extra_of_lost = self.extra_rows  # the next one looks for the form anew
            how = self.close(0.0)
            if isinstance(error, EOFError):
                raise OracleError(f"the model ended the process that asked it ({how})") from None
            raise OracleTimeout(
                f"the model held the process that asked it for {limit:.4g} s, which was ended"
            ) from None
        self.extra_rows = self._extra_of_lost + about.pop(_EXTRA)
        vars(self).update(about)
        if isinstance(answers, RemoteError):
            raise answers.restore()
        return answers

    def close(self, patience: float = EXIT_SECONDS) -> str:
        """End the process, if there is one; return how it ended."""
        process, self._process = self._process, None
        return "" if process is None else process.close(patience)


class _Process:
    """The process in which the model is, as the driver sees it."""

    def __init__(self, make: Callable[[], Problem]) -> None:
        self._pipe, theirs = Pipe()
        self._process = start_process(_serve, theirs, make)
        theirs.close()
        self._is_up = False

    def wait(self) -> None:
        """Wait until the model is loaded; raise the error that prevents it."""
        if not self._is_up and (error := self._receive()) is not None:
            raise error.restore()
        self._is_up = True

    def ask(
        self, rows: Sequence[Row], most: float, limit: float
    ) -> tuple[Answers | RemoteError, dict[str, Any]]:
        """Return the answers, or the error in their place, and what is known of the model."""
        with suppress(OSError):  # it has died since; then it says nothing
            self._pipe.send((rows, most))
        found: tuple[Answers | RemoteError, dict[str, Any]] = self._receive(limit)
        return found

    def close(self, patience: float) -> str:
        """End the process; return how it ended."""
        self._pipe.close()
        return end_process(self._process, patience)

    def _receive(self, seconds: float = math.inf) -> Any:
        """Return its next message; raise `EOFError` if it has died, `TimeoutError` if none comes.

        What counts are the seconds of this process: the clock goes on while both are suspended.
        """
        while not self._pipe.poll(min(_LOOK_SECONDS, seconds)):
            seconds -= _LOOK_SECONDS
            if seconds <= 0:
                raise TimeoutError
            # A process that the model has forked may hold the pipe open.
            if not self._process.is_alive() and not self._pipe.poll():
                raise EOFError
        try:
            return self._pipe.recv()
        except OSError:
            raise EOFError from None


# Within the process ------------------------------------------------------------------------------


def _serve(pipe: Connection, make: Callable[[], Problem]) -> None:
    """Answer until the driver closes the pipe or dies."""
    settle_in()
    with suppress(EOFError, OSError):  # it has closed it
        try:
            oracle = make().oracle
        except Exception as error:
            pipe.send(RemoteError.of(error, WaysoutError))
            return
        pipe.send(None)
        while True:
            rows, most = pipe.recv()
            answers = _answers(oracle, rows, most)
            about = {name: getattr(oracle, name, none) for name, none in _ABOUT.items()}
            about[_EXTRA] = getattr(oracle, _EXTRA, 0)
            pipe.send((answers, about))


def _answers(oracle: Oracle, rows: Sequence[Row], most: float) -> Answers | RemoteError:
    try:
        with at_most(most):
            return ask_checked(oracle, rows)
    except Exception as error:
        return RemoteError.of(error, OracleError)
