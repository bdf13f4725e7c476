"""What one feature does alone, in words that claim no more than was asked."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass

from waysout.domain.result import Interval, ResultData, Tip, TipStatus
from waysout.domain.schema import Value
from waysout.report.words import Wording

_ENOUGH = 4  # values asked from the first yes to the limit, both included, before "from … on"

Write = Callable[[Value], str]


@dataclass(frozen=True)
class Alone:
    """One feature moved alone: its name, and what was answered."""

    feature: str
    name: str
    said: str
    status: TipStatus


def alone(result: ResultData, wording: Wording, *, not_asked: bool = False) -> list[Alone]:
    """Return what each feature does alone, first those that turn the decision.

    What was not asked is left out unless ``not_asked``.
    """
    order = list(TipStatus)
    found = [
        Alone(name, wording.name(name), _said(tip, _writer(wording, name)), tip.status)
        for name, tips in result.tipping.items()
        for tip in tips
        if not_asked or tip.status is not TipStatus.NOT_ASKED
    ]
    return sorted(found, key=lambda one: order.index(one.status))


def _writer(wording: Wording, name: str) -> Write:
    return lambda value: wording.value(name, value)


def _said(tip: Tip, write: Write) -> str:
    if tip.status is TipStatus.TURNS:
        return "a yes " + " and ".join(_where(interval, tip, write) for interval in tip.intervals)
    to = "down to" if tip.move == "down" else "up to"
    if tip.status is TipStatus.NOT_UP_TO:
        return "not enough " + (
            "with any other value" if tip.move == "to" else f"{to} {write(tip.limit)}"
        )
    if not tip.refused:
        return "not asked"
    return f"not enough, as far as was asked ({write(tip.refused[-1])})"


def _where(interval: Interval, tip: Tip, write: Write) -> str:
    first, last = interval.first, interval.last
    to_the_end = interval.after is None and last == tip.limit
    if interval.asked >= _ENOUGH and to_the_end:
        text = f"from {write(first)} {'down' if tip.move == 'down' else 'on'}"
    elif first != last:
        text = f"from {write(first)} to {write(last)}"
    else:
        text = f"at {write(first)}"
    no = [write(value) for value in (interval.before, interval.after) if value in tip.refused]
    return f"{text} ({' and '.join(no)} {'is' if len(no) == 1 else 'are'} a no)" if no else text
