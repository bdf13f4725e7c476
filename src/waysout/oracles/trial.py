"""Which of several layouts a model was trained on, where the model itself does not tell.

The order is the adapter's: "raw", then "codes", then "category". A layout the model refuses is
out. Where the answers differ, the layout whose answers react to the categories is taken: a model
that meets values it was not trained on either raises or gives the same answer for all of them.
Where that does not tell either, the user must. Agreement alone proves nothing, since all layouts
agree on rows whose categories do not matter: until every category has changed an answer, each
batch is asked in all of them.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass, field
from itertools import islice
from typing import TypeAlias

import numpy as np
from numpy.typing import NDArray

from waysout.domain.oracle import Answers
from waysout.domain.schema import Row
from waysout.errors import OracleError
from waysout.oracles.inputs import InputColumn, InputLayout

Ask = Callable[[InputLayout, Sequence[Row]], Answers]
Batch: TypeAlias = Sequence[Row]

BASE_ROWS = 16
VARIED_ROWS = 2000
VARIED_ROWS_LATER = 200
SAME = 1e-9


@dataclass
class Trial:
    """The layouts still in question, and whether the first of them is known to be the right one."""

    layouts: tuple[InputLayout, ...]
    refused: tuple[str, ...] = ()
    proven: bool = False
    _batches: int = field(default=0, init=False)
    _settled: set[int] = field(default_factory=set, init=False)

    @property
    def started(self) -> bool:
        """Whether a batch has been asked."""
        return self._batches > 0

    def ask(self, ask: Ask, rows: Batch) -> Answers:
        """Answer a batch in every layout still in question, and learn from it."""
        running, answers, reasons = [], [], []
        for layout in self.layouts:
            try:
                answers.append(ask(layout, rows))
                running.append(layout)
            except OracleError as error:
                reasons.append(f"as {layout.kind!r}: {error}")
        if not running:
            raise _refusal([*reasons, *self.refused])
        chances = [a.probability for a in answers]
        chosen = self._choose(running, chances, ask, rows)
        # Only now: a batch that raised must leave the trial as it was.
        self._batches += 1
        self.layouts = (running[chosen],) if self.proven else tuple(running)
        return answers[chosen]

    @property
    def reacted(self) -> bool:
        """Whether any category has changed an answer."""
        return self.proven or bool(self._settled)

    def _choose(
        self,
        layouts: Sequence[InputLayout],
        chances: list[NDArray[np.float64]],
        ask: Ask,
        rows: Batch,
    ) -> int:
        """Return which layout to believe; note whether that is proven."""
        if len(layouts) == 1:
            self.proven = True
            return 0
        differ = np.any([np.abs(c - chances[0]) > SAME for c in chances], axis=0)
        if not differ.any() and self._batches & (self._batches - 1):
            return 0  # The batch is safe, and varying rows for each of thousands would cost.
        open_columns = [c for c in _in_question(layouts) if c.place.position not in self._settled]
        most = VARIED_ROWS_LATER if self.started else VARIED_ROWS
        tried = _vary(layouts, open_columns, ask, _base(rows, differ), most)
        if not differ.any() and _alike(tried):
            self._settled |= tried[0].reacts
            self.proven = all(c.place.position in self._settled for c in open_columns)
            return 0
        chosen = _reacting_most(layouts, chances, tried)
        self.proven = True
        return chosen


def _reacting_most(
    layouts: Sequence[InputLayout], chances: list[NDArray[np.float64]], tried: Sequence[_Varied]
) -> int:
    """Return the layout in which the model reacts to whatever it reacts to in any."""
    most = frozenset[int]().union(*(t.reacts for t in tried))
    best = [i for i, t in enumerate(tried) if t.reacts == most]
    same = _alike([tried[i] for i in best]) and all(
        np.allclose(chances[i], chances[best[0]], 0, SAME) for i in best
    )
    if not most or not best or (len(best) > 1 and not same):
        raise _ambiguous(layouts)
    return best[0]


def _refusal(reasons: Sequence[str]) -> OracleError:
    if len(reasons) == 1:
        return OracleError(f"the model refused the rows, {reasons[0]}")
    tried = "\n  ".join(reasons)
    return OracleError(
        f"the model refused the rows in every form tried:\n  {tried}\nSay how it was trained with "
        "inputs='raw', inputs='category' or inputs='codes', or wrap it in a function"
    )


def _ambiguous(layouts: Sequence[InputLayout]) -> OracleError:
    kinds = " or ".join(dict.fromkeys(f"inputs={layout.kind!r}" for layout in layouts))
    return OracleError(
        "the model accepts its rows in several forms and answers differently: "
        f"say how it was trained with {kinds}"
    )


def _base(rows: Batch, differ: NDArray[np.bool_]) -> list[Row]:
    """Return a few rows from all over the batch, those in dispute first."""
    spread = np.linspace(0, len(rows) - 1, min(len(rows), 4 * BASE_ROWS)).astype(int)
    picked = [rows[i] for i in (*np.flatnonzero(differ)[: BASE_ROWS // 2], *spread)]
    distinct = list(dict.fromkeys(picked))
    return [distinct[i] for i in _every(len(distinct), BASE_ROWS)]


def _every(count: int, most: int) -> list[int]:
    return sorted(set(np.linspace(0, count - 1, min(count, most)).astype(int).tolist()))


@dataclass(frozen=True)
class _Varied:
    """What a layout answered to varied rows (None: refused), and to which columns it reacted."""

    chances: NDArray[np.float64] | None
    reacts: frozenset[int]


def _vary(
    layouts: Sequence[InputLayout],
    columns: Sequence[InputColumn],
    ask: Ask,
    base: list[Row],
    most: int,
) -> list[_Varied]:
    """Vary the columns in question, and ask in each layout."""
    share = max(1, most // max(1, len(columns)))
    varied = [trio for column in columns for trio in islice(_variations(column, base), share)]
    at = np.array([position for position, _, _ in varied], dtype=np.intp)
    origin = np.array([i for _, i, _ in varied], dtype=np.intp)
    batch = base + [row for _, _, row in varied]
    answers = []
    for layout in layouts:
        try:
            chances = ask(layout, batch).probability
            moved = np.abs(chances[len(base) :] - chances[origin]) > SAME
            answers.append(_Varied(chances, frozenset(at[moved].tolist())))
        except OracleError:
            # A model that refuses one of the varied levels has looked at them: it reacts.
            answers.append(_Varied(None, frozenset(at.tolist())))
    return answers


def _alike(tried: Sequence[_Varied]) -> bool:
    chances = [t.chances for t in tried if t.chances is not None]
    return len(chances) == len(tried) and all(np.allclose(a, chances[0], 0, SAME) for a in chances)


def _in_question(layouts: Sequence[InputLayout]) -> list[InputColumn]:
    """Return the columns that the layouts do not write alike."""
    return [
        columns[0]
        for columns in zip(*(layout.columns for layout in layouts), strict=True)
        if any(_written(column) != _written(columns[0]) for column in columns)
    ]


def _written(column: InputColumn) -> tuple[object, bool]:
    return column.table, column.holds == "categories"


def _variations(column: InputColumn, base: list[Row]) -> Iterator[tuple[int, int, Row]]:
    """Set a category to each of its levels, in each row: the column, the row's number, the row."""
    at = column.place.position
    for value in column.place.feature.values():
        for i, row in enumerate(base):
            if row[at] != value:
                yield at, i, (*row[:at], value, *row[at + 1 :])
