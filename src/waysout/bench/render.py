"""Tables as text, Markdown, LaTeX, CSV, HTML or JSON.

In formats for people the paper's figures are beneath ours, so that columns can be read downwards;
in CSV and JSON they are beside ours. Names come from plans and servers, so each format escapes
them. The same tables always give the same text.
"""

from __future__ import annotations

import io
import json
import re
import sys
import textwrap
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from dataclasses import asdict
from typing import TYPE_CHECKING, Literal, get_args

from waysout.bench.table import NOT_RUN, Number, ResultTable, TableLine
from waysout.errors import InputError, unknown
from waysout.report.tables import defused, escape_markdown
from waysout.report.words import clean

if TYPE_CHECKING:
    import pandas as pd
    from rich.table import Table

Format = Literal["text", "markdown", "latex", "csv", "html", "json"]
OURS, PAPER = "ours", "paper"
WIDTH = 100


def render(tables: Sequence[ResultTable], fmt: Format, width: int | None = None) -> str:
    """Return tables as text in a format; it ends with a newline.

    ``width`` is the terminal's: plain text is folded to it. Without one, lines are as long as the
    figures need.
    """
    if fmt not in get_args(Format):
        raise InputError(unknown("format", fmt, get_args(Format)))
    return _text(tables, width) if fmt == "text" else _FORMATS[fmt](tables)


# For people ------------------------------------------------------------------------------------


def frame(table: ResultTable) -> pd.DataFrame:
    """Return a table as formatted text: labels, whose figures they are, figures, ids of arms.

    Columns that no line fills are left out.
    """
    import pandas as pd

    rows = [(*table.label_columns, "from", *table.columns, "runs")]
    for line in table.lines:
        # A dash is an undefined mean; an empty cell was not run.
        nothing = "" if any(figure.ours == NOT_RUN for figure in line.figures) else "–"
        ours = (figure.ours_text or nothing for figure in line.figures)
        rows.append((*line.labels, OURS, *ours, line.runs))
        if line.has_paper:
            theirs = (figure.paper_text for figure in line.figures)
            rows.append((*[""] * len(line.labels), PAPER, *theirs, ""))
    heads, *body = ([clean(cell) for cell in row] for row in rows)
    kept = [*[True] * len(table.label_columns), table.has_paper, *[True] * len(table.columns)]
    return pd.DataFrame(body, columns=heads).loc[:, [*kept, table.has_runs]]


def _words(table: ResultTable) -> int:
    """Return the number of columns of `frame` before the figures."""
    return len(table.label_columns) + table.has_paper


def _text(tables: Sequence[ResultTable], width: int | None = None) -> str:
    from rich.console import Console
    from rich.measure import Measurement

    out, printed = io.StringIO(), set[str]()
    prose = min(width or WIDTH, WIDTH)  # longer lines are hard to read
    console = Console(
        file=out, width=prose, color_system=None, markup=False, highlight=False, emoji=False
    )
    for table in tables:
        about = [text for text in table.about if text not in printed]
        printed |= set(about)
        for text in (table.title, *about):
            console.print(clean(text))
        console.print()
        for grid in _grids(table, width):
            # A console cuts off what is wider than itself.
            unbounded = console.options.update(max_width=sys.maxsize)
            console.width = Measurement.get(console, unbounded, grid).maximum
            console.print(grid)
            console.width = prose
            console.print()
        for text in table.notes:
            console.print(clean(text))
        if table.notes:
            console.print()
    for command in dict.fromkeys(clean(table.command) for table in tables if table.command):
        console.print(f"Made with: {command}", soft_wrap=True)
    if any(table.has_runs for table in tables):
        console.print("The arms of each line: --format csv; what they are: waysout bench show ID")
    return "\n".join(line.rstrip() for line in out.getvalue().rstrip().splitlines()) + "\n"


