from __future__ import annotations

from collections.abc import Mapping

import pytest

from measured_world import LLM, SIMULATED, all_of, cells_of, lively
from waysout.experiments.arms import Arm
from waysout.experiments.cell import Cells
from waysout.experiments.claims import CLAIMS, judge_all
from waysout.experiments.judge import RULES, Claim, Expected, Verdict
from waysout.experiments.plan import load_plan
from waysout.experiments.stats import Paired

BY_NAME = {claim.name: claim for claim in CLAIMS}


def judged(name: str, levels: Mapping[str, float], *, plan: str, llm: str = LLM) -> Verdict:
    """Judge a claim where arms have these yields, a little more from query to query."""

    def value(arm: Arm, place: int) -> Mapping[str, float]:
        return {"unique_valid": levels.get(arm.name, 5) + place % 2 * (len(arm.name) % 3)}

    return BY_NAME[name].judge(all_of(value, plan, llm=llm, queries=30), llm)


@pytest.mark.parametrize("claim", CLAIMS, ids=lambda claim: claim.name)
def test_every_pattern_of_a_claim_names_arms_of_its_plan(claim: Claim) -> None:
    def value(arm: Arm, place: int) -> Mapping[str, float]:
        return {"unique_valid": 5 + place}

    verdict = claim.judge(Cells(cells_of(claim.plan, value, queries=30)), LLM)
    assert {outcome.data for outcome in verdict.outcomes} == set(claim.datasets)
    assert all(outcome.found.n == 30 for outcome in verdict.outcomes)


def test_a_rise_on_every_data_set_supports_the_claim() -> None:
    verdict = judged(
        "validity-raises-yield", {"BASELINE": 10, "VALIDITY": 14}, plan="reward-weights"
    )
    assert verdict.word == verdict.words == "supported"
    outcome = verdict.outcomes[0]
    assert (outcome.a, outcome.b, outcome.data) == ("BASELINE", "VALIDITY", "loan")
    assert outcome.found.delta == pytest.approx(4, abs=1)
    assert outcome.theirs == (27.4, 28.1)


def test_a_fall_does_not_support_it_and_a_simulated_llm_is_called_so() -> None:
    levels = {"BASELINE": 14, "VALIDITY": 10}
    verdict = judged("validity-raises-yield", levels, plan="reward-weights", llm=SIMULATED)
    assert verdict.word == "not supported"
    assert verdict.words == "not supported (simulated)"


def test_mixed_names_the_data_sets() -> None:
    def value(arm: Arm, place: int) -> Mapping[str, float]:
        more = 5 if arm.name == "VALIDITY" and arm.data in ("loan", "heloc") else 0
        return {"unique_valid": 10 + more + place}

    verdict = BY_NAME["validity-raises-yield"].judge(all_of(value, "reward-weights"), LLM)
    assert verdict.words == (
        "mixed: supported on Loan, HELOC, not on Adult, Credit (6 of 30 queries)"
    )


def test_all_comparisons_of_a_data_set_must_come_out() -> None:
    def value(arm: Arm, place: int) -> Mapping[str, float]:
        return {"unique_valid": 10 + place, "sparsity": 2.0 if arm.name == "QUALITY" else 3.0}

    verdict = BY_NAME["quality-lowers-sparsity"].judge(all_of(value, "reward-weights"), LLM)
    assert [outcome.holds for outcome in verdict.outcomes[:2]] == [True, False]
    assert verdict.word == "not supported"


def test_nothing_is_judged_without_searches() -> None:
    assert {verdict.words for verdict in judge_all(Cells(), LLM)} == {"not run"}


def test_data_sets_that_were_not_run_are_said() -> None:
    def value(arm: Arm, place: int) -> Mapping[str, float]:
        return {"unique_valid": 20 if arm.name == "VALIDITY" else 10 + place}

    cells = Cells(cells_of("reward-weights", value, datasets=("adult",)))
    verdict = BY_NAME["validity-raises-yield"].judge(cells, LLM)
    assert verdict.words == "supported on Adult; the rest was not run (6 of 30 queries)"


def test_an_arm_is_compared_with_the_best_of_several() -> None:
    levels = {"recombine": 50, "LATS high-temp, K=5": 40, "Comp-MCTS": 30}
    verdict = judged("recombine", levels, plan="llm-budget")
    assert {outcome.a for outcome in verdict.outcomes} == {"LATS high-temp, K=5"}
    assert verdict.word == "supported"


def test_it_is_said_when_the_best_is_one_of_fewer() -> None:
    def value(arm: Arm, place: int) -> Mapping[str, float]:
        return {"unique_valid": 10 + place}

    some = [
        cell
        for cell in cells_of("llm-budget", value, datasets=("loan",))
        if cell.spec["method"] not in ("lats-diversity", "lats-high-temp")
    ]
    outcome = BY_NAME["beats-lats-1"].judge(Cells(some), LLM).outcomes[0]
    assert outcome.a == "LATS standard, K=1 (of 1 of 3 arms that were run)"


