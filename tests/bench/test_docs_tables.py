"""The tables of the docs are those that the searches on file give."""

from __future__ import annotations

from collections.abc import Mapping
from pathlib import Path

import pytest

from waysout.bench import tables_quality
from waysout.bench.cell import Cells
from waysout.bench.plots import draw
from waysout.bench.table import ResultTable, TableLine
from waysout.bench.tables import build
from waysout.report.plot import to_svg

ROOT = Path(__file__).parents[2]
LLM = "qwen2.5-coder-1.5b"
PAPERS = ("loan", "adult", "credit", "heloc")
SHARED = {"throughout": "throughout", "stuck": "`ask=stuck`, no library"}


def tables(name: str, file: str) -> list[ResultTable]:
    return build(name, Cells.read([ROOT / "benchmarks" / "results" / f"{file}.jsonl.gz"]))


def rows_of(page: str) -> list[list[str]]:
    """Return the cells of all table rows of a page."""
    text = (ROOT / "docs" / page).read_text("utf-8")
    lines = [line for line in text.splitlines() if line.startswith("|")]
    return [[cell.strip() for cell in line.strip("|").split("|")] for line in lines]


def texts(line: TableLine, first: int = 1) -> list[str]:
    return [figure.ours_text for figure in line.figures[first:]]


def missing(wanted: list[list[str]], page: str) -> list[list[str]]:
    there = rows_of(page)
    return [row for row in wanted if row not in there]


def test_yields_of_all_methods() -> None:
    short, _ = tables("methods", f"methods-{LLM}")
    wanted = [[*line.labels, *texts(line)] for line in short.lines]
    assert len(wanted) == 11
    assert missing(wanted, "recombine.md") == []


def test_differences_of_sets_of_equal_size() -> None:
    (table,) = tables("targets", f"methods-{LLM}")
    rows = {
        "proximity no lower, equal sets": "proximity (higher is better)",
        "sparsity no higher, equal sets": "changes (fewer is better)",
        "plausibility no higher, nearest of equal sets":
            "distance to approved rows (lower is better)",
        "more lever sets": "lever sets, whole sets",
        "shortlist's novelty no lower, equal length": "novelty of the shortlist",
        "shortlist's lever sets no fewer, equal length": "lever sets of the shortlist",
    }  # fmt: skip
    for target, name in rows.items():
        lines = [line for line in table.lines if line.labels[0] == target]
        told = [str(line.figures[1].ours).partition(", p =")[0] for line in lines]
        assert missing([[name, *told]], "recombine.md") == []
    failed = [line.labels for line in table.lines if line.figures[-1].ours == "FAIL"]
    assert failed == [("leads any other in all three", "Loan")]


def test_the_picture_of_the_yields() -> None:
    pytest.importorskip("matplotlib")
    cells = Cells.read([ROOT / "benchmarks" / "results" / f"methods-{LLM}.jsonl.gz"])
    drawn = to_svg(draw("yields", cells, llm=cells.llms[0], plan="methods"))
    assert (ROOT / "docs" / "figures" / "yields-methods.svg").read_bytes() == drawn


def test_baselines() -> None:
    (table,) = tables("baselines", "baselines")
    wanted = []
    for line in table.lines:
        _, unique, *quality = line.figures
        beside = [t for f in (unique, *quality[:3]) for t in (f.ours_text, f.paper_text)]
        wanted.append([*line.labels[1:], *beside, *(f.ours_text for f in quality[3:])])
    assert len(wanted) == 103
    assert missing(wanted, "baselines.md") == []


def test_proofs() -> None:
    proofs, gaps = tables("optimum", "optimum")
    wanted = [[line.labels[0].lower(), *texts(line, 0)] for line in proofs.lines]
    wanted += [[line.labels[0].lower(), line.labels[1], *texts(line)] for line in gaps.lines]
    assert len(wanted) == 28
    assert missing(wanted, "baselines.md") == []


@pytest.mark.parametrize("own", [True, False])
def test_shared_libraries(own: bool) -> None:
    levels, _ = tables("shared", f"shared-{LLM}")
    part = f"150 rows, {'own and named edits' if own else 'named edits alone'}"
    lines = [line for line in levels.lines if line.labels[0] == part]
    assert len(lines) == (3 if own else 4)
    text = (ROOT / "docs" / "scale.md").read_text("utf-8").replace(" (the default)", "")
    for line in lines:
        told = texts(line)
        cells = [SHARED.get(line.labels[1], line.labels[1]), *told[:7], told[7] if own else "1"]
        assert f"| {' | '.join(cells)} |" in text


