"""The table of oracle budgets: means, the paper's figures beside them, and what is a fault."""

from __future__ import annotations

import importlib
import json
import subprocess
import sys
from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path
from types import ModuleType
from typing import Any

import pytest

BENCHMARKS = Path(__file__).parents[2] / "benchmarks"


@pytest.fixture
def budgets(monkeypatch: pytest.MonkeyPatch) -> ModuleType:
    monkeypatch.syspath_prepend(BENCHMARKS)
    return importlib.import_module("budgets")


def line(query: int, unique: int, **more: Any) -> dict[str, Any]:
    found: dict[str, Any] = {
        "data": "loan", "arm": "certifai", "query": query, "rows_limit": 1000, "outcome": "found",
        "unique_valid": unique, "proximity": 0.5 if unique else None, "sparsity": 4.0,
        "novelty": 0.1, "lever_sets": unique, "plausibility": None, "violations": 0, "refused": 0,
        "rows": 1000, "first": 40 if unique else None, "seconds": 1.0,
    }  # fmt: skip
    return found | more


@dataclass
class Told:
    """The last line of a table; the paper's figure stands after ours."""

    head: tuple[str, ...]
    cells: list[str]

    def __call__(self, name: str, *, paper: bool = False) -> str:
        return self.cells[self.head.index(name) + paper]


@pytest.fixture
def last_line(
    budgets: ModuleType, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> Callable[..., Told]:
    def told(*lines: dict[str, Any]) -> Told:
        file = tmp_path / "lines.jsonl"
        file.write_text("".join(json.dumps(each) + "\n" for each in lines), "utf-8")
        budgets.table([file], markdown=True)
        last = capsys.readouterr().out.splitlines()[-1]
        return Told(budgets.HEAD, [cell.strip() for cell in last.split("|")[1:-1]])

    return told


def test_every_method_of_the_paper_has_its_figures(budgets: ModuleType) -> None:
    found = budgets.paper_figures()
    assert found["loan", "tabular-diffusion", 150]["unique_valid"] == "46.83"
    assert found["adult", "growing-spheres", 1000]["unique_valid"] == "2.73"
    assert {name for _, name, _ in found} == set(budgets.PAPER_NAMES)
    assert len(found) == 73


def test_empty_searches_count_in_the_yield_and_not_in_the_quality(
    last_line: Callable[..., Told],
) -> None:
    told = last_line(line(1, 3), line(2, 0), line(2, 9, outcome="failed"))
    assert (told("unique valid"), told("unique valid", paper=True)) == ("1.5", "1.00")
    assert (told("proximity"), told("proximity", paper=True)) == ("0.500", "0.526")
    assert (told("empty"), told("first after"), told("as strong")) == ("1", "> 1,000", "yes")


def test_a_weaker_yield_and_a_broken_rule_are_seen(last_line: Callable[..., Told]) -> None:
    told = last_line(line(1, 0), line(2, 1, violations=2, refused=1))
    assert (told("broken"), told("as strong")) == ("3", "NO")


def test_what_is_on_file_is_not_run_again(budgets: ModuleType) -> None:
    stored = budgets.stored_queries("loan")[:7]
    done = {("loan", "random", 150, stored[0])}
    jobs = list(budgets.jobs_of(["loan"], ["random"], [150, 1000], 7, done))
    assert jobs[0][2] == 1000
    assert [n for *_, rows, people in jobs if rows == 150 for n in people] == stored[1:]
    assert max(len(people) for *_, people in jobs) == budgets.PEOPLE_A_JOB


def squeezed(text: str) -> list[str]:
    """The lines of a table, whatever their widths."""
    return [" ".join(line.split()) for line in text.splitlines() if line.startswith("|")]


@pytest.mark.parametrize("name", ["budgets", "optimum"])
def test_the_docs_show_what_is_on_file(name: str) -> None:
    file = BENCHMARKS / "results" / f"{name}.jsonl.gz"
    table = [sys.executable, str(BENCHMARKS / f"{name}.py"), "table", str(file), "--markdown"]
    printed = subprocess.run(table, check=True, capture_output=True, text=True).stdout
    docs = (BENCHMARKS.parent / "docs" / "baselines.md").read_text("utf-8")
    shown = squeezed(docs)
    assert len(squeezed(printed)) > 20
    assert [line for line in squeezed(printed) if line not in shown] == []
