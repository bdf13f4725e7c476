from __future__ import annotations

from collections.abc import Mapping
from dataclasses import replace
from typing import Any

import pytest

from measured_world import LLM, SIMULATED, all_of, cells_of, lively
from waysout.bench.arms import Arm
from waysout.bench.cell import Cell, Cells
from waysout.bench.claims import CLAIMS, judge_all
from waysout.bench.judge import (
    NEVER,
    RULES,
    Claim,
    ClaimOutcome,
    ClaimVerdict,
    Expected,
    How,
    answer,
    known_plan,
    queries_to_decide,
)
from waysout.bench.plan import load_plan
from waysout.bench.stats import Paired, halves, paired
from waysout.datasets.queries import query_list

BY_NAME = {claim.name: claim for claim in CLAIMS}


def judged(name: str, levels: Mapping[str, float], *, plan: str, llm: str = LLM) -> ClaimVerdict:
    """Judge a claim where arms have these yields, a little more from query to query."""

    def value(arm: Arm, place: int) -> Mapping[str, float]:
        return {"unique_valid": levels.get(arm.name, 5) + place % 2 * (len(arm.name) % 3)}

    return BY_NAME[name].judge(all_of(value, plan, llm=llm, queries=30), llm)


@pytest.mark.parametrize("claim", CLAIMS, ids=lambda claim: claim.name)
def test_every_pattern_of_a_claim_names_arms_of_its_plan(claim: Claim) -> None:
    def value(arm: Arm, place: int) -> Mapping[str, float]:
        return {"unique_valid": 5 + place}

    plans = [plan for plan in (claim.plan, claim.beside) if plan]
    verdict = claim.judge(all_of(value, *plans, queries=30), LLM)
    assert {outcome.data for outcome in verdict.outcomes} == set(claim.datasets)
    queries = 15 if claim.chosen_on == "half" else 30
    assert all(outcome.found.n == queries for outcome in verdict.outcomes)


def test_a_rise_on_every_data_set_supports_the_claim() -> None:
    verdict = judged(
        "validity-raises-yield", {"BASELINE": 10, "VALIDITY": 14}, plan="reward-weights"
    )
    assert verdict.word == verdict.words == "holds"
    outcome = verdict.outcomes[0]
    assert (outcome.a, outcome.b, outcome.data) == ("BASELINE", "VALIDITY", "loan")
    assert outcome.found.delta == pytest.approx(4, abs=1)
    assert outcome.theirs == (27.4, 28.1)


def test_a_fall_does_not_support_it_and_a_simulated_llm_is_called_so() -> None:
    levels = {"BASELINE": 14, "VALIDITY": 10}
    verdict = judged("validity-raises-yield", levels, plan="reward-weights", llm=SIMULATED)
    assert verdict.word == "does not hold"
    assert verdict.words == "does not hold (simulated)"


def test_mixed_names_the_data_sets_and_those_that_were_not_run() -> None:
    levels = {"loan": 15, "adult": 5, "credit": 10, "heloc": 15}

    def value(arm: Arm, place: int) -> Mapping[str, float]:
        level = levels[arm.data] if arm.name == "VALIDITY" else 10
        return {"unique_valid": level + place * 2 + place % 2 * (arm.name == "VALIDITY")}

    verdict = BY_NAME["validity-raises-yield"].judge(all_of(value, "reward-weights"), LLM)
    assert verdict.word == "mixed"
    assert verdict.words == (
        "mixed: holds on Loan, Credit, HELOC; does not hold on Adult (6 of 30 queries)"
    )
    some = Cells(cells_of("reward-weights", value, datasets=("loan", "adult"), queries=30))
    verdict = BY_NAME["validity-raises-yield"].judge(some, LLM)
    assert verdict.words == (
        "mixed: holds on Loan; does not hold on Adult; not run on Credit, HELOC"
    )


