"""What plans will take is what was measured, scaled to what is left; nothing is made up."""

from __future__ import annotations

import json
from datetime import UTC, datetime, timedelta
from pathlib import Path
from typing import Any

import pytest
from bench_world import HEAD, LIBRARY, RANDOM, TREE, plan

from conftest import CommandLine
from waysout.bench.arms import Arm, ExperimentPlan
from waysout.bench.cell import Cell, Cells, write_cells
from waysout.bench.estimate import (
    Measured,
    PlanWork,
    Speed,
    Timing,
    Work,
    estimate_table,
    most_measured,
    total,
    work_of,
)
from waysout.bench.results import Results
from waysout.errors import InputError
from waysout.llm.call import Price

LLM, OTHER = "openai:large@http://127.0.0.1:1/v1", "openai:small@http://127.0.0.1:1/v1"
NOON = datetime(2026, 1, 1, 12, tzinfo=UTC)
UNPRUNED = """
[[arms]]
name = "unpruned"
method = "comp-mcts"
settings = { pruning = "none" }
"""


def cell(arm: Arm, place: int = 0, llm: str = OTHER, at: float = 0.0, **spent: Any) -> Cell:
    """Return a search of an arm that ended some seconds past noon."""
    spent = {"calls": 4, "tokens_in": 400, "cached_tokens": 100, "tokens_out": 40, **spent}
    return Cell(
        arm=arm.id, llm=llm, query=arm.query_rows[place], data=arm.data, oracle="0" * 64,
        outcome="found", spent=spent, spec=arm.spec,
        at=(NOON + timedelta(seconds=at)).isoformat(),
    )  # fmt: skip


def estimated(plans: list[ExperimentPlan], cells: Cells, llm: str = LLM) -> list[PlanWork]:
    return work_of(plans, Measured.of(cells, OTHER, plans), llm, {one.key for one in cells})


def test_tokens_are_those_of_the_arm_else_of_arms_that_ask_alike(tmp_path: Path) -> None:
    one = plan(tmp_path, TREE, UNPRUNED, LIBRARY, RANDOM)
    tree, unpruned, library, _ = one.arms
    cells = Cells([cell(tree), cell(tree, 1, tokens_in=800), cell(tree, 2, llm=LLM, tokens_in=1)])
    (part,) = estimated([one], cells)
    # 3 queries of 4 calls, one of which is on file with the LLM that is asked.
    assert part.arms == 3
    assert (part.work.searches, part.work.on_file, part.work.most_calls) == (8, 1, 32)
    assert (part.work.alike, part.work.unknown) == (3, 3)
    assert part.work.calls == 4 * (2 + 3)
    assert part.work.tokens_in == 600 * (2 + 3)
    assert (part.work.cached_tokens, part.work.tokens_out) == (100 * 5, 40 * 5)
    # What was measured of the arm itself comes first, and a search may end before its limit.
    more = Cells([*cells, cell(unpruned, calls=1, tokens_in=7), cell(library, calls=2)])
    (part,) = estimated([one], more)
    assert (part.work.alike, part.work.unknown) == (0, 0)
    assert part.work.calls == 4 * 2 + 1 * 3 + 2 * 3
    assert part.work.tokens_in == 600 * 2 + 7 * 3 + 400 * 3


def test_a_search_of_two_plans_is_in_the_first(tmp_path: Path) -> None:
    first, second = plan(tmp_path, TREE), plan(tmp_path, TREE, UNPRUNED, name="other")
    alone = plan(tmp_path, TREE, head=f"{HEAD}one_by_one = true\n", name="alone")
    cells = Cells([cell(first.arms[0])])
    parts = estimated([first, second, alone], cells)
    assert [(part.work.searches, part.work.on_file) for part in parts] == [(3, 0), (3, 3), (3, 0)]
    # Searches that run one at a time ask what the others do.
    assert [part.work.alike for part in parts] == [0, 3, 0]
    assert (total(parts).searches, total(parts).tokens_in) == (9, 9 * 400)


def test_the_llm_to_measure_by_is_a_real_one_with_most_of_the_searches(tmp_path: Path) -> None:
    one, other = plan(tmp_path, TREE), plan(tmp_path, LIBRARY, name="other")
    tree, library = one.arms[0], other.arms[0]
    cells = [
        *(cell(tree, place) for place in (0, 1)),
        *(cell(arm, place, LLM) for arm, place in ((tree, 0), (library, 0), (library, 1))),
        *(cell(tree, place, "simulated:1") for place in (0, 1, 2)),
    ]
    assert most_measured([one], Cells(cells)) == OTHER
    assert most_measured([one, other], Cells(cells)) == LLM
    with pytest.raises(InputError, match="no search of these plans with a real LLM"):
        most_measured([one], Cells(cells[-3:]))


