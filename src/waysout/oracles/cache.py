"""An oracle that remembers: no row goes to the model twice."""

from __future__ import annotations

import threading
from collections import OrderedDict
from collections.abc import Iterable, Mapping, Sequence
from contextlib import AbstractContextManager

import numpy as np

from waysout.domain.oracle import Answers, Oracle
from waysout.domain.schema import Row
from waysout.oracles.answers import ask_checked

_LONGEST = 4_000  # characters of a row that is kept


class CachedOracle:
    """Answers from memory and asks the inner oracle once a batch, for the rows it has not seen.

    ``asked`` counts the rows that went to the model, ``batches`` the calls, ``hits`` the rows that
    did not need one. One lock is held while the model works, so that two threads never pay for the
    same row: the ``call_lock`` of the inner oracle, if it has one. Who asks for rows that are all
    remembered does not wait for it. Beyond ``max_rows`` the least recently used row is dropped; a
    row of very long texts is not kept at all, as so many of them would fill the memory.
    """

    watches = True

    def __init__(self, oracle: Oracle, *, max_rows: int = 1_000_000) -> None:
        self.oracle = oracle
        self.max_rows = max_rows
        self.asked = 0
        self.batches = 0
        self.hits = 0
        # Rows of one schema are typed by position, so 1, 1.0 and True never meet in one key.
        self._known: OrderedDict[Row, tuple[float, bool]] = OrderedDict()
        self._lock = threading.Lock()  # of what is remembered
        self._calling: AbstractContextManager[object] = (
            getattr(oracle, "call_lock", None) or threading.Lock()
        )

    @property
    def name(self) -> str:
        """The inner oracle's name."""
        return self.oracle.name

    @property
    def labels_only(self) -> bool:
        """Whether the inner oracle gives labels only."""
        return self.oracle.labels_only

    def ask(self, rows: Sequence[Row]) -> Answers:
        """Answer for each row, in order."""
        batch = self._recall(rows)
        unseen = [row for row in dict.fromkeys(rows) if row not in batch]
        if unseen:
            with self._calling:
                batch |= self._recall(unseen)  # another thread may have asked them by now
                unseen = [row for row in unseen if row not in batch]
                batch |= self._ask(unseen)
        with self._lock:
            self.hits += len(rows) - len(unseen)
        return Answers(
            np.array([batch[row][0] for row in rows], dtype=np.float64),
            np.array([batch[row][1] for row in rows], dtype=np.bool_),
        )

    def _ask(self, rows: Sequence[Row]) -> dict[Row, tuple[float, bool]]:
        """Ask the inner oracle, with the lock held."""
        if not rows:
            return {}
        answers = ask_checked(self.oracle, rows)
        self.asked += len(rows)
        self.batches += 1
        pairs = zip(answers.probability.tolist(), answers.decision.tolist(), strict=True)
        said = dict(zip(rows, pairs, strict=True))
        with self._lock:
            self._keep(said)
        return said

    def remember(self, answered: Mapping[Row, tuple[float, bool]]) -> None:
        """Take in what the model answered before, such as to a process that has ended."""
        with self._lock:
            self._keep({row: said for row, said in answered.items() if row not in self._known})

    def _recall(self, rows: Iterable[Row]) -> dict[Row, tuple[float, bool]]:
        with self._lock:
            found = {row: self._known[row] for row in rows if row in self._known}
            for row in found:
                self._known.move_to_end(row)
        return found

    def _keep(self, answered: Mapping[Row, tuple[float, bool]]) -> None:
        for row, said in answered.items():
            if sum(len(value) for value in row if isinstance(value, str)) > _LONGEST:
                continue
            self._known[row] = said
            self._known.move_to_end(row)
        while len(self._known) > self.max_rows:
            self._known.popitem(last=False)