@pytest.mark.parametrize(("fewer", "less"), [(True, False), (False, True)])
def test_all_comparisons_of_a_data_set_must_come_out(fewer: bool, less: bool) -> None:
    def value(arm: Arm, place: int) -> Mapping[str, float]:
        sign = 1 if arm.name == "QUALITY" else 0
        return {
            "unique_valid": 10 + place + (-2 if less else 2) * sign,
            "sparsity": 3.0 + (-1 if fewer else 1) * sign,
        }

    verdict = BY_NAME["quality-lowers-sparsity"].judge(all_of(value, "reward-weights"), LLM)
    said = {True: "yes", False: "no"}
    assert [outcome.answer for outcome in verdict.outcomes[:2]] == [said[fewer], said[less]]
    assert verdict.word == "does not hold"


def test_one_undecided_comparison_leaves_a_data_set_undecided() -> None:
    def value(arm: Arm, place: int) -> Mapping[str, float]:
        quality = arm.name == "QUALITY"
        return {"unique_valid": 10 - quality, "sparsity": 3 + quality * (-1) ** place}

    verdict = BY_NAME["quality-lowers-sparsity"].judge(all_of(value, "reward-weights"), LLM)
    assert [outcome.answer for outcome in verdict.outcomes[:2]] == ["undecided", "yes"]
    assert verdict.word == "undecided"


def test_nothing_is_judged_without_searches() -> None:
    assert {verdict.words for verdict in judge_all(Cells(), LLM)} == {"not run"}


def test_data_sets_that_were_not_run_are_said() -> None:
    def value(arm: Arm, place: int) -> Mapping[str, float]:
        return {"unique_valid": 20 if arm.name == "VALIDITY" else 10 + place}

    cells = Cells(cells_of("reward-weights", value, datasets=("adult",)))
    verdict = BY_NAME["validity-raises-yield"].judge(cells, LLM)
    assert verdict.words == "holds on Adult; not run on Loan, Credit, HELOC (6 of 30 queries)"


def test_comparisons_that_were_not_run_are_said() -> None:
    def value(arm: Arm, place: int) -> Mapping[str, float]:
        return {"unique_valid": 20 + place if arm.k == 5 else 2}

    def judge(missing: str, datasets: tuple[str, ...] = ()) -> ClaimVerdict:
        every = cells_of("llm-budget", value, datasets=datasets, queries=30)
        left = [c for c in every if (c.spec["method"], c.spec["k"]) != (missing, 1)]
        return BY_NAME["five-candidates"].judge(Cells(left), LLM)

    verdict = judge("lats-diversity", ("loan",))
    assert verdict.word == "holds"
    assert verdict.words == ("holds on Loan (2 of 3 comparisons); not run on Adult, Credit, HELOC")
    assert judge("lats").words == (
        "holds on Loan (2 of 3 comparisons), Adult (2 of 3 comparisons), Credit (2 of 3 "
        "comparisons), HELOC (2 of 3 comparisons)"
    )
    assert judge("none").words == "holds"


def test_data_sets_may_have_different_numbers_of_queries_and_of_pairs() -> None:
    def value(arm: Arm, place: int) -> Mapping[str, Any]:
        quality = arm.name == "QUALITY"
        empty = arm.data == "heloc" and place < 26  # so that four pairs have a sparsity
        sparsity = None if empty else 2.0 + (not quality) + place % 2
        return {"unique_valid": 9 - quality, "sparsity": sparsity}

    cells = [
        cell
        for data, queries in (("loan", 30), ("adult", 12), ("heloc", 30))
        for cell in cells_of("reward-weights", value, datasets=(data,), queries=queries)
    ]
    verdict = BY_NAME["quality-lowers-sparsity"].judge(Cells(cells), LLM)
    assert verdict.answers == {"loan": "yes", "adult": "yes", "heloc": "undecided"}
    counts = {
        o.data: (o.found.n, o.ran) for o in verdict.outcomes if o.expected.metric == "sparsity"
    }
    assert counts == {"loan": (30, 30), "adult": (12, 12), "credit": (0, 0), "heloc": (4, 30)}
    assert verdict.words == (
        "holds on Loan, Adult; undecided on HELOC; not run on Credit (as few as 12 of 30 queries)"
    )


