from __future__ import annotations

import csv
import json
from pathlib import Path

import pytest
from part_files import write_part

from waysout.batch import summary as module
from waysout.batch.job import BatchTally, PartTask
from waysout.batch.summary import summarize, write_summary
from waysout.batch.tables import Contents
from waysout.domain.budget import Spent
from waysout.domain.result import Option, Outcome, OutcomeKind, ResultData, Way
from waysout.domain.schema import Feature, Schema

SCHEMA = Schema((Feature("income", "integer"),))
FOUND, FAILED = OutcomeKind.FOUND, OutcomeKind.FAILED
WAY_OUT = Option({"income": 2}, {"income": (1, 2)}, 0.9, 0.5, 1, key="k")
PADDED = Option({"income": 3}, {"income": (1, 3)}, 0.9, 0.4, 1, key="l")
WAY = Way(**vars(WAY_OUT), levers=("income",), cost=0.5)


def person(index: int, kind: OutcomeKind, reason: str = "") -> ResultData:
    found, ways = ((WAY_OUT, PADDED), (WAY,)) if kind is FOUND else ((), ())
    return ResultData(
        {}, Outcome(kind, reason), options=found, ways=ways, metrics={"valid": 3 * len(found)},
        ledger=Spent(llm_calls=2), index=index,
    )  # fmt: skip


def write(
    out: Path, *results: ResultData, part_rows: int = 2, contents: Contents = Contents.WAYS
) -> None:
    for first in range(0, len(results), part_rows):
        some = results[first : first + part_rows]
        task = PartTask(first // part_rows, first, [{"income": "1"}] * len(some))
        write_part(out, task, SCHEMA, ["income"], some, contents)


def test_the_figures_add_up_over_all_parts(tmp_path: Path) -> None:
    write(
        tmp_path,
        person(0, FOUND),
        person(1, OutcomeKind.ALREADY_APPROVED),
        person(2, FAILED, "row 2, column 'income': no number"),
        person(3, FAILED, "=1+1"),
        person(4, OutcomeKind.BUDGET_SPENT, "all spent"),
    )
    summary = summarize(tmp_path, 9, BatchTally(spent=Spent(llm_calls=7)))
    found = summary.as_dict()
    assert (found["rows"], found["done"], found["already_approved"]) == (9, 5, 1)
    assert (found["searched"], found["found"], found["empty"], found["failed"]) == (2, 1, 1, 2)
    assert (found["ways"], found["options"], found["approved_rows"]) == (1, 2, 6)
    assert (found["llm_calls"], found["pilots"]["llm_calls"]) == (10, 7)
    assert found["why_empty"] == {"budget-spent: all spent": 1}
    assert found["why_failed"] == {"column 'income': no number": 1, "=1+1": 1}
    lines = [*csv.reader((tmp_path / "_failed.csv").open(encoding="utf-8", newline=""))]
    assert lines[1:] == [["2", "row 2, column 'income': no number"], ["3", "'=1+1"]]
    summary.llm = "simulated:1"
    write_summary(tmp_path, summary)
    assert json.loads((tmp_path / "_summary.json").read_text("utf-8"))["llm"] == "simulated:1"


def test_a_folder_without_ways_is_counted_by_its_options(tmp_path: Path) -> None:
    write(tmp_path, person(0, FOUND), contents=Contents.BEFORE_WAYS)
    summary = summarize(tmp_path, 1)
    found = summary.as_dict()
    assert (summary.before_ways, found["options"]) == (True, 2)
    assert found["ways"] is found["approved_rows"] is None


def test_tallies_of_releases_before_ways_are_read() -> None:
    tally = BatchTally({"found": 2}, 9, Spent(llm_calls=3), ways=4, approved_rows=20)
    assert BatchTally.from_dict(tally.as_dict()) == tally
    old = {k: v for k, v in tally.as_dict().items() if k not in ("ways", "approved_rows")}
    assert BatchTally.from_dict(old) == BatchTally({"found": 2}, 9, Spent(llm_calls=3))


def test_rows_beyond_a_smaller_limit_count_and_reasons_do_not_fill_the_memory(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(module, "_DIFFERENT", 2)
    write(
        tmp_path,
        *(person(i, FAILED, why) for i, why in enumerate(["row 0: a", "b", "c", "d", "a"])),
    )
    summary = summarize(tmp_path, 3)
    assert summary.rows == 5
    assert summary.failed == {"a": 2, "b": 1, "another reason": 2}
