"""The tables of the docs are those that the searches on file give."""

from __future__ import annotations

from pathlib import Path

import pytest

from waysout.bench.cell import Cells
from waysout.bench.plots import draw
from waysout.bench.table import ResultTable, TableLine
from waysout.bench.tables import build
from waysout.report.plot import to_svg

ROOT = Path(__file__).parents[2]
LLM = "qwen2.5-coder-1.5b"
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
