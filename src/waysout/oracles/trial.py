"""Which of several layouts a model was trained on, where the model itself does not tell.

The order is the adapter's: "raw", then "codes", then "category". A layout the model refuses is
out. Where the answers differ, the layout whose answers react to the categories is taken: a model
that meets values it was not trained on either raises or gives the same answer for all of them.
Where that does not tell either, the user must. Agreement alone proves nothing, since all layouts
agree on rows whose categories do not matter: until one has reacted, every batch is asked in all
of them.
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
from waysout.oracles.inputs import Column, Layout

Ask = Callable[[Layout, Sequence[Row]], Answers]
Batch: TypeAlias = Sequence[Row]

BASE_ROWS = 16
VARIED_ROWS = 2000
VARIED_ROWS_LATER = 200
SAME = 1e-9


@dataclass
class Trial:
    """The layouts still in question, and whether the first of them is known to be the right one."""

    layouts: tuple[Layout, ...]
    refused: tuple[str, ...] = ()
    proven: bool = False
    _batches: int = field(default=0, init=False)

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
        chosen = 0 if len(running) == 1 else self._choose(running, chances, ask, rows)
        # Only now: a batch that raised must leave the trial as it was.
        self._batches += 1
        self.layouts = (running[chosen],) if self.proven else tuple(running)
        return answers[chosen]

    def _choose(
        self, layouts: Sequence[Layout], chances: list[NDArray[np.float64]], ask: Ask, rows: Batch
    ) -> int:
        """Return which layout to believe; note whether that is proven."""
        differ = np.any([np.abs(c - chances[0]) > SAME for c in chances], axis=0)
        most = VARIED_ROWS_LATER if self.started else VARIED_ROWS
        reacting, agree = _reactions(layouts, ask, _base(rows, differ), most)
        if not differ.any() and agree:
            self.proven = bool(reacting) or not _in_question(layouts)
            return 0
        if len(reacting) != 1:
            raise _ambiguous(layouts)
        self.proven = True
        return reacting[0]


def _refusal(reasons: Sequence[str]) -> OracleError:
    if len(reasons) == 1:
        return OracleError(f"the model refused the rows, {reasons[0]}")
    tried = "\n  ".join(reasons)
    return OracleError(
        f"the model refused the rows in every form tried:\n  {tried}\nSay how it was trained with "
        "inputs='raw', inputs='category' or inputs='codes', or wrap it in a function"
    )


def _ambiguous(layouts: Sequence[Layout]) -> OracleError:
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


def _reactions(
    layouts: Sequence[Layout], ask: Ask, base: list[Row], most: int
) -> tuple[list[int], bool]:
    """Return which layouts react when categories are varied, and whether all answer the same."""
    varied = list(islice(_variations(layouts, base), most))
    if not varied:
        return [], True
    origin = np.array([i for i, _ in varied], dtype=np.intp)
    batch = base + [row for _, row in varied]
    answers = [_answers(ask, layout, batch) for layout in layouts]
    reacting = [
        i
        for i, a in enumerate(answers)
        if a is None or np.any(np.abs(a[len(base) :] - a[origin]) > SAME)
    ]
    first = answers[0]
    agree = first is not None and all(
        a is not None and np.allclose(a, first, 0, SAME) for a in answers
    )
    return reacting, agree


def _answers(ask: Ask, layout: Layout, batch: Batch) -> NDArray[np.float64] | None:
    # A model that refuses one of the varied levels has looked at them: it reacts.
    try:
        return ask(layout, batch).probability
    except OracleError:
        return None


def _in_question(layouts: Sequence[Layout]) -> list[Column]:
    """Return the columns that the layouts do not write alike."""
    return [
        columns[0]
        for columns in zip(*(layout.columns for layout in layouts), strict=True)
        if any(_written(column) != _written(columns[0]) for column in columns)
    ]


def _written(column: Column) -> tuple[object, bool]:
    return column.table, column.holds == "categories"


def _variations(layouts: Sequence[Layout], base: list[Row]) -> Iterator[tuple[int, Row]]:
    """Set each category in question to each of its levels, in each row."""
    for column in _in_question(layouts):
        place = column.place
        for value in place.feature.values():
            for i, row in enumerate(base):
                if row[place.position] != value:
                    yield i, (*row[: place.position], value, *row[place.position + 1 :])
