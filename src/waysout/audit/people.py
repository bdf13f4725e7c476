"""The people of a batch as columns in memory, read part by part: what an audit counts."""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np
from numpy.typing import NDArray

from waysout.errors import InputError, unknown

Codes = NDArray[np.int32]
INPUT = "input."
_NUMBERS = (
    "probability", "options", "nearest_distance", "nearest_changes", "fewest_changes", "llm_calls",
)  # fmt: skip
_LISTS = ("nearest", "alone", "levers", "binding")


@dataclass(frozen=True)
class Texts:
    """A text for each person, as its place among the texts there are; None is a missing one."""

    codes: Codes
    texts: tuple[str | None, ...]


@dataclass(frozen=True)
class Lists:
    """Some texts for each person: how many, and all of them in a row, as places."""

    lengths: Codes
    flat: Texts

    def counts(self, groups: Codes, most: int, among: NDArray[np.bool_]) -> NDArray[np.int64]:
        """Count the people of each group (of so many) that have a text, among those told."""
        of_whom = np.repeat(np.where(among, groups, -1), self.lengths)
        width = len(self.flat.texts)
        places = of_whom.astype(np.int64) * width + self.flat.codes
        return np.bincount(places[of_whom >= 0], minlength=most * width).reshape(most, width)


@dataclass(frozen=True)
class People:
    """Everybody in the parts that are done."""

    outcome: Texts
    numbers: Mapping[str, NDArray[np.float64]]
    lists: Mapping[str, Lists]
    inputs: Mapping[str, Texts]
    parts: int

    def __len__(self) -> int:
        return len(self.outcome.codes)

    def ended(self, *kinds: str) -> NDArray[np.bool_]:
        """Return who ended in one of these ways."""
        wanted = [code for code, text in enumerate(self.outcome.texts) if text in kinds]
        return np.isin(self.outcome.codes, wanted)


def read_people(folder: Path, by: Sequence[str]) -> tuple[People, list[tuple[str, ...]]]:
    """Return the people of a batch, with the columns of the input that groups are made of.

    Each of ``by`` is a column, or several with commas between them; it comes back as columns.
    """
    from waysout.batch.tables import people

    first = next(iter(people(folder)), None)
    if first is None:
        raise InputError(f"{folder} holds no finished part of a batch: run waysout batch first")
    known = [name.removeprefix(INPUT) for name in first.column_names if name.startswith(INPUT)]
    crossed = list(dict.fromkeys(_columns(one, known) for one in by))
    columns = _Columns(dict.fromkeys(name for names in crossed for name in names))
    for table in people(folder, columns.names):
        columns.add(table)
    return columns.people(), crossed


def _columns(asked: str, known: Sequence[str]) -> tuple[str, ...]:
    """Return the columns meant: a name with a comma in it is one where there is such a column."""
    names = (asked,) if asked in known else tuple(n.strip() for n in asked.split(","))
    for name in names:
        if name not in known:
            raise InputError(unknown("column", name, known))
    return tuple(dict.fromkeys(names))


class _Coder:
    """Turns texts into numbers, the same for the same text in all parts."""

    def __init__(self) -> None:
        self.places: dict[str | None, int] = {}
        self.codes: list[Codes] = []

    def add(self, column: Any) -> None:
        coded = column.dictionary_encode(null_encoding="encode")
        places = self.places
        here = [places.setdefault(t, len(places)) for t in coded.dictionary.to_pylist()]
        self.codes.append(np.array(here, dtype=np.int32)[coded.indices.to_numpy()])

    def texts(self) -> Texts:
        return Texts(np.concatenate(self.codes), tuple(self.places))


class _Columns:
    """What is kept of each part."""

    def __init__(self, inputs: Iterable[str]) -> None:
        self.inputs = {name: _Coder() for name in inputs}
        self.outcome = _Coder()
        self.numbers: dict[str, list[NDArray[np.float64]]] = {name: [] for name in _NUMBERS}
        self.flat = {name: _Coder() for name in _LISTS}
        self.lengths: dict[str, list[Codes]] = {name: [] for name in _LISTS}
        self.parts = 0
        self.names = ["outcome", *_NUMBERS, *_LISTS, *(INPUT + name for name in self.inputs)]

    def add(self, table: Any) -> None:
        whole = {name: table.column(name).combine_chunks() for name in self.names}
        self.parts += 1
        self.outcome.add(whole["outcome"])
        for name, coder in self.inputs.items():
            coder.add(whole[INPUT + name])
        for name, kept in self.numbers.items():
            kept.append(whole[name].to_numpy(zero_copy_only=False).astype(np.float64))
        for name, flat in self.flat.items():
            flat.add(whole[name].flatten())
            lengths = whole[name].value_lengths().fill_null(0)
            self.lengths[name].append(lengths.to_numpy().astype(np.int32))

    def people(self) -> People:
        return People(
            outcome=self.outcome.texts(),
            numbers={name: np.concatenate(kept) for name, kept in self.numbers.items()},
            lists={
                name: Lists(np.concatenate(self.lengths[name]), flat.texts())
                for name, flat in self.flat.items()
            },
            inputs={name: coder.texts() for name, coder in self.inputs.items()},
            parts=self.parts,
        )
