"""An oracle that remembers: no row goes to the model twice."""

from __future__ import annotations

import threading
from collections import OrderedDict
from collections.abc import Sequence

import numpy as np

from waysout.domain.oracle import Answers, Oracle
from waysout.domain.schema import Row
from waysout.oracles.answers import ask_checked

_LONGEST = 4_000  # characters of a row that is kept


class CachedOracle:
    """Answers from memory and asks the inner oracle once a batch, for the rows it has not seen.

    ``asked`` counts the rows that went to the model, ``batches`` the calls, ``hits`` the rows that
    did not need one. One lock is held while the model works, so that two threads never pay for the
    same row. Beyond ``max_rows`` the least recently used row is dropped; a row of very long texts
    is not kept at all, as so many of them would fill the memory.
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
        self._lock = threading.Lock()

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
        with self._lock:
            batch = {row: self._known[row] for row in rows if row in self._known}
            unseen = list(dict.fromkeys(row for row in rows if row not in batch))
            if unseen:
                answers = ask_checked(self.oracle, unseen)
                self.asked += len(unseen)
                self.batches += 1
                pairs = zip(answers.probability.tolist(), answers.decision.tolist(), strict=True)
                batch |= zip(unseen, pairs, strict=True)
            self.hits += len(rows) - len(unseen)
            for row, answer in batch.items():
                if sum(len(value) for value in row if isinstance(value, str)) > _LONGEST:
                    continue
                self._known[row] = answer
                self._known.move_to_end(row)
            while len(self._known) > self.max_rows:
                self._known.popitem(last=False)
        return Answers(
            np.array([batch[row][0] for row in rows], dtype=np.float64),
            np.array([batch[row][1] for row in rows], dtype=np.bool_),
        )
