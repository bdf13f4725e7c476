"""What our own oracles are trained on: rows as codes, and labels as classes 0 and 1."""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np
from numpy.typing import NDArray

from waysout.domain.card import Card, label_text
from waysout.domain.schema import Row, Schema
from waysout.oracles.inputs import build, codes_of, places, plain_layout


def level_codes(schema: Schema) -> dict[str, dict[str, float]]:
    """Return for each feature the number of each of its levels; none for a numeric feature."""
    return {
        f.name: dict(zip(f.level_texts, codes_of(f).values(), strict=True)) if f.levels else {}
        for f in schema
    }


def model_matrix(schema: Schema, rows: Sequence[Row]) -> NDArray[np.float64]:
    """Return one line of numbers a row: level codes, numbers, NaN where a value is missing."""
    matrix: NDArray[np.float64] = build(plain_layout("codes", places(schema), named=False), rows)
    return matrix


def positive_class(card: Card) -> int:
    """Return the class that means yes: 1, or 0 where the table itself writes its yes as 0.

    So a model file says the same as the table's own labels, and whoever loads it with the card
    finds the right class without being told.
    """
    return 0 if label_text(card.outcome.positive) == "0" else 1
