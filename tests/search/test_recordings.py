"""Whole searches with a real LLM, on file: replayed without a model or an LLM.

`tools/make_recording.py` made them. Only the query comes from its table.
"""

from __future__ import annotations

import json
from dataclasses import replace
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from waysout.datasets import registry
from waysout.datasets.table import read_table
from waysout.domain.budget import Budget
from waysout.domain.distance import Distance
from waysout.domain.metrics import run_metrics, set_metrics
from waysout.domain.oracle import Answers
from waysout.domain.problem import Problem
from waysout.domain.schema import Row
from waysout.errors import DataUnavailable
from waysout.llm.base import Reply
from waysout.methods import make_method
from waysout.prompts.propose import Proposer, Style
from waysout.prompts.render import Topic
from waysout.search.base import Case, Search
from waysout.search.work import Propose

FOLDER = Path(__file__).parent.parent / "golden" / "recordings"
NAMES = ("loan", "adult", "credit", "heloc")


class Silent:
    """An oracle that nobody may ask."""

    name = "silent"
    labels_only = False

    def ask(self, rows: object) -> Answers:
        raise AssertionError("a recording holds all answers")


def read(name: str) -> dict[str, Any]:
    found: dict[str, Any] = json.loads((FOLDER / f"{name}.json").read_text("utf-8"))
    return found


def started(recording: dict[str, Any]) -> Search:
    card, plan, told = registry.card(recording["dataset"]), recording["plan"], recording["distance"]
    made = replace(
        Problem.from_card(card, Silent()),
        distance=Distance(card.schema, told["scales"], told["alpha"]),
    )
    try:
        table = read_table(registry.need(card.name))
    except DataUnavailable as error:
        pytest.skip(f"the query is a row of a table that is not here: {error}")
    case = Case(
        problem=made,
        query=made.row(table.records[recording["row"]]),
        probability=recording["query_probability"],
        budget=Budget(**plan["budget"]),
        k=plan["k"],
        seed=plan["seed"],
        proposer=Proposer(Topic.of_problem(made), "grammar", Style(**plan["style"])),
    )
    return make_method(plan["method"], plan["method_settings"]).start(case)


def changes(search: Search, row: Row) -> dict[str, object]:
    pairs = search.case.problem.changes(search.case.query, row)
    return {name: new for name, (_, new) in pairs.items()}


def replay(search: Search, recording: dict[str, Any]) -> None:
    for answer in recording["answers"]:
        work = search.ask()
        assert work is not None
        if isinstance(work, Propose):
            assert work.request.key(recording["plan"]["llm"]) == answer["request"]
            search.tell(work, Reply(answer["reply"], finish=answer["finish"]))
        else:
            assert [changes(search, row) for row in work.rows] == answer["to"]
            chances, yes = np.array(answer["probability"]), np.array(answer["decision"])
            search.tell(work, Answers(chances, yes))
    assert search.ask() is None


@pytest.mark.parametrize("name", NAMES)
def test_a_search_of_thirty_calls_replays_exactly(name: str) -> None:
    recording = read(name)
    search = started(recording)
    replay(search, recording)
    assert search.done
    archive, case = search.archive, search.case
    found = [
        {"to": changes(search, row), "probability": option.probability}
        for row, option in zip(archive.rows, archive.options(), strict=True)
    ]
    assert found == recording["options"]
    assert dict(archive.rejections) == recording["rejections"]
    metrics = set_metrics(case.problem, case.query, archive.unique_rows)
    metrics |= run_metrics(archive.valid, archive.evaluated, archive.pruned, archive.generated)
    expected = recording["metrics"]
    assert {k: metrics[k] for k in expected if k in metrics} == pytest.approx(
        {k: expected[k] for k in expected if k in metrics}
    )


@pytest.mark.parametrize("name", NAMES)
def test_a_recording_is_a_whole_search_with_a_real_llm(name: str) -> None:
    recording = read(name)
    assert recording["plan"]["llm"].startswith("llamacpp:")
    assert sum("reply" in answer for answer in recording["answers"]) == 30
