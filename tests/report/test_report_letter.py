from __future__ import annotations

import re
from dataclasses import replace
from datetime import date
from pathlib import Path

import pytest
from page_reader import Page
from report_samples import (
    APPROVED,
    BROKEN,
    EVERY,
    FOUND,
    HOSTILE,
    MISSED,
    ONE,
    OPTIONS,
    POCKETS,
    SAFER,
    SETTINGS,
    STUCK,
    TIPPED,
    TOLD,
    WAYS,
    option,
    plain,
)

from waysout.domain.result import Outcome, OutcomeKind, ResultData
from waysout.domain.rules import Violation
from waysout.errors import InputError
from waysout.report.html import packaged
from waysout.report.letter import WIDTH, letter_page, letter_text

HEADINGS = set(re.findall(r"^# (.*)", packaged("letter.txt"), re.MULTILINE))
SUBJECT = "ABOUT A DECISION, AND WHAT WOULD CHANGE IT"


def flat(text: str) -> str:
    return " ".join(text.split())


def told(result: ResultData, n: int = 3) -> str:
    return flat(letter_text(result, n=n))


def test_a_letter_tells_what_to_do_and_from_where_to_where() -> None:
    text = told(TOLD)
    assert "A computer model (loans.txt) was given your values." in text
    assert "As things stand, it says: refused. It puts the chance of a yes at 29 %." in text
    assert (
        "1. Raise your income by 11,500 euros a year: income from 40,500 to 52,000 euros a year "
        "(chance 71 %)."
    ) in text
    assert (
        "2. Raise your income by 19,500.5 euros a year and raise your term by 24 months: income "
        "from 40,500 to 60,000.5 euros a year and term from 36 to 60 months (chance 90 %)."
    ) in text
    assert "from a rented flat to a house of one's own and car from no to with a car" in text
    assert "did not say so each time: do not rely on this one." in text
    assert "None of these ways changes: age (missing)." in text


def test_a_letter_says_how_many_there_are() -> None:
    assert "3 were found:" in told(TOLD)
    assert "3 were found. Here are 2 that differ" in told(TOLD, n=2)
    assert "One was found:" in told(ONE)
    assert "3. " not in told(TOLD, n=2)
    with pytest.raises(InputError, match="whole number of 1 or more"):
        letter_text(TOLD, n=0)


@pytest.mark.parametrize(("result", "n"), [(ONE, 3), (TOLD, 3), (TOLD, 2)])
def test_a_letter_says_it_once(result: ResultData, n: int) -> None:
    assert told(result, n).count("We looked for") == 1
    assert "The values that were looked at" not in told(result, n)


def test_a_letter_says_what_it_promises_and_what_not() -> None:
    text = told(TOLD)
    for said in ("What this letter promises, and what not", "not causes", "Nobody has checked",
                 "does not bind those who decide", "If none of this is possible for you",
                 "You can ask for a person to look at your case."):  # fmt: skip
        assert said in text
    for nothing in (MISSED, STUCK, APPROVED, BROKEN):
        assert "What this letter promises" not in told(nothing)


def test_a_letter_names_the_day_it_is_given() -> None:
    text = letter_text(TOLD, when=date(2026, 3, 1))
    assert text.startswith("  1 March 2026\n")
    assert "asked about each of these ways on 1 March 2026" in flat(text)
    assert letter_text(TOLD).startswith(SUBJECT)
    assert "each of these ways when the search was made" in told(TOLD)


ENDS = {
    "missed": (MISSED, "tried 150 combinations, and no more. The best chance it reached is 38 %"),
    "exhausted": (replace(MISSED, outcome=Outcome(OutcomeKind.EXHAUSTED)), "found none"),
    "stuck": (STUCK, "stand in the way: - income is fixed - term"),
    "out of reach": (replace(STUCK, outcome=Outcome(OutcomeKind.INFEASIBLE, "it is 0.9 now.")),
                     "cannot be reached: it is 0.9 now. The values"),
    "approved": (APPROVED, "Nothing. What was asked for, the answer “granted”, is met already."),
    "stopped": (replace(MISSED, outcome=Outcome(OutcomeKind.INTERRUPTED, "x")),
                "was stopped before it found one"),
    "failed": (BROKEN, "a fault in the program or in the model. That says nothing about your case"),
    "nothing to show": (replace(FOUND, options=()), "found none"),
}  # fmt: skip


