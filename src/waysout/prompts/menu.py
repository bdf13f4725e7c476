"""The menu: which features may be edited at a node, and to which values.

The prompt, its constraint and the simulated LLM all use the same list.
"""

from __future__ import annotations

import math
from collections.abc import Collection, Mapping, Sequence
from contextlib import suppress
from dataclasses import dataclass
from decimal import Decimal, InvalidOperation
from itertools import accumulate

from waysout.domain.rules import RuleSet
from waysout.domain.schema import LARGEST, Row
from waysout.errors import InputError
from waysout.llm.base import Editable
from waysout.prompts.spelling import Spelling

MOST_FEATURES = 200
"""With more of them only their names are held, and a value is any line of text."""

MOST_CHOICES = 200
"""Where a feature has more of them, its value is any line of text."""

MOST_POINTS = 64
"""A grid of more points than this is a range of numbers."""

MOST_DIGITS = 12
"""The digits of a whole number without a limit."""

FINE_DECIMALS = 4
"""The decimals of a number that may have any; more where its range is narrow."""


def menu(rules: RuleSet, spelling: Spelling, query: Row, row: Row) -> tuple[Editable, ...]:
    """Return the features that may be edited in ``row`` on the way from ``query``.

    Only rules about one feature alone are applied; the others are checked on the edited row. A
    feature that was moved may go back to the query's value if that breaks nothing and does not lead
    back to the query itself: small models would propose little else.
    """
    broken = frozenset(rules.violations(query, row))
    movable = rules.may_still_move(query, row)
    offers = []
    for lever, now in zip(rules.levers(query).values(), row, strict=True):
        feature = lever.feature
        if feature.name not in movable or feature.is_opaque:
            continue
        moved = lever.now != now and not lever.blocked and lever.now is not None
        there = rules.apply(row, {feature.name: lever.now}) if moved else row
        home = moved and there == query
        back = moved and not home and broken.issuperset(rules.violations(query, there))
        name, shown = spelling.name(feature.name), spelling.value(feature, now)
        choices = lever.choices() if lever.is_open else ()
        if choices is None:
            decimals = 0 if feature.kind == "integer" else feature.decimals
            barred = {*lever.never, lever.now} if home else lever.never
            never = tuple(sorted(float(v) for v in barred if isinstance(v, (int, float))))
            offer = Editable(
                name, shown, (), lever.low, lever.high, lever.step, lever.start, decimals, never
            )
            if domain(offer):
                offers.append(offer)
            continue
        offered = [*choices, lever.now] if back else choices
        texts = tuple(spelling.value(feature, v) for v in offered if v != now)
        if texts:
            offers.append(Editable(name, shown, texts))
    return tuple(offers)


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
    """Return the domain of each feature, without those that only have their present value."""
    found = {offer.name: domain(offer) for offer in menu}
    movable = {name: values for name, values in found.items() if values}
    if not movable:
        raise InputError("nothing may be edited, so there is no reply to describe; do not ask")
    return movable


def domain(offer: Editable) -> Domain:
    """Return the values that one feature may be set to.

    The present value is left out: small models like to repeat it.

    >>> domain(Editable("term", "24", (), 12, 48, step=12, decimals=0)).listed
    ('12', '36', '48')
    >>> domain(Editable("card_use", "0.72", (), 0, 0.9, decimals=2)).spans
    ((0, 71), (73, 90))
    """
    if offer.choices:
        return Domain(texts=offer.choices)
    low, high, usual = _exact(offer.low), _exact(offer.high), Decimal(10**MOST_DIGITS - 1)
    if offer.high >= LARGEST and low < usual:
        high = usual
    if offer.low <= -LARGEST and high > -usual:
        low = -usual
    barred = {_exact(number) for number in offer.never}
    with suppress(InvalidOperation):  # a missing value is not a number
        barred.add(Decimal(offer.now))
    decimals = offer.decimals
    if offer.step:
        step, start = _exact(offer.step), _exact(offer.start)
        first, last = math.ceil((low - start) / step), math.floor((high - start) / step)
        if last - first < MOST_POINTS:
            points = (start + i * step for i in range(first, last + 1))
            held = (p for p in points if decimals is None or round(p, decimals) == p)
            return Domain(points=tuple(p for p in held if p not in barred))
        if step == int(step) and start == int(start):
            return Domain(spans=_spans(low, high, barred, 0), step=int(step), start=int(start))
    if decimals is None:
        fine = (d for d in range(FINE_DECIMALS, 15) if (high - low).scaleb(d) >= 1000)
        decimals = next(fine, 15)
    return Domain(spans=_spans(low, high, barred, decimals), decimals=decimals)


def _exact(number: float) -> Decimal:
    return Decimal(repr(float(number)))


def _spans(
    low: Decimal, high: Decimal, barred: Collection[Decimal], decimals: int
) -> tuple[tuple[int, int], ...]:
    """Return the numbers between the limits, without the barred ones."""
    first, last = math.ceil(low.scaleb(decimals)), math.floor(high.scaleb(decimals))
    scaled = (number.scaleb(decimals) for number in barred)
    spans = []
    for gap in sorted(int(n) for n in scaled if n == int(n) and first <= n <= last):
        spans.append((first, gap - 1))
        first = gap + 1
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
