"""Which of several layouts a model was trained on, where the model itself does not tell.

The order is the adapter's: "raw", then "codes", then "category". A layout the model refuses is
out. Where several are accepted and the answers agree, also after each category has been varied,
the first is taken. Where they differ, the one whose answers react to the categories is taken: a
model that meets values it was not trained on either raises or gives the same answer for all of
them. Where that does not tell either, the user must.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from itertools import islice

import numpy as np
from numpy.typing import NDArray

from waysout.domain.oracle import Answers
from waysout.domain.schema import Row
from waysout.errors import OracleError
from waysout.oracles.inputs import Layout

Ask = Callable[[Layout, Sequence[Row]], Answers]

BASE_ROWS = 16
VARIED_ROWS = 2000
SAME = 1e-9


def decide(
    layouts: Sequence[Layout], refused: Sequence[str], ask: Ask, rows: Sequence[Row]
) -> Layout:
    """Return the layout the model was trained on, or say that the user must name it."""
    base = list(dict.fromkeys(rows))[:BASE_ROWS]
    running, reasons = [], []
    for layout in layouts:
        try:
            ask(layout, base)
            running.append(layout)
        except OracleError as error:
            reasons.append(f"as {layout.kind!r}: {error}")
    if not running:
        tried = "\n  ".join([*reasons, *refused])
        raise OracleError(f"the model refused the rows in every form tried:\n  {tried}")
    return running[0] if len(running) == 1 else _by_reaction(running, ask, base)


def _by_reaction(layouts: Sequence[Layout], ask: Ask, base: list[Row]) -> Layout:
    varied = list(islice(_variations(layouts, base), VARIED_ROWS))
    origin = np.array([i for i, _ in varied], dtype=np.intp)
    batch = base + [row for _, row in varied]
    answers = [_answers(ask, layout, batch) for layout in layouts]
    first = answers[0]
    if all(a is not None and first is not None and np.allclose(a, first, 0, SAME) for a in answers):
        return layouts[0]
    reacting = [
        layout
        for layout, a in zip(layouts, answers, strict=True)
        if a is None or np.any(np.abs(a[len(base) :] - a[origin]) > SAME)
    ]
    if len(reacting) == 1:
        return reacting[0]
    kinds = " or ".join(f"inputs={layout.kind!r}" for layout in layouts)
    raise OracleError(
        "the model accepts its rows in several forms and answers differently: "
        f"say how it was trained with {kinds}"
    )


def _answers(ask: Ask, layout: Layout, batch: Sequence[Row]) -> NDArray[np.float64] | None:
    # A model that refuses one of the varied levels has looked at them: it reacts.
    try:
        return ask(layout, batch).probability
    except OracleError:
        return None


def _variations(layouts: Sequence[Layout], base: list[Row]) -> Iterator[tuple[int, Row]]:
    """Set each category that the layouts write differently to each of its levels, in each row."""
    for columns in zip(*(layout.columns for layout in layouts), strict=True):
        place = columns[0].place
        if all(column.table == columns[0].table for column in columns):
            continue
        for value in place.feature.values():
            for i, row in enumerate(base):
                if row[place.position] != value:
                    yield i, (*row[: place.position], value, *row[place.position + 1 :])