@pytest.mark.parametrize("name", ENDS)
def test_every_end_has_words_of_its_own(name: str) -> None:
    result, said = ENDS[name]
    assert said in told(result)
    assert "Change " not in told(result)
    assert told(result).count("We looked for") + told(result).count("What was asked for") == 1


def test_options_found_before_a_stop_are_told_with_it() -> None:
    text = told(replace(TOLD, outcome=Outcome(OutcomeKind.INTERRUPTED, "x")))
    assert "1. Raise" in text
    assert "The search was stopped before its end." in text
    assert "stopped before its end" not in told(TOLD)
    failed = replace(TOLD, outcome=Outcome(OutcomeKind.FAILED, "x"))
    assert "The search was stopped before its end." in told(failed)
    assert "it says: refused." in told(replace(failed, settings=SETTINGS))


def test_an_option_that_was_not_asked_again_is_not_doubted() -> None:
    once = replace(TOLD, options=(replace(OPTIONS[0], stable=None),))
    assert "did not say so" not in told(once)


@pytest.mark.parametrize("name", ["missed", "exhausted", "stuck", "out of reach"])
def test_who_gets_no_way_out_hears_what_to_do(name: str) -> None:
    text = told(ENDS[name][0])
    assert "The values that were looked at" in text
    assert "Ask whoever sent you this letter whether the rules" in text
    assert "You can ask for a person to look at your case." in text


def test_a_chance_of_nothing_is_a_chance() -> None:
    hopeless = replace(MISSED, outcome=Outcome(OutcomeKind.EXHAUSTED, best_probability=0.0))
    assert "The best chance it reached is 0 %, which was not enough." in told(hopeless)


def test_what_stands_in_the_way_cannot_write_markup() -> None:
    binding = (Violation("<i>rule</i>", (), "<i>reason</i>"),)
    stuck = replace(STUCK, outcome=Outcome(OutcomeKind.INFEASIBLE, "", binding))
    assert "<i>rule</i>: <i>reason</i>" in Page(letter_page(stuck)).text


def test_very_many_values_are_cut() -> None:
    many = replace(MISSED, query={f"f{i}": i for i in range(45)})
    assert "- f23 (23) - and 21 more" in told(many)


def test_a_decision_that_is_not_known_is_not_made_up() -> None:
    assert "Its answer is not on file." in told(BROKEN)
    assert "rejected" not in told(BROKEN)
    known = replace(BROKEN, settings={"query_approved": False})
    assert "it says: rejected." in told(known)


def test_a_chance_that_was_asked_for_is_named() -> None:
    asked = replace(TOLD, settings={**TOLD.settings, "goal": {"at_least": 0.7}})
    assert "changes that reach a chance of at least 70 %." in told(asked)
    assert "52,000 euros a year (chance 71 %)." in told(asked)
    assert "granted" not in told(asked)
    little = replace(TOLD, settings={**TOLD.settings, "goal": {"at_least": 0.001}})
    assert "a chance of at least 0.1 %." in Page(letter_page(little)).text


def test_a_model_that_only_says_yes_or_no_is_given_no_chance() -> None:
    labels = replace(TOLD, settings={**TOLD.settings, "labels_only": True})
    assert "chance" not in told(labels)
    assert "from 40,500 to 52,000 euros a year." in told(labels)
    assert "best chance" not in told(replace(MISSED, settings={"labels_only": True}))


def test_what_moves_along_is_mentioned() -> None:
    linked = replace(TOLD, options=(replace(OPTIONS[1], sparsity=1),))
    assert "Some of these move together by themselves." in told(linked)
    assert "move together" not in told(TOLD)


@pytest.mark.parametrize("kind", [OutcomeKind.FOUND, OutcomeKind.INTERRUPTED, OutcomeKind.FAILED])
@pytest.mark.parametrize("options", [(), (replace(OPTIONS[0], reasons=("zebra zebra",)),)])
def test_nothing_that_a_language_model_wrote_is_in_a_letter(
    kind: OutcomeKind, options: tuple[()]
) -> None:
    # How a search was interrupted may quote what a server said.
    result = replace(TOLD, outcome=Outcome(kind, "the LLM said: zebra zebra"), options=options,
                     near_misses=(replace(OPTIONS[0], reasons=("zebra zebra",)),))  # fmt: skip
    assert "zebra" in (result.to_html() or "")
    assert "zebra" not in letter_text(result)
    assert "zebra" not in letter_page(result)


