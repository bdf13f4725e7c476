"""The tables of measured figures in the README and the docs, made from the searches on file.

In a page a block stands between two comments; the first has its name and the command that prints
its figures, and more. This rewrites all of them, from the root of a checkout:

    python -m waysout.bench.blocks

``docs/results.md`` has no blocks: ``waysout bench report`` writes the whole page.
"""

from __future__ import annotations

import re
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass
from itertools import groupby
from pathlib import Path

from waysout.bench.cell import Cells
from waysout.bench.estimate import Measured, estimate_table, most_measured, work_of
from waysout.bench.plan import load_plan, plans_meant
from waysout.bench.render import Markdown, markdown_grid
from waysout.bench.table import ResultTable, TableLine
from waysout.bench.tables import build
from waysout.bench.tables_base import title_of
from waysout.bench.tables_quality import AT
from waysout.errors import InputError, unknown

BLOCK = re.compile(r"^<!-- block: (\S+) · .*?^<!-- end of block -->$", re.DOTALL | re.MULTILINE)

Tables = Mapping[str, ResultTable]
"""What one ``waysout bench table`` prints, by the name of each table."""


@dataclass(frozen=True)
class Block:
    """Where a block stands, the table and file of results it is made of, and how."""

    page: str
    table: str
    results: str
    lines: Callable[[Tables], list[str]]
    build: Callable[[str, Cells], Iterable[ResultTable]] = build
    words: str = "waysout bench table {} --results {}"

    @property
    def source(self) -> tuple[str, str]:
        """The table to build, and the file with its searches."""
        return self.table, f"benchmarks/results/{self.results}.jsonl.gz"

    def tables(self, root: Path) -> Tables:
        """Build the tables."""
        name, results = self.source
        return {table.name: table for table in self.build(name, Cells.read([root / results]))}


def pages(root: Path) -> dict[Path, str]:
    """Return the text of every page that has blocks, made anew from the searches on file."""
    by_source = {block.source: block for block in BLOCKS.values()}
    made = {source: block.tables(root) for source, block in by_source.items()}

    def text(match: re.Match[str]) -> str:
        name = match[1]
        if name not in BLOCKS:
            raise InputError(unknown("block", name, BLOCKS))
        block = BLOCKS[name]
        begin = f"<!-- block: {name} · {block.words.format(*block.source)} -->"
        # Not every Markdown ends a comment with its own line, so there are blank ones.
        lines = [begin, "", *block.lines(made[block.source]), "", "<!-- end of block -->"]
        return "\n".join(lines)

    paths = dict.fromkeys(root / block.page for block in BLOCKS.values())
    return {path: BLOCK.sub(text, path.read_text("utf-8")) for path in paths}


def _grid(heads: Sequence[str], rows: Iterable[Sequence[str]]) -> list[str]:
    written = ([Markdown(cell) for cell in row] for row in rows)
    return markdown_grid(heads, written, len(heads), 0).splitlines()


def _texts(line: TableLine) -> list[str]:
    return [figure.ours_text for figure in line.figures]


def _by_labels(table: ResultTable) -> dict[tuple[str, ...], dict[str, str]]:
    """Return figures by labels and column."""
    return {
        line.labels: dict(zip(table.columns, _texts(line), strict=True)) for line in table.lines
    }


# Methods -----------------------------------------------------------------------------------------


def _without_n(name: str) -> Callable[[Tables], list[str]]:
    """Make a block of a whole table, without the column ``n``."""

    def lines(tables: Tables) -> list[str]:
        table = tables[name]
        rows = [[*line.labels, *_texts(line)[1:]] for line in table.lines]
        return _grid([*table.label_columns, *table.columns[1:]], rows)

    return lines


_DIFFERENCES = {
    "proximity no lower, equal sets": "proximity (higher is better)",
    "sparsity no higher, equal sets": "changes (fewer is better)",
    "plausibility no higher, nearest of equal sets": "distance to approved rows (lower is better)",
    "more lever sets": "lever sets, whole sets",
    "shortlist's novelty no lower, equal length": "novelty of the shortlist",
    "shortlist's lever sets no fewer, equal length": "lever sets of the shortlist",
}
"""Targets that compare two sets, and what a reader calls the difference."""