def test_the_best_setting_is_chosen_only_where_all_were_run() -> None:
    def value(arm: Arm, place: int) -> Mapping[str, float]:
        return {"unique_valid": 10 + place, "rows": 100 if arm.name != "none" else 150}

    claim = BY_NAME["pruning-equal-yield-selected"]
    whole = list(cells_of("pruning-sweep", value, datasets=("loan",), queries=30))
    outcome = claim.judge(Cells(whole), LLM).outcomes[0]
    # All are as good: ties go to the smaller threshold, then to path, as in the tables.
    assert outcome.b == "compression scope=path threshold=0.001"
    assert outcome.holds
    assert claim.judge(Cells(whole[:-30]), LLM).word == "supported"  # an embedding is missing
    some = [cell for cell in whole if cell.spec["settings"]["threshold"] != 0.02]
    assert claim.judge(Cells(some), LLM).word == "not run"


def test_time_is_judged_by_real_llms_that_were_asked_while_the_clock_ran() -> None:
    claim = BY_NAME["cost"]

    def value(arm: Arm, place: int) -> Mapping[str, float]:
        return {"seconds": 10 + place, "llm_seconds": 9.9 + place}

    assert claim.judge(all_of(value, "cost"), LLM).word == "supported"
    assert claim.judge(all_of(value, "cost", llm=SIMULATED), SIMULATED).word == "not run"

    def slow(arm: Arm, place: int) -> Mapping[str, float]:
        return {"seconds": 20 if arm.name == "compression" else 10, "llm_seconds": 9.9}

    assert claim.judge(all_of(slow, "cost"), LLM).word == "not supported"

    def from_file(arm: Arm, place: int) -> Mapping[str, float]:
        return {**value(arm, place), "from_file": 3}

    assert claim.judge(all_of(from_file, "cost"), LLM).word == "not run"


@pytest.mark.parametrize(
    ("how", "found", "holds"),
    [
        ("more", Paired(9, 1, 2, 1, 0.1, 2), True),
        ("more", Paired(9, 1, 2, 1, -0.1, 2), False),
        ("more", Paired(1, 1, 2, 1), True),  # one query: there is no interval
        ("less", Paired(9, 2, 1, -1, -2, -0.1), True),
        ("less", Paired(9, 2, 1, -1, -2, 0.0), False),
        ("no less", Paired(9, 2, 1, -1, -2, 0.0), True),
        ("no less", Paired(9, 2, 3, 1, 0.5, 2), True),
        ("no less", Paired(9, 2, 1, -1, -2, -0.1), False),
        ("twice", Paired(9, 2, 4, 2, 0.1, 3), True),
        ("twice", Paired(9, 2, 3.9, 1.9, 0.1, 3), False),
        ("about", Paired(9, 100, 105, 5, 1, 9), True),
        ("about", Paired(9, 100, 94, -6, -9, -1), False),
    ],
)
def test_rules(how: str, found: Paired, holds: bool) -> None:
    assert RULES[how][1](found) is holds  # type: ignore[index]


def test_what_is_shown_only_decides_nothing() -> None:
    shown = Expected("prune_pct", "shown", "VALIDITY", "BASELINE")
    raised = Expected("unique_valid", "more", "VALIDITY", "BASELINE")
    claim = Claim("x", "X", "", "reward-weights", (shown, raised), ("loan",))

    def value(arm: Arm, place: int) -> Mapping[str, float]:
        return {"unique_valid": 9 if arm.name == "VALIDITY" else 5 + place % 2, "prune_pct": 0.0}

    assert claim.judge(all_of(value, "reward-weights"), LLM).word == "supported"


def test_the_papers_means_stand_beside_ours() -> None:
    cells = all_of(lively, "llm-budget", "pruning-sweep", "compressors", queries=30)

    def theirs(name: str, place: int = 0) -> tuple[float | None, float | None]:
        return BY_NAME[name].judge(cells, LLM).outcomes[place].theirs

    assert theirs("pruning-equal-yield") == (150.0, 149.6)
    assert theirs("embedding-selected") == (0.24, 10.95)
    assert theirs("embedding-matched", 1) == (23.87, 14.67)
    assert theirs("scope") == (1.76, 4.56)
    assert theirs("compressors") == (14.0, 60.0)
    assert theirs("lats-5-wins-heloc") == (14.3, 27.9)
    assert theirs("recombine")[1] is None


def test_claims_have_plans_and_names_of_their_own() -> None:
    assert len(BY_NAME) == len(CLAIMS) == len({claim.title for claim in CLAIMS})
    for claim in CLAIMS:
        assert set(claim.datasets) <= set(load_plan(claim.plan).datasets)