def _grids(table: ResultTable, width: int | None) -> Iterator[Table]:
    """Yield a table for the terminal, in one piece unless it is too wide.

    Of one too wide the other columns follow after some lines, labels repeated. Only labels and
    titles wrap: a figure that lost its last digit would still look like one.
    """
    from rich.cells import cell_len

    shown = frame(table).iloc[:, : _words(table) + len(table.columns)]
    shown = shown.rename(columns={"from": ""}) if table.has_paper else shown
    words, room = _words(table), width or WIDTH
    columns = [list(shown.iloc[:, place]) for place in range(len(shown.columns))]
    titles = [max(map(cell_len, title.split()), default=1) for title in shown.columns]
    full = [max(title, *map(cell_len, cells), 1)
            for title, cells in zip(titles, columns, strict=True)]  # fmt: skip
    # The narrowest that labels are readable in: words are whole, unless they are long ones.
    longest = (max(cell_len(part) for cell in cells for part in _BREAK.split(cell))
               for cells in columns[:words])  # fmt: skip
    least = [max(title, min(_LONG_WORD, word))
             for title, word in zip(titles, longest, strict=False)]  # fmt: skip
    figures = range(words, len(full))
    for i in figures if not table.has_paper else ():  # the paper's must stay on the second line
        # Some say more than a number: these wrap between words.
        longest_word = max((cell_len(word) for cell in columns[i] for word in cell.split()),
                           default=1)  # fmt: skip
        full[i] = max(titles[i], longest_word, min(full[i], room // 2))
    blocks, parts = [list(figures)], [list(table.lines)]
    if width is not None and _across(least, (full[i] for i in figures)) > room:
        # Narrower still where the labels alone would fill the line.
        least = _narrowed(least, [min(_SHORT_WORD, one) for one in least], room * 2 // 3)
        blocks, parts = [[]], _parts(table.lines)
        for i in figures:
            if blocks[-1] and _across(least, (full[j] for j in (*blocks[-1], i))) > room:
                blocks.append([])
            blocks[-1].append(i)
    end = 0
    for lines in parts:
        start, end = end, end + sum(1 + line.has_paper for line in lines)
        for block in blocks:
            widths = [full[i] for i in block]
            labels = _narrowed(full[:words], least, room - sum(widths) - _GAP * len(widths))
            some = shown.iloc[start:end, [*range(words), *block]]
            yield _grid(lines, some, words, (*labels, *widths))


def _parts(lines: Sequence[TableLine]) -> list[list[TableLine]]:
    """Return lines in parts short enough to see the columns that follow on the same screen."""
    parts: list[list[TableLine]] = [[]]
    for line in lines:
        if len(parts[-1]) >= _ENOUGH_LINES and line.labels[:2] != parts[-1][-1].labels[:2]:
            parts.append([])
        parts[-1].append(line)
    return parts


_GAP = 2
_ENOUGH_LINES = 10
_LONG_WORD, _SHORT_WORD = 16, 6
_BREAK = re.compile(r"\s+|(?<=-)")
"""Where `textwrap` breaks a line."""


def _across(*widths: Iterable[int]) -> int:
    """Return how wide a line of such columns is."""
    return sum(one + _GAP for part in widths for one in part) - _GAP


def _narrowed(widths: Sequence[int], least: Sequence[int], room: int) -> list[int]:
    """Return widths that fit into the room, the widest reduced first, none below its least.

    >>> _narrowed([30, 10, 4], [8, 8, 4], 28)
    [10, 10, 4]
    """
    found = list(widths)
    while _across(found) > room:
        spare = [i for i, one in enumerate(found) if one > least[i]]
        if not spare:
            break
        found[max(spare, key=lambda i: found[i])] -= 1
    return found


def _grid(
    lines: Sequence[TableLine], shown: pd.DataFrame, words: int, widths: Sequence[int]
) -> Table:
    """Return some lines and columns of a table; a long label folds beside the paper's figures."""
    from rich import box
    from rich.table import Table
    from rich.text import Text

    grid = Table(box=box.SIMPLE_HEAD, padding=(0, 1, 0, 0), pad_edge=False, show_edge=False)
    for place, title in enumerate(shown.columns):
        side: Literal["left", "right"] = "left" if place < words else "right"
        grid.add_column(Text(title), justify=side, overflow="fold", width=widths[place])
    cells = shown.itertuples(index=False, name=None)
    above: tuple[str, ...] = ()
    for line in lines:
        row = list(next(cells))
        for place, width in enumerate(widths[: len(line.labels)]):
            row[place] = textwrap.fill(row[place], width)
        if line.has_paper:
            row = [f"{a}\n{b}".rstrip("\n") for a, b in zip(row, next(cells), strict=True)]
        if above and line.labels[0] != above[0]:
            grid.add_section()
        for place in range(len(line.labels) - 1):  # omit labels repeated from the line above
            if line.labels[: place + 1] == above[: place + 1]:
                row[place] = ""
        above = line.labels
        grid.add_row(*map(Text, row))
    return grid


def _markdown(tables: Sequence[ResultTable]) -> str:
    parts = []
    for table in tables:
        parts += [f"### {escape_markdown(table.title)}", ""]
        if table.command:
            parts += ["```sh", clean(table.command).replace("`", "'"), "```", ""]
        parts += [*(f"- {escape_markdown(text)}" for text in table.about), ""]
        shown = frame(table)
        rows = list(shown.itertuples(index=False, name=None))
        if table.has_runs:
            rows = [(*row[:-1], Markdown(f"`{row[-1]}`" if row[-1] else "")) for row in rows]
        parts.append(markdown_grid(shown.columns, rows, _words(table), len(table.columns)))
        if table.notes:
            parts += ["", *(f"- {escape_markdown(text)}" for text in table.notes)]
        parts.append("")
    return "\n".join(parts) or "\n"


class Markdown(str):
    """A cell that is already Markdown; all others are escaped."""


def markdown_grid(
    heads: Iterable[str], rows: Iterable[Sequence[str]], words: int, numbers: int
) -> str:
    """Return a Markdown table: first columns of words, then of numbers, then of words again."""
    titles = [escape_markdown(head) for head in heads]
    rule = ["---"] * words + ["---:"] * numbers + ["---"] * (len(titles) - words - numbers)
    lines = [titles, rule]
    lines += [[cell.replace("|", "") if isinstance(cell, Markdown) else escape_markdown(cell)
               for cell in row] for row in rows]  # fmt: skip
    return "\n".join(f"| {' | '.join(line)} |" for line in lines)


# Not by pandas: its writer needs jinja2, which `waysout[bench]` does not install.
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
    """Return a float for each table: what it is about stands beneath, ids of arms in comments."""
    lines = ["% \\usepackage{booktabs}"]
    for place, table in enumerate(tables):
        shown, end = frame(table), _words(table) + len(table.columns)
        body, group = [], ""
        for row in shown.itertuples(index=False, name=None):
            body += [r"\midrule"] if group and row[0] and row[0] != group else []
            group = row[0] or group
            comment = f" % {row[end]}" if table.has_runs and row[end] else ""
            body.append(" & ".join(map(_tex, row[:end])) + rf" \\{comment}")
        about = " ".join(f"{_tex(text).rstrip('.')}." for text in (*table.about, *table.notes))
        lines += [
            *([""] if place else []), *([f"% {clean(table.command)}"] if table.command else []),
            r"\begin{table}", r"\centering", f"\\caption{{{_tex(table.title)}}}",
            f"\\begin{{tabular}}{{{'l' * _words(table)}{'r' * len(table.columns)}}}",
            r"\toprule", " & ".join(map(_tex, shown.columns[:end])) + r" \\", r"\midrule", *body,
            r"\bottomrule", r"\end{tabular}", rf"\par\smallskip\footnotesize {about}",
            r"\end{table}",
        ]  # fmt: skip
    return "\n".join(lines) + "\n"


# The page's own style breaks words anywhere; a wide table can be scrolled instead.
_STYLE = (
    "body { max-width: 90rem; } th, td { overflow-wrap: normal; } "
    ".scroll th { white-space: normal; } td { text-align: right; white-space: nowrap; }"
)


def _html(tables: Sequence[ResultTable]) -> str:
    import pandas as pd

    from waysout.report.html import esc, whole_page

    left = (
        f".words-{words} td:nth-child(-n + {words}) {{ text-align: left; white-space: normal; }}"
        for words in sorted({_words(table) for table in tables})
    )
    body = [f"<style>{_STYLE} {' '.join(left)}</style>"]
    for table in tables:
        command = f"<pre><code>{esc(table.command)}</code></pre>" if table.command else ""
        about = "".join(f"<li>{esc(text)}</li>" for text in (*table.about, *table.notes))
        with pd.option_context("display.max_colwidth", None):  # else long cells are cut
            grid = frame(table).to_html(index=False, border=0, classes=f"words-{_words(table)}")
        body.append(f"<section>\n<h2>{esc(table.title)}</h2>\n{command}<ul>{about}</ul>\n"
                    f'<div class="scroll">{grid}</div>\n</section>')  # fmt: skip
    return whole_page(tables[0].title if tables else "Tables", "page.css", "\n".join(body))


# For programs ----------------------------------------------------------------------------------


def _csv(tables: Sequence[ResultTable]) -> str:
    """Return one table with all lines; columns that a line does not have stay empty."""
    import pandas as pd

    rows: list[dict[str, Number]] = []
    for table in tables:
        papers = [any(line.figures[place].paper is not None for line in table.lines)
                  for place in range(len(table.columns))]  # fmt: skip
        for line in table.lines:
            row: dict[str, Number] = {"table": table.name}
            row |= {slug(n): t for n, t in zip(table.label_columns, line.labels, strict=True)}
            for title, figure, has_paper in zip(table.columns, line.figures, papers, strict=True):
                row[slug(title)] = _plain(figure.ours)
                row |= {f"{slug(title)}_paper": _plain(figure.paper)} if has_paper else {}
            rows.append({**row, "runs": line.runs})
    cells = ({name: defused(clean(cell) if isinstance(cell, str) else cell)
              for name, cell in row.items()} for row in rows)  # fmt: skip
    whole = pd.DataFrame(cells, dtype=object)
    names = [*(name for name in whole.columns if name != "runs"), "runs"]
    return whole.reindex(columns=names).to_csv(index=False, lineterminator="\n")


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


def _json(tables: Sequence[ResultTable]) -> str:
    documents = [asdict(table) for table in tables]
    for line in (line for document in documents for line in document["lines"]):
        for figure in line["figures"]:
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