def _differences(tables: Tables) -> list[str]:
    measured = _by_labels(tables["targets"])
    data = [title for target, title in measured if target == next(iter(_DIFFERENCES))]
    found = [[measured[target, title]["measured"] for title in data] for target in _DIFFERENCES]
    # All six are over the same queries, those that both solve.
    heads = [f"{t} ({text.rpartition('n = ')[2]})" for t, text in zip(data, found[0], strict=True)]
    rows = [[name, *(text.partition(", p =")[0] for text in texts)]
            for name, texts in zip(_DIFFERENCES.values(), found, strict=True)]  # fmt: skip
    return _grid(["recombine less comp-mcts", *heads], rows)


# Methods without an LLM --------------------------------------------------------------------------


def _baselines(tables: Tables) -> list[str]:
    """Return a table for each data set; the paper has the first four figures, beside ours."""
    table, lines = tables["baselines"], list[str]()
    first, rest = slice(1, 5), slice(5, None)
    beside = [text for column in table.columns[first] for text in (column, "paper")]
    heads = [*table.label_columns[1:], *beside, *table.columns[rest]]
    for data, group in groupby(table.lines, key=lambda line: line.labels[0]):
        rows = []
        for line in group:
            pairs = [t for f in line.figures[first] for t in (f.ours_text, f.paper_text)]
            rows.append([*line.labels[1:], *pairs, *_texts(line)[rest]])
        lines += ["", f"**{data}**", "", *_grid(heads, rows)]
    return lines[1:]


def _published(tables: Tables) -> list[str]:
    """Return the options of methods as published, those of the paper in brackets."""
    found: dict[tuple[str, str], dict[str, str]] = {}
    table = tables["oracle-budget-published"]
    at = table.columns.index("unique valid")
    for line in table.lines:
        data, method, budget = line.labels
        figure = line.figures[at]
        ours = figure.ours_text or "not run"
        text = f"{ours} ({figure.paper_text})" if figure.paper_text else ours
        found.setdefault((method, budget), {})[data] = text
    titles = [title_of(data) for data in _PAPERS]
    rows = [[*key, *(of.get(title, "") for title in titles)] for key, of in found.items()]
    return _grid(["method", "rows", *titles], rows)


def _proofs(tables: Tables) -> list[str]:
    table = tables["optimum-proofs"]
    heads = [*table.label_columns, "queries", *table.columns[1:]]
    return _grid(heads, [[*line.labels, *_texts(line)] for line in table.lines])


# Shared libraries --------------------------------------------------------------------------------


def _shared(name: str, *columns: str) -> Callable[[Tables], list[str]]:
    """Make a block of some columns of a table, for the searches with most rows."""

    def lines(tables: Tables) -> list[str]:
        rows = []
        for (searches, arm), of in _by_labels(tables[name]).items():
            budget, _, edits = searches.partition(", ")
            if budget == f"{AT} rows":
                rows.append([edits, arm, *(of[column] for column in columns)])
        called = {"n": "people", "sparsity": "changes"}
        return _grid(["edits", "arm", *(called.get(column, column) for column in columns)], rows)

    return lines


# Quality -----------------------------------------------------------------------------------------

_PAPERS = ("loan", "adult", "credit", "heloc")
_ARMS = (
    "wayfinder", "recombine", "recombine, finished", "growing-spheres",
    "growing-spheres, finished", "certifai, finished", "dice, finished", "nice", "nice, finished",
    "nearest, finished", "random, finished",
)  # fmt: skip
_IN_README = {
    "wayfinder": "wayfinder",
    "NICE": "nice, finished",
    "Growing Spheres": "growing-spheres, finished",
    "DiCE": "dice, finished",
    "recombine": "recombine, finished",
}
"""The arms that the README shows, by what it calls them."""


def _of_other_rows(tables: Tables, arm: str) -> list[dict[str, str]]:
    """Return an arm's figures on the rows of the paper's tables that were never looked at."""
    names = (f"quality-{data}-paper-other-rows" for data in _PAPERS)
    return [_by_labels(tables[name])[f"{AT}", arm] for name in names]


def _bare(share: str) -> str:
    """Write a share without the 0 before its point."""
    return share.removeprefix("0") if share.startswith("0.") else share


def _quality_in_short(tables: Tables) -> list[str]:
    rows = [[name, *(f"{of['firm sets']} · {of['÷ known']}" for of in _of_other_rows(tables, arm))]
            for name, arm in _IN_README.items()]  # fmt: skip
    return _grid(["", *map(title_of, _PAPERS)], rows)


