"""A grammar for replies in blocks, made from what may be edited.

It is GBNF, which llama.cpp takes: a model held to it can write nothing but so many candidates, each
with a feature of the menu and a value that this feature may be set to. It knows features one by
one, and is less than exact where exactness would make it long (see the limits below), so a reply is
validated all the same.
"""

from __future__ import annotations

import math
from collections.abc import Collection, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from decimal import Decimal, InvalidOperation
from itertools import accumulate

from waysout.domain.schema import LARGEST
from waysout.errors import InputError
from waysout.llm.base import Editable

MOST_FEATURES = 200
"""With more of them only their names are held, and a value is any line of text."""

MOST_CHOICES = 200
"""Where a feature has more of them, its value is any line of text."""

MOST_LISTED = 2000
"""What is listed for all features together; beyond it the longest lists give way."""

MOST_POINTS = 64
"""A grid of more points than this is a range of numbers."""

MOST_ENDINGS = 20
"""A range keeps to a grid whose numbers have no more endings than this (00, 25, 50 and 75)."""

MOST_DIGITS = 12
"""The digits of a whole number without a limit."""

FINE_DECIMALS = 4
"""The decimals of a number that may have any; more where its range is narrow."""

LONGEST_TEXT = 100
LONGEST_REASON = 120


@dataclass(frozen=True, slots=True)
class Domain:
    """What a feature may be set to: one of ``texts`` or ``points``, or a number in the ``spans``.

    Spans are whole numbers, both ends included, in units of the last of the ``decimals``. Where
    ``step`` is more than one, only ``start`` and what lies whole steps away from it is meant.
    """

    texts: tuple[str, ...] = ()
    points: tuple[Decimal, ...] = ()
    spans: tuple[tuple[int, int], ...] = ()
    decimals: int = 0
    step: int = 1
    start: int = 0

    @property
    def listed(self) -> tuple[str, ...]:
        """The values, where they are a list."""
        return self.texts or tuple(f"{point.normalize():f}" for point in self.points)

    def __bool__(self) -> bool:
        return bool(self.listed or self.spans)


def domains(menu: Sequence[Editable]) -> dict[str, Domain]:
    """Return what each feature may be set to, without those that only have their present value."""
    found = {offer.name: domain(offer) for offer in menu}
    movable = {name: values for name, values in found.items() if values}
    if not movable:
        raise InputError("nothing may be edited, so there is no reply to describe; do not ask")
    return movable


def domain(offer: Editable) -> Domain:
    """Return what one feature may be set to.

    >>> domain(Editable("term", "24", (), 12, 48, step=12, decimals=0)).listed
    ('12', '36', '48')
    >>> domain(Editable("card_use", "0.72", (), 0, 0.9, decimals=2)).spans
    ((0, 71), (73, 90))
    """
    if offer.choices:
        return Domain(texts=offer.choices)
    low, high = _limits(offer)
    grid = _grid(offer, low, high) if offer.step else None
    if grid is not None:
        return grid
    decimals = _decimals(offer, high - low)
    return Domain(spans=_spans(low, high, offer, decimals), decimals=decimals)


def _limits(offer: Editable) -> tuple[Decimal, Decimal]:
    low, high = _exact(offer.low), _exact(offer.high)
    usual = Decimal(10**MOST_DIGITS - 1)
    if offer.high >= LARGEST and low < usual:
        high = usual
    if offer.low <= -LARGEST and high > -usual:
        low = -usual
    return low, high


def _exact(number: float) -> Decimal:
    return Decimal(repr(float(number)))


def _grid(offer: Editable, low: Decimal, high: Decimal) -> Domain | None:
    """Return a grid's points or, where they are many, its spans (of whole numbers only)."""
    step, start = _exact(offer.step or 1.0), _exact(offer.start)
    first, last = math.ceil((low - start) / step), math.floor((high - start) / step)
    if last - first < MOST_POINTS:
        points = (start + i * step for i in range(first, last + 1))
        return Domain(points=tuple(p for p in points if _may_be(p, offer)))
    if step != int(step) or start != int(start):
        return None
    return Domain(spans=_spans(low, high, offer, 0), step=int(step), start=int(start))