def test_simulated_proposals_are_said_so() -> None:
    assert told(HOSTILE).index("Simulated: these changes") < told(HOSTILE).index("What was decided")
    assert "Simulated" in letter_page(HOSTILE)
    assert "Simulated" not in told(TOLD)


@pytest.mark.parametrize("name", EVERY)
def test_a_letter_keeps_to_its_form(name: str) -> None:
    lines = plain(letter_text(EVERY[name])).splitlines()
    assert all(len(line) <= WIDTH and line.isprintable() for line in lines)
    at_margin = [line for line in lines if line and not line.startswith("  ")]
    assert {line for line in at_margin if set(line) - set("-=")} <= HEADINGS | {SUBJECT}


@pytest.mark.parametrize("name", EVERY)
def test_both_letters_say_the_same(name: str) -> None:
    source = letter_page(EVERY[name])
    read = Page(source)
    assert source.startswith("<!DOCTYPE html>")
    assert read.seen.count("h1") == 1
    assert "default-src 'none'" in source
    body = read.text[read.text.index("About a decision, and") :]
    marks = r"(?m)^ +(?:-|\d\.) |^[-=]+$"
    plain = re.sub(marks, "", letter_text(EVERY[name]).partition(SUBJECT)[2])
    assert re.sub(r"\s", "", plain) in re.sub(r"\s", "", body)


def test_a_letter_is_written_as_its_name_ends(tmp_path: Path) -> None:
    day = date(2026, 3, 1)
    assert TOLD.to_letter() == letter_text(TOLD)
    assert TOLD.to_letter(html=True, n=1) == letter_page(TOLD, n=1)
    for name in ("a.html", "b.HTM", "c.txt", "d"):
        assert TOLD.to_letter(tmp_path / name, when=day) is None
    assert (tmp_path / "a.html").read_text() == letter_page(TOLD, when=day)
    assert (tmp_path / "b.HTM").read_text() == letter_page(TOLD, when=day)
    assert (tmp_path / "c.txt").read_text() == letter_text(TOLD, when=day)
    assert (tmp_path / "d").read_text() == letter_text(TOLD, when=day)


def test_a_letter_tells_ways_and_counts_them() -> None:
    text = told(WAYS)
    assert "2 were found:" in text
    assert "Raise your income by 8,500: income from 40,500 to 49,000 (chance 52 %)." in text
    assert "52,000" not in text  # an option of the same key
    assert "If you go farther than that, it may say no again." not in text
    assert "If you go farther than that, it may say no again." in told(POCKETS)
    assert "It was not asked whether a little less is enough or whether more is still a yes." in (
        text
    )
    whole = "It was not asked whether every one of these changes is needed."
    assert whole not in text
    assert whole in told(TOLD)  # options of an earlier release


def test_a_letter_tells_what_one_change_does_alone() -> None:
    text = told(TIPPED)
    assert "- Income alone: a yes from 49,000 on (48,500 is a no)." in text
    assert "- Term alone" not in text  # neither enough nor in a way
    assert "What one change does alone" not in told(WAYS)
    assert "Home" not in told(replace(TIPPED, ways=TIPPED.ways[:1]))


def test_a_letter_tells_what_makes_a_way_safer() -> None:
    text = told(SAFER)
    assert "For a chance of at least 80 %: income to 56,000 (chance 82 %)." in text
    assert "Going on this way, nothing with a chance of at least 90 % or 95 % was found." in text
    assert "60 %" not in text  # the way's own chance says it


def test_a_choice_is_told_instead() -> None:
    by_hand = option(0.8, 0.5, term=60)
    text = flat(letter_text(WAYS, ways=[by_hand, WAYS.ways[0]]))
    assert "Each of these reaches the answer “granted”: 1. Raise your term by 24" in text
    assert "were found" not in text
    assert text.count("Put together by hand: the model approves it; whether less is enough") == 1
    assert letter_text(WAYS, ways=[]) == letter_text(WAYS)
    assert "by hand" in Page(letter_page(WAYS, ways=[by_hand])).text
    assert "every one of these" not in flat(letter_text(MISSED, ways=[by_hand]))
    assert WAYS.to_letter(ways=[by_hand]) == letter_text(WAYS, ways=[by_hand])


def test_a_letter_is_short() -> None:
    for name, result in EVERY.items():
        if name != "hostile":
            assert len(letter_text(result, when=date(2026, 3, 1)).splitlines()) <= 66, name