def test_the_pace_is_of_what_was_written_while_searches_were_under_way(tmp_path: Path) -> None:
    (tree,) = plan(tmp_path, TREE).arms
    (alone,) = plan(tmp_path, TREE, head=f"{HEAD}one_by_one = true\n", name="alone").arms
    cells = [
        cell(tree, 0, LLM, 10, seconds=10, tokens_out=300),
        cell(tree, 1, LLM, 14, seconds=10, tokens_out=300),
        cell(tree, 2, LLM, 1000, seconds=6, tokens_out=400, from_file=3),  # the next day, resumed
        cell(alone, 0, LLM, 3000, seconds=50),
        cell(alone, 1, LLM, 3000, seconds=1, from_file=4),
        cell(tree, 0, OTHER, 5000, seconds=1000),
    ]
    timing = Timing.of(Cells(cells), LLM)
    assert timing.speed == Speed((300 + 300 + 100) / (14 + 6))
    assert timing.seconds_alone == 50
    work = Work(searches=6, tokens_in=1000, cached_tokens=400, tokens_out=70)
    assert timing.seconds(PlanWork("", False, 1, work)) == 2.0
    assert timing.seconds(PlanWork("", True, 1, work)) == 300
    assert Speed(35, 60).seconds(work) == 2 + 10
    assert Timing().seconds(PlanWork("", False, 1, work)) is None
    assert timing.seconds(PlanWork("", False, 1, Work(unknown=1))) is None


@pytest.mark.parametrize("text", ["", "fast", "1/2/3", "0", "-1/5", "nan"])
def test_a_speed_that_is_none_is_refused(text: str) -> None:
    with pytest.raises(InputError, match="tokens a second"):
        Speed.parse(text)


def test_the_table_says_what_it_does_not_know(tmp_path: Path) -> None:
    one = plan(tmp_path, TREE, UNPRUNED, LIBRARY)
    alone = plan(tmp_path, TREE, head=f"{HEAD}one_by_one = true\n", name="alone")
    cells = Cells([cell(one.arms[0], from_file=1)])
    measured = Measured.of(cells, OTHER, [one])
    parts = work_of([one, alone], measured, LLM)
    table = estimate_table(parts, measured, Timing(Speed(1 / 360)), Price(1000, 0))
    assert table.columns[-2:] == ("hours", "cost")
    figures = {line.labels[0]: line.figures for line in table.lines}
    assert list(figures) == ["small", "alone", "all"]
    assert [line[-2].ours_text for line in figures.values()] == ["24.0", "–", "24.0"]
    assert [line[-1].ours_text for line in figures.values()] == ["2.40", "1.20", "3.60"]
    said = " ".join(table.notes)
    assert "measured in 1 search with openai:small;" in said
    assert "3 of 12 searches are of arms that were not measured" in said
    assert "3 of 12 searches are like nothing that was measured" in said
    assert "of the 4 measured, 1 were answered by replies on file." in said
    assert "alone runs one search at a time" in said


def test_a_probe_tells_what_the_rest_will_take(
    waysout: CommandLine, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.chdir(tmp_path)
    made = plan(tmp_path, TREE)
    (tree,) = made.arms
    words = ("bench", "estimate", "small.toml", "--results", "kept")
    code, _, err = waysout(*words)
    assert (code, "run a few first" in err) == (3, True), err
    with Results.open("kept") as kept:
        kept.add(cell(tree, 0, LLM, seconds=4))
    code, out, err = waysout(*words, "--llm", f"{LLM}?parallel=256", "--json")
    assert code == 0, err
    (told,) = json.loads(out)["plans"]
    assert (told["searches"], told["on_file"], told["tokens_in"]) == (2, 1, 800)
    assert (told["seconds"], told["cost"]) == (8.0, None)  # 40 tokens in 4 seconds, 80 to go
    # Of an LLM that was not asked yet, those of another one tell.
    code, out, err = waysout(*words, "--llm", OTHER, "--json")
    assert code == 0, err
    assert json.loads(out)["measured"]["llm"] == LLM
    assert json.loads(out)["plans"][0]["seconds"] is None  # but not how fast it is
    write_cells(tmp_path / "other.jsonl", [cell(tree, tokens_in=4_000_000)])
    more = ("--llm", LLM, "--measured", "other.jsonl", "--price", "2/0", "--speed", "10/1")
    code, out, err = waysout(*words, *more)
    assert code == 0, err
    line = next(line for line in out.splitlines() if line.startswith("small "))
    shown = ["1", "2", "1", "8", "8", "8.0", "M", "0.0", "M", "0.0", "M", "222.2", "16.00"]
    assert line.split()[1:] == shown


def test_the_plans_of_the_paper_have_one_name(waysout: CommandLine, tmp_path: Path) -> None:
    code, out, err = waysout("bench", "plans", "paper", "--json")
    assert code == 0, err
    listed = {one["name"]: one["llm_calls"] for one in json.loads(out)}
    assert listed == {
        "llm-budget": 43_920, "reward-weights": 21_600, "pruning-sweep": 90_000,
        "pruning-heldout": 90_000, "compressors": 1_800, "cost": 10_800,
    }  # fmt: skip
    place = str(tmp_path / "none")
    status = ("bench", "status", "paper", "compressors", "--results", place, "--json")
    arms = json.loads(waysout(*status)[1])
    assert list(dict.fromkeys(arm["plan"] for arm in arms)) == list(listed)
    assert sum(arm["plan"] == "compressors" for arm in arms) == 3  # though named twice
    assert "did you mean 'paper'?" in waysout("bench", "run", "papers")[2]