def _may_be(point: Decimal, offer: Editable) -> bool:
    held = offer.decimals is None or round(point, offer.decimals) == point
    return held and point not in _barred(offer)


def _barred(offer: Editable) -> set[Decimal]:
    present = _number(offer.now)
    return {_exact(number) for number in offer.never} | (
        {present} if present is not None else set()
    )


def _number(text: str) -> Decimal | None:
    try:
        return Decimal(text)
    except InvalidOperation:  # a missing value is no number
        return None


def _decimals(offer: Editable, width: Decimal) -> int:
    if offer.decimals is not None:
        return offer.decimals
    return next((d for d in range(FINE_DECIMALS, 15) if width.scaleb(d) >= 1000), 15)


def _spans(
    low: Decimal, high: Decimal, offer: Editable, decimals: int
) -> tuple[tuple[int, int], ...]:
    """Return the numbers between the limits, but for the present one and those never meant."""
    first, last = math.ceil(low.scaleb(decimals)), math.floor(high.scaleb(decimals))
    scaled = (number.scaleb(decimals) for number in _barred(offer))
    spans = []
    for barred in sorted(int(n) for n in scaled if n == int(n) and first <= n <= last):
        spans.append((first, barred - 1))
        first = barred + 1
    return tuple((a, b) for a, b in [*spans, (first, last)] if a <= b)


def short_lists(values: Mapping[str, Domain], together: int) -> frozenset[str]:
    """Return the features whose values can be spelled out, the shortest lists first."""
    if len(values) > MOST_FEATURES:
        return frozenset()
    lengths = sorted((len(one.listed), name) for name, one in values.items())
    sums = accumulate(length for length, _ in lengths)
    return frozenset(
        name
        for (length, name), so_far in zip(lengths, sums, strict=True)
        if length <= MOST_CHOICES and so_far <= together
    )


Slots = Sequence[Collection[str]]
"""For each candidate of a reply, the features it may edit."""


def block_grammar(menu: Sequence[Editable], k: int, slots: Slots | None = None) -> str:
    r"""Return the GBNF of a reply of exactly ``k`` candidates, in blocks.

    With ``slots``, each candidate has features of its own to choose from.

    >>> job, age = Editable("job", "cook", ("clerk",)), Editable("age", "7", (), 3, 9, decimals=0)
    >>> print(block_grammar([job, age], 2))
    root ::= "CANDIDATE=1\n" edit "\n\nCANDIDATE=2\n" edit
    edit ::= "FEATURE=" feature "\nREASONING=" reason
    feature ::= "job" "\nVALUE=" value-1 | "age" "\nVALUE=" value-2
    value-1 ::= "clerk"
    value-2 ::= ([3-6] | [8-9])
    reason ::= [^\x00-\x20\x7F<>\[\]{}=] [^\x00-\x1F\x7F<>\[\]{}=]{0,119}
    """
    edits, values = _feature_rules(domains(menu))
    rules = _alike(edits, k) if slots is None else _spread(edits, slots)
    # Brackets could spell a chat template's control token, which no prompt should ever hold;
    # braces and equals signs could be taken for another candidate.
    rules |= values | {"reason": _line(LONGEST_REASON, r"<>\[\]{}=")}
    return "\n".join(f"{name} ::= {rule}" for name, rule in rules.items())


_EDIT = r'"FEATURE=" {feature} "\nREASONING=" reason'


def _alike(edits: Mapping[str, str], k: int) -> dict[str, str]:
    """Return the rules of a reply whose candidates may all edit the same features."""
    return {
        "root": " ".join(f"{_literal(_heading(i))} edit" for i in range(1, k + 1)),
        "edit": _EDIT.format(feature="feature"),
        "feature": " | ".join(edits.values()),
    }


