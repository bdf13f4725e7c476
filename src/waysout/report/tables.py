"""Tables as CSV, Markdown and HTML. Cells are untrusted text and are made harmless on the way."""

from __future__ import annotations

import csv
import io
import re
import unicodedata
from collections.abc import Iterable, Sequence
from html import escape

from waysout.domain.schema import Value
from waysout.report.words import clean

# Spreadsheets run a cell that begins like this as a formula; some accept the full-width forms too.
_FORMULA = tuple("=+-@\t\r\n＝＋－＠")
_NUMBER = re.compile(r"[+-]?[0-9]+(\.[0-9]*)?([eE][+-]?[0-9]+)?")
# A number as a table may write it, such as "-12,5 %" or "-$1,234.50". Even run as a formula it can
# do nothing: that takes a name, a reference or a link, which takes letters, brackets or a colon.
# An apostrophe would make it another spelling than the table's.
_WRITTEN = re.compile(r"[+-]? ?[$€£¥]? ?[0-9][0-9., '\u00a0\u202f]*[%$€£¥]?")


def defused(cell: Value) -> Value:
    """Return a cell of a CSV file that no spreadsheet runs as a formula; numbers stay."""
    if not isinstance(cell, str) or _NUMBER.fullmatch(cell) or _WRITTEN.fullmatch(cell):
        return cell
    # A formula may hide behind characters a spreadsheet drops: blanks, controls, marks.
    seen = next((c for c in cell if unicodedata.category(c)[0] not in "CZ"), "")
    begins = cell.lstrip(" ").startswith(_FORMULA) or seen in _FORMULA
    return f"'{cell}" if begins else cell


def csv_text(columns: Sequence[str], rows: Iterable[Sequence[Value]]) -> str:
    """Return a table as CSV."""
    out = io.StringIO(newline="")
    writer = csv.writer(out)  # its CR LF line ends make it quote either character in a cell
    writer.writerows([defused(cell) for cell in row] for row in (columns, *rows))
    return out.getvalue()


def escape_markdown(text: object) -> str:
    """Return text that Markdown shows as it is, on one line.

    >>> escape_markdown("a|b <i> [x](y) *")
    'a\\\\|b &lt;i&gt; \\\\[x\\\\](y) \\\\*'
    """
    return re.sub(r"([\\`*_\[\]|#~])", r"\\\1", escape(clean(text), quote=False))


def markdown_table(columns: Sequence[str], rows: Iterable[Sequence[object]]) -> str:
    """Return a table as Markdown."""
    head, *body = (" | ".join(map(escape_markdown, cells)) for cells in (columns, *rows))
    rule = " | ".join("---" for _ in columns)
    return "\n".join(f"| {line} |" for line in (head, rule, *body))


def esc(text: object) -> str:
    """Return untrusted text as markup that shows as itself and can do nothing else.

    ``<bdi>`` keeps text that runs from right to left from reordering the words around it.

    >>> esc("<b>&\\u202e")
    '<bdi>&lt;b&gt;&amp;</bdi>'
    """
    return f"<bdi>{escape(clean(text))}</bdi>"


def html_table(caption: str, heads: Sequence[str], rows: Iterable[Sequence[str]]) -> str:
    """Return a table that scrolls by itself where it is too wide.

    The caption is plain text. Heads and cells are markup already, a cell with its ``<td>`` or
    without; the first cell of a row is its heading.
    """
    head = "".join(h if h.startswith("<th") else f'<th scope="col">{h}</th>' for h in heads)
    body = "\n".join(
        f'<tr><th scope="row">{name}</th>'
        + "".join(cell if cell.startswith("<td") else f"<td>{cell}</td>" for cell in cells)
        + "</tr>"
        for name, *cells in rows
    )
    return (
        f'<div class="scroll" role="region" tabindex="0" aria-label="{escape(clean(caption))}">'
        f"<table><caption>{esc(caption)}</caption><thead><tr>{head}</tr></thead>\n"
        f"<tbody>\n{body}\n</tbody></table></div>"
    )
