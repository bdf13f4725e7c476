"""A result in a notebook's cell: a short table.

Notebooks differ in their themes and may drop a style sheet, so each element brings its own style,
with colours that do on light and on dark paper: the theme's own ink, and lines half seen through.
"""

from __future__ import annotations

from html import escape

from waysout.domain.pick import pick
from waysout.domain.result import Option, ResultData
from waysout.report.html import arrows, esc
from waysout.report.text import sentence, simulated_note
from waysout.report.wording import Wording

_LINE = "1px solid rgba(128,128,128,.4)"
_BASE = "text-align:left;vertical-align:top;white-space:normal;color:inherit;background:none"
_CELL = f"{_BASE};padding:.4em .9em .4em 0;border:0;border-top:{_LINE}"
_HEAD = f"{_BASE};padding:.2em .9em .3em 0;border:0;font-weight:600;opacity:.75"
_NUMBER = ";text-align:right;font-variant-numeric:tabular-nums;white-space:nowrap"
_TABLE = "border-collapse:collapse;border:0;margin:.3em 0 .6em;font-size:inherit;color:inherit"


def excerpt(result: ResultData, n: int = 5) -> str:
    """Return a few lines for a notebook's cell."""
    wording = Wording.of(result)
    parts = [_paragraph(esc(sentence(result, wording.lines)))]
    if note := simulated_note(result):
        parts.append(_paragraph(f"<strong>{esc(note)}</strong>"))
    shown = pick(result, n) if result.options else ()
    if shown:
        parts.append(_table(shown, wording))
    if more := len(result.options) - len(shown):
        parts.append(_paragraph(f"… and {more:,} more: <code>to_frame()</code>"))
    return f'<div style="max-width:60em;overflow-wrap:anywhere">{"".join(parts)}</div>'


def _paragraph(markup: str) -> str:
    return f'<p style="margin:.3em 0">{markup}</p>'


def _table(options: tuple[Option, ...], wording: Wording) -> str:
    heads = (("#", ""), ("What changes", ""), ("Chance", _NUMBER), ("Nearness", _NUMBER))
    head = "".join(f'<th scope="col" style="{_HEAD}{style}">{name}</th>' for name, style in heads)
    rows = "".join(_row(i, option, wording) for i, option in enumerate(options, 1))
    return f'<table style="{_TABLE}"><thead><tr>{head}</tr></thead><tbody>{rows}</tbody></table>'


def _row(number: int, option: Option, wording: Wording) -> str:
    doubt = ["not approved each time"] if option.stable is False else []
    changes = "<br>".join(arrows(option, wording) + doubt)
    chance = escape(wording.chance(option.probability)) or "yes"
    cells = ((str(number), ""), (changes, ""), (chance, _NUMBER),
             (f"{option.proximity:.2f}", _NUMBER))  # fmt: skip
    told = "".join(f'<td style="{_CELL}{style}">{cell}</td>' for cell, style in cells)
    return f'<tr style="background:none">{told}</tr>'
