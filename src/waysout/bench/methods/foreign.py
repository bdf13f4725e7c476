"""A search by code that insists on calling the model itself.

The foreign code runs in a thread of its own, but only while `ForeignSearch.ask` waits for it: it
stands still from the moment it asks of rows until the search was told the answers and is asked
again. So it runs like a coroutine, and the same seed gives the same works.
"""

from __future__ import annotations

import ctypes
import sys
import threading
import time
import weakref
from collections.abc import Callable, Sequence

import numpy as np
from numpy.typing import NDArray

from waysout.bench.methods.borrowed import GlobalDraws, unheard
from waysout.domain.result import OutcomeKind
from waysout.domain.schema import Row
from waysout.search.base import Case
from waysout.search.batches import BatchSearch, Candidate

Scores = NDArray[np.float64]

PATIENCE = 60.0
# What a thread may take to unwind. Code that does not come back from C in that time is left alone:
# it is told to end as soon as it does.
_GRACE = 0.5
_LONGEST_WORDS = 200


class Unwound(SystemExit):
    """Ends foreign code: it passes ``except Exception``, and a thread dies of it silently."""


class Evaluator:
    """What foreign code is given to ask: typed rows in, a score for each out.

    A score is 0 to 1, above 0.5 for a row that would be an option and below for any other, and
    the higher the nearer to one. It ends the foreign code (by `Unwound`) once the search is over.
    """

    def __init__(self, thread: ForeignThread) -> None:
        self._thread = thread
        self.asked = 0
        """How many rows the oracle was asked so far; what was known or is forbidden costs none."""

    def __call__(self, rows: Sequence[Row]) -> Scores:
        """Return a score for each row; waits until the oracle has answered."""
        return self._thread.hand_over(rows)


Run = Callable[[Evaluator], str]
"""Foreign code: it asks as it likes and returns why it has nothing more to ask."""


class ForeignThread:
    """Foreign code that runs only while somebody waits in `resume`."""

    def __init__(self, run: Run) -> None:
        self.evaluate = Evaluator(self)
        self.reason = ""
        self.error = ""
        self._run = run
        self._turn = threading.Condition()
        self._running = False
        self._over = False
        self._closed = False
        self._rows: Sequence[Row] = ()
        self._scores: Scores = np.empty(0)
        self._thread = threading.Thread(target=self._main, name="waysout-foreign", daemon=True)

    # On the side of the search ------------------------------------------------------------------

    def resume(self, scores: Scores, seconds: float) -> Sequence[Row] | None:
        """Let it run until it asks of rows, for so long at most; ``None`` where it asks none."""
        with self._turn:
            if self._over or self._closed:
                return None
            self._scores, self._running = scores, True
            if self._thread.ident is None:
                self._thread.start()
            self._turn.notify_all()
            self._turn.wait_for(lambda: not self._running or self._closed, max(0.0, seconds))
            return None if self._over or self._closed or self._running else self._rows

    @property
    def running(self) -> bool:
        """Whether it neither waits for scores nor has ended."""
        return self._running and self._thread.is_alive()

    def close(self) -> None:
        """End it, wherever it is; may be called twice, and from any thread."""
        with self._turn:
            self._closed = True
            self._turn.notify_all()
        thread = self._thread
        if thread.ident is None or thread is threading.current_thread():
            return
        if self._running and thread.is_alive():
            # It asks nothing, so this is the only way to reach it.
            strike = ctypes.pythonapi.PyThreadState_SetAsyncExc
            strike(ctypes.c_ulong(thread.ident), ctypes.py_object(Unwound))
        thread.join(_GRACE)

    # On the side of the foreign code ------------------------------------------------------------

    def hand_over(self, rows: Sequence[Row]) -> Scores:
        """Stand still until there are scores for rows."""
        with self._turn:
            self._rows, self._running = rows, False
            self._turn.notify_all()
            self._turn.wait_for(lambda: self._running or self._closed)
            if self._closed:
                raise Unwound
            return self._scores

    def _main(self) -> None:
        with unheard():
            try:
                self.reason = self._run(self.evaluate)
            except Unwound:
                pass
            except BaseException as error:  # whatever it is, it ends this search and no other
                self.error = words(error)
            with self._turn:
                self._over, self._running = True, False
                self._turn.notify_all()


