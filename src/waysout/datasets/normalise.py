"""Bringing a published copy of a data set to the one form whose sha256 is known.

Copies differ in spaces, line ends, a byte-order mark or a final newline; none of that is data.
"""

from __future__ import annotations

import csv
import io
import re
from collections.abc import Iterable, Sequence

from waysout.datasets.table import read_cells

# The published file has no line of names; these are its documentation's, in its order.
ADULT_COLUMNS = (
    "age", "workclass", "fnlwgt", "education", "education-num", "marital-status", "occupation",
    "relationship", "race", "sex", "capital-gain", "capital-loss", "hours-per-week",
    "native-country", "income",
)  # fmt: skip

_WHOLE = re.compile(r"(-?\d+)\.0+", re.ASCII)


def tidy(data: bytes, source: str) -> bytes:
    """Strip the spaces around names and cells; UTF-8 without a mark, commas, LF line ends."""
    return _written(_stripped(data, source))


def adult(data: bytes, source: str) -> bytes:
    """Tidy, and add the line of column names if there is none."""
    lines = _stripped(data, source)
    headless = lines[0][0].isdigit()
    return _written([ADULT_COLUMNS, *lines] if headless else lines)


def credit(data: bytes, source: str) -> bytes:
    """Tidy, and write whole amounts without a decimal point."""
    lines = _stripped(data, source)
    return _written(
        [_WHOLE.sub(r"\1", c) if _WHOLE.fullmatch(c) else c for c in cells] for cells in lines
    )


def _stripped(data: bytes, source: str) -> list[list[str]]:
    return [[cell.strip() for cell in cells] for cells in read_cells(data, source)]


def _written(lines: Iterable[Sequence[str]]) -> bytes:
    text = io.StringIO(newline="")
    csv.writer(text, lineterminator="\n").writerows(lines)
    return text.getvalue().encode()
