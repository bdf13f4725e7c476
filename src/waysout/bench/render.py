"""Tables as text, Markdown, LaTeX, CSV, HTML or JSON.

Where the paper has figures of a line they stand beneath ours, marked as the paper's, so that each
column reads down. CSV and JSON have them beside ours. Names come from plans and servers: each
format escapes them. The same tables always give the same text.
"""

from __future__ import annotations

import csv
import io
import json
import re
import textwrap
from collections.abc import Callable, Mapping, Sequence
from dataclasses import asdict, dataclass
from itertools import groupby, zip_longest
from typing import Literal, get_args

from waysout.bench.table import NOT_RUN, Number, ResultTable, TableLine
from waysout.domain.schema import Value
from waysout.errors import InputError, unknown
from waysout.report.tables import defused
from waysout.report.words import clean

Format = Literal["text", "markdown", "latex", "csv", "html", "json"]
OURS, PAPER = "ours", "paper"
WIDTH = 100
_NARROWEST_LABEL = 16


def render(tables: Sequence[ResultTable], fmt: Format) -> str:
    """Return tables as text in a format; it ends with a line end."""
    if fmt not in get_args(Format):
        raise InputError(unknown("format", fmt, get_args(Format)))
    return _FORMATS[fmt](tables)


# What is read by people ------------------------------------------------------------------------


@dataclass(frozen=True)
class _Row:
    """One row to read: a line's figures of ours, or beneath them the paper's."""

    labels: tuple[str, ...]
    side: str
    figures: tuple[str, ...]
    runs: str


def _rows(table: ResultTable) -> list[_Row]:
    return [row for line in table.lines for row in _of_line(line)]


def _of_line(line: TableLine) -> list[_Row]:
    labels = tuple(clean(label) for label in line.labels)
    not_run = any(figure.ours == NOT_RUN for figure in line.figures)
    # A mean over nothing is no gap in the table; what was not run leaves gaps.
    nothing = "" if not_run else "–"
    ours = tuple(clean(figure.ours_text) or nothing for figure in line.figures)
    rows = [_Row(labels, OURS, ours, clean(line.runs))]
    if line.has_paper:
        paper = tuple(clean(figure.paper_text) for figure in line.figures)
        rows.append(_Row(("",) * len(labels), PAPER, paper, ""))
    return rows


def _text(tables: Sequence[ResultTable]) -> str:
    """Return tables beneath each other; what one has said of itself the next does not repeat."""
    parts, told = [], set[str]()
    for table in tables:
        about = [text for text in table.about if text not in told]
        told |= set(about)
        head = "\n".join([clean(table.title), *_wrapped(about)])
        parts += [head, "\n".join(_text_grid(table))]
        parts += ["\n".join(_wrapped(table.notes))] if table.notes else []
    commands = dict.fromkeys(clean(table.command) for table in tables if table.command)
    ends = [f"Made with: {command}" for command in commands]
    if any(table.has_runs for table in tables):
        ends.append("The arms of each line: --format csv; what they are: waysout bench show ID")
    return "\n\n".join([*parts, *(["\n".join(ends)] if ends else [])]) + "\n"


def _wrapped(texts: Sequence[str]) -> list[str]:
    return [line for text in texts
            for line in textwrap.wrap(clean(text), WIDTH, subsequent_indent="  ")]  # fmt: skip


def _text_grid(table: ResultTable) -> list[str]:
    """Return the lines under their heads, with the first label as a heading of its own.

    Where that is too wide, all labels but the last are.
    """
    last = len(table.label_columns) - 1
    layout = _Layout.of(table, min(last, 1))
    if layout.width > WIDTH:
        layout = _Layout.of(table, last)
    drawn = [*layout.head(), "─" * layout.width]
    heading = ""
    for line in table.lines:
        name = ", ".join(clean(label) for label in line.labels[: layout.headings] if label)
        if name != heading:
            drawn += [*([""] if heading else []), name]
            heading = name
        drawn += layout.line(line)
    return drawn


