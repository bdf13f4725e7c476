"""What one kind of model has to tell so that it can be asked, and what several kinds share.

What a model recorded outranks the card: its categories, value ranges and thresholds are held
against the card's levels and codes. A contradiction is an error that prints the line to write,
never a guess.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Collection, Iterable, Mapping, Sequence
from dataclasses import dataclass
from itertools import chain
from typing import Any, Literal

import numpy as np

from waysout.domain.schema import Feature, Value
from waysout.errors import OracleError
from waysout.oracles.inputs import InputColumn, InputLayout, Inputs, Place, match, never_seen

Gives = Literal["scores", "labels", "either"]


@dataclass(frozen=True, slots=True)
class Output:
    """A model's answer that brings its classes along.

    ``numbered`` is false where the columns have names that did not come with the answer, so that
    their numbers mean nothing.
    """

    values: Any
    classes: tuple[Any, ...] | None = None
    numbered: bool = True


@dataclass(frozen=True, slots=True)
class Adapter:
    """How to ask one model.

    ``ask`` takes a filled layout and returns probabilities, labels or an `Output`. ``layouts`` are
    the ways its rows may look: one where the model tells, several where a trial must decide;
    ``refused`` says why others are out of the question. ``classes`` name the columns of its
    answer, where that is known beforehand. ``like`` is the form of the user's own data, which is
    asked in first: ``layouts`` are for a model that refuses it.
    """

    ask: Callable[[Any], Any]
    layouts: tuple[InputLayout, ...]
    gives: Gives = "scores"
    classes: tuple[Any, ...] | None = None
    sums_to_one: bool = True
    refused: tuple[str, ...] = ()
    notes: tuple[str, ...] = ()
    like: InputLayout | None = None


def classes_of(model: Any) -> tuple[Any, ...] | None:
    """Return the classes a fitted model names, as plain values."""
    return tuple(np.asarray(getattr(model, "classes_", ())).tolist()) or None


def no_classes(library: str, objective: str) -> OracleError:
    """Return the error for a model that was not trained to classify."""
    return OracleError(
        f"this {library} model was trained with the objective {objective!r}, which gives numbers "
        "and no class probabilities: wrap it in a function that returns the chance of approval"
    )


def recorded_layout(
    spots: Sequence[Place], recorded: Sequence[Sequence[Any] | None], inputs: Inputs
) -> tuple[InputLayout, tuple[str, ...]]:
    """Lay out numbers only: positions where the model recorded categories, else codes.

    LightGBM and XGBoost turn a pandas category into its position among the categories they
    recorded. They are handed the positions: the same numbers, without a frame in between.
    """
    known = any(values is not None for values in recorded)
    if inputs == "category" and not known:
        raise OracleError(
            "the model recorded no categories, so their order is not known: write the numbers it "
            "was trained on as codes into the card and pass inputs='codes'"
        )
    if inputs != "auto" and inputs != "category":
        return InputLayout.plain(inputs, spots, named=inputs != "codes"), ()
    columns, notes = [], []
    for spot, values in zip(spots, recorded, strict=True):
        if values is None:
            columns.append(InputColumn.codes(spot))
            continue
        columns.append(InputColumn.positions(spot, values))
        if note := never_seen(spot.feature, match(spot.feature, values)):
            notes.append(f"{note}, and is given it as missing")
    return InputLayout("category" if known else "codes", tuple(columns), "matrix"), tuple(notes)


@dataclass(frozen=True, slots=True)
class Seen:
    """What a model recorded: the least and the greatest number, or all of a category's numbers."""

    low: float
    high: float
    values: frozenset[float] = frozenset()

    def outside(self, numbers: Iterable[float]) -> int:
        """Count the numbers that the model cannot have seen."""
        if self.values:
            return sum(number not in self.values for number in numbers)
        return sum(not self.low <= number <= self.high for number in numbers)

    def is_exactly(self, numbers: Collection[float]) -> bool:
        """Whether these numbers are what the model saw, as far as it tells."""
        if self.values:
            return self.values == set(numbers)
        return (self.low, self.high) == (min(numbers), max(numbers))

    def __str__(self) -> str:
        return f"was trained on the numbers {self.low:g} to {self.high:g}"


@dataclass(frozen=True, slots=True)
class Splits:
    """The thresholds at which the trees of a model split a column; each parts some numbers."""

    thresholds: Collection[float]

    def outside(self, numbers: Iterable[float]) -> int:
        """Count the thresholds that would part none of these numbers from another."""
        known = list(numbers)
        return sum(not min(known) < t <= max(known) for t in self.thresholds)

    def is_exactly(self, numbers: Collection[float]) -> bool:
        """Whether every threshold parts some of these numbers."""
        return not self.outside(numbers)

    def __str__(self) -> str:
        return f"splits at {min(self.thresholds):g} to {max(self.thresholds):g}"


def check_codes(feature: Feature, codes: Mapping[Value, float], seen: Seen | Splits | None) -> None:
    """Raise if other numbers than the card's codes fit what the model saw, and the codes do not.

    Integer levels and label codes look alike: 0 to 3 may be positions, 1 to 4 the levels
    themselves, and -1 a missing value.
    """
    used = list(codes.values())
    with_missing = used if feature.missing_code is None else [*used, feature.missing_code]
    if seen is None or seen.is_exactly(used) or seen.is_exactly(with_missing):
        return
    keys: Sequence[Any] = feature.level_texts
    bases: list[list[float]] = [used]
    try:
        numbers = [float(level) for level in feature.levels]  # "01" is 1 to pandas
        if all(map(math.isfinite, numbers)):
            bases.append(numbers)
            texts = any(isinstance(level, str) for level in feature.levels)
            keys = keys if texts else numbers
    except ValueError:
        pass
    # The positions of the levels in sorted order are what a label encoder gives.
    bases.insert(1, [float(sorted(keys).index(key)) for key in keys])
    readings: list[tuple[list[float], float | None]] = [(base, None) for base in bases[1:]]
    if feature.missing != "refuse" and feature.missing_code is None:
        # pandas' cat.codes gives -1 for missing, a label encoder the number after the last.
        readings += [(base, missing) for base in bases for missing in (-1.0, max(base) + 1)]
    exact = (r for r in readings if seen.is_exactly(r[0] if r[1] is None else [*r[0], r[1]]))
    nearer = (r for r in readings if r[1] is None and seen.outside(r[0]) < seen.outside(used))
    for numbers, missing in chain(exact, nearer):
        remedies = []
        if numbers != used:
            pairs = [f'"{t}" = {n:g}' for t, n in zip(feature.level_texts, numbers, strict=True)]
            more = ", …" if len(pairs) > 12 else ""
            remedies.append(f"codes = {{ {', '.join(pairs[:12])}{more} }}")
        if missing is not None:
            remedies.append(f"missing_code = {missing:g}")
        raise OracleError(
            f"column {feature.name!r}: the model {seen}, and the levels are given to it as "
            f"{min(used):g} to {max(used):g}. Its "
            f"numbers seem to be {' and '.join(remedies)}: write that into the card, or pass "
            "inputs='codes' if the card is right"
        )
