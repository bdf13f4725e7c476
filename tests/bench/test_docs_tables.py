"""The tables of the README and the docs are those that the searches on file give."""

from __future__ import annotations

from pathlib import Path

import pytest

from waysout.bench import tables_quality
from waysout.bench.blocks import BLOCK, BLOCKS, pages
from waysout.bench.cell import Cells
from waysout.bench.plots import draw
from waysout.bench.tables import build
from waysout.report.plot import to_svg

ROOT = Path(__file__).parents[2]
METHODS = ROOT / "benchmarks" / "results" / "methods-qwen2.5-coder-1.5b.jsonl.gz"


def test_blocks_are_not_stale(monkeypatch: pytest.MonkeyPatch) -> None:
    # These take long, and no page prints them.
    monkeypatch.setattr(tables_quality, "_paired", lambda view: [])
    monkeypatch.setattr(tables_quality, "_winners", lambda one, ours: [])
    monkeypatch.setattr(tables_quality, "volume", lambda cell: 0.0)
    for path, text in pages(ROOT).items():
        stale = f"{path.name} is stale: python -m waysout.bench.blocks"
        assert path.read_text("utf-8") == text, stale


def test_every_block_stands_once_in_its_page() -> None:
    there = [
        (path.relative_to(ROOT).as_posix(), name)
        for path in (ROOT / "README.md", *(ROOT / "docs").glob("*.md"))
        for name in BLOCK.findall(path.read_text("utf-8"))
    ]
    assert sorted(there) == sorted((block.page, name) for name, block in BLOCKS.items())


def test_the_one_target_that_recombine_misses() -> None:
    (table,) = build("targets", Cells.read([METHODS]))
    failed = [line.labels for line in table.lines if line.figures[-1].ours == "FAIL"]
    assert failed == [("leads any other in all three", "Loan")]


def test_the_picture_of_the_yields() -> None:
    # Earlier releases place the text a little differently.
    pytest.importorskip("matplotlib", minversion="3.11")
    cells = Cells.read([METHODS])
    drawn = to_svg(draw("yields", cells, llm=cells.llms[0], plan="methods"))
    assert (ROOT / "docs" / "figures" / "yields-methods.svg").read_bytes() == drawn