# Quality -----------------------------------------------------------------------------------------

Lines = dict[tuple[str, ...], dict[str, str]]
"""The figures of a table, as texts, by labels and column."""


@pytest.fixture(scope="module")
def quality() -> dict[str, Lines]:
    """Build the tables of ``quality``, without what no page prints of them and takes long."""
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(tables_quality, "_paired", lambda view: [])
        patch.setattr(tables_quality, "_winners", lambda one, ours: [])
        patch.setattr(tables_quality, "volume", lambda cell: 0.0)
        return {table.name: lines_of(table) for table in tables("quality", "quality")}


def lines_of(table: ResultTable) -> Lines:
    return {
        line.labels: dict(zip(table.columns, texts(line, 0), strict=True)) for line in table.lines
    }


def of_other_rows(quality: Mapping[str, Lines], arm: str) -> list[dict[str, str]]:
    """Return an arm's lines with 150 rows, on the rows of the paper's tables never looked at."""
    return [quality[f"quality-{data}-paper-other-rows"]["150", arm] for data in PAPERS]


def bare(share: str) -> str:
    """Write a share without the 0 before its point."""
    return share.removeprefix("0") if share.startswith("0.") else share


def test_what_150_rows_bring(quality: Mapping[str, Lines]) -> None:
    page = rows_of("wayfinder.md")
    start = page.index(["150 rows", "Loan", "Adult", "Credit", "HELOC"]) + 2
    told = page[start : start + 11]
    assert (told[0][0], told[-1][0]) == ("wayfinder", "random, finished")
    for arm, *cells in told:
        wanted = [
            f"{of['5: shown']} / {of['5: irred.']} / {of['5: hold']} / {of['5: tight']}; "
            f"{of['÷ known']}; {of['firm sets']}; {bare(of['5: lasts'])}, {bare(of['5: real'])}"
            for of in of_other_rows(quality, arm)
        ]
        assert cells == wanted, arm


def test_what_the_readme_says_of_150_rows(quality: Mapping[str, Lines]) -> None:
    text = (ROOT / "README.md").read_text("utf-8")
    section = text.partition("## What it finds, measured\n")[2].partition("\n## ")[0]
    told = [line for line in section.splitlines() if line.startswith("| ")][1:]
    arms = {
        "wayfinder": "wayfinder",
        "NICE": "nice, finished",
        "Growing Spheres": "growing-spheres, finished",
        "DiCE": "dice, finished",
        "recombine": "recombine, finished",
    }
    wanted = [
        [name, *(f"{of['firm sets']} · {of['÷ known']}" for of in of_other_rows(quality, arm))]
        for name, arm in arms.items()
    ]
    assert told == [f"| {' | '.join(row)} |" for row in wanted]


def test_targets_of_wayfinder(quality: Mapping[str, Lines]) -> None:
    reported = {labels[:2]: of for labels, of in quality["quality-targets"].items()
                if labels[2] == "reported"}  # fmt: skip
    titles = list(dict.fromkeys(title for title, _ in reported))
    assert (len(titles), len(reported)) == (5, 9)

    def row(column: str, beside: str = "") -> list[str]:
        return [", ".join(cell(of, column, beside) for (where, _), of in reported.items()
                          if where == title) for title in titles]  # fmt: skip

    def cell(of: Mapping[str, str], column: str, beside: str) -> str:
        text = (bare(of[column]) if beside else of[column]) or "–"
        text = f"**{text.removesuffix('*')}**" if text.endswith("*") else text
        return f"{text} of {bare(of[beside])}" if beside else text

    wanted = [
        ["irreducible, of those shown", "96 %", *row("irred. %")],
        ["hold", "90 %", *row("hold %")],
        ["tight", "85 %", *row("tight %")],
        ["five shown, of queries that have five", "95 %", *row("five %")],
        ["cheapest ÷ best known", "1.10", *row("÷ known")],
        ["the same with 1,000 rows", "1.02", *row("at 1,000")],
        ["lasts, of what real applicants of equal chance do", "no lower", *row("lasts", "real")],
    ]
    assert missing(wanted, "wayfinder.md") == []