def test_no_pair_with_a_value_is_not_the_same_as_not_run() -> None:
    def value(arm: Arm, place: int) -> Mapping[str, Any]:
        return {"unique_valid": 0, "proximity": None}

    verdict = BY_NAME["lats-5-wins-heloc"].judge(all_of(value, "llm-budget"), LLM)
    assert [outcome.found.n for outcome in verdict.outcomes[:2]] == [6, 0]
    assert verdict.words == "undecided (6 of 30 queries)"


def test_an_arm_is_compared_with_the_best_of_several() -> None:
    levels = {"recombine": 50, "LATS high-temp, K=5": 40, "Comp-MCTS": 30}
    verdict = judged("recombine", levels, plan="llm-budget")
    assert {outcome.a for outcome in verdict.outcomes} == {"LATS high-temp, K=5"}
    assert verdict.word == "holds"


def unfinished(last: int) -> ClaimVerdict:
    """Judge recombine (30) on Loan against eight rivals of 20 and an unfinished one of 60."""

    def value(arm: Arm, place: int) -> Mapping[str, float]:
        levels = {"recombine": 30, "LATS diversity, K=5": 60}
        return {"unique_valid": levels.get(arm.name, 20) + place % 2}

    strong = known_plan("llm-budget").arm("loan", "LATS diversity, K=5").id
    places = {row: place for place, row in enumerate(query_list("loan").rows)}
    cells = [
        cell
        for cell in cells_of("llm-budget", value, datasets=("loan",), queries=30)
        if cell.arm != strong or places[cell.query] < last
    ]
    return BY_NAME["recombine"].judge(Cells(cells), LLM)


def test_a_rival_that_is_not_through_is_one_on_the_queries_all_have_finished() -> None:
    verdict = unfinished(29)
    outcome = verdict.outcomes[0]
    assert (outcome.a, outcome.found.n, outcome.found.delta) == ("LATS diversity, K=5", 29, -30)
    assert verdict.words == (
        "does not hold on Loan; not run on Adult, Credit, HELOC (29 of 30 queries)"
    )
    assert unfinished(4).words.startswith("undecided on Loan")
    assert unfinished(4).outcomes[0].found.n == 4
    assert unfinished(0).words == (
        "holds on Loan; not run on Adult, Credit, HELOC (the best of 10 of 11 arms)"
    )


def test_the_best_is_chosen_on_the_queries_that_it_is_compared_on() -> None:
    def value(arm: Arm, place: int) -> Mapping[str, float]:
        levels = {"Comp-MCTS": 9 if place < 8 else 99, "LATS standard, K=5": 10}
        return {"unique_valid": levels.get(arm.name, 5)}

    slow = known_plan("llm-budget").arm("loan", "LATS diversity, K=5").id
    first = set(query_list("loan").rows[:8])
    cells = [
        cell
        for cell in cells_of("llm-budget", value, datasets=("loan",), queries=30)
        if cell.arm != slow or cell.query in first
    ]
    outcome = BY_NAME["recombine"].judge(Cells(cells), LLM).outcomes[0]
    assert (outcome.a, outcome.found.mean_a, outcome.ran) == ("LATS standard, K=5", 10, 8)


def test_arms_of_different_ways_with_the_same_setting_are_not_confused() -> None:
    def value(arm: Arm, place: int) -> Mapping[str, float]:
        return {"unique_valid": {some[1]: 9, "recombine": 20}.get(arm.name, 5)}

    # On HELOC compression and embedding both have path and 0.01.
    some = ("Comp-MCTS", "Comp-MCTS, embedding pruning", "recombine")
    ids = {known_plan("llm-budget").arm("heloc", name).id for name in some}
    cells = Cells(cell for cell in cells_of("llm-budget", value) if cell.arm in ids)
    (outcome,) = [o for o in BY_NAME["recombine"].judge(cells, LLM).outcomes if o.was_run]
    assert outcome.a.startswith(some[1])
    assert outcome.found.mean_a == 9


