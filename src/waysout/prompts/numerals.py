"""Numbers as language models write them: "₹12,00,000", "2.5m", "500 -> 700", "12 years".

What is unclear is refused, never guessed: a wrong value is worse than a lost one. A relative amount
("increase by 500", "+500", "10% more") is not a value, and "5-10" is not a number. After a number
may stand the unit its card names, and a comment that names no other number and no difference,
unless from the old value.
"""

from __future__ import annotations

import math
import re
from collections.abc import Iterator
from dataclasses import dataclass
from decimal import Decimal
from itertools import pairwise
from typing import Self

from waysout.domain.schema import Feature

_LONGEST = 200

_SCALES = {
    "hundred": 100, "k": 10**3, "thousand": 10**3, "thousands": 10**3, "grand": 10**3,
    "lakh": 10**5, "lakhs": 10**5, "lac": 10**5, "lacs": 10**5, "lpa": 10**5,
    "m": 10**6, "mm": 10**6, "mn": 10**6, "mln": 10**6, "mio": 10**6,
    "million": 10**6, "millions": 10**6, "cr": 10**7, "crore": 10**7, "crores": 10**7,
    "b": 10**9, "bn": 10**9, "bln": 10**9, "mrd": 10**9, "billion": 10**9, "billions": 10**9,
    "tn": 10**12, "trillion": 10**12, "trillions": 10**12,
}  # fmt: skip

# What a unit's words mean. A span of time is one thing ("12 months") or a rate ("per month").
_SPANS = {
    "year": "year", "yr": "year", "y": "year", "month": "month", "mo": "month", "week": "week",
    "wk": "week", "day": "day", "d": "day", "hour": "hour", "hr": "hour", "h": "hour",
    "minute": "minute", "min": "minute", "quarter": "quarter",
}  # fmt: skip
_RATES = {
    "annum": "year", "annual": "year", "annually": "year", "yearly": "year", "pa": "year",
    "monthly": "month", "weekly": "week", "daily": "day", "hourly": "hour",
    "quarterly": "quarter",
}  # fmt: skip
_PER = {"per", "a", "an", "each", "every"}
_TIMES = frozenset(_SPANS.values()) | {f"per {span}" for span in _SPANS.values()}
_MONEY = {
    "₹": "rupee", "₨": "rupee", "r": "rupee", "inr": "rupee", "rupee": "rupee",
    "us$": "dollar", "nt$": "dollar", "usd": "dollar", "twd": "dollar", "dollar": "dollar",
    "€": "euro", "eur": "euro", "euro": "euro",
    "£": "pound", "gbp": "pound", "pound": "pound", "¥": "yen", "jpy": "yen", "yen": "yen",
    "cny": "yuan", "rmb": "yuan", "yuan": "yuan", "₩": "won", "krw": "won", "₽": "rouble",
    "₺": "lira", "₦": "naira", "฿": "baht", "₫": "dong", "₴": "hryvnia", "₪": "shekel",
    "cad": "cad", "aud": "aud", "chf": "chf", "sek": "sek", "nok": "nok",
    "dkk": "dkk", "pln": "pln", "brl": "brl", "mxn": "mxn", "zar": "zar", "sgd": "sgd",
}  # fmt: skip
_MEANINGS = _MONEY | {"%": "percent", "pct": "percent", "percentage": "percent", "pt": "point"}
# Where a card names no unit, these are taken for one; everywhere, the last two add nothing.
_USUAL = frozenset(_MONEY.values()) | {"point", "people", "person"}
_IDLE = frozenset({"total", "old"})

_SYMBOLS = "€£¥₹₨₩₽₺₦฿₫₴₪"
# A dollar sign of no country is a habit, and says nothing.
_TERM = re.compile(rf"(?:us|nt)\$|[^\W\d_]+|[{_SYMBOLS}%]")


def _terms(text: str) -> Iterator[str]:
    """Yield what the words of a unit mean: "hours/week" are an "hour" and "per week"."""
    rate = False
    for word in _TERM.findall(re.sub(r"\bp\.a\b", "pa", text.lower()).replace("/", " per ")):
        root = word.removesuffix("s")
        if word in _PER:
            rate = True
            continue
        if root in _SPANS:
            yield f"per {_SPANS[root]}" if rate else _SPANS[root]
        elif word in _RATES:
            yield f"per {_RATES[word]}"
        else:
            yield _MEANINGS.get(root, root)
        rate = False