def _spread(edits: Mapping[str, str], slots: Slots) -> dict[str, str]:
    """Return the rules of a reply whose candidates each have features of their own."""
    numbered = range(1, len(slots) + 1)
    rules = {"root": " ".join(f"{_literal(_heading(i))} edit-{i}" for i in numbered)}
    for i, names in zip(numbered, slots, strict=True):
        rules[f"edit-{i}"] = _EDIT.format(feature=f"({' | '.join(edits[n] for n in names)})")
    return rules


def _heading(i: int) -> str:
    return f"CANDIDATE={i}\n" if i == 1 else f"\n\nCANDIDATE={i}\n"


def _line(longest: int, barred: str = "") -> str:
    return rf"[^\x00-\x20\x7F{barred}] [^\x00-\x1F\x7F{barred}]{{0,{longest - 1}}}"


def _feature_rules(values: Mapping[str, Domain]) -> tuple[dict[str, str], dict[str, str]]:
    """Return how each feature is edited, and the rules for values, shared where they are alike."""
    short = short_lists(values, MOST_LISTED)
    names: dict[str, str] = {}
    edits = {}
    for feature, one in values.items():
        rule = _value(one) if feature in short else _line(LONGEST_TEXT)
        name = names.setdefault(rule, f"value-{len(names) + 1}")
        edits[feature] = f'{_literal(feature)} "\\nVALUE=" {name}'
    return edits, {name: rule for rule, name in names.items()}


def _value(one: Domain) -> str:
    if one.listed:
        return _either(map(_literal, one.listed))
    endings = _endings(one.step, one.start)
    if not endings:
        return _either(decimal_range(low, high, one.decimals) for low, high in one.spans)
    return _either(part for low, high in one.spans for part in _on_grid(low, high, endings))


def _literal(text: str) -> str:
    escaped = text.replace("\\", "\\\\").replace('"', '\\"').replace("\n", "\\n")
    return f'"{escaped}"'


def _either(parts: Iterable[str]) -> str:
    options = list(parts)
    return options[0] if len(options) == 1 else f"({' | '.join(options)})"


def integer_range(low: int, high: int) -> str:
    """Return what matches the whole numbers between two, plainly written, and nothing else.

    >>> print(integer_range(-5, 1200))
    ("-" [1-5] | ([0-9] | [1-9] [0-9]{1,2} | "1" ([0-1] [0-9]{2} | "2" "0" "0")))
    """
    return decimal_range(low, high, 0)


def decimal_range(low: int, high: int, decimals: int) -> str:
    """Return what matches the numbers between two, which are given in units of the last decimal.

    >>> print(decimal_range(0, 72, 2))
    "0" ("." ([0-6] [0-9]? | "7" ([0-2])?))?
    """
    if low > high:
        raise InputError(f"no number lies between {low} and {high}")
    parts = []
    if low < 0:
        parts.append(f'"-" {_unsigned(max(1, -high), -low, decimals)}')
    if high >= 0:
        parts.append(_unsigned(max(0, low), high, decimals))
    return _either(parts)


def _unsigned(low: int, high: int, decimals: int) -> str:
    if not decimals:
        return _whole(low, high)
    (first, after), (last, until) = divmod(low, 10**decimals), divmod(high, 10**decimals)
    if first == last:
        return f"{_literal(str(first))} {_fraction(after, until, decimals)}"
    parts, top = [], 10**decimals - 1
    if after:
        parts.append(f"{_literal(str(first))} {_fraction(after, top, decimals)}")
        first += 1
    if until < top:
        parts.append(f"{_literal(str(last))} {_fraction(0, until, decimals)}")
        last -= 1
    if first <= last:
        parts.append(f"{_whole(first, last)} {_fraction(0, top, decimals)}")
    return _either(parts)