def test_it_is_said_when_the_best_is_one_of_fewer() -> None:
    def value(arm: Arm, place: int) -> Mapping[str, float]:
        return {"unique_valid": 10 + place}

    some = [
        cell
        for cell in cells_of("llm-budget", value, datasets=("loan",))
        if cell.spec["method"] not in ("lats-diversity", "lats-high-temp")
    ]
    verdict = BY_NAME["beats-lats-1"].judge(Cells(some), LLM)
    assert verdict.outcomes[0].a == "LATS standard, K=1 (of 1 of 3 arms that were run)"
    assert verdict.words.endswith("(6 of 30 queries, the best of 1 of 3 arms)")


def test_the_best_setting_is_chosen_only_where_all_were_run() -> None:
    def value(arm: Arm, place: int) -> Mapping[str, float]:
        return {"unique_valid": 10 + place, "rows": 100 if arm.name != "none" else 150}

    claim = BY_NAME["pruning-equal-yield-selected"]
    whole = list(cells_of("pruning-sweep", value, datasets=("loan",), queries=30))
    outcome = claim.judge(Cells(whole), LLM).outcomes[0]
    # All are as good: ties go to the smaller threshold, then to path, as in the tables.
    assert outcome.b == "compression scope=path threshold=0.001"
    assert outcome.answer == "yes"
    assert claim.judge(Cells(whole[:-30]), LLM).word == "holds"  # an embedding is missing
    some = [cell for cell in whole if cell.spec["settings"]["threshold"] != 0.02]
    assert claim.judge(Cells(some), LLM).word == "not run"


def test_time_is_judged_by_real_llms_that_were_asked_while_the_clock_ran() -> None:
    claim = BY_NAME["cost"]

    def value(arm: Arm, place: int) -> Mapping[str, float]:
        return {"seconds": 10 + place, "llm_seconds": 9.9 + place}

    assert claim.judge(all_of(value, "cost"), LLM).word == "holds"
    assert claim.judge(all_of(value, "cost", llm=SIMULATED), SIMULATED).word == "not run"

    def slow(arm: Arm, place: int) -> Mapping[str, float]:
        return {"seconds": 20 if arm.name == "compression" else 10, "llm_seconds": 9.9}

    assert claim.judge(all_of(slow, "cost"), LLM).word == "does not hold"

    def from_file(arm: Arm, place: int) -> Mapping[str, float]:
        return {**value(arm, place), "from_file": 3}

    assert claim.judge(all_of(from_file, "cost"), LLM).word == "not run"

    def side_by_side(arm: Arm, place: int) -> Mapping[str, float]:
        return {**value(arm, place), "at_once": 12}

    found = claim.judge(all_of(side_by_side, "cost"), LLM)
    assert found.word == "holds"
    assert "12 searches at once, each of another arm" in found.words


HALF, OTHER = halves(30)


def heldout(arm: Arm, place: int) -> Mapping[str, float]:
    """Path 0.02 is best where it is chosen, and poor where it is judged; global 0.001 is good."""
    levels = {
        "none": 20,
        "compression scope=path threshold=0.02": 40 if place in HALF else 4,
        "compression scope=global threshold=0.001": 25,
    }
    saved = arm.name.startswith("compression")
    return {"unique_valid": levels.get(arm.name, 5) + place % 2, "rows": 90 if saved else 150}


def swept(queries: int = 30) -> list[Cell]:
    return list(cells_of("pruning-sweep", heldout, datasets=("loan",), queries=queries))


def test_a_setting_chosen_on_one_half_is_judged_on_the_other() -> None:
    verdict = BY_NAME["pruning-equal-yield-heldout"].judge(Cells(swept()), LLM)
    rows, yields = verdict.outcomes[:2]
    assert yields.b == "compression scope=path threshold=0.02"
    assert (yields.found.n, yields.found.delta) == (15, -16)
    assert (rows.answer, yields.answer) == ("yes", "no")
    assert (rows.theirs, yields.theirs) == ((150.0, 95.9), (23.8, 23.33))
    assert verdict.words == "does not hold on Loan; not run on Adult, Credit"
    every = BY_NAME["pruning-equal-yield-selected"].judge(Cells(swept()), LLM)
    assert every.outcomes[0].b == "compression scope=global threshold=0.001"
    assert every.answers == {"loan": "yes"}