@dataclass(frozen=True)
class _Layout:
    """How a table is set as text: how many labels are headings, and how wide the columns are."""

    table: ResultTable
    headings: int
    widths: tuple[int, ...] = ()

    @classmethod
    def of(cls, table: ResultTable, headings: int) -> _Layout:
        """Give columns the width that they need, and the last label less if that is too much."""
        layout = cls(table, headings)
        blocks = [[title.split() for title in layout.titles], *map(layout.block, table.lines)]
        columns = [[text for texts in column for text in texts]
                   for column in zip(*blocks, strict=True)]  # fmt: skip
        widths = [max(map(len, texts), default=1) for texts in columns]
        over = sum(widths) + 2 * (len(widths) - 1) - WIDTH
        label = layout.label
        widths[label] = max(min(widths[label], _NARROWEST_LABEL), widths[label] - max(over, 0))
        return cls(table, headings, tuple(max(width, 1) for width in widths))

    @property
    def width(self) -> int:
        """How wide the table is."""
        return sum(self.widths) + 2 * (len(self.widths) - 1)

    @property
    def label(self) -> int:
        """The column of the last label, which is folded where it is too long."""
        return len(self.table.label_columns) - self.headings - 1

    @property
    def words(self) -> list[str]:
        """The heads of the columns that are words: labels, and whose figures they are."""
        return [*self.table.label_columns[self.headings :], *([""] if self.table.has_paper else [])]

    @property
    def titles(self) -> list[str]:
        """The heads of all columns."""
        return [*self.words, *self.table.columns]

    def block(self, line: TableLine) -> list[list[str]]:
        """Return a line's columns, each as the texts beneath each other."""
        rows = _of_line(line)
        labels = [[label] for label in rows[0].labels[self.headings :]]
        side = [[row.side for row in rows]] if self.table.has_paper else []
        figures = zip(*(row.figures for row in rows), strict=True)
        return [*labels, *side, *([*texts] for texts in figures)]

    def head(self) -> list[str]:
        """Return the heads, folded."""
        return self._drawn([*map(textwrap.wrap, self.titles, self.widths)])

    def line(self, line: TableLine) -> list[str]:
        """Return a line, its label folded beside the paper's figures."""
        block = self.block(line)
        block[self.label] = textwrap.wrap(block[self.label][0], self.widths[self.label])
        return self._drawn(block)

    def _drawn(self, block: Sequence[Sequence[str]]) -> list[str]:
        """Return columns side by side: words are set to the left, figures to the right."""
        words = len(self.words)
        return [
            "  ".join(
                text.ljust(width) if place < words else text.rjust(width)
                for place, (text, width) in enumerate(zip(texts, self.widths, strict=True))
            ).rstrip()
            for texts in zip_longest(*block, fillvalue="")
        ]


def _markdown(tables: Sequence[ResultTable]) -> str:
    return "\n\n".join(_markdown_table(table) for table in tables) + "\n"


def _markdown_table(table: ResultTable) -> str:
    parts = [f"### {escape_markdown(table.title)}", ""]
    if table.command:
        parts += ["```sh", clean(table.command).replace("`", "'"), "```", ""]
    parts += [*(f"- {escape_markdown(text)}" for text in table.about), ""]
    parts += _markdown_grid(table)
    if table.notes:
        parts += ["", *(f"- {escape_markdown(text)}" for text in table.notes)]
    return "\n".join(parts)


def _markdown_grid(table: ResultTable) -> list[str]:
    sides = ["from"] if table.has_paper else []
    runs = ["runs"] if table.has_runs else []
    words = [*table.label_columns, *sides]
    lines = [[escape_markdown(cell) for cell in (*words, *table.columns, *runs)]]
    lines.append(["---"] * len(words) + ["---:"] * len(table.columns) + ["---"] * len(runs))
    for row in _rows(table):
        cells = [*row.labels, *([row.side] if sides else []), *row.figures]
        ids = [f"`{row.runs}`" if row.runs else ""] if runs else []
        lines.append(
            [*(escape_markdown(cell) for cell in cells), *(i.replace("|", "") for i in ids)]
        )
    return [f"| {' | '.join(line)} |" for line in lines]


def escape_markdown(text: str) -> str:
    """Return text that Markdown shows as it is, on one line."""
    escaped = re.sub(r"([\\|*_`\[\]<>#~])", r"\\\1", clean(text))
    return escaped.replace("&", "&amp;")


_TEX = {
    "\\": r"\textbackslash{}", "{": r"\{", "}": r"\}", "&": r"\&", "%": r"\%", "$": r"\$",
    "#": r"\#", "_": r"\_", "~": r"\textasciitilde{}", "^": r"\textasciicircum{}",
    "Δ": r"$\Delta$", "θ": r"$\theta$", "τ": r"$\tau$", "→": r"$\to$", "–": "--", "−": "$-$",
    "×": r"$\times$", "±": r"$\pm$", "<": "$<$", ">": "$>$", "√": r"$\surd$", "|": "$|$",
    # A row that begins with a bracket would be read as an argument of the line end before it.
    "[": "{[}", "]": "{]}",
}  # fmt: skip


def _tex(text: str) -> str:
    return "".join(_TEX.get(character, character) for character in clean(text))


def _latex(tables: Sequence[ResultTable]) -> str:
    return "% \\usepackage{booktabs}\n" + "\n".join(_latex_table(table) for table in tables)


def _latex_table(table: ResultTable) -> str:
    """Return a table float; what it is about stands beneath it, the runs in comments."""
    sides = table.has_paper
    words = [*table.label_columns, *(["from"] if sides else [])]
    head = " & ".join(_tex(title) for title in (*words, *table.columns))
    body = []
    for place, (_, group) in enumerate(groupby(table.lines, key=lambda line: line.labels[0])):
        body += [r"\midrule"] if place else []
        body += [row for line in group for row in _latex_rows(line, sides)]
    about = " ".join(f"{_tex(text).rstrip('.')}." for text in (*table.about, *table.notes))
    lines = [
        *([f"% {clean(table.command)}"] if table.command else []),
        r"\begin{table}", r"\centering", f"\\caption{{{_tex(table.title)}}}",
        f"\\begin{{tabular}}{{{'l' * len(words)}{'r' * len(table.columns)}}}",
        r"\toprule", f"{head} \\\\", r"\midrule", *body, r"\bottomrule",
        r"\end{tabular}", rf"\par\smallskip\footnotesize {about}", r"\end{table}",
    ]  # fmt: skip
    return "\n".join(lines) + "\n"


