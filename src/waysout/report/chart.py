"""Drawings within a page, as SVG: the parts that all share, and ways by effort and chance."""

from __future__ import annotations

import math
from collections.abc import Iterable, Sequence

from waysout.domain.result import Option, Way
from waysout.report.words import PERCENT

WIDTH = 640
_LEFT, _RIGHT, _TOP, _HEIGHT = 48, 16, 16, 96
_FEWEST, _MOST = 3, 20  # ways: fewer are read faster than a drawing, of more it is a cloud
_RADIUS = 9
_CAPTION = (
    "The numbers are those of the ways above. To the right: more effort. Upwards: a higher chance."
)


def drawing(height: float, caption: str, parts: Iterable[str]) -> str:
    """Return a drawing as a figure; the caption and the parts are markup already."""
    return (
        f'<figure><svg viewBox="0 0 {WIDTH} {height}" role="img" aria-label="{caption}">'
        f"{''.join(parts)}</svg><figcaption>{caption}</figcaption></figure>"
    )


def line(x1: float, x2: float, y1: float, y2: float, look: str = 'class="grid"') -> str:
    """Return a line, by default one of the grid."""
    return f'<line {look} x1="{x1:.1f}" x2="{x2:.1f}" y1="{y1}" y2="{y2}"/>'


def label(x: float, y: float, markup: str, anchor: str = "middle", look: str = "") -> str:
    """Return text in a drawing."""
    return f'<text {look} x="{x:.1f}" y="{y}" text-anchor="{anchor}">{markup}</text>'


def chart(shown: Sequence[Option]) -> str:
    """Draw ways by effort (to the right) and chance (upwards), with the numbers of their cards.

    Empty where a drawing would not help. Nothing untrusted is drawn.
    """
    ways = {number: way for number, way in enumerate(shown, 1) if isinstance(way, Way)}
    if not _FEWEST <= len(ways) <= _MOST:
        return ""
    low = math.floor(10 * min(way.probability for way in ways.values())) / 10
    high = max(low + 0.1, math.ceil(10 * max(way.probability for way in ways.values())) / 10)
    costs = [way.cost for way in ways.values()]
    least, spread = min(costs), max(costs) - min(costs) or 1.0
    floor = _TOP + _HEIGHT

    def place(way: Way) -> tuple[float, float]:
        share, up = (way.cost - least) / spread, (way.probability - low) / (high - low)
        start, end = _LEFT + 2 * _RADIUS, WIDTH - _RIGHT - 2 * _RADIUS
        return start + share * (end - start), floor - up * _HEIGHT

    parts = []
    for tenth in (low, high):
        y = round(floor - (tenth - low) / (high - low) * _HEIGHT, 1)
        said = f"{100 * tenth:.0f}{PERCENT}"
        parts += [line(_LEFT, WIDTH - _RIGHT, y, y), label(_LEFT - 8, y + 4, said, "end")]
    taken: list[tuple[float, float]] = []
    for number, way in ways.items():
        x, y = _apart(place(way), taken)
        taken.append((x, y))
        parts.append(f'<circle class="first" cx="{x:.1f}" cy="{y:.1f}" r="{_RADIUS}"/>')
        parts.append(label(x, round(y + 4, 1), f"{number}", look='class="first"'))
    parts.append(label(_LEFT, floor + 24, "less effort", "start"))
    parts.append(label(WIDTH - _RIGHT, floor + 24, "more effort", "end"))
    return drawing(floor + 32, _CAPTION, parts)


def _apart(at: tuple[float, float], taken: Sequence[tuple[float, float]]) -> tuple[float, float]:
    """Return a place to the right of what is drawn there already."""
    x, y = at
    while any(math.hypot(x - other, y - height) < 2 * _RADIUS for other, height in taken):
        x += _RADIUS / 2
    return x, y
