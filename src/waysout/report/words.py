"""Values and numbers as a person reads them. What is shown is untrusted text, and made harmless."""

from __future__ import annotations

import re
import unicodedata
from collections.abc import Mapping, Sequence
from datetime import date

from waysout.domain.result import Option
from waysout.domain.schema import Value, format_number

# These turn the direction of what follows, so that a text shows as something it is not.
_TURNS = frozenset("\u061c\u200e\u200f\u202a\u202b\u202c\u202d\u202e\u2066\u2067\u2068\u2069")

PLAIN_GOAL = "the model's own yes"
# In English wherever it is run: strftime would take the language of the machine.
_MONTHS = (
    "January", "February", "March", "April", "May", "June", "July", "August", "September",
    "October", "November", "December",
)  # fmt: skip


def clean(text: object) -> str:
    """Return text on one line, without characters that a screen would obey instead of showing.

    >>> clean("a\\tb\\nc\\x1b[31m\\u202ed")
    'a b c[31md'
    """
    # Controls, halves of characters, line separators.
    unwanted = ("Cc", "Cs", "Zl", "Zp")
    flat = " ".join(str(text).split())
    return "".join(
        c for c in flat if c not in _TURNS and unicodedata.category(c) not in unwanted
    ).strip()


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
    """Write numbers that stand together; where one is large, with thousands set apart in all.

    >>> grouped(9500), grouped(14500, 5000.0), grouped(-60000.5, 1e-9)
    (['9500'], ['14,500', '5,000'], ['-60,000.5', '1e-09'])
    """
    texts = [format_number(value) for value in values]
    large = any(abs(value) >= 10_000 for value in values)
    return [_with_commas(text) for text in texts] if large else texts


def _with_commas(text: str) -> str:
    whole, point, rest = text.partition(".")
    return f"{int(whole):,}{point}{rest}" if whole.lstrip("-").isdigit() else text


def goal_text(goal: object) -> str:
    """Say what was asked of the model, from a goal as results hold it.

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
    """Write a date so that no two countries read it differently.

    >>> date_text(date(2026, 3, 1))
    '1 March 2026'
    """
    return f"{when.day} {_MONTHS[when.month - 1]} {when.year}"


def chance(probability: float) -> str:
    """Write a probability; what is not certain is not shown as certain.

    >>> chance(0.714), chance(0.999), chance(0.001), chance(1.0)
    ('71%', '>99%', '<1%', '100%')
    """
    if 0.99 < probability < 1.0:
        return ">99%"
    return "<1%" if 0.0 < probability < 0.01 else f"{probability:.0%}"


def counted(count: int, one: str, many: str = "") -> str:
    """Write a number of things.

    >>> counted(1, "way out", "ways out"), counted(1200, "row")
    ('1 way out', '1,200 rows')
    """
    return f"{count:,} {one if count == 1 else many or one + 's'}"


def duration(seconds: float) -> str:
    """Say how long something takes, as finely as a guess allows.

    >>> duration(42), duration(400), duration(9000)
    ('42 s', '7 min', '2.5 h')
    """
    if seconds < 90:
        return f"{seconds:.0f} s"
    minutes = seconds / 60
    return f"{minutes:.0f} min" if minutes < 90 else f"{minutes / 60:.1f} h"


def change_lines(changes: Mapping[str, tuple[Value, Value]]) -> list[str]:
    """Write what changes, one line for each feature.

    >>> change_lines({"income": (40500.0, 52000.0)})
    ['income: 40500 → 52000']
    """
    return [
        f"{clean(name)}: {value_text(old)} → {value_text(new)}"
        for name, (old, new) in changes.items()
    ]


def change_count(option: Option) -> str:
    """Say how many things a person changes, and whether others move with them."""
    things = counted(option.sparsity, "change")
    return f"{things} (the rest moves with it)" if len(option.changes) > option.sparsity else things


def reason_text(reasons: Sequence[str]) -> str:
    """Write the reasons given for the changes, each once, as one sentence without its stop.

    What holds no two words is no reason: small models write numbers there.

    >>> reason_text(["savings: a larger cushion.", "income: 0.25"])
    'savings: a larger cushion'
    """
    told = (clean(reason).rstrip(" .;") for reason in reasons)
    return "; ".join(dict.fromkeys(text for text in told if _says_something(text)))


def _says_something(reason: str) -> bool:
    said = reason.partition(": ")[2] or reason
    return len(re.findall(r"[^\W\d_]{2,}", said)) >= 2


def cut(text: str, longest: int) -> str:
    """Cut a text that is too long to read in passing.

    >>> cut("a long text", 7)
    'a long…'
    """
    return text if len(text) <= longest else f"{text[: longest - 1]}…"
