"""A map of the options as a drawing in a page: how near each is, and how much it changes."""

from __future__ import annotations

from collections.abc import Sequence

from waysout.domain.result import Option

_WIDTH, _LEFT, _RIGHT, _STEP, _TOP = 640, 34, 20, 30, 16
_FEWEST = 8  # options; fewer are read faster than a map of them
_MOST_CHANGES = 20  # beyond, the drawing would be larger than the list
_CAPTION = (
    "All ways out. To the right: nearer to the present values. Upwards: more changes. The numbered "
    "ones are those to read first."
)


def chart(options: Sequence[Option], first: Sequence[Option]) -> str:
    """Draw options by nearness (to the right) and number of changes (upwards).

    Those to read first are drawn on top, numbered as their cards are. Empty where a map would not
    help. Nothing untrusted is drawn.
    """
    most = max(o.sparsity for o in options)
    if len(options) < _FEWEST or most > _MOST_CHANGES:
        return ""
    floor, least = _TOP + _STEP * most, _least(options)
    lines = [_line(changes, floor - _STEP * (changes - 1)) for changes in range(1, most + 1)]
    marks = [_mark(tenths, least, floor + 24) for tenths in range(least, 11)]
    places = [_place(option, least, floor) for option in options]
    dots = [f'<circle class="dot" cx="{x:.1f}" cy="{y}" r="4"/>' for x, y in places]
    named = [_numbered(i, *_place(option, least, floor)) for i, option in enumerate(first, 1)]
    return (
        f'<figure><svg viewBox="0 0 {_WIDTH} {floor + 34}" role="img" aria-label="{_CAPTION}">'
        f"{''.join(lines + marks + dots + named)}</svg><figcaption>{_CAPTION}</figcaption></figure>"
    )


def _least(options: Sequence[Option]) -> int:
    """Return where the scale of nearness begins, in tenths."""
    return min(8, max(0, int(10 * min(o.proximity for o in options))))


def _across(tenths: float, least: int) -> float:
    share = (tenths - least) / (10 - least)
    return _LEFT + (_WIDTH - _LEFT - _RIGHT) * min(max(share, 0.0), 1.0)


def _place(option: Option, least: int, floor: int) -> tuple[float, int]:
    return _across(10 * option.proximity, least), floor - _STEP * (option.sparsity - 1)


def _line(changes: int, y: int) -> str:
    return (
        f'<line class="grid" x1="{_LEFT}" x2="{_WIDTH - _RIGHT}" y1="{y}" y2="{y}"/>'
        f'<text x="{_LEFT - 12}" y="{y + 4}" text-anchor="end">{changes}</text>'
    )


def _mark(tenths: int, least: int, y: int) -> str:
    x = _across(tenths, least)
    return f'<text x="{x:.1f}" y="{y}" text-anchor="middle">{tenths / 10:g}</text>'


def _numbered(number: int, x: float, y: int) -> str:
    return (
        f'<circle class="first" cx="{x:.1f}" cy="{y}" r="9"/>'
        f'<text class="first" x="{x:.1f}" y="{y + 4}" text-anchor="middle">{number}</text>'
    )
