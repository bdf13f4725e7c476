"""Values, numbers and features as a person reads them.

What is shown is untrusted text: everything returned here is clean, and nothing is escaped.
"""

from __future__ import annotations

import math
import re
import unicodedata
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, field
from datetime import date
from itertools import takewhile
from typing import Any, Self, TypeGuard

from waysout.domain.result import Option, ResultData, Safer, Way
from waysout.domain.schema import Value, format_number, text_of
from waysout.prompts.reasons import kept_reasons

PERCENT = "\u00a0%"  # kept on one line with its number
_DIGITS = 12  # of a number; what follows is what floats add
_YEAR = re.compile("year|yr", re.IGNORECASE)
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
    # A number stays on one line with the sign after it.
    flat = re.sub(r"\s+", lambda space: space[0] if space[0] == "\u00a0" else " ", str(text))
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
    return clean(value) or "(empty)" if isinstance(value, str) else number_text(value)


def number_text(value: float, decimals: int | None = None) -> str:
    """Write a number with at most some decimals, and without what floats add at their end.

    >>> number_text(0.1 + 0.2), number_text(12.5, 2), number_text(0.123456, 2), number_text(10**15)
    ('0.3', '12.5', '0.12', '1000000000000000')
    """
    if isinstance(value, int) or float(value).is_integer():
        return str(int(value))
    rounded = float(f"{value:.{_DIGITS}g}") if decimals is None else round(value, decimals)
    return format_number(rounded)


def grouped(*values: float, decimals: int | None = None, apart: bool = True) -> list[str]:
    """Write numbers that are shown together, from 1,000 on with their thousands ``apart``.

    They have at most ``decimals``, unless two different ones would look the same.

    >>> grouped(950, 9500), grouped(-60000.5, 1e-9), grouped(0.304, 0.3, decimals=2)
    (['950', '9,500'], ['-60,000.5', '1e-09'], ['0.304', '0.3'])
    >>> grouped(2024, apart=False)
    ['2024']
    """
    texts = [number_text(value, decimals) for value in values]
    if len(set(texts)) < len(set(values)):
        texts = [number_text(value) for value in values]
    if not apart:
        return texts
    parts = [text.partition(".") for text in texts]
    return [
        f"{whole[:1] if whole[:1] == '-' else ''}{abs(int(whole)):,}{point}{rest}"
        if whole.lstrip("-").isdigit() else whole + point + rest
        for whole, point, rest in parts
    ]  # fmt: skip


def is_year(name: str, *values: float) -> bool:
    """Whether numbers are years, which have no thousands.

    >>> is_year("birth_year", 1987, 2001), is_year("income", 2001), is_year("years_here", 12)
    (True, False, False)
    """
    return bool(_YEAR.search(name)) and all(1500 <= value < 2200 for value in values)


def chance(probability: float, limits: Sequence[float] = ()) -> str:
    """Write a probability. It is never shown as 0 % or 100 % unless it is exactly that.

    Nor is it shown on the wrong side of one of the ``limits`` that decide, nor on the limit itself:
    near one it gets a digit more, and what is short of it is rounded down.

    >>> print(chance(0.714), chance(0.999), chance(0.001), chance(1.0))
    71 % >99 % <1 % 100 %
    >>> print(*(chance(p, [0.5]) for p in (0.505, 0.5004, 0.5, 0.4996, 0.494)))
    50.5 % >50 % 50 % 49.9 % 49 %
    """
    percent = round(100 * probability, _DIGITS)
    if probability in limits:
        return f"{percent:.6g}{PERCENT}"
    if 0.99 < probability < 1.0 and not any(0.99 <= limit < 1.0 for limit in limits):
        return f">99{PERCENT}"
    if 0.0 < probability < 0.01 and not any(0.0 < limit <= 0.01 for limit in limits):
        return f"<1{PERCENT}"
    edges = [0.0, *limits, 1.0]
    for digits in (0, 1):
        shown = round(percent, digits)
        wrong = [e for e in edges if _side(shown, 100 * e) != _side(percent, 100 * e)]
        if not wrong:
            return f"{shown:.{digits}f}{PERCENT}"
    limit = wrong[0]
    if probability > limit:
        return f">{100 * limit:.6g}{PERCENT}"
    return f"{math.floor(10 * percent) / 10}{PERCENT}"


def _side(number: float, limit: float) -> int:
    limit = round(limit, _DIGITS)
    return (number > limit) - (number < limit)


