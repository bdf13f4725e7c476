"""A search by third-party code that calls the model itself.

The foreign code runs in its own thread, but only while `ForeignSearch.ask` waits for it: a request
for rows blocks it until the search has the answers and `ask` is called again. So it runs like a
coroutine, and the same seed gives the same sequence of requests. (A separate process would also
survive crashes, but every table and answer would have to be sent to it.)

Such code draws from the global random generators of numpy and Python, and may print. Both belong to
the user: generator states are swapped under a lock whenever control passes, and output is dropped.
"""

from __future__ import annotations

import ctypes
import random
import sys
import threading
import time
import weakref
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from typing import Any, TextIO, cast

import numpy as np
from numpy.typing import NDArray

from waysout.bench.methods.rows import RowBatches
from waysout.domain.result import OutcomeKind
from waysout.domain.schema import Row
from waysout.search.base import Case
from waysout.search.batches import Candidate

Scores = NDArray[np.float64]

PATIENCE = 60.0
# Seconds to wait for a thread to unwind. Code that is still inside a C call by then is not waited
# for: it ends when the call returns.
_UNWIND_SECONDS = 0.5
_LONGEST_ERROR = 200


# The global state of the process ----------------------------------------------------------------

# The generators are global to the process, so only one foreign search runs at a time.
_one_at_a_time = threading.Lock()
_silenced: set[int] = set()


class GlobalDraws:
    """The states of the global generators as one piece of third-party code left them."""

    def __init__(self, rng: np.random.Generator) -> None:
        seed = int(rng.integers(2**32))
        self._states: tuple[Any, Any] = (
            np.random.RandomState(seed).get_state(),
            random.Random(seed).getstate(),
        )

    @contextmanager
    def active(self) -> Iterator[None]:
        """Swap in the foreign code's generator states and drop its output, one search at a time."""
        with _one_at_a_time:
            users = np.random.get_state(), random.getstate()
            # Not contextlib.redirect_stdout: the user's other threads may print meanwhile.
            streams = sys.stdout, sys.stderr
            ours = [stream and cast(TextIO, _Filtered(stream)) for stream in streams]
            sys.stdout, sys.stderr = ours
            _set_states(self._states)
            try:
                yield
            finally:
                self._states = np.random.get_state(), random.getstate()
                _set_states(users)
                # If the stream was replaced meanwhile, its owner restores it.
                if sys.stdout is ours[0]:
                    sys.stdout = streams[0]
                if sys.stderr is ours[1]:
                    sys.stderr = streams[1]


def _set_states(states: tuple[Any, Any]) -> None:
    np.random.set_state(states[0])
    random.setstate(states[1])


class _Filtered:
    """A stream that drops what silenced threads write."""

    def __init__(self, stream: TextIO) -> None:
        self._stream = stream

    def write(self, text: str) -> int:
        return len(text) if threading.get_ident() in _silenced else self._stream.write(text)

    def __getattr__(self, name: str) -> Any:
        return getattr(self._stream, name)


# The thread -------------------------------------------------------------------------------------


class Unwound(SystemExit):
    """Raised to end foreign code; not caught by ``except Exception``, ends the thread silently."""


class Evaluator:
    """Foreign code in a thread that runs only while another thread waits in `resume`.

    The foreign code calls it with typed rows, and gets a score from 0 to 1 for each: above 0.5 if
    the row is an option, below if not, and higher the closer it is to being one. Once the search is
    over, a call ends the foreign code by raising `Unwound`.
    """

    def __init__(self, run: Run) -> None:
        self.asked = 0
        """Number of rows sent to the oracle so far; known or forbidden rows are not counted."""
        self.reason = ""
        self.error = ""
        self.by_row = False
        """Whether the rows it waits for are to be told apart by more than their keys."""
        self.returned: list[Row] = []
        """The rows that it returns, for a search that counts only these."""
        self._run = run
        self._turn = threading.Condition()
        self._running = False
        self._over = False
        self._closed = False
        self._rows: Sequence[Row] = ()
        self._scores: Scores = np.empty(0)
        self._thread = threading.Thread(target=self._main, name="waysout-foreign", daemon=True)

    def resume(self, scores: Scores, seconds: float) -> Sequence[Row] | None:
        """Run for at most ``seconds``, until rows are requested; return them, or ``None``."""
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
        """End the foreign code; may be called repeatedly, and from any thread."""
        with self._turn:
            self._closed = True
            self._turn.notify_all()
        thread = self._thread
        if thread.ident is None or thread is threading.current_thread():
            return
        if self.running:
            # It makes no request that could be refused, so this is the only way to stop it.
            raise_in = ctypes.pythonapi.PyThreadState_SetAsyncExc
            raise_in(ctypes.c_ulong(thread.ident), ctypes.py_object(Unwound))
        thread.join(_UNWIND_SECONDS)

    def __call__(self, rows: Sequence[Row], *, by_row: bool = False) -> Scores:
        """Return a score for each row; blocks until the oracle has answered.

        A row whose key is known is not asked again, unless ``by_row``: then only a known row is
        not.
        """
        with self._turn:
            self._rows, self.by_row, self._running = rows, by_row, False
            self._turn.notify_all()
            self._turn.wait_for(lambda: self._running or self._closed)
            if self._closed:
                raise Unwound
            return self._scores

    def _main(self) -> None:
        _silenced.add(threading.get_ident())
        try:
            self.reason = self._run(self)
        except Unwound:
            pass
        except BaseException as error:  # any error ends only this search
            self.error = words(error)
        finally:
            _silenced.discard(threading.get_ident())
        with self._turn:
            self._over, self._running = True, False
            self._turn.notify_all()