def test_held_out_needs_the_half_that_chooses_and_says_what_the_other_lacks() -> None:
    claim, rows = BY_NAME["pruning-equal-yield-heldout"], query_list("loan").rows
    judged = {rows[place] for place in OTHER[:5]}
    chosen = known_plan("pruning-sweep").arm("loan", "compression scope=path threshold=0.02").id
    cells = [c for c in swept() if c.arm != chosen or c.query not in judged]
    verdict = claim.judge(Cells(cells), LLM)
    assert [outcome.found.n for outcome in verdict.outcomes[:2]] == [10, 10]
    assert verdict.words.endswith("(10 of 15 queries)")
    # One that is not chosen may lack any of them.
    other = known_plan("pruning-sweep").arm("loan", "compression scope=window threshold=0.01").id
    cells = [c for c in swept() if c.arm != other or c.query not in judged]
    assert claim.judge(Cells(cells), LLM).outcomes[0].found.n == 15
    # Without one search of the half that chooses, any setting might have been the best.
    cells = [c for c in swept() if (c.arm, c.query) != (other, rows[HALF[0]])]
    assert claim.judge(Cells(cells), LLM).word == "not run"
    assert claim.judge(Cells(swept(20)), LLM).word == "not run"


def test_the_paper_claims_no_yield_on_heloc() -> None:
    def value(arm: Arm, place: int) -> Mapping[str, float]:
        pruned = arm.name == "Comp-MCTS"
        level = 5 if pruned and arm.data == "heloc" else 20
        return {"unique_valid": level + place % 2, "rows": 90 if pruned else 150}

    verdict = BY_NAME["pruning-equal-yield"].judge(all_of(value, "llm-budget", queries=30), LLM)
    assert verdict.words == "holds"
    shown = [o.expected.metric for o in verdict.outcomes if o.data == "heloc" and o.was_run]
    assert shown == ["rows", "unique_valid"]
    assert "heloc" not in verdict.answers


@pytest.mark.parametrize(
    ("how", "found", "said"),
    [
        ("more", Paired(9, 1, 2, 1, 0.1, 2), "yes"),
        ("more", Paired(9, 1, 2, 1, -0.1, 2), "undecided"),
        ("more", Paired(9, 2, 1, -1, -2, 0.0), "undecided"),
        ("more", Paired(9, 2, 1, -1, -2, -0.1), "no"),
        ("less", Paired(9, 2, 1, -1, -2, -0.1), "yes"),
        ("less", Paired(9, 2, 1, -1, -2, 0.0), "undecided"),
        ("less", Paired(9, 1, 2, 1, 0.1, 2), "no"),
        ("no less", Paired(9, 20, 21, 1, -1.9, 4), "yes"),
        ("no less", Paired(9, 20, 19, -1, -1.9, -0.1), "yes"),
        ("no less", Paired(9, 20, 19, -1, -2.1, 0.1), "undecided"),
        ("no less", Paired(9, 20, 19, -1, -2.1, -0.1), "no"),
        ("no less", Paired(9, 20, 10, -10, -30, 2), "undecided"),
        ("twice", Paired(9, 4, 5, 1, 0.1, 2), "yes"),  # A is doubled already
        ("twice", Paired(9, 4, 5, 1, -0.1, 2), "undecided"),
        ("twice", Paired(9, 4, 3, -1, -1.9, -0.1), "no"),
        ("about", Paired(9, 100, 103, 3, 1, 5), "yes"),
        ("about", Paired(9, 100, 97, -3, -6, 1), "undecided"),
        ("about", Paired(9, 100, 94, -6, -9, -5.1), "no"),
        ("about", Paired(9, 100, 106, 6, 5.1, 9), "no"),
        ("fails", Paired(9, 0.5, 0.1, -0.4, -0.5, -0.2), "yes"),
        ("fails", Paired(9, 0.5, 0.4, -0.1, -0.3, 0.1), "undecided"),
        ("fails", Paired(9, 0.5, 0.9, 0.4, 0.2, 0.5), "no"),
    ],
)
def test_rules(how: How, found: Paired, said: str) -> None:
    assert answer(how, found) == said
    expected = Expected("unique_valid", how, "B", "A")
    few = ClaimOutcome("loan", expected, "A", "B", replace(found, n=4), ran=4, wanted=30)
    assert few.answer == "undecided"
    assert replace(few, found=replace(found, n=5)).answer == said


