"""What a family of models has to tell so that it can be asked: one small value."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from typing import Any, Literal

from waysout.oracles.inputs import InputLayout

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
    answer, where that is known beforehand.
    """

    ask: Callable[[Any], Any]
    layouts: tuple[InputLayout, ...]
    gives: Gives = "scores"
    classes: tuple[Any, ...] | None = None
    sums_to_one: bool = True
    refused: tuple[str, ...] = ()
    notes: tuple[str, ...] = ()