def _quality(tables: Tables) -> list[str]:
    rows = []
    for arm in _ARMS:
        cells = [
            f"{of['5: shown']} / {of['5: irred.']} / {of['5: hold']} / {of['5: tight']}; "
            f"{of['÷ known']}; {of['firm sets']}; {_bare(of['5: lasts'])}, {_bare(of['5: real'])}"
            for of in _of_other_rows(tables, arm)
        ]
        rows.append([arm, *cells])
    return _grid([f"{AT} rows", *map(title_of, _PAPERS)], rows)


_TARGETS = (
    ("irreducible, of those shown", "96 %", "irred. %"),
    ("hold", "90 %", "hold %"),
    ("tight", "85 %", "tight %"),
    ("five shown, of queries that have five", "95 %", "five %"),
    ("cheapest ÷ best known", "1.10", "÷ known"),
    ("the same with 1,000 rows", "1.02", "at 1,000"),
    ("lasts, of what real applicants of equal chance do", "no lower", "lasts"),
)
"""What is asked for, the target, and the column that tells."""


def _targets(tables: Tables) -> list[str]:
    """Return our figures on the reported queries, both rule sets in a cell; bold: missed."""
    reported = [(labels[0], of) for labels, of in _by_labels(tables["quality-targets"]).items()
                if labels[2] == "reported"]  # fmt: skip
    titles = list(dict.fromkeys(title for title, _ in reported))

    def cell(of: Mapping[str, str], column: str) -> str:
        share = column == "lasts"
        text = (_bare(of[column]) if share else of[column]) or "–"
        text = f"**{text.removesuffix('*')}**" if text.endswith("*") else text
        return f"{text} of {_bare(of['real'])}" if share else text

    rows = [
        [what, target, *(", ".join(cell(of, column) for where, of in reported if where == title)
                         for title in titles)]
        for what, target, column in _TARGETS
    ]  # fmt: skip
    return _grid(["", "target", *titles], rows)


# What plans take --------------------------------------------------------------------------------


def _estimate(group: str, cells: Cells) -> list[ResultTable]:
    plans = [load_plan(name) for name in plans_meant(group)]
    measured = Measured.of(cells, most_measured(plans, cells), plans)
    return [estimate_table(work_of(plans, measured, measured.llm), measured)]


def _with_notes(tables: Tables) -> list[str]:
    """Make a block of whole tables, with their notes beneath."""
    lines = list[str]()
    for table in tables.values():
        rows = [[*line.labels, *_texts(line)] for line in table.lines]
        lines += [*_grid([*table.label_columns, *table.columns], rows), "", *table.notes]
    return lines


BLOCKS: Mapping[str, Block] = {
    "paper-takes": Block(
        "docs/experiments.md", "paper", "bench-qwen2.5-coder-1.5b", _with_notes, _estimate,
        "waysout bench estimate {} --measured {}",
    ),
    "quality-in-short": Block("README.md", "quality", "quality", _quality_in_short),
    "quality": Block("docs/wayfinder.md", "quality", "quality", _quality),
    "quality-targets": Block("docs/wayfinder.md", "quality", "quality", _targets),
    "methods": Block(
        "docs/recombine.md", "methods", "methods-qwen2.5-coder-1.5b", _without_n("methods-short")
    ),
    "targets": Block("docs/recombine.md", "targets", "methods-qwen2.5-coder-1.5b", _differences),
    "baselines": Block("docs/baselines.md", "baselines", "baselines", _baselines),
    "published": Block(
        "docs/baselines.md", "oracle-budget-published", "bench-no-llm", _published
    ),
    "optimum-proofs": Block("docs/baselines.md", "optimum", "optimum", _proofs),
    "optimum": Block("docs/baselines.md", "optimum", "optimum", _without_n("optimum")),
    "shared": Block(
        "docs/scale.md", "shared", "shared-qwen2.5-coder-1.5b",
        _shared("shared", "calls each", "of 10,000", "empty", "unique valid", "proximity",
                "sparsity", "lever sets", "named share"),
    ),
    "shared-paired": Block(
        "docs/scale.md", "shared", "shared-qwen2.5-coder-1.5b",
        _shared("shared-paired", "n", "calls", "unique valid", "proximity", "sparsity",
                "named share"),
    ),
}  # fmt: skip


if __name__ == "__main__":
    for page, new in pages(Path()).items():
        page.write_text(new, "utf-8")
