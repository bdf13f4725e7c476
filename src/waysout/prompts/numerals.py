"""Numbers as language models write them: "₹12,00,000", "2.5m", "500 -> 700", "12 years".

What cannot be told is refused, never guessed: a relative amount ("increase by 500", "+500",
"10% more") is not a value, a percentage may stand for 15 or for 0.15, and "5-10" is no number.
"""

from __future__ import annotations

import math
import re
from decimal import Decimal

_LONGEST = 200

_SCALES = {
    "hundred": 100, "k": 10**3, "thousand": 10**3, "thousands": 10**3, "grand": 10**3,
    "lakh": 10**5, "lakhs": 10**5, "lac": 10**5, "lacs": 10**5, "lpa": 10**5,
    "m": 10**6, "mm": 10**6, "mn": 10**6, "mln": 10**6, "mio": 10**6,
    "million": 10**6, "millions": 10**6, "cr": 10**7, "crore": 10**7, "crores": 10**7,
    "b": 10**9, "bn": 10**9, "bln": 10**9, "mrd": 10**9, "billion": 10**9, "billions": 10**9,
    "tn": 10**12, "trillion": 10**12, "trillions": 10**12,
}  # fmt: skip

# "500 more" says how far to go, not where to.
_RELATIVE = {
    "more", "less", "extra", "additional", "higher", "lower", "fewer", "greater", "increase",
    "decrease", "increment", "reduction", "raise", "rise", "drop", "added", "times", "fold",
    "double", "triple", "percent", "percentage", "pct", "plus", "minus",
}  # fmt: skip
# Two letters or more after a number are taken for a unit, but not these.
_NO_UNIT = _RELATIVE | {
    "twice", "half", "quarter", "cent", "pp", "bps", "basis", "dozen", "mil", "and", "or", "st",
    "nd", "rd", "th", "above", "below", "over", "under", "up", "down", "on", "off", "longer",
    "shorter", "earlier", "later", "older", "younger",
}  # fmt: skip

_MARKS = " \t\"'`*“”‘’«»"
_NUMBER = re.compile(
    r"(?:(?:\d{1,3}(?:,\d{3}){1,9}|\d{1,2}(?:,\d{2}){1,9},\d{3}|\d{1,3}(?:\ \d{3}){1,9}"
    r"|\d{1,3}(?:_\d{3}){1,9}|\d{1,3}(?:['’]\d{3}){1,9}|\d{1,40})(?:\.\d{1,40})?|\.\d{1,40})"
    r"(?:e[+-]?\d{1,4})?(?!\d|[.,_'’ ]\d)",
    re.ASCII | re.IGNORECASE,
)
_START = re.compile(r"\.?\d", re.ASCII)
_CURRENCY = (
    r"(?:(?:us|a|c|hk|nz|s)?\$|[€£¥₹₨₩₽₺₦฿₫₴₪]|rs\.?|(?:inr|usd|eur|gbp|jpy|cny|rmb|cad|aud|chf"
    r"|sek|nok|dkk|pln|brl|mxn|zar|sgd|krw|rupees?|dollars?|euros?)\b)"
)
_VERB = (
    r"(?:set|change|increase|raise|reduce|decrease|lower|improve|grow|bring|cut|move|switch"
    r"|adjust|update|extend|shorten|boost|drop|go)(?:e?d)?"
)
_ABOUT = (
    r"(?:at (?:least|most)|not? (?:less|more|lower|higher|fewer) than|min(?:imum)?(?: of)?"
    r"|max(?:imum)?(?: of)?|up to|to|about|around|approx(?:imately|\.)?|roughly|exactly|nearly"
    r"|almost|[~≈≥≤=]|>=|<=)"
)
_BEFORE = re.compile(
    rf"(?:{_VERB}(?: (?!by )[a-z_]{{1,40}}){{0,3}}? to )?(?:{_ABOUT} ?)?(?:{_CURRENCY} ?)?"
    rf"(?P<minus>-)?(?:{_CURRENCY} ?)?",
    re.IGNORECASE,
)
_ARROW = re.compile(r"[-=]+>|[→⇒➔➜⟶]")
_FROM_TO = re.compile(r"(?:[a-z_]{1,40} ){0,3}?from \S.*? to (?P<to>.+)", re.IGNORECASE)
_SCALE = re.compile(r"( ?)([a-z]+)\b\.?", re.IGNORECASE)
_BOUND = re.compile(
    r" ?(?:\+(?!\s?\d)|(?:or|and) (?:more|higher|above|over|greater|better|up|less|lower|below"
    r"|fewer|under)\b)",
    re.IGNORECASE,
)
_CLAUSE = re.compile(
    r"[(\[,;:—]|\.(?= |$)| [-–]+(?= )| (?=(?:because|since|as|so|to|for|which|that|from|up from"
    r"|instead|rather|vs|would|will|is|should|given|in|by)\b)",
    re.IGNORECASE,
)
_ANOTHER = re.compile(rf"(?:to )?(?:{_CURRENCY} ?)?[-+]?\.?\d", re.ASCII | re.IGNORECASE)