@pytest.mark.parametrize("how", ["more", "less", "no less", "twice", "about"])
def test_nothing_on_both_sides_decides_nothing(how: How) -> None:
    expected = Expected("unique_valid", how, "B", "A")
    nothing = ClaimOutcome("loan", expected, "A", "B", Paired(30, 0, 0, 0, 0, 0), ran=30, wanted=30)
    assert nothing.answer == "undecided"


def test_rules_are_told_with_their_numbers() -> None:
    assert "−10 % of A" in RULES["no less"]
    assert "Fewer than 5 pairs" in NEVER


def test_what_is_shown_only_decides_nothing() -> None:
    shown = Expected("prune_pct", "shown", "VALIDITY", "BASELINE")
    raised = Expected("unique_valid", "more", "VALIDITY", "BASELINE")
    claim = Claim("x", "X", "", "reward-weights", (shown, raised), ("loan",))

    def value(arm: Arm, place: int) -> Mapping[str, float]:
        return {"unique_valid": 9 if arm.name == "VALIDITY" else 5 + place % 2, "prune_pct": 0.0}

    assert claim.judge(all_of(value, "reward-weights"), LLM).word == "holds"


@pytest.mark.parametrize(
    ("solved", "word"),
    [(0, "holds"), (5, "holds"), (15, "undecided"), (30, "does not hold")],
)
def test_a_method_fails_that_finds_nothing_for_most_queries(solved: int, word: str) -> None:
    def value(arm: Arm, place: int) -> Mapping[str, float]:
        return {"unique_valid": 7 if place < solved else 0}

    cells = all_of(value, "oracle-budget-published", queries=30)
    verdict = BY_NAME["dice-cchvae-fail"].judge(cells, SIMULATED)
    assert verdict.word == word
    assert (verdict.llm, verdict.words) == ("", word)  # no LLM, so none that is simulated
    first = verdict.outcomes[0]
    assert (first.a, first.b) == ("half of the queries", "dice as published rows=150")
    assert first.found.mean_b == pytest.approx(solved / 30)
    assert first.theirs == (None, 0.0)
    strong = BY_NAME["dice-cchvae-fail-strong"].judge(cells, SIMULATED)
    assert strong.word == "not run"  # as published and strong are other searches


def test_diffusion_is_compared_with_comp_mcts_of_another_plan() -> None:
    def value(arm: Arm, place: int) -> Mapping[str, float]:
        diffusion = arm.method == "tabular-diffusion"
        found = {"unique_valid": (60 if diffusion else 20) + place % 2}
        return {
            **found,
            "proximity": 0.3 if diffusion else 0.7,
            "sparsity": 9 - 6 * (not diffusion),
        }

    for name, plan in (
        ("diffusion-farther", "oracle-budget-published"),
        ("diffusion-farther-strong", "oracle-budget"),
    ):
        cells = all_of(value, plan, "llm-budget", queries=30)
        verdict = BY_NAME[name].judge(cells, LLM)
        assert verdict.words == "holds"
        assert verdict.llm == LLM
        assert verdict.outcomes[0].theirs == (24.07, 46.83)
        without = BY_NAME[name].judge(all_of(value, plan, queries=30), LLM)
        assert without.words == "not run"


def test_the_papers_means_stand_beside_ours() -> None:
    cells = all_of(lively, "llm-budget", "pruning-sweep", "compressors", queries=30)

    def theirs(name: str, place: int = 0) -> tuple[float | None, float | None]:
        return BY_NAME[name].judge(cells, LLM).outcomes[place].theirs

    assert theirs("pruning-equal-yield") == (150.0, 149.6)
    assert theirs("embedding-selected") == (24.07, 18.17)
    assert theirs("embedding-selected", 2) == (0.24, 10.95)
    assert theirs("embedding-heldout", 1) == (68.2, 75.6)
    assert theirs("embedding-matched", 1) == (23.87, 14.67)
    assert theirs("embedding-matched", 3) == (8.0, 8.6)
    assert theirs("scope") == (1.76, 4.56)
    assert theirs("compressors") == (14.0, 60.0)
    assert theirs("lats-5-wins-heloc") == (14.3, 27.9)
    assert theirs("recombine")[1] is None