def limits_of(settings: Mapping[str, Any]) -> tuple[float, ...]:
    """Return the chances that decide in a result: the model's even one, and those of its goal."""
    goal = _table(settings.get("goal"))
    found = [0.5, goal.get("at_least"), goal.get("at_most")]
    now, rise = settings.get("query_probability"), goal.get("rise")
    if _is_number(now) and _is_number(rise):
        found.append(now + rise)
    safer = goal.get("safer")
    found += safer if isinstance(safer, (list, tuple)) else []
    return tuple(dict.fromkeys(limit for limit in found if _is_number(limit)))


def goal_text(goal: object) -> str:
    """Describe what was asked of the model, from a goal as results hold it.

    >>> goal_text({"at_least": 0.7}).replace(PERCENT, " %")
    'a chance of at least 70 %'
    >>> goal_text({"rise": 0.25}), goal_text({})
    ('a chance 25 points higher than now', "the model's own yes")
    """
    asked = goal if isinstance(goal, Mapping) else {}
    limits = {name: v for name, v in asked.items() if isinstance(v, (int, float))}
    if "rise" in limits:
        return f"a chance {100 * limits['rise']:g} points higher than now"
    words = (("at_least", "at least"), ("at_most", "at most"))
    told = tuple(limits.values())
    parts = [f"{said} {chance(limits[name], told)}" for name, said in words if name in limits]
    return f"a chance of {' and '.join(parts)}" if parts else PLAIN_GOAL


def goal_words(goal: object) -> str:
    """Name the goal as people do: approval, or the chance that was asked for.

    >>> goal_words({}), goal_words({"rise": 0.25})
    ('approval', 'a chance 25 points higher than now')
    """
    said = goal_text(goal)
    return "approval" if said == PLAIN_GOAL else said


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


def capital(text: str) -> str:
    """Write a text as the beginning of a sentence.

    >>> capital("the loan is approved")
    'The loan is approved'
    """
    return f"{text[:1].upper()}{text[1:]}"


