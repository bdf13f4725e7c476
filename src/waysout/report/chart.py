"""Drawings within a page, as SVG: the parts that all share, and a map of a result's options."""

from __future__ import annotations

from collections.abc import Iterable, Sequence

from waysout.domain.result import Option

WIDTH = 640
_LEFT, _RIGHT, _STEP, _TOP = 34, 20, 30, 16
_FEWEST = 8  # options; fewer are read faster than a map of them
_MOST_CHANGES = 20  # beyond, the drawing would be larger than the list
_CAPTION = (
    "Each dot is an option that the model approved. To the right: nearer to the present values. "
    "Upwards: more changes. The numbered ones are those to read first."
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


def chart(options: Sequence[Option], first: Sequence[Option]) -> str:
    """Draw options by nearness (to the right) and number of changes (upwards).

    Those to read first are drawn on top, with the numbers of their cards. Empty where a map would
    not help. Nothing untrusted is drawn.
    """
    drawn = [*options, *first]  # a way need not be among the options
    most = max(o.sparsity for o in drawn)
    if len(options) < _FEWEST or most > _MOST_CHANGES:
        return ""
    floor = _TOP + _STEP * most
    least = min(8, max(0, int(10 * min(o.proximity for o in drawn))))  # in tenths

    def across(tenths: float) -> float:
        share = (tenths - least) / (10 - least)
        return _LEFT + (WIDTH - _LEFT - _RIGHT) * min(max(share, 0.0), 1.0)

    def place(option: Option) -> tuple[float, int]:
        return across(10 * option.proximity), floor - _STEP * (option.sparsity - 1)

    parts = []
    for changes in range(1, most + 1):
        y = floor - _STEP * (changes - 1)
        parts += [line(_LEFT, WIDTH - _RIGHT, y, y), label(_LEFT - 12, y + 4, f"{changes}", "end")]
    parts += [label(across(t), floor + 24, f"{t / 10:g}") for t in range(least, 11)]
    parts += [f'<circle class="dot" cx="{x:.1f}" cy="{y}" r="4"/>' for x, y in map(place, options)]
    for i, option in enumerate(first, 1):
        x, y = place(option)
        parts.append(f'<circle class="first" cx="{x:.1f}" cy="{y}" r="9"/>')
        parts.append(label(x, y + 4, f"{i}", look='class="first"'))
    return drawing(floor + 34, _CAPTION, parts)