def test_claims_have_plans_and_names_of_their_own() -> None:
    assert len(BY_NAME) == len(CLAIMS) == len({claim.title for claim in CLAIMS})
    for claim in CLAIMS:
        assert set(claim.datasets) <= set(load_plan(claim.plan).datasets)


# How many queries would decide ------------------------------------------------------------------


def test_the_number_of_queries_that_would_decide_worked_out_by_hand() -> None:
    # Differences −1, 3, −1, 3, −1, 3: mean 1, sd √(6·2²/5) = 2.19, so more than (1.96·2.19/1)² =
    # 18.4 queries take the interval past 0.
    found = paired([10.0] * 6, [9.0, 13.0] * 3)
    assert found.sd == pytest.approx(2.1909, abs=1e-4)
    assert queries_to_decide("more", found) == queries_to_decide("less", found) == 19
    # It lies 2 above −10 % of 10: (1.96·2.19/2)² = 4.6; but 6 were not enough, or it were decided.
    assert queries_to_decide("no less", found) == 7
    # 0.5 outside of 5 % of 10: (1.96·2.19/0.5)² = 73.8.
    assert queries_to_decide("about", found) == 74
    # Past the margin: mean −2 of 10, no once 0 is excluded: (1.96·2.19/2)² = 4.6.
    assert queries_to_decide("no less", paired([10.0] * 6, [6.0, 10.0] * 3)) == 7
    assert queries_to_decide("no less", paired([100.0] * 6, [98.0, 102.0] * 3)) == 7


def test_where_there_is_no_effect_no_number_of_queries_decides() -> None:
    assert queries_to_decide("more", paired([5.0] * 6, [4.0, 6.0] * 3)) is None
    assert queries_to_decide("more", paired([0.0] * 6, [0.0] * 6)) is None
    assert queries_to_decide("more", paired([1.0], [2.0])) is None
    assert queries_to_decide("shown", paired([5.0] * 6, [4.0, 9.0] * 3)) is None
    assert queries_to_decide("more", paired([5.0] * 3, [6.0] * 3)) is None  # too few to tell


def test_twice_is_judged_with_the_spread_of_both() -> None:
    twice = Expected("unique_valid", "twice", "VALIDITY", "BASELINE")
    claim = Claim("x", "X", "", "reward-weights", (twice,), ("loan",))

    def value(arm: Arm, place: int) -> Mapping[str, float]:
        # B − A is 10 or 20, B − 2A is 10 or −10 though twice A's mean is well below B's.
        return {"unique_valid": 30 + 10 * (place % 2) if arm.name == "VALIDITY"
                else 10 + 15 * (place % 2)}  # fmt: skip

    (outcome,) = claim.judge(all_of(value, "reward-weights"), LLM).outcomes
    assert outcome.found.delta == pytest.approx(17.5)
    assert outcome.doubled is not None
    assert outcome.doubled.delta == pytest.approx(0.0)
    assert outcome.answer == "undecided"


def test_only_what_is_undecided_names_a_number() -> None:
    raised = Expected("unique_valid", "more", "VALIDITY", "BASELINE")
    claim = Claim("x", "X", "", "reward-weights", (raised,), ("loan",))

    def needed(*more: float) -> int | None:
        def value(arm: Arm, place: int) -> Mapping[str, float]:
            extra = more[place % len(more)] if arm.name == "VALIDITY" else 0
            return {"unique_valid": 10 + extra}

        return claim.judge(all_of(value, "reward-weights"), LLM).outcomes[0].queries_to_decide

    assert needed(-1, 3) == 19
    assert needed(1, 3) is None
