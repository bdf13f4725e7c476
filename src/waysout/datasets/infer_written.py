"""Which form the numbers of a text column are written in, if they are numbers at all."""

from __future__ import annotations

import re
import unicodedata
from collections.abc import Collection

from waysout.domain.written import WrittenForm

_CODES = {"EUR", "USD", "GBP", "CHF", "JPY", "INR", "Rs", "kr", "zł", "Fr"}
_BODY = re.compile(r"[+-]?(?P<before>[^\d+-]*)[+-]?[\d.,'’\s]*\d(?P<after>\D*)", re.ASCII)
# A plain point first; then what would misread the others: 1,234 is a thousand and more unless
# another cell, such as 3,5, says that the comma is a decimal one.
_MARKS = ((".", ""), (".", ","), (",", ""), (",", "."), (".", "'"), (".", "’"), (",", " "),
          (".", " "), (",", "\u00a0"), (",", "\u202f"))  # fmt: skip


def written_form(cells: Collection[str]) -> tuple[WrittenForm, str] | None:
    """Return the form that all of these cells are written in, and an example of it.

    >>> written_form(["3,5", "1.234,5"])[1], written_form(["12 %", "7%"])[1]
    ('1.234,5', '12 %')
    >>> written_form(["36 months", "60 months"])
    """
    around = _around(cells)
    if around is None:
        return None
    before, after = around
    for mark, group in _MARKS:
        form = WrittenForm(before, after, mark, group)
        if all(form.read(cell) is not None for cell in cells):
            fixed = WrittenForm(before, after, mark, group, _fixed_decimals(cells, form))
            return fixed, _example(cells, fixed)
    return None


def _around(cells: Collection[str]) -> tuple[str, str] | None:
    """Return what stands before and after the numbers: a sign of money, a percent, or nothing."""
    found: dict[str, set[str]] = {"before": set(), "after": set()}
    for cell in cells:
        match = _BODY.fullmatch(cell.strip())
        if match is None:
            return None
        for side, seen in found.items():
            if match[side].strip():
                seen.add(match[side])
    if any(len({text.strip() for text in seen}) > 1 for seen in found.values()):
        return None
    if not all(_is_sign(text.strip()) for seen in found.values() for text in seen):
        return None
    before, after = (min(seen, key=lambda text: (-len(text), text), default="")
                     for seen in found.values())  # fmt: skip
    return before.lstrip(), after.rstrip()


def _is_sign(text: str) -> bool:
    money = all(unicodedata.category(c) == "Sc" for c in text)
    return money or text in ("%", "‰") or text.rstrip(".") in _CODES


def _fixed_decimals(cells: Collection[str], form: WrittenForm) -> int:
    """Return how many decimals every cell has, zeros included; 0 where that differs."""
    digits = re.compile(rf"{re.escape(form.mark)}(\d+)\D*$", re.ASCII)
    found = [m[1] if (m := digits.search(cell)) else "" for cell in cells]
    same = len({len(text) for text in found}) == 1
    return len(found[0]) if same and any(text.endswith("0") for text in found) else 0


def _example(cells: Collection[str], form: WrittenForm) -> str:
    """Return the cell that tells the form best, else a made-up number."""
    telling = (cell.strip() for cell in sorted(cells, key=len, reverse=True))
    for cell in [*telling, *map(form.write, (1234.5, 1234))]:
        try:
            if WrittenForm.like(cell) == form:
                return cell
        except ValueError:
            continue
    raise AssertionError(f"{form} has no example")