def _fraction(low: int, high: int, decimals: int) -> str:
    """Return what follows the whole part; nothing at all is a fraction of zero."""
    digits = _digits(f"{low:0{decimals}}", f"{high:0{decimals}}", short=True)
    return f'"." {digits}' if low else f'("." {digits})?'


def _whole(low: int, high: int) -> str:
    """Return the numbers of the shortest length, the lengths between, and the longest length."""
    first, last = len(str(low)), len(str(high))
    if first == last:
        return _digits(str(low), str(high))
    parts, top = [], []
    if low != 10 ** (first - 1):
        parts.append(_digits(str(low), "9" * first))
        first += 1
    if high != 10**last - 1:
        top.append(_digits("1" + "0" * (last - 1), str(high)))
        last -= 1
    if first <= last:
        parts.append(f"[1-9]{_any(first - 1, last - 1)}")
    return _either(parts + top)


def _digits(low: str, high: str, *, short: bool = False) -> str:
    """Return the digits between two of the same length; if ``short`` zeros at the end may lack."""
    first, last, rest = int(low[0]), int(high[0]), len(low) - 1
    if first == last:
        return f'"{first}"{_tail(low[1:], high[1:], short)}'
    parts, top = [], []
    if low[1:] != "0" * rest:
        parts.append(f'"{first}"{_tail(low[1:], "9" * rest, short)}')
        first += 1
    if high[1:] != "9" * rest:
        top.append(f'"{last}"{_tail("0" * rest, high[1:], short)}')
        last -= 1
    if first <= last:
        parts.append(f"[{first}-{last}]{_any(0 if short else rest, rest)}")
    return _either(parts + top)


def _tail(low: str, high: str, short: bool) -> str:
    if not low:
        return ""
    digits = _digits(low, high, short=short)
    return f" ({digits})?" if short and not int(low) else f" {digits}"


def _any(least: int, most: int) -> str:
    """Return so many digits, with the space before them."""
    if most <= 1:
        return ("", " [0-9]?", " [0-9]")[least + most]
    return f" [0-9]{{{most}}}" if least == most else f" [0-9]{{{least},{most}}}"


def _endings(step: int, start: int) -> list[str]:
    """Return how numbers on a grid end, if that tells them from others and the endings are few.

    >>> _endings(250, 0), _endings(12, 0)
    (['000', '250', '500', '750'], [])
    """
    width = next((n for n in range(1, MOST_DIGITS) if not 10**n % step), None)
    if step == 1 or width is None or 10**width // step > MOST_ENDINGS:
        return []
    return [f"{ending:0{width}}" for ending in range(start % step, 10**width, step)]


def _on_grid(low: int, high: int, endings: Sequence[str]) -> Iterator[str]:
    """Yield what matches the numbers between two that have one of the endings."""
    if low < 0:
        mirrored = [_complement(ending) for ending in endings]
        for part in _unsigned_on_grid(max(1, -high), -low, mirrored):
            yield f'"-" {part}'
    if high >= 0:
        yield from _unsigned_on_grid(max(0, low), high, endings)


def _complement(ending: str) -> str:
    """Return how the negative of a number with this ending ends: -175 is on a grid of 25, 125, …"""
    power = 10 ** len(ending)
    return f"{-int(ending) % power:0{len(ending)}}"


def _unsigned_on_grid(low: int, high: int, endings: Sequence[str]) -> Iterator[str]:
    power = 10 ** len(endings[0])
    before: dict[tuple[int, int], list[str]] = {}
    for ending in endings:
        alone = int(ending)
        if low <= alone <= high:
            yield _literal(str(alone))
        first, last = max(1, -((alone - low) // power)), (high - alone) // power
        if first <= last:
            before.setdefault((first, last), []).append(_literal(ending))
    for (first, last), literals in before.items():
        yield f"{_whole(first, last)} {_either(literals)}"
