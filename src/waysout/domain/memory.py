"""What earlier searches found, so that the next one for the same person need not ask again."""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any

import numpy as np

from waysout.domain.oracle import Answers
from waysout.domain.problem import Problem
from waysout.domain.schema import Edit, Feature, Row, Schema, Value
from waysout.errors import InputError

Said = tuple[float, bool]
"""A chance, and the model's own decision."""


@dataclass
class Past:
    """What is known of one person: rows the model answered, and edits that an LLM named.

    ``again`` is what the model said when it was asked a second time. ``reasons`` are those given
    for rows that were ways out; ``calls`` counts the LLM's replies, so that the next request is
    a new draw.
    """

    answered: dict[Row, Said] = field(default_factory=dict)
    again: dict[Row, Said] = field(default_factory=dict)
    reasons: dict[Row, tuple[str, ...]] = field(default_factory=dict)
    edits: list[Edit] = field(default_factory=list)
    calls: int = 0

    def __bool__(self) -> bool:
        return bool(self.answered or self.edits or self.calls)

    def add_answers(self, rows: Iterable[Row], answers: Answers) -> None:
        """Remember what the model said."""
        self.answered.update(zip(rows, _said(answers), strict=True))

    def add_second_answers(self, rows: Iterable[Row], answers: Answers) -> None:
        """Remember what the model said the second time."""
        self.again.update(zip(rows, _said(answers), strict=True))

    def answers(self, rows: Sequence[Row]) -> Answers:
        """Return what the model said of some of the rows."""
        return _answers([self.answered[row] for row in rows])

    def second_answers(self, rows: Sequence[Row]) -> Answers:
        """Return what the model said of some rows the second time."""
        return _answers([self.again[row] for row in rows])

    def add(self, other: Past) -> None:
        """Merge another past into this one."""
        self.answered |= other.answered
        self.again |= other.again
        self.reasons |= other.reasons
        self.edits = list(dict.fromkeys([*self.edits, *other.edits]))
        self.calls += other.calls

    def copy(self) -> Past:
        """Return a copy."""
        return Past(
            dict(self.answered), dict(self.again), dict(self.reasons), list(self.edits), self.calls
        )

    def as_dict(self) -> dict[str, Any]:
        """Return plain values, as a run keeps them."""
        return {
            "answered": [[list(row), *said] for row, said in self.answered.items()],
            "again": [[list(row), *said] for row, said in self.again.items()],
            "reasons": [[list(row), list(said)] for row, said in self.reasons.items()],
            "edits": [[edit.feature, edit.value, edit.reason] for edit in self.edits],
            "calls": self.calls,
        }

    @classmethod
    def from_dict(cls, table: Mapping[str, Any], schema: Schema) -> Past:
        """Read what `as_dict` wrote."""
        return cls(
            _read_said(schema, table["answered"]),
            _read_said(schema, table["again"]),
            {read_again(schema, row): tuple(said) for row, said in table["reasons"]},
            [Edit(name, _typed(schema[name], v), why) for name, v, why in table["edits"]],
            int(table["calls"]),
        )


def _said(answers: Answers) -> Iterator[Said]:
    return zip(answers.probability.tolist(), answers.decision.tolist(), strict=True)


def _answers(said: Sequence[Said]) -> Answers:
    return Answers(
        np.array([chance for chance, _ in said], dtype=np.float64),
        np.array([yes for _, yes in said], dtype=np.bool_),
    )


def _read_said(schema: Schema, table: Iterable[Sequence[Any]]) -> dict[Row, Said]:
    return {read_again(schema, row): (float(chance), bool(yes)) for row, chance, yes in table}


def read_again(schema: Schema, values: Iterable[Any]) -> Row:
    """Read a row back from JSON, which does not tell 1 from 1.0; the schema does."""
    return tuple(_typed(feature, value) for feature, value in zip(schema, values, strict=True))


def _typed(feature: Feature, value: Any) -> Value:
    return None if value is None else feature.parse(value)


class Memory:
    """What searches with one model have found, for each person.

    Given to one search after the other (``memory=``), it saves what was paid for: options that
    still keep the rules are there from the start, edits that an LLM named are combined anew, and no
    row is asked again, except by tree searches, which grow a new tree. So a person may lock a
    feature and continue.

    >>> import waysout
    >>> data = waysout.load_dataset("synthetic")
    >>> oracle = waysout.as_oracle(lambda frame: frame["credit_score"] / 1400, data.card)
    >>> problem = waysout.Problem.from_card(data.card, oracle, training=data.rows)
    >>> memory, person = waysout.Memory(), data.rows[828]
    >>> first = waysout.find(problem, person, oracle_rows=40, memory=memory)
    >>> again = waysout.find(problem, person, oracle_rows=0, memory=memory)
    >>> len(memory), len(again.options) == len(first.options) > 0
    (40, True)
    """

    def __init__(self) -> None:
        self.steady: bool | None = None
        """Whether the model is deterministic; None before it was checked."""
        self._people: dict[Row, Past] = {}
        self._of: tuple[str, Schema] | None = None

    def of(self, problem: Problem, query: Row) -> Past:
        """Return what is known of a person; the caller may add to it."""
        source = (problem.oracle.name, problem.schema)
        if self._of is not None and self._of != source:
            raise InputError(
                f"this memory holds answers of {self._of[0]}, and {source[0]} is another model, or "
                "has another table: use one Memory for each"
            )
        self._of = source
        return self._people.setdefault(query, Past())

    def __len__(self) -> int:
        """Return how many answers of the model are remembered."""
        return sum(len(past.answered) for past in self._people.values())
