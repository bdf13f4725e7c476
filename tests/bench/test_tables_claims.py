from __future__ import annotations

from collections.abc import Mapping

import pytest

from measured_world import LLM, SIMULATED, all_of, cells_of, lively
from waysout.bench.arms import Arm
from waysout.bench.cell import Cells
from waysout.bench.claims import CLAIMS, judge_all
from waysout.bench.table import ResultTable
from waysout.bench.tables import build
from waysout.errors import InputError

pytest.importorskip("scipy", reason="needs waysout[bench]")


def by_labels(table: ResultTable) -> dict[tuple[str, ...], dict[str, str]]:
    return {
        line.labels: dict(zip(table.columns, (f.ours_text for f in line.figures), strict=True))
        for line in table.lines
    }


def test_claims_with_the_verdicts_of_an_llm_and_what_they_rest_on() -> None:
    cells = all_of(lively, "llm-budget", "reward-weights")
    verdicts, comparisons = build("claims", cells, llm=LLM)
    words = {line.labels[0]: line.labels[2] for line in verdicts.lines if line.labels[1] != "first"}
    assert words == {found.claim.title: found.words for found in judge_all(cells, LLM)}
    assert len(verdicts.lines) == 2 * len(CLAIMS)
    assert any("chosen with this order in sight" in note for note in verdicts.notes)
    arms = "LATS standard, K=1 → LATS standard, K=5"
    line = by_labels(comparisons)["settled", "five-candidates", "Loan", "unique_valid", arms]
    assert (line["n"], line["must be"], line["is it?"]) == ("6", "twice", "yes")
    papers = {found.labels: found.figures[1].paper for found in comparisons.lines}
    assert papers["settled", "five-candidates", "Loan", "unique_valid", arms] == 2.90


def test_claims_of_every_llm_and_of_no_other_plan() -> None:
    cells = Cells([*cells_of("llm-budget", lively),
                   *cells_of("llm-budget", lively, llm=SIMULATED)])  # fmt: skip
    assert len(build("claims", cells)) == 4
    scripted = cells_of("llm-budget", lively, llm="scripted:1")
    another = cells_of("llm-budget", lively, llm="openai:another", queries=3)
    found = build("claims", Cells([*cells, *scripted, *another]))
    # Real LLMs first, the one with most searches before others; then the stand-ins.
    assert [table.about[0].split()[1] for table in found[::2]] == [
        "openai:some-model", "openai:another", "scripted:1", SIMULATED
    ]  # fmt: skip
    with pytest.raises(InputError, match="leave --plan out"):
        build("claims", cells, llm=LLM, plan="llm-budget@first")


def test_the_lead_and_the_worth_of_proposals_worked_out_by_hand() -> None:
    def value(arm: Arm, place: int) -> Mapping[str, float]:
        # Of 100 rows 40 are valid: 10 unique with an LLM, 30 of 40 without.
        count = 30.0 if arm.name == "recombine rows=150" else 10.0
        return {"unique_valid": count + place % 2, "valid": 40.0, "evaluated": 100.0}

    plans = ("llm-budget", "oracle-budget")
    cells = Cells(cell for plan in plans for cell in cells_of(plan, value, datasets=("loan",)))
    lead, worth = map(by_labels, build("no-llm", cells))
    line = lead["Loan", "openai:some-model", "Comp-MCTS"]
    assert [line[key] for key in ("n", "A", "B", "Δ")] == ["6 (6/30 run)", "10.50", "30.50",
                                                           "+20.00"]  # fmt: skip
    assert len(lead) == 13  # every arm that asks an LLM
    found = worth["Loan", "Comp-MCTS without pruning", "openai:some-model"]
    # At 10.5 new of 40 valid, 30.5 take 116.2 valid rows: 77.5 % of 150.
    assert list(found.values()) == ["100.0", "40.0", "26.2", "10.5", "77.5"]
    assert worth["Loan", "recombine, no LLM", "its own"]["new %"] == "76.2"


def test_the_lead_is_over_every_pruning_and_reward_that_was_run_each_once() -> None:
    plans = ("llm-budget", "oracle-budget", "pruning-sweep", "reward-weights")
    cells = Cells(cell for plan in plans for cell in cells_of(plan, lively, datasets=("loan",)))
    lead = by_labels(build("no-llm", cells)[0])
    # 13, and 25 prunings of which three are among them, and five rewards that are not BALANCED.
    assert len(lead) == 13 + 22 + 5
    assert ("Loan", "openai:some-model", "Comp-MCTS, compression scope=path threshold=0.01") in lead
    assert ("Loan", "openai:some-model", "Comp-MCTS, QUALITY") in lead
    assert ("Loan", "openai:some-model", "Comp-MCTS, none") not in lead