def read_number(text: str) -> float | None:
    """Return the number a text stands for, or ``None`` where that cannot be told.

    >>> read_number("₹12,00,000"), read_number("2.5m"), read_number("500 -> 700 (better)")
    (1200000.0, 2500000.0, 700.0)
    >>> read_number("increase by 500"), read_number("15%"), read_number("5-10")
    (None, None, None)
    """
    line = _one_line(text)
    if any(c.isnumeric() and not c.isascii() for c in line):
        return None
    return _read(_last_of_a_move(line))


def _one_line(text: str) -> str:
    line = " ".join(text.replace("−", "-").split())
    if len(line) > _LONGEST:
        line = line[:_LONGEST].rpartition(" ")[0]  # never in the middle of a number
    line = line.lstrip(_MARKS + "{[").rstrip(_MARKS + ",;}]")
    return line[1:-1].strip(_MARKS) if line[:1] == "<" and line[-1:] == ">" else line


def _last_of_a_move(line: str) -> str:
    last = _ARROW.split(line)[-1].strip(_MARKS)
    move = _FROM_TO.fullmatch(last)
    return last if move is None else move["to"]


def _read(line: str) -> float | None:
    start = _START.search(line)
    number = None if start is None else _NUMBER.match(line, start.start())
    if number is None:
        return None
    before = _BEFORE.fullmatch(line[: number.start()])
    scale, after = _scale(line[number.end() :])
    if before is None or not _is_harmless(after):
        return None
    amount = Decimal(re.sub(r"[,_'’ ]", "", number[0])) * scale
    value = float(-amount if before["minus"] else amount) + 0.0
    return value if math.isfinite(value) else None


def _scale(after: str) -> tuple[int, str]:
    found = _SCALE.match(after)
    word = "" if found is None else found[2].lower()
    # "12 m" may be months; "12m" is how millions are written.
    if found is None or word not in _SCALES or (found[1] and word in ("m", "b")):
        return 1, after
    return _SCALES[word], after[found.end() :]


def _is_harmless(after: str) -> bool:
    """Whether what follows a number is a unit or an explanation, and changes nothing."""
    after = _BOUND.sub("", after.removeprefix("/-"), count=1)
    clause = _CLAUSE.search(after)
    unit = after if clause is None else after[: clause.start()]
    if not all(_is_unit(word) for word in unit.replace("/", " ").split()):
        return False
    if clause is None:
        return True
    said = after[clause.end() :].strip()
    first = re.match(r"[a-z]*", said, re.IGNORECASE)
    relative = said.startswith("%") or (first is not None and first[0].lower() in _RELATIVE)
    return not relative and (clause[0] in "([" or _ANOTHER.match(said) is None)


def _is_unit(word: str) -> bool:
    letters = word.replace(".", "").strip("'’!")
    if letters in ("", "a"):
        return True
    return letters.isalpha() and len(letters) > 1 and letters.lower() not in _NO_UNIT
