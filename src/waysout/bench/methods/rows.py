"""A search that sends rows to the oracle batch by batch, each row once, whatever its key."""

from __future__ import annotations

from waysout.domain.known import Known, PerData, check_lengths
from waysout.domain.schema import Row, Schema
from waysout.search.base import Case
from waysout.search.batches import BATCH, BatchSearch, Candidate
from waysout.search.space import Matrix


class RowBatches(BatchSearch):
    """Asks a row again within bins that were asked before, unlike other searches in batches.

    A method that walks along fine values would else be told that nothing lies between the edges of
    the bins. What is an option, and what counts as another one, is still decided by the key.
    """

    def __init__(
        self, case: Case, size: int = BATCH, *, by_row: bool = True, published: bool = False
    ) -> None:
        super().__init__(case, size, published=published)
        self._by_row = by_row
        self._asked_rows = set(self.archive.answered)

    def _candidate(self, row: Row, *reasons: str) -> Candidate | None:
        if self._by_row and row not in self._asked_rows:
            self._keys.discard(self.case.problem.key(row))
        candidate = super()._candidate(row, *reasons)
        if candidate is not None:
            self._asked_rows.add(row)
        return candidate


@PerData
def encoded(known: Known, schema: Schema) -> Matrix:
    """Return all known rows, encoded."""
    check_lengths(known)
    return schema.encode(known.rows)