def shared_words(names: Iterable[str]) -> str:
    """Return the words that the names of a one-hot group all begin with.

    >>> shared_words(["home_rent", "home_own"]), shared_words(["cook", "clerk"])
    ('home', '')
    """
    words = zip(*(name.split("_") for name in names), strict=False)
    return "_".join(word[0] for word in takewhile(lambda word: len(set(word)) == 1, words))


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
            found.append(
                "a little less was approved too, but that does not hold or was not all asked"
            )
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
            found.append("A little less got the same answer, but was not found to hold.")
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

    A result holds no schema: names, units, decimals and words for levels are in its settings, under
    "wording". Results of older releases have fewer of them, or none.

    >>> wording = Wording({"income": {"unit": "euros a year"}, "job": {"words": {"0": "idle"}}})
    >>> wording.pair("income", 4000, 31000.0), wording.value("job", 0)
    (('4,000', '31,000 euros a year'), 'idle')
    """

    told: Mapping[str, Any] = field(default_factory=dict)
    labels_only: bool = False
    limits: tuple[float, ...] = (0.5,)

    @classmethod
    def of(cls, result: ResultData) -> Self:
        """Return the wording of a result."""
        return cls.from_settings(result.settings)

    @classmethod
    def from_settings(cls, settings: Mapping[str, Any]) -> Self:
        """Return the wording of a result with these settings."""
        told, labels_only = _table(settings.get("wording")), bool(settings.get("labels_only"))
        return cls(told, labels_only, limits_of(settings))

    def name(self, feature: str) -> str:
        """Write a feature's name: the card's, or its own as words.

        >>> Wording().name("loan_amount")
        'loan amount'
        """
        plain = clean(str(feature).replace("_", " "))
        return self._text(feature, "label") or plain or "(no name)"

    def about(self, feature: str) -> str:
        """Return the card's description of a feature, or an empty text."""
        return self._text(feature, "about")

    def is_on(self, feature: str, value: Value) -> bool:
        """Whether a value of a yes-or-no feature is the yes."""
        true = self._text(feature, "true")
        return text_of(value) in (true, "True") if true else bool(value)

    def is_level(self, feature: str, value: Value) -> bool:
        """Whether a value is a level of a category, in text or in code."""
        told = _table(self.told.get(feature))
        return (isinstance(value, str) or bool(told.get("coded"))) and not told.get("true")

    def value(self, feature: str, value: Value) -> str:
        """Write a value with its unit, or in the card's words."""
        if self._is_amount(value, feature):
            return self._with_unit(feature, *self._numbers(feature, value))
        told = _table(self.told.get(feature))
        said = _table(told.get("words")).get(text_of(value))
        if isinstance(said, str) and clean(said):
            return clean(said)
        # A level may be the number 10001, which is no amount.
        return value_text(text_of(value) if _is_number(value) else value)

    def pair(self, feature: str, old: Value, new: Value) -> tuple[str, str]:
        """Write the old and the new value; two numbers share one unit."""
        if self._is_amount(old, feature) and self._is_amount(new, feature):
            before, after = self._numbers(feature, old, new)
            return before, self._with_unit(feature, after)
        return self.value(feature, old), self.value(feature, new)

    def values(self, feature: str, *values: Value) -> list[str]:
        """Write values of one feature that are shown together, without their unit."""
        if all(self._is_amount(value, feature) for value in values):
            return self._numbers(feature, *(value for value in values if _is_number(value)))
        return [self.value(feature, value) for value in values]

    def with_unit(self, feature: str, text: str, value: Value) -> str:
        """Return the text of a value with its unit, if it is a number."""
        return self._with_unit(feature, text) if self._is_amount(value, feature) else text

    def lines(self, changes: Mapping[str, tuple[Value, Value]]) -> list[str]:
        """Write the changes, one line for each feature."""
        pairs = {name: self.pair(name, old, new) for name, (old, new) in changes.items()}
        return [f"{self.name(name)}: {old} → {new}" for name, (old, new) in pairs.items()]

    def chance(self, probability: float) -> str:
        """Write a chance; empty for a model that only says yes or no."""
        return "" if self.labels_only else chance(probability, self.limits)

    def is_amount(self, feature: str, value: Value) -> bool:
        """Whether a value is a number that has more and less, and no name of a level."""
        return self._is_amount(value, feature)

    def in_percent(self, feature: str) -> bool:
        """Whether the feature is counted in per cent."""
        return self._text(feature, "unit").lower().startswith(("%", "percent", "per cent"))

    def follows(self, feature: str) -> str | None:
        """Return the feature that sets this one by a rule, if one does."""
        source = _table(self.told.get(feature)).get("follows")
        return source if isinstance(source, str) else None

    def group(self, feature: str) -> tuple[str, ...]:
        """Return the features of its one-hot group; empty if it is in none."""
        first = _table(self.told.get(feature)).get("group")
        if not isinstance(first, str):
            return ()
        return tuple(name for name, said in self.told.items() if _table(said).get("group") == first)

    def rounds(self, feature: str, number: float) -> bool:
        """Whether a number is written with fewer decimals than it has."""
        decimals = self._decimals(feature)
        return decimals is not None and number_text(number, decimals) != number_text(number)

    def move(self, feature: str, way: str) -> str:
        """Return the card's words for a move, ``up``, ``down`` or to a level; empty if none."""
        said = _table(_table(self.told.get(feature)).get("moves")).get(way)
        return clean(said) if isinstance(said, str) else ""

    def _is_amount(self, value: Value, feature: str) -> TypeGuard[float]:
        told = _table(self.told.get(feature))
        has_levels = told.get("coded") or told.get("true") or _table(told.get("words"))
        return _is_number(value) and not has_levels

    def _decimals(self, feature: str) -> int | None:
        decimals = _table(self.told.get(feature)).get("decimals")
        return decimals if isinstance(decimals, int) and 0 <= decimals <= _DIGITS else None

    def _numbers(self, feature: str, *values: float) -> list[str]:
        apart = not is_year(feature, *values)
        return grouped(*values, decimals=self._decimals(feature), apart=apart)

    def _with_unit(self, feature: str, number: str) -> str:
        unit = self._text(feature, "unit")
        return f"{number}{PERCENT}" if unit == "%" else f"{number} {unit}".rstrip()

    def _text(self, feature: str, what: str) -> str:
        said = _table(self.told.get(feature)).get(what)
        return clean(said) if isinstance(said, str) else ""


class AsStored(Wording):
    """Writes for whoever works with the table: columns by their names, numbers without a unit.

    Names and words that the card gives are used here too.

    >>> AsStored().lines({"loan_amount": (14500.0, 9000.0)})
    ['loan_amount: 14500 → 9000']
    """

    def name(self, feature: str) -> str:
        """Return the card's name for a feature, else the column's."""
        return self._text(feature, "label") or clean(feature)

    def _numbers(self, feature: str, *values: float) -> list[str]:
        return grouped(*values, decimals=self._decimals(feature), apart=False)

    def _with_unit(self, feature: str, number: str) -> str:
        return number


def _table(told: object) -> Mapping[str, Any]:
    """Return a table; a result read from a file may hold anything in its place."""
    return told if isinstance(told, Mapping) else {}


def _is_number(value: object) -> TypeGuard[float]:
    return isinstance(value, (int, float)) and not isinstance(value, bool)
