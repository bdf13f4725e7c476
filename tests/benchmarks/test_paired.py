"""What the benchmarks' verdicts compare, and the arms that they name."""

from __future__ import annotations

import importlib
import json
from pathlib import Path
from types import ModuleType
from typing import Any

import pytest

BENCHMARKS = Path(__file__).parents[2] / "benchmarks"


@pytest.fixture
def paired(monkeypatch: pytest.MonkeyPatch) -> ModuleType:
    monkeypatch.syspath_prepend(BENCHMARKS)
    return importlib.import_module("paired")


@pytest.fixture
def yields(monkeypatch: pytest.MonkeyPatch) -> ModuleType:
    monkeypatch.syspath_prepend(BENCHMARKS)
    return importlib.import_module("yields")


def line(arm: str, query: int, unique: int, **more: Any) -> dict[str, Any]:
    said = {"data": "loan", "arm": arm, "query": query, "unique_valid": unique, "irreducible": 1}
    return {**said, "llm": "simulated:1", "k": 5, "rows_limit": 150, "outcome": "found", **more}


def written(file: Path, *lines: dict[str, Any]) -> Path:
    file.write_text("".join(json.dumps(each) + "\n" for each in lines), "utf-8")
    return file


def pairs(ours: list[float], theirs: list[float]) -> list[tuple[dict[str, float], ...]]:
    return [({"figure": a}, {"figure": b}) for a, b in zip(ours, theirs, strict=True)]


def test_a_comparison_is_of_ours_less_theirs_with_a_test(paired: ModuleType) -> None:
    stats = pytest.importorskip("scipy.stats")
    ours, theirs = [3.0, 5.0, 4.0, 8.0], [2.0, 5.5, 1.0, 4.0]
    told = paired.said(paired.compared(pairs(ours, theirs), paired.whole_sets("figure")))
    assert told.startswith("+1.875 [")
    assert told.endswith("d_z = +0.93, n = 4")
    assert f"p = {stats.ttest_rel(ours, theirs).pvalue:.2g}," in told


def test_of_no_pairs_nothing_is_said_and_of_equal_differences_nothing_is_tested(
    paired: ModuleType,
) -> None:
    figure = paired.whole_sets("figure")
    assert paired.said(paired.compared([], figure)) == "no query is solved by both"
    told = paired.said(paired.compared(pairs([1.5, 2.5], [1.0, 2.0]), figure))
    assert told == "+0.500 on every query, n = 2"


def test_sets_are_compared_by_as_many_of_their_best_as_the_smaller_has(paired: ModuleType) -> None:
    large = {"options": [{"proximity": p} for p in (0.1, 0.9, 0.8)]}
    small = {"options": [{"proximity": p} for p in (0.5, 0.6)]}
    measure = paired.equal_sets("proximity", by="proximity", highest=True)
    assert measure(large, small) == pytest.approx((0.85, 0.55))


def test_only_queries_that_every_arm_finished_count(paired: ModuleType, tmp_path: Path) -> None:
    file = written(
        tmp_path / "a.jsonl",
        line("one", 1, 10), line("one", 2, 99), line("other", 1, 0),
        line("other", 2, 7, outcome="interrupted"), line("one", 1, 20),
    )  # fmt: skip
    runs = paired.Runs.read([file])
    assert runs.mean("loan", "one", "unique_valid") == 20  # the later line of the two
    assert runs.empty("loan", "other") == 1
    assert runs.left_out == 2


def test_what_two_llms_proposed_is_not_compared(paired: ModuleType, tmp_path: Path) -> None:
    file = written(tmp_path / "a.jsonl", line("one", 1, 1), line("two", 1, 1, llm="simulated:2"))
    with pytest.raises(SystemExit, match=r"simulated:1.*simulated:2"):
        paired.Runs.read([file])


def test_the_short_table_has_a_line_for_each_arm(
    paired: ModuleType, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    there = {"data": "heloc", "irreducible": 3}
    file = written(
        tmp_path / "a.jsonl", line("one", 1, 10), line("one", 2, 0), line("one", 7, 9, **there)
    )
    paired.short_table(paired.Runs.read([file]), markdown=True)
    last = capsys.readouterr().out.splitlines()[-1].split(" | ")
    told = [cell.strip(" |") for cell in last]
    assert told == ["one", "5.0 / 1.0 / 1", "9.0 / 3.0 / 0", "7.0 / 2.0 / 1"]


def test_every_arm_of_every_group_is_known(yields: ModuleType) -> None:
    arms = yields.read_arms(",".join(f"@{group}" for group in yields.GROUPS))
    assert len(arms) == len(set(arms)) > 20
    for arm in arms:
        yields.parse_arm(arm)


def test_a_group_that_does_not_exist_is_refused(yields: ModuleType) -> None:
    with pytest.raises(SystemExit, match=r"there is no group @ablation: .*@ablations"):
        yields.read_arms("lats,@ablation")
