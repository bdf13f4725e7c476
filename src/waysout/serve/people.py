"""Looking people up in the table: by row number, or by how their values begin."""

from __future__ import annotations

import re
import threading
from bisect import bisect_left
from collections.abc import Sequence
from dataclasses import dataclass
from functools import cached_property

import numpy as np
from numpy.typing import NDArray

from waysout.domain.schema import Feature, Row, Schema, Value, format_number, text_of
from waysout.run.plan import level_words

LONGEST_QUERY = 200
_MOST_STARTS = 30  # words of a value by which it is found
_AFTER_ALL = "\U0010ffff"  # sorts behind whatever may follow a word
_MOST_WORDS = 8  # that are looked for; nobody types more of one person
Flags = NDArray[np.bool_]


class People:
    """The rows of a table, to be found by what somebody types.

    Each word must fit: it is the row's number, or a value begins with it, as the table spells the
    value or as the card says it. ``column=word`` looks at one column. Letter case does not matter.
    Columns are read when a word first needs them, and a value that many rows share is read once.
    """

    def __init__(self, schema: Schema, rows: Sequence[Row]) -> None:
        self._rows = rows
        self._columns = [_Column(rows, i, feature) for i, feature in enumerate(schema)]
        self._reading = threading.Lock()

    def find(self, text: str) -> list[int]:
        """Return the numbers of the rows that fit, exact row numbers and whole values first."""
        count = len(self._rows)
        fits, whole, named = (np.full(count, start) for start in (True, True, False))
        with self._reading:
            for word in list(dict.fromkeys(self._words(text)))[:_MOST_WORDS]:
                begins, equals = self._fit(word)
                if word.isascii() and word.isdigit() and int(word) < count:
                    begins[int(word)] = equals[int(word)] = named[int(word)] = True
                fits &= begins
                whole &= equals
        found = np.flatnonzero(fits)
        order = np.lexsort((found, ~whole[found], ~named[found]))
        return [int(number) for number in found[order]]

    def _words(self, text: str) -> list[str]:
        """Return what was typed in words, written as the table would; units say nothing.

        "20,000 euros, part-time" are the words of a page.
        """
        plain = re.sub(r"(?<=\d),(?=\d{3}(?!\d))", "", text.casefold())
        words = [word for typed in plain.split() for word in self._parts(typed.strip(",;."))]
        telling = [word for word in words if word not in self._units]
        return telling or words

    def _parts(self, typed: str) -> list[str]:
        """Return the words of one that hyphens may join, each with the column that it names."""
        name, *values = re.split("[=:]", typed, maxsplit=1)
        if values and any(_bare(name) in column.names for column in self._columns):
            return [f"{name}={word}" for word in _joined(values[0]).split()] or [typed]
        return _joined(typed).split()

    @cached_property
    def _units(self) -> frozenset[str]:
        told = (column.feature.unit.casefold().split() for column in self._columns)
        return frozenset(("row", *(word for words in told for word in words)))

    def _fit(self, word: str) -> tuple[Flags, Flags]:
        """Return the rows that have a value which begins with a word, and which is the word."""
        columns, word = self._meant(word)
        begins, equals = (np.zeros(len(self._rows), dtype=np.bool_) for _ in range(2))
        for column in columns:
            if column.may_hold(word):
                begins |= column.begins(word)
                equals |= column.equals(word)
        return begins, equals

    def _meant(self, word: str) -> tuple[Sequence[_Column], str]:
        """Return the columns that a word is about: all of them, unless it names one."""
        name, *values = re.split("[=:]", word, maxsplit=1)
        named = [column for column in self._columns if values and _bare(name) in column.names]
        return (named, values[0]) if named else (self._columns, word)


@dataclass(frozen=True)
class _Column:
    """One column: the texts of its distinct values, and which of them each row has."""

    rows: Sequence[Row]
    index: int
    feature: Feature

    @property
    def names(self) -> set[str]:
        return {_bare(name.casefold()) for name in (self.feature.name, self.feature.label) if name}

    def may_hold(self, word: str) -> bool:
        """Whether a look is worth it: no number begins with a letter."""
        return not self.feature.is_numeric or not word[:1].isalpha()

    def begins(self, word: str) -> Flags:
        """Return the rows whose value, or a word of it, begins with a word."""
        texts, values = self._beginnings
        first = bisect_left(texts, word)
        last = bisect_left(texts, word + _AFTER_ALL, first)
        return self._of(values[first:last])

    def equals(self, word: str) -> Flags:
        """Return the rows whose value is a word."""
        return self._of(self._wholes.get(word, ()))

    def _of(self, values: Sequence[int]) -> Flags:
        flags = np.zeros(len(self._distinct[0]), dtype=np.bool_)
        flags[list(values)] = True
        return flags[self._codes]

    @cached_property
    def _distinct(self) -> tuple[list[Value], NDArray[np.int32]]:
        seen: dict[Value, int] = {}
        codes = [seen.setdefault(row[self.index], len(seen)) for row in self.rows]
        return list(seen), np.array(codes, dtype=np.int32)

    @property
    def _codes(self) -> NDArray[np.int32]:
        return self._distinct[1]

    @cached_property
    def _texts(self) -> list[tuple[str, ...]]:
        """The spellings of each distinct value."""
        words = level_words(self.feature) if self.feature.has_levels else {}
        return [self._spellings(value, words) for value in self._distinct[0]]

    @cached_property
    def _beginnings(self) -> tuple[list[str], list[int]]:
        """What a value may be found by, in order: it from each of its words on; and which it is."""
        texts, values = [], []
        for value, spelled in enumerate(self._texts):
            for text in spelled:
                words = text.split()[:_MOST_STARTS] if " " in text else ()
                starts = [" ".join(words[i:]) for i in range(1, len(words))]
                texts += [text, *starts]
                values += [value] * (1 + len(starts))
        order = sorted(range(len(texts)), key=texts.__getitem__)
        return [texts[i] for i in order], [values[i] for i in order]

    @cached_property
    def _wholes(self) -> dict[str, list[int]]:
        found: dict[str, list[int]] = {}
        for value, texts in enumerate(self._texts):
            for text in texts:
                found.setdefault(text, []).append(value)
        return found

    def _spellings(self, value: Value, words: dict[str, str]) -> tuple[str, ...]:
        if value is None:
            return ()
        if self.feature.is_numeric and not self.feature.written:
            return (format_number(float(value)),)  # there may be a million
        told = text_of(self.feature.raw(value))
        spellings = dict.fromkeys((told, words.get(told, told)))
        return tuple(" ".join(_joined(text.casefold()).split()) for text in spellings)


def _joined(text: str) -> str:
    """Return text with hyphens between words as spaces: "part-time" and "part time" are one."""
    return re.sub(r"(?<=[^\W\d_])[-_](?=[^\W\d_])", " ", text)


def _bare(name: str) -> str:
    """Return a column's name as one word, however its parts are joined."""
    return re.sub(r"[\s_-]+", "", name)