def _latex_rows(line: TableLine, sides: bool) -> list[str]:
    rows = []
    for row in _of_line(line):
        cells = [*row.labels, *([row.side] if sides else []), *row.figures]
        comment = f" % {row.runs}" if row.runs else ""
        rows.append(" & ".join(_tex(cell) for cell in cells) + rf" \\{comment}")
    return rows


# The page's own style breaks words anywhere; a wide table can be scrolled instead.
_HTML_STYLE = (
    "<style>body { max-width: 90rem; } th, td { overflow-wrap: normal; } "
    ".scroll th { white-space: normal; } td.words + td.words { min-width: 6rem; } "
    "td.side, td.runs { white-space: nowrap; }</style>\n"
)


def _html(tables: Sequence[ResultTable]) -> str:
    from waysout.report.html import whole_page

    title = tables[0].title if tables else "Tables"
    body = _HTML_STYLE + "\n".join(_html_table(table) for table in tables)
    return whole_page(title, "page.css", body)


def _html_table(table: ResultTable) -> str:
    from waysout.report.html import esc

    sides, runs = table.has_paper, table.has_runs
    heads = _html_row("th", _Row(table.label_columns, "from", table.columns, "runs"), sides, runs)
    body = [_html_row("td", row, sides, runs) for row in _rows(table)]
    about = "".join(f"<li>{esc(text)}</li>" for text in (*table.about, *table.notes))
    command = f"<pre><code>{esc(table.command)}</code></pre>" if table.command else ""
    return (
        f"<section>\n<h2>{esc(table.title)}</h2>\n{command}<ul>{about}</ul>\n"
        f'<div class="scroll"><table>\n<thead>{heads}</thead>\n<tbody>\n'
        + "\n".join(body)
        + "\n</tbody>\n</table></div>\n</section>"
    )


def _html_row(tag: str, row: _Row, sides: bool, runs: bool) -> str:
    from waysout.report.html import esc

    cells = [
        *(("words", label) for label in row.labels),
        *([("side", row.side)] if sides else []),
        *(("number", figure) for figure in row.figures),
        *([("runs", row.runs)] if runs else []),
    ]
    drawn = (f'<{tag} class="{kind}">{esc(text)}</{tag}>' for kind, text in cells)
    return f"<tr>{''.join(drawn)}</tr>"


# What is read by programs ----------------------------------------------------------------------


def _csv(tables: Sequence[ResultTable]) -> str:
    """Return one table of all lines: what a line has no column for stays empty."""
    lines = [_flat(table, line) for table in tables for line in table.lines]
    names = list(dict.fromkeys(name for line in lines for name in line if name != "runs"))
    out = io.StringIO(newline="")
    writer = csv.writer(out, lineterminator="\n")
    writer.writerow([*names, "runs"])
    writer.writerows([_cell(line.get(name)) for name in (*names, "runs")] for line in lines)
    return out.getvalue()


def _flat(table: ResultTable, line: TableLine) -> dict[str, Number]:
    flat: dict[str, Number] = {"table": table.name}
    flat |= {slug(n): label for n, label in zip(table.label_columns, line.labels, strict=True)}
    for place, (title, figure) in enumerate(zip(table.columns, line.figures, strict=True)):
        flat[slug(title)] = _plain(figure.ours)
        if any(other.figures[place].paper is not None for other in table.lines):
            flat[f"{slug(title)}_paper"] = _plain(figure.paper)
    return {**flat, "runs": line.runs}


def _plain(value: Number) -> Number:
    """Return a value with the digits that are the same on every machine, a count as whole number.

    >>> _plain(0.1 + 0.2), _plain(30.0)
    (0.3, 30)
    """
    if not isinstance(value, float):
        return value
    short = float(f"{value:.10g}")
    return int(short) if short.is_integer() and abs(short) < 1e10 else short


def slug(title: str) -> str:
    """Return a column's name for programs.

    >>> slug("unique valid"), slug("prune %"), slug("Δ")
    ('unique_valid', 'prune_pct', 'delta')
    """
    words = title.lower().replace("%", " pct ").replace("δ", "delta")
    return re.sub(r"\W+", "_", words).strip("_")


def _cell(value: Number) -> Value:
    return defused(clean(value) if isinstance(value, str) else value)


def _json(tables: Sequence[ResultTable]) -> str:
    documents = [asdict(table) for table in tables]
    for figure in (
        f for document in documents for line in document["lines"] for f in line["figures"]
    ):
        figure |= {side: _plain(figure[side]) for side in (OURS, PAPER)}
    return json.dumps(documents, indent=2, ensure_ascii=False, allow_nan=False) + "\n"


_FORMATS: Mapping[str, Callable[[Sequence[ResultTable]], str]] = {
    "text": _text,
    "markdown": _markdown,
    "latex": _latex,
    "csv": _csv,
    "html": _html,
    "json": _json,
}