Run = Callable[[Evaluator], str]
"""Foreign code: calls the evaluator as often as it likes, and returns why it stopped."""


def words(error: BaseException) -> str:
    """Format an error on one line."""
    text = " ".join(str(error).split())[:_LONGEST_ERROR]
    return f"{type(error).__name__}: {text}" if text else type(error).__name__


# The search -------------------------------------------------------------------------------------


class ForeignSearch(RowBatches):
    """Passes on the requests of foreign code, within the budget, each key or each row once.

    What is known gets the same score again at no cost; so does the query itself. A row that breaks
    a rule scores 0 without an oracle request: to the foreign code the rules are part of the model.
    It is abandoned after ``patience`` seconds without a request; what was found until then is kept.
    With ``published`` all that it requests is asked, and what it has put on `Evaluator.returned`
    counts.
    """

    def __init__(
        self,
        case: Case,
        run: Run,
        *,
        who: str,
        patience: float = PATIENCE,
        published: bool = False,
    ) -> None:
        super().__init__(case, sys.maxsize, published=published)
        self._who = who
        self._patience = patience
        self._reason = ""
        self._draws = GlobalDraws(case.generator())
        self._foreign = Evaluator(run)
        self._of_query = self._score(case.probability, False)
        self._known: dict[str | Row, float] = {}
        self._approved: dict[Row, tuple[Candidate, float]] = {}  # what may be returned
        for row, asked in self.archive.answered.items():
            self._keep(row, case.problem.key(row), asked.probability, asked.valid)
        self._awaited: list[tuple[Row, str | Row]] = []
        # Also close the thread of a search that is garbage-collected before it ends.
        weakref.finalize(self, self._foreign.close)

    @property
    def thinks(self) -> bool:
        """Whether `ask` may take long: foreign code may run for any length of time."""
        return True

    def close(self) -> None:
        """End the foreign code, also while `ask` waits for it in another thread."""
        self._foreign.close()

    def _end(self, kind: OutcomeKind, reason: str) -> None:
        super()._end(kind, reason)
        self.close()

    def _batch(self, most: int) -> list[Candidate]:
        with self._draws.active():
            try:
                return self._requests(most)
            finally:
                # A thread that still draws must end before the user's generators are restored.
                if self._foreign.running:
                    self._foreign.close()

    def _requests(self, most: int) -> list[Candidate]:
        """Return the rows that the foreign code waits for, as far as the budget allows."""
        foreign, query = self._foreign, self.case.query
        until = time.monotonic() + self._patience
        while True:
            scores = [self._of_query if row == query else self._known.get(name, 0.0)
                      for row, name in self._awaited]  # fmt: skip
            rows = foreign.resume(np.array(scores, dtype=np.float64), until - time.monotonic())
            for row in foreign.returned:
                if row in self._approved:
                    self._return(*self._approved[row])
            foreign.returned.clear()
            if rows is None:
                self._reason = foreign.reason or f"{self._who} was stopped"
                if foreign.running:
                    waited = f"{self._patience:g} s"
                    self._reason = (
                        f"{self._who} made no oracle request for {waited} and was abandoned"
                    )
                elif foreign.error:
                    self._reason = f"{self._who} failed: {foreign.error}"
                return []
            self._by_row, key = foreign.by_row or self._published, self.case.problem.key
            self._awaited = [(row, row if self._by_row else key(row)) for row in rows]
            batch = self._candidates(rows, sys.maxsize if self._published else most)
            if batch:
                foreign.asked += len(batch)
                return batch

    def _learn(
        self, batch: Sequence[Candidate], chances: Sequence[float], valid: Sequence[bool]
    ) -> None:
        for candidate, chance, is_valid in zip(batch, chances, valid, strict=True):
            self._keep(candidate.row, candidate.key, chance, is_valid)
            if is_valid and self._published:
                self._approved[candidate.row] = candidate, chance

    def _keep(self, row: Row, key: str, chance: float, valid: bool) -> None:
        self._known[row] = score = self._score(chance, valid)
        self._known.setdefault(key, score)

    def _score(self, chance: float, valid: bool) -> float:
        # Keep scores away from 0.5, where tools disagree about which side it belongs to.
        worth = min(1.0, max(0.0, self.case.problem.goal.worth(chance)))
        return 0.51 * valid + 0.49 * worth

    def _nothing_left(self) -> str:
        return self._reason
