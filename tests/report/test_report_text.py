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
    SAFER,
    STUCK,
    TIPPED,
    WAYS,
    option,
    plain,
    way,
)

from waysout.domain.budget import Spent
from waysout.domain.result import Interval, Outcome, OutcomeKind, ResultData, Tip, TipStatus
from waysout.report.text import (
    ending,
    headline_words,
    lead,
    lines,
    option_rows,
    sentence,
    spent_line,
    tip_rows,
)
from waysout.report.words import Wording, change_count, clean, doubts, doubts_in_full, value_text


@pytest.mark.parametrize(
    ("result", "said"),
    [
        (
            FOUND,
            "3 options. The model says yes if income goes from 40500 to 52000; or income from "
            "40500 to 60000.5 and term from 36 to 60. Whether every change is needed was not "
            "asked. 1 of them was not approved each time the model was asked.",
        ),
        (
            ONE,
            "1 option. The model says yes if income goes from 40500 to 52000. Whether every change "
            "is needed was not asked.",
        ),
        (
            WAYS,
            "2 ways out (41 of 150 rows approved). The model says yes if income goes from 40500 to "
            "49000. 1 of them was not approved each time the model was asked.",
        ),
        (
            POCKETS,
            "1 way out (41 of 150 rows approved). The model says yes if income goes from 40500 to "
            "49000. Does not hold: a no again if you go farther. Whether a little less is enough "
            "was not asked.",
        ),
        (
            MISSED,
            "No way out was found within the budget: all 30 LLM calls are spent. "
            "The best chance reached is 38 %.",
        ),
        (APPROVED, "Nothing needs to change: granted already (chance 83 %)."),
        (
            STUCK,
            "There is no way out under the rules: income is fixed; term is fixed; home is fixed; "
            "and 2 more. The chance as things stand is 12 %.",
        ),
    ],
    ids=["found", "one", "ways", "pockets", "missed", "approved", "stuck"],
)
def test_the_outcome_in_one_paragraph(result: ResultData, said: str) -> None:
    assert plain(sentence(result)) == said


def test_a_goal_out_of_reach_is_not_blamed_on_the_rules() -> None:
    outcome = Outcome(OutcomeKind.INFEASIBLE, "the chance is 0.9 already; it cannot rise by 0.2")
    said = sentence(replace(STUCK, outcome=outcome))
    assert said == "There is no way out: the chance is 0.9 already; it cannot rise by 0.2."


def test_options_found_before_an_interruption_are_told_with_it() -> None:
    said = sentence(replace(ONE, outcome=Outcome(OutcomeKind.INTERRUPTED, "nobody answers.")))
    assert said.startswith("1 option.")
    assert said.endswith("The search was interrupted: nobody answers.")


@pytest.mark.parametrize("kind", list(OutcomeKind))
def test_every_outcome_has_words(kind: OutcomeKind) -> None:
    assert sentence(ResultData({}, Outcome(kind))).endswith(".")


def test_option_rows_fit_a_table() -> None:
    columns, rows = option_rows(OPTIONS)
    assert columns == ["#", "what changes", "chance", "nearness"]
    told = "income: 40500 → 60000.5\nterm: 36 → 60\nReason given: More income; A longer term\n"
    assert rows[1] == ["2", told, "90\u00a0%", "0.40"]
    assert rows[2][1].endswith("\nnot approved each time it was asked")
    columns, (first, *_) = option_rows(OPTIONS, chances=False)
    assert (len(columns), "chance" in columns) == (len(first), False)
    assert "Reason" not in option_rows(OPTIONS, reasons=False)[1][1][1]
    assert option_rows([])[1] == []


def test_a_headline_goes_with_a_goal_of_its_own() -> None:
    asked = replace(WAYS, settings={**WAYS.settings, "goal": {"at_least": 0.7}})
    assert "approved). A chance of at least 70 % is reached if income goes from" in plain(
        sentence(asked)
    )


