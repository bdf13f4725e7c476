"""Finding the layout that a model was trained on, where the model itself does not tell.

The order is the adapter's: "raw", then "codes", then "category". A layout the model refuses is
out. Where the answers differ, the layout whose answers react to the categories is taken: a model
that meets values it was not trained on either raises or gives the same answer for all of them.
Where that does not tell either, the user must. Agreement alone proves nothing, since all layouts
agree on rows whose categories do not matter: until every category has changed an answer, each
batch is asked in all of them, as far as ``MOST_EXTRA_ROWS`` goes. These extra rows are set-up: they
are counted, and told before a search begins, but are no part of what a search may spend.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass, field
from itertools import islice

import numpy as np
from numpy.typing import NDArray

from waysout.domain.oracle import Answers
from waysout.domain.schema import Row
from waysout.errors import OracleError, OracleTimeout
from waysout.oracles.inputs import InputColumn, InputLayout

Ask = Callable[[InputLayout, Sequence[Row]], Answers]
Chances = NDArray[np.float64]

BASE_ROWS = 16
VARIED_ROWS = 1500
VARIED_ROWS_LATER = 200
TRIED_ROWS = 500
"""So many of a batch are asked in all layouts."""
MOST_EXTRA_ROWS = 5000
"""So many rows may be asked in all beyond those of the batches."""
SAME = 1e-9


@dataclass
class LayoutTrial:
    """The layouts still in question, and whether the first of them is known to be the right one."""

    layouts: tuple[InputLayout, ...]
    refused: tuple[str, ...] = ()
    proven: bool = field(default=False, init=False)
    extra_rows: int = field(default=0, init=False)
    """How many rows were asked beyond those of the batches."""
    _batches: int = field(default=0, init=False)
    _settled: set[int] = field(default_factory=set, init=False)

    @property
    def rows_left(self) -> int:
        """How many more of these there may be."""
        return 0 if self.proven else max(0, MOST_EXTRA_ROWS - self.extra_rows)

    def ask(self, ask: Ask, rows: Sequence[Row]) -> Answers:
        """Answer a batch, its first rows in every layout still in question, and learn from it."""
        count = min(len(rows), TRIED_ROWS, self.rows_left // len(self.layouts))
        if not count:
            return ask(self.layouts[0], rows)
        tried = self._try(self._counting(ask, count), rows[:count])
        if count == len(rows):
            return tried
        others = ask(self.layouts[0], rows[count:])
        return Answers(
            np.concatenate([tried.probability, others.probability]),
            np.concatenate([tried.decision, others.decision]),
        )

    def _counting(self, ask: Ask, free: int) -> Ask:
        """Return what asks and counts, but for the batch itself, which counts where it is asked."""

        def counted(layout: InputLayout, rows: Sequence[Row]) -> Answers:
            nonlocal free
            self.extra_rows += max(0, len(rows) - free)
            free = 0
            return ask(layout, rows)

        return counted

    def _try(self, ask: Ask, rows: Sequence[Row]) -> Answers:
        running, answers, reasons = [], [], []
        for layout in self.layouts:
            try:
                answers.append(ask(layout, rows))
                running.append(layout)
            except OracleTimeout:
                raise  # it says nothing of the form
            except OracleError as error:
                reasons.append(f"as {layout.kind!r}: {error}")
        reasons += self.refused
        if not running and len(reasons) == 1:
            raise OracleError(f"the model refused the rows, {reasons[0]}")
        said = {reason.partition(": ")[2] for reason in reasons}
        if not running and len(said) == 1:
            raise OracleError(f"the model refused the rows, in whatever form: {said.pop()}")
        if not running:
            tried = "\n  ".join(reasons)
            raise OracleError(
                f"the model refused the rows in every form tried:\n  {tried}\nSay how it was "
                "trained with inputs='raw', inputs='category' or inputs='codes', or wrap it in a "
                "function"
            )
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
        self, layouts: Sequence[InputLayout], chances: list[Chances], ask: Ask, rows: Sequence[Row]
    ) -> int:
        """Return the index of the layout to believe; note whether that is proven."""
        if len(layouts) == 1:
            self.proven = True
            return 0
        differ = np.any([np.abs(c - chances[0]) > SAME for c in chances], axis=0)
        if not differ.any() and self._batches & (self._batches - 1):
            return 0  # The batch is safe, and varying rows for each of thousands would cost.
        # Columns that the layouts do not write alike, and that have not changed an answer yet.
        in_question: list[InputColumn] = []
        for first, *others in zip(*(layout.columns for layout in layouts), strict=True):
            written = (first.table, first.holds == "categories")
            differs = any((c.table, c.holds == "categories") != written for c in others)
            if differs and first.place.position not in self._settled:
                in_question.append(first)
        base = _base(rows, differ)
        most = VARIED_ROWS_LATER if self._batches else VARIED_ROWS
        most = min(most, self.rows_left // len(layouts) - len(base))
        tried = _vary(layouts, in_question, ask, base, most) if most > 0 else []
        if not tried and not differ.any():
            return 0
        if tried and not differ.any() and _alike(tried):
            self._settled |= tried[0].reacts
            self.proven = all(c.place.position in self._settled for c in in_question)
            return 0
        # The layout in which the model reacts to whatever it reacts to in any.
        reacts = frozenset[int]().union(*(t.reacts for t in tried))
        best = [i for i, t in enumerate(tried) if t.reacts == reacts]
        same = _alike([tried[i] for i in best]) and all(
            np.allclose(chances[i], chances[best[0]], 0, SAME) for i in best
        )
        if not reacts or not best or (len(best) > 1 and not same):
            kinds = " or ".join(dict.fromkeys(f"inputs={layout.kind!r}" for layout in layouts))
            raise OracleError(
                "the model accepts its rows in several forms and answers differently: "
                f"pass {kinds}, as it was trained"
            )
        self.proven = True
        return best[0]


def _base(rows: Sequence[Row], differ: NDArray[np.bool_]) -> list[Row]:
    """Return a few rows from all over the batch, those in dispute first."""
    spread = np.linspace(0, len(rows) - 1, min(len(rows), 4 * BASE_ROWS)).astype(int)
    picked = [rows[i] for i in (*np.flatnonzero(differ)[: BASE_ROWS // 2], *spread)]
    distinct = list(dict.fromkeys(picked))
    kept = np.linspace(0, len(distinct) - 1, min(len(distinct), BASE_ROWS)).astype(int)
    return [distinct[i] for i in np.unique(kept)]


@dataclass(frozen=True)
class _Varied:
    """What a layout answered to varied rows (None: refused), and to which columns it reacted."""

    chances: Chances | None
    reacts: frozenset[int]


def _vary(
    layouts: Sequence[InputLayout], columns: list[InputColumn], ask: Ask, base: list[Row], most: int
) -> list[_Varied]:
    """Set the columns in question to each of their levels in each row, and ask in each layout."""
    share = max(1, most // max(1, len(columns)))
    varied: list[tuple[int, int, Row]] = []
    for column in columns:
        at = column.place.position
        made = (
            (at, i, (*row[:at], value, *row[at + 1 :]))
            for value in column.place.feature.values()
            for i, row in enumerate(base)
            if row[at] != value
        )
        varied += islice(made, share)
    positions = np.array([position for position, _, _ in varied], dtype=np.intp)
    origin = np.array([i for _, i, _ in varied], dtype=np.intp)
    batch = base + [row for _, _, row in varied]
    answers = []
    for layout in layouts:
        try:
            chances = ask(layout, batch).probability
            moved = np.abs(chances[len(base) :] - chances[origin]) > SAME
            answers.append(_Varied(chances, frozenset(positions[moved].tolist())))
        except OracleTimeout:
            raise
        except OracleError:
            # A model that refuses one of the varied levels has looked at them: it reacts.
            answers.append(_Varied(None, frozenset(positions.tolist())))
    return answers


def _alike(tried: Sequence[_Varied]) -> bool:
    chances = [t.chances for t in tried if t.chances is not None]
    return len(chances) == len(tried) and all(np.allclose(a, chances[0], 0, SAME) for a in chances)
