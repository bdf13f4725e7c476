"""The table of shared libraries in the docs is the one that the searches on file give."""

from __future__ import annotations

import importlib
from pathlib import Path
from types import ModuleType

import pytest

ROOT = Path(__file__).parents[2]
RESULTS = ROOT / "benchmarks" / "results" / "shared-qwen2.5-coder-1.5b.jsonl.gz"
NAMES = {"throughout": "throughout", "stuck": "`ask=stuck`, no library"}


@pytest.fixture
def shared(monkeypatch: pytest.MonkeyPatch) -> ModuleType:
    monkeypatch.syspath_prepend(ROOT / "benchmarks")
    return importlib.import_module("shared")


@pytest.mark.parametrize("own", [True, False])
def test_the_docs_have_the_figures_on_file(shared: ModuleType, own: bool) -> None:
    lines = [
        line
        for line in shared.read_lines(RESULTS)
        if (line["own_edits"], line["rows_limit"]) == (own, 150)
    ]
    named = {line["arm"] for line in lines}
    arms = {arm: shared.Told.of([x for x in lines if x["arm"] == arm]) for arm in named}
    text = (ROOT / "docs" / "scale.md").read_text("utf-8").replace(" (the default)", "")
    _, *rows = shared._levels(arms, 300)
    assert len(rows) == (3 if own else 4)
    for arm, *cells in rows:
        told = [*cells[:7], cells[7] if own else "1"]
        assert f"| {NAMES.get(arm, arm)} | {' | '.join(told)} |" in text