def test_a_headline_names_ways_without_a_doubt_and_few_of_their_changes() -> None:
    long = way(option(0.6, 0.2, income=1.0, term=2, home="own", car=True, age=3), 0.5)
    sure = replace(WAYS, ways=(WAYS.ways[0], long))
    assert sentence(sure).endswith(
        "if income goes from 40500 to 49000; or income from 40500 to 1, term from 36 to 2, home "
        "from rent to own and 2 more changes."
    )
    open_ = replace(sure, ways=(WAYS.ways[0], replace(long, irreducible=None)))
    assert "; or" not in sentence(open_)


@pytest.mark.parametrize(
    ("known", "said"),
    [
        ({}, []),
        ({"holds": False}, ["does not hold: a no again if you go farther"]),
        (
            {"tight": False},
            ["a little less was approved too, but that does not hold or was not all asked"],
        ),
        ({"tight": None}, ["whether a little less is enough was not asked"]),
        (
            {"tight": None, "irreducible": None},
            ["whether every change is needed and whether a little less is enough was not asked"],
        ),
        ({"holds": None}, ["whether more is still a yes was not asked"]),
        ({"stable": False}, ["not approved each time it was asked"]),
    ],
)
def test_what_was_not_asked_or_is_known_otherwise_is_said(
    known: dict[str, bool | None], said: list[str]
) -> None:
    asked = replace(WAYS.ways[0], **known)  # type: ignore[arg-type]
    assert doubts(asked) == said
    assert len(doubts_in_full(asked)) == len(said)
    assert all(line in lines(replace(WAYS, ways=(asked,))) for line in said)


def test_safer_variants_hang_at_their_way() -> None:
    text = plain(lines(SAFER))
    assert (
        "\n   at least 60 %: has it already\n   at least 80 %: income 40500 → 56000 (82 %)\n"
        in text
    )
    assert "\n   no variant with at least 90 % or 95 % was found\n" in text
    assert "at least" not in lines(WAYS)
    rows = option_rows(SAFER.pick(5), SAFER.settings)[1]
    assert "at least 80 %: income 40500 → 56000 (82 %)" in plain(rows[0][1])


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
    text = plain(lines(MISSED))
    assert "NOT approved" in text
    assert "1. chance 38 %, 1 change\n   income: 40500 → 45000\n" in text


def test_text_says_how_many_more_there_are() -> None:
    assert "… and 2 more options." in lines(FOUND, n=1)
    assert "more option" not in lines(FOUND, n=3)


def test_ways_are_shown_with_their_own_values_and_are_never_padded() -> None:
    text = plain(lines(WAYS))
    assert "1. chance 52 %, 1 change\n   income: 40500 → 49000\n" in text
    assert "3. " not in text
    assert "… and" not in text
    assert "… and 1 more way." in lines(WAYS, n=1)
    assert "\n   does not hold: a no again if you go farther\n" in lines(POCKETS)


def test_text_tells_what_one_change_does_alone() -> None:
    assert (
        "One change alone, as far as was asked:\n"
        "   income (now 40500): a yes from 49000 on (48500 is a no)\n"
        "   term (now 36): not enough up to 60\n"
    ) in lines(TIPPED)
    columns, rows = tip_rows(TIPPED)
    assert columns == ["feature", "now", "alone"]
    assert rows[0] == ["income", "40500", "a yes from 49000 on (48500 is a no)"]
    assert "alone" not in lines(WAYS)
    assert tip_rows(WAYS)[1] == []


def test_a_long_list_of_changes_alone_is_cut_and_says_so() -> None:
    refused = Tip("up", TipStatus.NOT_UP_TO, (), (1, 2, 3), 3)
    many = replace(TIPPED, tipping={**TIPPED.tipping, **{f"f{i}": (refused,) for i in range(12)}})
    rows = tip_rows(many)[1]
    assert (len(rows), rows[-1]) == (11, ["", "", "… and 4 more, none of them enough"])
    turning = Tip("up", TipStatus.TURNS, (Interval(1, 1, 1, 0),), (), 3)
    many = replace(TIPPED, tipping={f"f{i}": (turning,) for i in range(12)})
    assert tip_rows(many)[1][-1][2] == "… and 2 more"


