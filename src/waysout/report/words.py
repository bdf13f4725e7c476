"""Values, numbers and features as a person reads them.

What is shown is untrusted text: everything returned here is clean, and nothing is escaped.
"""

from __future__ import annotations

import unicodedata
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from datetime import date
from typing import Any, TypeGuard

from waysout.domain.result import Option, ResultData, Safer, Way
from waysout.domain.schema import Value, format_number
from waysout.prompts.reasons import kept_reasons

PLAIN_GOAL = "the model's own yes"
# These change the direction of the text that follows, so that it shows as something it is not.
_TURNS = frozenset("\u061c\u200e\u200f\u202a\u202b\u202c\u202d\u202e\u2066\u2067\u2068\u2069")
# Control characters, surrogates, line and paragraph separators.
_UNWANTED = frozenset(("Cc", "Cs", "Zl", "Zp"))
# English on every machine: strftime would use the locale's language.
_MONTHS = (
    "January", "February", "March", "April", "May", "June", "July", "August", "September",
    "October", "November", "December",
)  # fmt: skip


def clean(text: object) -> str:
    """Return text on one line, without characters that a screen would obey instead of showing.

    >>> clean("a\\tb\\nc\\x1b[31m\\u202ed")
    'a b c[31md'
    """
    flat = " ".join(str(text).split())
    return "".join(
        c for c in flat if c not in _TURNS and unicodedata.category(c) not in _UNWANTED
    ).strip()


def cut(text: str, longest: int) -> str:
    """Cut a text that is too long to read in passing.

    >>> cut("a long text", 7)
    'a long…'
    """
    return text if len(text) <= longest else f"{text[: longest - 1]}…"


def value_text(value: Value) -> str:
    """Write a value without its schema.

    >>> value_text(40500.0), value_text(True), value_text(None), value_text("own home")
    ('40500', 'yes', 'missing', 'own home')
    """
    if value is None:
        return "missing"
    if isinstance(value, bool):
        return "yes" if value else "no"
    return clean(value) or "(empty)" if isinstance(value, str) else format_number(value)


def grouped(*values: float) -> list[str]:
    """Write numbers that are shown together; if one is large, all get thousands separators.

    >>> grouped(9500), grouped(14500, 5000.0), grouped(-60000.5, 1e-9)
    (['9500'], ['14,500', '5,000'], ['-60,000.5', '1e-09'])
    """
    texts = [format_number(value) for value in values]
    if all(abs(value) < 10_000 for value in values):
        return texts
    parts = [text.partition(".") for text in texts]
    return [
        f"{int(whole):,}{point}{rest}" if whole.lstrip("-").isdigit() else whole + point + rest
        for whole, point, rest in parts
    ]


def chance(probability: float) -> str:
    """Write a probability. It is never shown as 0% or 100% unless it is exactly that.

    >>> chance(0.714), chance(0.999), chance(0.001), chance(1.0)
    ('71%', '>99%', '<1%', '100%')
    """
    if 0.99 < probability < 1.0:
        return ">99%"
    return "<1%" if 0.0 < probability < 0.01 else f"{probability:.0%}"


def goal_text(goal: object) -> str:
    """Describe what was asked of the model, from a goal as results hold it.

    >>> goal_text({"at_least": 0.7}), goal_text({"rise": 0.25}), goal_text({})
    ('a chance of at least 70%', 'a chance 25 points higher than now', "the model's own yes")
    """
    asked = goal if isinstance(goal, Mapping) else {}
    limits = {name: v for name, v in asked.items() if isinstance(v, (int, float))}
    if "rise" in limits:
        return f"a chance {100 * limits['rise']:g} points higher than now"
    words = (("at_least", "at least"), ("at_most", "at most"))
    parts = [f"{said} {chance(limits[name])}" for name, said in words if name in limits]
    return f"a chance of {' and '.join(parts)}" if parts else PLAIN_GOAL


