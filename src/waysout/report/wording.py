"""Features and values in the words of their card, for whoever never sees the table.

A result holds no schema: what the card says of units and levels stands in its settings, under
"wording". Results of older releases have none, and values then speak for themselves.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Any, TypeGuard

from waysout.domain.result import ResultData
from waysout.domain.schema import Value
from waysout.report.words import chance, clean, grouped, value_text


@dataclass(frozen=True)
class Wording:
    """Turns features and values into words; all that it returns is clean, and none is escaped.

    >>> wording = Wording({"income": {"unit": "euros a year"}, "job": {"words": {"none": "idle"}}})
    >>> wording.pair("income", 24000, 31000.0), wording.value("job", "none")
    (('24,000', '31,000 euros a year'), 'idle')
    """

    told: Mapping[str, Any] = field(default_factory=dict)
    labels_only: bool = False

    @classmethod
    def of(cls, result: ResultData) -> Wording:
        """Return the wording that a result brings along."""
        settings = result.settings
        return cls(_table(settings.get("wording")), bool(settings.get("labels_only")))

    def name(self, feature: str) -> str:
        """Write a feature's name.

        >>> Wording().name("loan_amount")
        'loan amount'
        """
        return clean(str(feature).replace("_", " ")) or "(no name)"

    def about(self, feature: str) -> str:
        """Return what the card says a feature is; empty where it does not."""
        return self._text(feature, "about")

    def value(self, feature: str, value: Value) -> str:
        """Write a value with its unit, or in the card's words."""
        if not _is_number(value):
            return self._in_words(feature, value)
        return self._with_unit(feature, *grouped(value))

    def pair(self, feature: str, old: Value, new: Value) -> tuple[str, str]:
        """Write what a value was and what it becomes; of two numbers, the unit comes once."""
        if _is_number(old) and _is_number(new):
            before, after = grouped(old, new)
            return before, self._with_unit(feature, after)
        return self.value(feature, old), self.value(feature, new)

    def lines(self, changes: Mapping[str, tuple[Value, Value]]) -> list[str]:
        """Write what changes, one line for each feature."""
        pairs = {name: self.pair(name, old, new) for name, (old, new) in changes.items()}
        return [f"{self.name(name)}: {old} → {new}" for name, (old, new) in pairs.items()]

    def chance(self, probability: float) -> str:
        """Write a chance; empty for a model that says yes or no and nothing between."""
        return "" if self.labels_only else chance(probability)

    def _in_words(self, feature: str, value: Value) -> str:
        said = _table(_table(self.told.get(feature)).get("words")).get(str(value))
        return (clean(said) if isinstance(said, str) else "") or value_text(value)

    def _with_unit(self, feature: str, number: str) -> str:
        unit = self._text(feature, "unit")
        return f"{number}{unit}" if unit == "%" else f"{number} {unit}".rstrip()

    def _text(self, feature: str, what: str) -> str:
        said = _table(self.told.get(feature)).get(what)
        return clean(said) if isinstance(said, str) else ""


def _table(told: object) -> Mapping[str, Any]:
    """Return a table; a result read from a file may hold anything in its place."""
    return told if isinstance(told, Mapping) else {}


def _is_number(value: Value) -> TypeGuard[float]:
    return isinstance(value, (int, float)) and not isinstance(value, bool)