@dataclass(frozen=True, slots=True)
class NumeralMeasure:
    """What a feature's numbers count: the units that may follow one, and the feature's own name."""

    units: frozenset[str] = _USUAL | _IDLE
    nouns: frozenset[str] = frozenset()
    whole: bool = False

    @classmethod
    def of(cls, feature: Feature) -> Self:
        """Return the measure of a feature, as its card describes it.

        Times come from its unit; without one, or without a rate in it, from its name and its
        description. Other words of a description are too many to be units ("anyone older").

        >>> sorted(NumeralMeasure.of(Feature("pay", "number", unit="rupees a year")).units)
        ['old', 'pay', 'per year', 'rupee', 'total']
        """
        unit, name = frozenset(_terms(feature.unit)), frozenset(_terms(feature.name))
        times = (name | frozenset(_terms(feature.about))) & _TIMES
        rates = frozenset(term for term in times if term.startswith("per "))
        if not unit:
            unit = times | _USUAL
        elif not any(term.startswith("per ") for term in unit):
            unit |= rates
        return cls(unit | (name - _TIMES) | _IDLE, name - _TIMES, feature.kind == "integer")

    def has(self, unit: str) -> bool:
        """Whether a text is nothing but this measure's units."""
        words = _PLAIN.fullmatch(unit) is not None and not _RELATIVE.search(unit)
        return words and self.units.issuperset(_terms(unit))


_MARKS = " \t\"'`*“”‘’«»"
_PLAIN = re.compile(rf"(?:[^\W\d]|[\s./!’'%${_SYMBOLS}])*")
_NUMBER = re.compile(
    r"(?:(?:\d{1,3}(?:,\d{3}){1,9}|\d{1,2}(?:,\d{2}){1,9},\d{3}|\d{1,3}(?:\ \d{3}){1,9}"
    r"|\d{1,3}(?:_\d{3}){1,9}|\d{1,3}(?:['’]\d{3}){1,9}|\d{1,40})(?:\.\d{1,40})?|\.\d{1,40})"
    r"(?:e[+-]?\d{1,4})?(?!\d|[.,_'’ ]\d)",
    re.ASCII | re.IGNORECASE,
)
_START = re.compile(r"\.?\d", re.ASCII)
# "50.000" is fifty in one country and fifty thousand in the next.
_EITHER = re.compile(r"\d{1,3}\.\d{3}")
_CURRENCY = (
    rf"(?:(?:us|nt)?\$|[{_SYMBOLS}]|rs\.?|(?:inr|usd|eur|gbp|jpy|cny|rmb|twd|cad|aud"
    r"|chf|sek|nok|dkk|pln|brl|mxn|zar|sgd|krw|rupees?|dollars?|euros?)\b)"
)
_ABOUT = (
    r"(?:at (?:least|most)|not? (?:less|more|lower|higher|fewer) than|min(?:imum)?(?: of)?"
    r"|max(?:imum)?(?: of)?|(?:(?:up|down) )?to|about|around|approx(?:imately|\.)?|roughly|exactly"
    r"|nearly|almost|[~≈≥≤=]|>=|<=)"
)
_BEFORE = re.compile(
    rf"(?:{_ABOUT} ?)?(?P<one>{_CURRENCY} ?)?(?P<minus>-)?(?P<other>{_CURRENCY} ?)?", re.IGNORECASE
)
_SCALE = re.compile(r"( ?)([a-z]+)\b\.?", re.IGNORECASE)
_BOUND = re.compile(
    r" ?(?:\+(?!\s?\d)|(?:or|and) (?:more|higher|above|over|greater|better|up|less|lower|below"
    r"|fewer|under)\b)",
    re.IGNORECASE,
)

_MOVES = (
    r"(?:set|change|increase|raise|reduce|decrease|lower|improve|grow|bring|cut|move|switch|adjust"
    r"|update|extend|shorten|boost|drop|go|upgrade|become)(?:e?d)?"
)
_MOVE = re.compile(
    rf"(?:(?:[a-z_]{{1,40}} ){{0,3}}?from \S.*?|{_MOVES}(?: (?!by )[a-z_]{{1,40}}){{0,3}}?)"
    r" to (?P<to>.+)",
    re.IGNORECASE,
)
_ARROW = r"[-=]+>|[→⇒➔➜⟶]"
_TOP_ARROW = re.compile(rf"\([^()]*\)|(?P<arrow>{_ARROW})")
_CLAUSE = re.compile(
    r"[(\[,;:—|=]|//| #|\.(?= |$)| [-–]+(?= )"
    r"| (?=(?:because|since|which|so|given|instead|rather|vs|(?:up |down )?from)\b)",
    re.IGNORECASE,
)

# "500 more" says how far to go, not where to. So may any of these in a comment.
_UP = (
    r"increas|increment|gain|boost|hik(?:e|ing)|bump|grow|jump|lift|upgrad|upward|surplus|bonus"
    r"|rais(?:e|ing)|ris(?:e|ing)|(?:adds?|added|adding|addition|additional|additionally|more|extra"
    r"|up|higher|greater|bigger|larger|longer|older|later|above|over|beyond|plus|top)\b"
)
_DOWN = (
    r"decreas|decrement|reduc|(?:less|lower|lowers|lowering|fewer|smaller|shorter|younger|earlier"
    r"|down|below|under|minus|off|lost|loss|lose|drops?|dropped|dropping|cuts?|cutting|falls?)\b"
)
_RELATIVE = re.compile(
    rf"\b(?:{_UP}|{_DOWN}|improv|delta|differ|relative|current|present|existing|previous|original"
    r"|(?:now|today|from|than|by|another|further|saved|times|fold|twice|double|triple|half|pp|bps"
    r"|basis|percentage points?|levels?|steps?|notch|notches)\b)",
    re.IGNORECASE,
)
_UPWARD, _DOWNWARD = (re.compile(rf"\b(?:{way})", re.IGNORECASE) for way in (_UP, _DOWN))
# "700, higher score" praises the value; "700, an improvement" measures a step.
_PRAISE = {"higher", "lower", "raise", "raises", "lowers", "improve", "improves"}
_OLD = re.compile(
    r"\b(?:from|than|now|currently|was|instead of|vs\.?)\b[^,;()]{0,20}$", re.IGNORECASE
)
_LEADS_ON = re.compile(rf" ?(?:{_ARROW})")


