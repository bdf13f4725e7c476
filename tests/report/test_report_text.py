from __future__ import annotations

from dataclasses import replace

import pytest
from report_samples import (
    APPROVED,
    EVERY,
    FOUND,
    HOSTILE,
    MISSED,
    ONE,
    OPTIONS,
    POCKETS,
    STUCK,
    WAYS,
)

from waysout.domain.budget import Spent
from waysout.domain.result import Outcome, OutcomeKind, ResultData
from waysout.report.text import lines, option_rows, sentence, spent_line
from waysout.report.words import change_count, clean, value_text


@pytest.mark.parametrize(
    ("result", "said"),
    [
        (
            FOUND,
            "3 ways out found, over 3 different sets of features. The nearest changes 1 thing "
            "(income: 40500 → 52000) for a chance of 71%. 1 of them was not approved each time the "
            "model was asked.",
        ),
        (
            ONE,
            "1 way out found. It changes 1 thing (income: 40500 → 52000) for a chance of 71%.",
        ),
        (
            WAYS,
            "2 ways out found, out of 3 options. The first to read changes 1 thing (income: 40500 "
            "→ 49000) for a chance of 52%. 1 of them was not approved each time the model was "
            "asked.",
        ),
        (
            POCKETS,
            "1 way out found, out of 3 options. It changes 1 thing (income: 40500 → 49000) for a "
            "chance of 52%. Nothing that holds was found: with more of the same changes it is a "
            "no again.",
        ),
        (
            MISSED,
            "No way out was found within the budget: all 30 LLM calls are spent. "
            "The best chance reached is 38%.",
        ),
        (APPROVED, "Nothing needs to change: granted already (chance 83%)."),
        (
            STUCK,
            "There is no way out under the rules: income is fixed; term is fixed; home is fixed; "
            "and 2 more. The chance as things stand is 12%.",
        ),
    ],
    ids=["found", "one", "ways", "pockets", "missed", "approved", "stuck"],
)
def test_the_outcome_in_one_paragraph(result: ResultData, said: str) -> None:
    assert sentence(result) == said


def test_a_goal_out_of_reach_is_not_blamed_on_the_rules() -> None:
    outcome = Outcome(OutcomeKind.INFEASIBLE, "the chance is 0.9 already; it cannot rise by 0.2")
    said = sentence(replace(STUCK, outcome=outcome))
    assert said == "There is no way out: the chance is 0.9 already; it cannot rise by 0.2."


def test_options_found_before_an_interruption_are_told_with_it() -> None:
    said = sentence(replace(ONE, outcome=Outcome(OutcomeKind.INTERRUPTED, "nobody answers.")))
    assert said.startswith("1 way out found.")
    assert said.endswith("The search was interrupted: nobody answers.")


@pytest.mark.parametrize("kind", list(OutcomeKind))
def test_every_outcome_has_words(kind: OutcomeKind) -> None:
    assert sentence(ResultData({}, Outcome(kind))).endswith(".")


def test_option_rows_fit_a_table() -> None:
    columns, rows = option_rows(OPTIONS)
    assert columns == ["#", "what changes", "chance", "changes", "nearness", "stable"]
    told = "income: 40500 → 60000.5\nterm: 36 → 60\nReason given: More income; A longer term\n"
    assert rows[1] == ["2", told, "90%", "2", "0.40", "yes"]
    assert rows[2][5] == "no"
    columns, (first, *_) = option_rows(OPTIONS, chances=False)
    assert (len(columns), "chance" in columns) == (len(first), False)
    assert "Reason" not in option_rows(OPTIONS, reasons=False)[1][1][1]


def test_columns_without_anything_to_say_are_left_out() -> None:
    columns, rows = option_rows([replace(OPTIONS[0], reasons=())])
    assert columns[-1] == "nearness"
    assert len(rows[0]) == len(columns)
    assert option_rows([])[1] == []


def test_what_was_spent() -> None:
    assert spent_line(Spent(llm_calls=1, attempts=1, oracle_rows=1, seconds=0.04)) == (
        "Spent: 1 LLM call, 1 oracle row, 0.0 s."
    )
    assert "0.25 in money" in spent_line(Spent(money=0.25))
    assert spent_line(Spent(llm_calls=6, attempts=7), saved=24).startswith(
        "Spent: 6 LLM calls (24 saved; 7 attempts), "
    )


def test_calls_that_were_saved_are_told() -> None:
    assert "30 LLM calls (32 attempts" in lines(FOUND)
    saved = replace(FOUND, metrics={**FOUND.metrics, "calls_saved": 1_200})
    assert "30 LLM calls (1,200 saved; 32 attempts" in lines(saved)


def test_text_names_near_misses_for_what_they_are() -> None:
    text = lines(MISSED)
    assert "NOT approved" in text
    assert "1. chance 38%, 1 change\n   income: 40500 → 45000\n" in text


def test_text_says_how_many_more_there_are() -> None:
    assert "… and 2 more options." in lines(FOUND, n=1)
    assert "more option" not in lines(FOUND, n=3)


def test_ways_are_shown_with_their_own_values_and_are_never_padded() -> None:
    text = lines(WAYS)
    assert "1. chance 52%, 1 change\n   income: 40500 → 49000\n" in text
    assert "3. " not in text
    assert "more" not in text
    assert "… and 1 more way." in lines(WAYS, n=1)
    assert "1. chance 52%, 1 change, does not hold\n" in lines(POCKETS)
    columns, rows = option_rows(POCKETS.pick(5))
    assert (columns[-1], rows[0][-1]) == ("holds", "no")
    assert "holds" not in option_rows(WAYS.pick(5))[0]


def test_text_says_when_proposals_are_simulated() -> None:
    assert "Simulated: these changes were proposed by a stand-in" in lines(HOSTILE)
    assert "Simulated" not in lines(FOUND)
    assert "Simulated" not in lines(replace(HOSTILE, ledger=Spent(oracle_rows=150)))  # nor asked


def test_text_says_which_changes_the_search_itself_added() -> None:
    settings = {**HOSTILE.settings, "method_settings": {"own_edits": True}}
    note = (
        "Simulated: some of these changes were proposed by a stand-in, not by a language model; "
        "the others, without a reason, by the search itself."
    )
    assert note in lines(replace(HOSTILE, settings=settings), 10_000)
    assert "by the search itself" not in lines(HOSTILE, 10_000)


@pytest.mark.parametrize("name", EVERY)
@pytest.mark.parametrize("width", [40, 100])
def test_text_keeps_to_its_width_and_to_printable_characters(name: str, width: int) -> None:
    for line in lines(EVERY[name], width).splitlines():
        assert len(line) <= width
        assert line.isprintable()


def test_what_moves_with_a_change_is_not_counted_but_mentioned() -> None:
    assert change_count(OPTIONS[1]) == "2 changes"
    assert change_count(replace(OPTIONS[1], sparsity=1)) == "1 change (the rest moves with it)"


def test_cleaning_keeps_what_people_write() -> None:
    family = "👩\u200d👩\u200d👧 naïve שלום"
    assert clean(family) == family
    assert clean("a\u2028b\x00c\ud800") == "a bc"
    assert value_text("\u202e") == "(empty)"


def test_a_model_that_only_says_yes_or_no_is_given_no_chance() -> None:
    for result in (FOUND, MISSED):
        labels = replace(result, settings={**result.settings, "labels_only": True})
        assert "chance" not in lines(labels)
        assert "1. 1 change\n" in lines(labels)