def date_text(when: date) -> str:
    """Write a date that reads the same in every country.

    >>> date_text(date(2026, 3, 1))
    '1 March 2026'
    """
    return f"{when.day} {_MONTHS[when.month - 1]} {when.year}"


def counted(count: int, one: str, many: str = "") -> str:
    """Write a number of things.

    >>> counted(1, "way out", "ways out"), counted(1200, "row")
    ('1 way out', '1,200 rows')
    """
    return f"{count:,} {one if count == 1 else many or one + 's'}"


def listed(texts: Sequence[str], last: str = "and") -> str:
    """Write several things as one list.

    >>> listed(["a"]), listed(["a", "b"]), listed(["a", "b", "c"], "or")
    ('a', 'a and b', 'a, b or c')
    """
    *others, final = texts
    return f"{', '.join(others)} {last} {final}" if others else final


def duration(seconds: float) -> str:
    """Write how long something takes, as precisely as an estimate allows.

    >>> duration(42), duration(400), duration(9000)
    ('42 s', '7 min', '2.5 h')
    """
    if seconds < 90:
        return f"{seconds:.0f} s"
    minutes = seconds / 60
    return f"{minutes:.0f} min" if minutes < 90 else f"{minutes / 60:.1f} h"


def change_count(option: Option) -> str:
    """Write the number of changes a person makes, and whether other features follow."""
    things = counted(option.sparsity, "change")
    return f"{things} (the rest moves with it)" if len(option.changes) > option.sparsity else things


def _not_asked(way: Way) -> list[str]:
    asked = (
        (way.irreducible, "whether every change is needed"),
        (way.tight, "whether a little less is enough"),
        (way.holds, "whether more is still a yes"),
    )
    return [what for answer, what in asked if answer is None]


def doubts(option: Option) -> list[str]:
    """Return what speaks against relying on an option, or was not asked; nothing if all is well.

    Of options that are no ways, nobody asked. A way that a little less would do for is shown all
    the same: that little less does not hold, or not everything about it was asked.
    """
    found = ["not approved each time it was asked"] if option.stable is False else []
    if isinstance(option, Way):
        if option.holds is False:
            found.append("does not hold: a no again if you go farther")
        if option.tight is False:
            found.append("a little less was approved too, but that is less certain")
        if not_asked := _not_asked(option):
            found.append(f"{listed(not_asked)} was not asked")
    return found


def doubts_in_full(option: Option) -> list[str]:
    """Return the same as sentences to the person concerned."""
    found = []
    if option.stable is False:
        found.append("Asked again, it did not say so each time: do not rely on this one.")
    if isinstance(option, Way):
        if option.holds is False:
            found.append("If you go farther than that, it may say no again.")
        if option.tight is False:
            found.append("A little less got the same answer, but that is less certain.")
        if not_asked := _not_asked(option):
            found.append(f"It was not asked {listed(not_asked, 'or')}.")
    return found


def safer_levels(option: Option, settings: Mapping[str, Any]) -> dict[float, Safer | None]:
    """Return the variant of a way for each higher chance that was asked for, if one was found.

    A way that has that chance itself is its own variant.
    """
    goal = _table(settings.get("goal"))
    if not isinstance(option, Way) or not isinstance(goal.get("safer"), (list, tuple)):
        return {}
    found = {safer.at_least: safer for safer in option.safer}
    return {level: found.get(level) for level in goal["safer"] if _is_number(level)}


def reason_text(reasons: Sequence[str]) -> str:
    """Write the reasons given for the changes, each once, as one sentence without its stop.

    Results of earlier releases hold what small models write in place of a reason: see `is_reason`.

    >>> reason_text(["savings: a larger cushion.", "income: 0.25"])
    'savings: a larger cushion'
    """
    texts = dict.fromkeys(clean(reason).rstrip(" .;") for reason in reasons)
    return "; ".join(kept_reasons(list(texts)))