def last_of_a_move(line: str) -> str:
    """Return where a move leads to; a text without a move as it is.

    >>> last_of_a_move("500 -> 700"), last_of_a_move("from a to b"), last_of_a_move("b (a -> b)")
    ('700', 'b', 'b (a -> b)')
    """
    arrows = [found.end() for found in _TOP_ARROW.finditer(line) if found["arrow"]]
    last = line[arrows[-1] if arrows else 0 :].strip(_MARKS)
    move = _MOVE.fullmatch(last)
    return last if move is None else move["to"]


def before_comment(line: str) -> tuple[str, str]:
    """Split a text into what it says first and the comment that follows.

    >>> before_comment("Graduate (opens doors)")
    ('Graduate', ' opens doors)')
    """
    clause = _CLAUSE.search(line)
    if clause is None:
        return line, ""
    return line[: clause.start()].rstrip(), " " + line[clause.end() :]


def read_number(text: str, measure: NumeralMeasure | None = None) -> float | None:
    """Return the number a text stands for, or ``None`` where that is unclear.

    >>> read_number("₹12,00,000"), read_number("2.5m"), read_number("500 -> 700 (good)")
    (1200000.0, 2500000.0, 700.0)
    >>> read_number("increase by 500"), read_number("15%"), read_number("5-10")
    (None, None, None)
    """
    measure = measure or NumeralMeasure()
    line = " ".join(text.replace("−", "-").split())
    if len(line) > _LONGEST:
        line = line[:_LONGEST].rpartition(" ")[0]  # never in the middle of a number
    line = line.lstrip(_MARKS + "{[").rstrip(_MARKS + ",;}]")
    line = line[1:-1].strip(_MARKS) if line[:1] == "<" and line[-1:] == ">" else line
    if any(c.isnumeric() and not c.isascii() for c in line):
        return None
    line = last_of_a_move(line)
    start = _START.search(line)
    number = None if start is None else _NUMBER.match(line, start.start())
    if number is None:
        return None
    before = _BEFORE.fullmatch(line[: number.start()])
    amount, after = _amount(number, measure)
    unit, comment = before_comment(_BOUND.sub("", after.removeprefix("/-"), count=1))
    if before is None or (measure.whole and _EITHER.fullmatch(number[0]) and amount < 1000):
        return None
    units = f"{before['one'] or ''} {before['other'] or ''} {unit}"
    # "-10%" takes a share away.
    if not measure.has(units) or (before["minus"] and "percent" in _terms(units)):
        return None
    value = float(-amount if before["minus"] else amount) + 0.0
    return value if math.isfinite(value) and _is_comment(comment, value, measure) else None


def _amount(number: re.Match[str], measure: NumeralMeasure) -> tuple[Decimal, str]:
    """Return a number with the word that scales it, and what follows the two."""
    after = number.string[number.end() :]
    amount = Decimal(re.sub(r"[,_'’ ]", "", number[0]))
    found = _SCALE.match(after)
    word = "" if found is None else found[2].lower()
    # "12 m" may be months; "12m" is how millions are written, but not of months.
    unclear = word in ("m", "b") and (after[:1] == " " or "month" in measure.units)
    if found is None or word not in _SCALES or unclear:
        return amount, after
    return amount * _SCALES[word], after[found.end() :]


def _is_comment(text: str, value: float, measure: NumeralMeasure) -> bool:
    """Whether a text after a number does not change it."""
    old: list[float] = []
    end = 0
    for number in _NUMBER.finditer(text):
        amount, after = _amount(number, measure)
        if _OLD.search(text[end : number.start()]) or _LEADS_ON.match(after):
            old.append(float(amount))
        elif float(amount) != value and not (after[:1] == "%" and float(amount) == value * 100):
            return False
        end = number.end()
    if old:
        up, down = _UPWARD.search(text), _DOWNWARD.search(text)
        return not (up and value <= max(old)) and not (down and value >= min(old))
    words = [word for word in re.findall(r"[^\W\d_]+", text.lower()) if word not in ("a", "the")]
    return not any(
        _RELATIVE.match(word) and not (word in _PRAISE and following in measure.nouns)
        for word, following in pairwise([*words, ""])
    )