def words(error: BaseException) -> str:
    """Return an error as it stands in a reason."""
    text = " ".join(str(error).split())[:_LONGEST_WORDS]
    return f"{type(error).__name__}: {text}" if text else type(error).__name__


class ForeignSearch(BatchSearch):
    """Asks what foreign code asks, each key once and never past the budget.

    A row whose key was asked before gets the same score again and costs nothing; so does the query
    itself. A row that breaks a rule scores 0 without being asked: to the foreign code the rules are
    part of the model. It is given up after ``patience`` seconds without a question; what was found
    until then stays.
    """

    def __init__(self, case: Case, run: Run, *, who: str, patience: float = PATIENCE) -> None:
        super().__init__(case, sys.maxsize)
        self._who = who
        self._patience = patience
        self._reason = ""
        self._draws = GlobalDraws(case.generator())
        self._foreign = ForeignThread(run)
        self._of_query = self._score(case.probability, False)
        self._known: dict[str, float] = {}
        self._awaited: list[tuple[Row, str]] = []
        # A search that is dropped half-way closes its thread too.
        weakref.finalize(self, self._foreign.close)

    @property
    def thinks(self) -> bool:
        """The foreign code takes as long as it takes."""
        return True

    def close(self) -> None:
        """End the foreign code, also while `ask` waits for it in another thread."""
        self._foreign.close()

    def _end(self, kind: OutcomeKind, reason: str) -> None:
        super()._end(kind, reason)
        self.close()

    def _batch(self, most: int) -> list[Candidate]:
        with self._draws.lent():
            try:
                return self._questions(most)
            finally:
                # The user's generators are not given back under a thread that still draws.
                if self._foreign.running:
                    self._foreign.close()

    def _questions(self, most: int) -> list[Candidate]:
        until = time.monotonic() + self._patience
        while True:
            rows = self._foreign.resume(self._scores(), until - time.monotonic())
            if rows is None:
                self._reason = self._why()
                return []
            batch = self._new(rows, most)
            if batch:
                self._foreign.evaluate.asked += len(batch)
                return batch

    def _new(self, rows: Sequence[Row], most: int) -> list[Candidate]:
        """Return what must be asked before the foreign code goes on, as far as the budget goes."""
        self._awaited = [(row, self.case.problem.key(row)) for row in rows]
        return self._candidates(rows, most)

    def _scores(self) -> Scores:
        """Return what the foreign code waits for."""
        query, known = self.case.query, self._known
        found = [self._of_query if r == query else known.get(k, 0.0) for r, k in self._awaited]
        return np.array(found, dtype=np.float64)

    def _learn(
        self, batch: Sequence[Candidate], chances: Sequence[float], valid: Sequence[bool]
    ) -> None:
        for candidate, chance, is_valid in zip(batch, chances, valid, strict=True):
            self._known[candidate.key] = self._score(chance, is_valid)

    def _score(self, chance: float, valid: bool) -> float:
        # Nowhere near 0.5, where one tool says yes and another no.
        worth = min(1.0, max(0.0, self.case.problem.goal.worth(chance)))
        return 0.51 * valid + 0.49 * worth

    def _why(self) -> str:
        if self._foreign.running:
            waited = f"{self._patience:g} s"
            return f"{self._who} asked the oracle nothing for {waited} and was given up"
        if self._foreign.error:
            return f"{self._who} broke off: {self._foreign.error}"
        return self._foreign.reason or f"{self._who} was stopped"

    def _nothing_left(self) -> str:
        return self._reason