@dataclass(frozen=True)
class Wording:
    """Writes features and values in the words of their card.

    A result holds no schema: units and words for levels are in its settings, under "wording".
    Results of older releases have none, and their values are shown as they are.

    >>> wording = Wording({"income": {"unit": "euros a year"}, "job": {"words": {"none": "idle"}}})
    >>> wording.pair("income", 24000, 31000.0), wording.value("job", "none")
    (('24,000', '31,000 euros a year'), 'idle')
    """

    told: Mapping[str, Any] = field(default_factory=dict)
    labels_only: bool = False

    @classmethod
    def of(cls, result: ResultData) -> Wording:
        """Return the wording of a result."""
        settings = result.settings
        return cls(_table(settings.get("wording")), bool(settings.get("labels_only")))

    def name(self, feature: str) -> str:
        """Write a feature's name.

        >>> Wording().name("loan_amount")
        'loan amount'
        """
        return clean(str(feature).replace("_", " ")) or "(no name)"

    def about(self, feature: str) -> str:
        """Return the card's description of a feature, or an empty text."""
        return self._text(feature, "about")

    def value(self, feature: str, value: Value) -> str:
        """Write a value with its unit, or in the card's words."""
        if _is_number(value):
            return self._with_unit(feature, *grouped(value))
        said = _table(_table(self.told.get(feature)).get("words")).get(str(value))
        return (clean(said) if isinstance(said, str) else "") or value_text(value)

    def pair(self, feature: str, old: Value, new: Value) -> tuple[str, str]:
        """Write the old and the new value; two numbers share one unit."""
        if _is_number(old) and _is_number(new):
            before, after = grouped(old, new)
            return before, self._with_unit(feature, after)
        return self.value(feature, old), self.value(feature, new)

    def values(self, feature: str, *values: Value) -> list[str]:
        """Write values of one feature that are shown together, without their unit."""
        if all(_is_number(value) for value in values):
            return grouped(*(value for value in values if _is_number(value)))
        return [self.value(feature, value) for value in values]

    def with_unit(self, feature: str, text: str, value: Value) -> str:
        """Return the text of a value with its unit, if it is a number."""
        return self._with_unit(feature, text) if _is_number(value) else text

    def lines(self, changes: Mapping[str, tuple[Value, Value]]) -> list[str]:
        """Write the changes, one line for each feature."""
        pairs = {name: self.pair(name, old, new) for name, (old, new) in changes.items()}
        return [f"{self.name(name)}: {old} → {new}" for name, (old, new) in pairs.items()]

    def chance(self, probability: float) -> str:
        """Write a chance; empty for a model that only says yes or no."""
        return "" if self.labels_only else chance(probability)

    def _with_unit(self, feature: str, number: str) -> str:
        unit = self._text(feature, "unit")
        return f"{number}{unit}" if unit == "%" else f"{number} {unit}".rstrip()

    def _text(self, feature: str, what: str) -> str:
        said = _table(self.told.get(feature)).get(what)
        return clean(said) if isinstance(said, str) else ""


class AsStored(Wording):
    """Writes features and values as they are in the table, for whoever works with it.

    >>> AsStored().lines({"loan_amount": (14500.0, 9000.0)})
    ['loan_amount: 14500 → 9000']
    """

    def name(self, feature: str) -> str:
        """Return a feature's name."""
        return clean(feature)

    def value(self, feature: str, value: Value) -> str:
        """Write a value."""
        return value_text(value)

    def pair(self, feature: str, old: Value, new: Value) -> tuple[str, str]:
        """Write the old and the new value."""
        return value_text(old), value_text(new)

    def values(self, feature: str, *values: Value) -> list[str]:
        """Write values of one feature."""
        return [value_text(value) for value in values]

    def with_unit(self, feature: str, text: str, value: Value) -> str:
        """Return the text: a table has no units."""
        return text


def _table(told: object) -> Mapping[str, Any]:
    """Return a table; a result read from a file may hold anything in its place."""
    return told if isinstance(told, Mapping) else {}


def _is_number(value: Value) -> TypeGuard[float]:
    return isinstance(value, (int, float)) and not isinstance(value, bool)
