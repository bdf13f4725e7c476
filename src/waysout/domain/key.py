"""The key φ: one canonical string per row, which decides whether two rows are the same option.

The five steps of the paper: text is normalised and numeric strings become numbers; categories go
through their table of synonyms; target, identifiers and whatever is opaque are left out; binned
numbers become the index of their bin; the rest is compact JSON with sorted keys. Rows with the same
key count once.
"""

from __future__ import annotations

import json
from bisect import bisect_left
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, field
from functools import cached_property

import numpy as np

from waysout.domain.schema import Row, Schema, Value

MOST_BINS = 10


@dataclass(frozen=True)
class Key:
    """φ for one schema. ``bins`` are rising edges: bin *i* holds the values in (edge_i-1, edge_i].

    An edge belongs to the bin below it, so that a feature that is mostly 0, with its one edge at 0,
    still tells nothing from something.
    """

    schema: Schema
    bins: Mapping[str, Sequence[float]] = field(default_factory=dict)

    @classmethod
    def fit(cls, schema: Schema, rows: Sequence[Row], most_bins: int = MOST_BINS) -> Key:
        """Return a key with bins at rounded quantiles of some rows (the paper's "fit")."""
        edges = {f.name: bin_edges([row[i] for row in rows], most_bins)
                 for i, f in enumerate(schema) if f.is_numeric}  # fmt: skip
        return cls(schema, {name: found for name, found in edges.items() if found})

    def __call__(self, row: Row) -> str:
        """Return the key of a row."""
        parts: list[str] = []
        for name, place, edges in self._written:
            value = row[place]
            if isinstance(value, (int, float)) and not isinstance(value, bool):
                if edges is not None:
                    part = str(bisect_left(edges, value))
                else:
                    part = str(int(value)) if float(value).is_integer() else repr(float(value))
            else:
                part = self._texts.get(value) or self._text(value)
            parts.append(name + part)
        return "{" + ",".join(parts) + "}"

    @cached_property
    def _written(self) -> list[tuple[str, int, Sequence[float] | None]]:
        """The features in the key's order: the name as JSON, its place in rows, its edges."""
        # Not by json.dumps: a search writes a key for each of a hundred thousand rows.
        ordered = sorted(enumerate(self.schema), key=lambda placed: placed[1].name)
        return [
            (f"{_json(feature.name)}:", place, self.bins.get(feature.name))
            for place, feature in ordered
            if not feature.is_opaque
        ]

    @cached_property
    def _texts(self) -> dict[Value, str]:
        return {}

    def _text(self, value: Value) -> str:
        """Return what is no number as JSON; the schema has few such values, which are kept."""
        found = _json(" ".join(value.casefold().split()) if isinstance(value, str) else value)
        self._texts[value] = found
        return found


def _json(value: Value) -> str:
    # Unicode stays as it is: ASCII escapes would change the key's length, and with it the grain of
    # what compressing it gains.
    return json.dumps(value, ensure_ascii=False)


def rounded(value: float, digits: int) -> float:
    """Round to a number of significant digits.

    >>> rounded(123456, 2), rounded(-0.0456, 1)
    (120000.0, -0.05)
    """
    return float(f"{value:.{digits - 1}e}") + 0.0  # adding 0.0 turns -0.0 into 0.0


def bin_edges(values: Iterable[Value], most_bins: int = MOST_BINS) -> tuple[float, ...]:
    """Return rising edges that cut numbers into at most ``most_bins`` bins, missing ones left out.

    Edges are quantiles, each an observed value, rounded to two significant digits. Where two digits
    would merge most of them (years, for example), more are kept. Numbers with no more distinct
    values than bins have no edges: the key tells them apart as they are.

    >>> bin_edges(range(100))
    (9.0, 19.0, 29.0, 39.0, 49.0, 59.0, 69.0, 79.0, 89.0)
    >>> bin_edges([0] * 95 + list(range(1000, 6000, 1000)) * 3, most_bins=4)
    (0.0,)
    >>> bin_edges([*range(10), None])
    ()
    """
    numbers = np.array([v for v in values if v is not None], dtype=np.float64)
    if most_bins < 2 or len(np.unique(numbers)) <= most_bins:
        return ()
    low, high = numbers.min(), numbers.max()
    shares = np.arange(1, most_bins) / most_bins
    quantiles = np.quantile(numbers, shares, method="inverted_cdf").tolist()
    # An edge at the highest value would leave the last bin empty. Where that was the only one,
    # most rows hold the highest value, and the bin below it takes all the others.
    wanted = {q for q in quantiles if q < high}
    if not wanted:
        return (float(numbers[numbers < high].max()),)
    edges: set[float] = set()
    for digits in range(2, 18):  # 17 digits write any float exactly
        edges = {edge for q in quantiles if low <= (edge := rounded(q, digits)) < high}
        if 2 * len(edges) >= len(wanted):
            break
    return tuple(sorted(edges))