def test_text_says_when_proposals_are_simulated() -> None:
    assert "Simulated: these changes were proposed by a stand-in" in lines(HOSTILE)
    assert "Simulated" not in lines(FOUND)
    scripted = replace(HOSTILE, settings={**HOSTILE.settings, "llm": "scripted:1"})
    assert "Scripted: these changes were proposed by a stand-in" in lines(scripted)
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
    for line in plain(lines(EVERY[name], width)).splitlines():
        assert len(line) <= width
        assert line.isprintable()


def test_what_moves_with_a_change_is_not_counted_but_mentioned() -> None:
    assert change_count(OPTIONS[1]) == "2 changes"
    linked = replace(OPTIONS[1], sparsity=1)
    assert change_count(linked) == "1 change (the rest moves with it)"
    assert option_rows([linked])[1][0][1].endswith("1 change (the rest moves with it)")


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


@pytest.mark.parametrize(
    ("kind", "reason", "said"),
    [
        ("found", "all 150 oracle rows are spent", "Stopped at the limit of 150 model checks."),
        ("budget-spent", "all 150 oracle rows are spent; polish: 40 rows",
         "Stopped at the limit of 150 model checks."),
        ("found", "8 more oracle rows would pass the limit of 150 (149 spent)",
         "Stopped at the limit of 150 model checks."),
        ("found", "all 30 LLM calls are spent", "Stopped at the limit of 30 questions to an LLM."),
        ("found", "the deadline of 2.5 seconds has passed", "Stopped at the limit of 2.5 seconds."),
        ("found", "a call could pass the limit of 0.2 in money",
         "Stopped at the limit of 0.2 in money."),
        ("budget-spent", "of another method", "Stopped at its limit: of another method."),
        ("found", "no row seemed worth asking", "Nothing was left to try."),
        ("exhausted", "every row was tried.", "Nothing was left to try."),
        ("found", "", ""),
        ("interrupted", "stopped by request", "Stopped by you."),
        ("interrupted", "", "Stopped by you."),
        ("interrupted", "nobody answers.", "Stopped before its end: nobody answers."),
        ("interrupted", "the search is still under way", "The search is still under way."),
        ("failed", "the oracle broke", "The search failed: the oracle broke."),
        ("already-approved", "granted already", ""),
        ("infeasible", "age is fixed", ""),
    ],
)  # fmt: skip
def test_people_hear_why_it_ended(kind: str, reason: str, said: str) -> None:
    assert ending(ResultData({}, Outcome(OutcomeKind(kind), reason)), people=True) == said


def test_people_hear_what_to_do_first() -> None:
    words = Wording()
    assert lead(WAYS, words) == "Granted if you raise your income by 8,500."
    assert lead(WAYS, words, [option(0.8, 0.5, term=60)]).startswith(
        "Granted if you raise your term"
    )
    assert plain(lead(MISSED, words)) == "No way out was found. The best chance reached is 38 %."
    assert plain(lead(APPROVED, words)) == "Already approved (chance 83 %)."
    asked = replace(APPROVED, settings={"goal": {"at_least": 0.7}})
    assert plain(lead(asked, words)) == "Already reached: a chance of at least 70 % (chance 83 %)."
    assert lead(APPROVED, Wording(labels_only=True)) == "Already approved."
    held = "There is no way out under the rules. What holds it: income is fixed;"
    assert lead(STUCK, words).startswith(held)


def test_a_heading_counts_in_words() -> None:
    assert [headline_words(n) for n in (0, 1, 2, 12, 1200)] == [
        "No different routes", "One route", "Two different routes", "Twelve different routes",
        "1,200 different routes",
    ]  # fmt: skip
