from __future__ import annotations

import re
from dataclasses import replace
from datetime import date
from itertools import pairwise

import pytest
from hypothesis import given
from hypothesis import strategies as st
from page_reader import Page
from report_samples import (
    APPROVED,
    BROKEN,
    EVERY,
    FOUND,
    HOSTILE,
    MISSED,
    OPTIONS,
    POCKETS,
    QUERY,
    SAFER,
    SETTINGS,
    SPENT,
    STUCK,
    TIPPED,
    TOLD,
    WAYS,
    option,
    plain,
    way,
)

from waysout.domain.result import Option, Outcome, OutcomeKind, Way
from waysout.report.html import esc, page
from waysout.report.letter import letter_page
from waysout.report.result import Result
from waysout.report.words import reason_text


def seen(result: Result) -> Page:
    return Page(page(result))


@pytest.mark.parametrize("name", EVERY)
def test_a_page_is_well_formed_and_needs_nothing_else(name: str) -> None:
    source = page(EVERY[name])
    read = Page(source)
    assert source.startswith('<!DOCTYPE html>\n<html lang="en">')
    assert read.seen.count("h1") == 1
    assert not re.search(r"https?://|url\(|@import|src=[^x]", source)
    assert "default-src 'none'; style-src 'unsafe-inline'" in source
    assert all(c.isprintable() or c in "\n\u00a0" for c in source)


def test_headings_come_in_order_and_tables_have_heads() -> None:
    read = seen(TIPPED)
    levels = [int(tag[1]) for tag in read.seen if tag in ("h1", "h2", "h3")]
    assert all(after <= before + 1 for before, after in pairwise(levels))
    assert {"caption", "thead", "th"} <= set(read.seen)
    assert 'scope="col"' in page(TIPPED)
    assert 'scope="row"' in page(TIPPED)


@pytest.mark.parametrize("name", EVERY)
def test_all_that_is_read_is_in_one_main_part(name: str) -> None:
    for source in (page(EVERY[name]), letter_page(EVERY[name])):
        body = source[source.index("<body>") :]
        assert body.split()[:2] == ["<body>", "<main>"]
        assert body.count("<main>") == body.count("</main>") == 1


def test_a_page_tells_what_was_decided_and_what_can_be_done() -> None:
    text = seen(FOUND).text
    assert "Ways out: Personal loans" in text
    assert "the model loans.txt says: refused" in text
    assert "Searched with comp-mcts. Changes proposed by llamacpp:tiny." in text
    assert "Goal: approval." in text
    assert text.index("Granted if you raise your income by 11,500") < text.index("Goal: ")
    assert "Three different routes" in text
    assert "1. Raise your income by 11,500income 40,500 → 52,000chance 71 %" in text
    assert "car no → yeschance 55 %Not approved each time it was asked." in text
    assert "Reason given: More income; A longer term" in text
    assert "Spent: 30 LLM calls" in text
    assert "12.346" in text
    assert "Simulated" not in text


def test_a_page_tells_which_changes_the_search_itself_added() -> None:
    settings = {**SETTINGS, "method": "recombine", "method_settings": {"own_edits": True}}
    own = replace(FOUND, settings=settings)
    assert (
        "Searched with recombine. Some changes proposed by llamacpp:tiny; the others, without a "
        "reason, by the search itself."
    ) in seen(own).text
    alone = replace(own, settings={**settings, "llm": None})
    assert "Searched with recombine." in seen(alone).text
    assert "proposed by" not in seen(alone).text


def test_a_page_tells_of_calls_that_were_saved() -> None:
    saved = replace(FOUND, metrics={**FOUND.metrics, "calls_saved": 12})
    assert "Spent: 30 LLM calls (12 saved; 32 attempts" in seen(saved).text


def test_all_options_are_listed_below_the_first_five() -> None:
    read = seen(HOSTILE)
    assert "Five different routes" in read.text
    assert "All 60 options, the easiest first" in read.text
    assert len(re.findall(r'<li class="card">', page(HOSTILE))) == 5
    assert len(re.findall(r'<tr><th scope="row">\d+</th>', page(HOSTILE))) == 60


def test_only_ways_are_listed_where_there_are_ways() -> None:
    read = seen(WAYS)
    assert "Two different routes" in read.text
    assert "Raise your income by 8,500income 40,500 → 49,000" in read.text
    assert "other way" not in read.text
    others = page(WAYS, n=1)
    assert "<summary>1 other way out</summary>" in others
    assert '<tr><th scope="row">2</th>' in others
    assert '<tr><th scope="row">1</th>' not in others
    assert "The approved rows count as 3 different options" in read.text
    assert "60,000.5" not in read.text  # an option that is no way
    assert "Does not hold" in seen(POCKETS).text
    assert "Does not hold" not in read.text
    assert "Whether a little less is enough and whether more is still a yes was not asked" in (
        read.text
    )


def test_a_page_tells_what_one_change_does_alone_and_what_was_not_asked() -> None:
    text = seen(TIPPED).text
    alone = text[text.index("One change alone") : text.index("What is promised")]
    assert "income40,500a yes from 49,000 on (48,500 is a no)" in alone
    assert "term36not enough up to 60" in alone
    assert "term36not asked (down to 12)" in alone
    assert "homerentparents is not enough; the others were not asked" in alone
    assert "One change alone" not in seen(WAYS).text


def test_a_page_tells_what_makes_a_way_safer() -> None:
    text = seen(SAFER).text
    assert "At least 60 %: has it already." in text
    assert "At least 80 %: income 40,500 → 56,000 (82 %)." in text
    assert "No variant with at least 90 % or 95 % was found." in text


def test_a_page_speaks_in_the_words_of_the_card() -> None:
    text = seen(TOLD).text
    assert "income 40,500 → 52,000 euros a year" in text
    assert "home a rented flat → a house of one's own" in text
    assert "car no → with a car" in text
    assert "term 36 → 60 months" in text
    assert "income40,500 euros a year" in text
    assert "income: income before tax" in text
    assert "Granted if you raise your income by 11,500 euros a year, or raise" in text


def test_a_page_says_what_is_promised_what_is_not_and_why_it_ended() -> None:
    text = Page(page(TOLD, when=date(2026, 3, 1))).text
    assert (
        "Goal: approval. As things stand, the model loans.txt says: refused (chance 29 %)." in text
    )
    assert "Asked on 1 March 2026." in text
    assert "Stopped at the limit of 30 questions to an LLM." in text
    for said in ("correlation is not causation", "Nobody has checked that a change is possible",
                 "may change", "answered on 1 March 2026",
                 "written by a language model, or a stand-in"):  # fmt: skip
        assert said in text[text.index("Not promised") :]
    assert "The limits" in text
    assert "immutable age" in text  # as earlier releases hold them
    limits = replace(TOLD, settings={**TOLD.settings, "limits": ["Age stays as it is"]})
    assert "Age stays as it is" in seen(limits).text[: seen(limits).text.index("What is promised")]
    assert "only up" not in seen(limits).text[: seen(limits).text.index("What is promised")]
    bare = replace(TOLD, options=(replace(OPTIONS[0], reasons=()),), settings={})
    assert "written by a language model" not in seen(bare).text
    assert "The limits" not in seen(bare).text
    assert "when this search was made" in seen(bare).text


def test_a_model_that_only_says_yes_or_no_is_given_no_chance() -> None:
    labels = replace(TOLD, settings={**TOLD.settings, "labels_only": True})
    text = seen(labels).text[: seen(labels).text.index("How it was searched")]
    assert "chance" not in text.replace("Chance", "")
    assert "approved" in text


def test_a_long_list_is_cut_and_says_where_the_rest_is() -> None:
    hard = replace(OPTIONS[0], proximity=0.01)
    many = replace(FOUND, options=(*(hard,) * 700, OPTIONS[1]))
    source = page(many)
    assert "The 500 easiest of 701 options, the easiest first" in Page(source).text
    assert "waysout runs export --format csv" in Page(source).text
    assert len(re.findall(r'<tr><th scope="row">\d+</th>', source)) == 500
    first = source[source.index('<tr><th scope="row">1</th>') :]
    assert "60,000.5" in first[: first.index("</tr>")]


def test_ways_are_drawn_by_effort_and_chance_where_it_helps() -> None:
    assert "svg" not in seen(FOUND).seen
    assert "svg" not in seen(WAYS).seen
    three = replace(WAYS, ways=(*WAYS.ways, way(OPTIONS[1], 0.2)))
    drawn = page(three)
    assert drawn.count('<circle class="first"') == 3
    assert "more effort" in Page(drawn).text
    at = [float(x) for x in re.findall(r'<circle class="first" cx="([\d.]+)"', drawn)]
    costs = [found.cost for found in three.pick(5) if isinstance(found, Way)]
    assert sorted(at) == [x for _, x in sorted(zip(costs, at, strict=True))]
    labels = replace(three, settings={**three.settings, "labels_only": True})
    assert "svg" not in seen(labels).seen
    alike = replace(three, ways=(WAYS.ways[0],) * 9)
    places = re.findall(r'<circle class="first" cx="[\d.]+" cy="[\d.]+"', page(alike, n=9))
    assert len(set(places)) == 9


def test_a_choice_is_shown_instead() -> None:
    by_hand = option(0.8, 0.5, term=60)
    text = Page(page(WAYS, ways=[by_hand, WAYS.ways[0]])).text
    assert "Granted if you raise your income by 8,500." in text
    assert "1. Raise your term by 24term 36 → 60chance 80 %Put together by hand: the model" in text
    assert "2. Raise your income by 8,500" in text
    assert text.count("by hand") == 1
    assert "1 other way out" in text
    assert page(WAYS, ways=[]) == page(WAYS)
    assert WAYS.to_html(ways=[by_hand]) == page(WAYS, ways=[by_hand])
    assert (
        "Granted if you raise your term by 24. Put together"
        in Page(page(MISSED, ways=[by_hand])).text
    )
    earlier = Page(page(FOUND, ways=[OPTIONS[1]])).text  # nobody asked, of any
    assert "by hand" not in earlier
    assert "One route" in earlier


def test_notes_are_told_and_printed() -> None:
    text = seen(replace(WAYS, notes=("1 was taken for a yes",))).text
    assert "What was taken for granted\nNote: 1 was taken for a yes" in text
    assert "taken for granted" not in seen(WAYS).text


def test_near_misses_are_labelled_as_not_approved() -> None:
    text = seen(MISSED).text
    assert "Near misses: NOT approved" in text
    assert "None of these was approved." in text
    assert "not approved, chance 38 %" in text
    assert "1. Near miss" in text
    assert "was put to the model" not in text


def test_near_misses_are_not_shown_beside_options() -> None:
    assert "Near miss" not in seen(replace(FOUND, near_misses=OPTIONS)).text


def test_a_yes_and_an_obstacle_are_told() -> None:
    approved = seen(APPROVED).text
    assert "the model loans.txt says: granted" in approved
    assert "Searched with" not in approved
    stuck = seen(STUCK).text
    assert "the model says: rejected" in stuck
    assert stuck.count("immutable: ") == len(QUERY)
    assert "the model has given no answer" in seen(BROKEN).text


def test_simulated_proposals_are_said_so_on_top() -> None:
    text = seen(HOSTILE).text
    assert text.index("Simulated:") < text.index("Present values")


def test_nothing_untrusted_reaches_the_page_as_markup() -> None:
    source = page(HOSTILE)
    assert "<script" not in source
    assert "<img" not in source
    assert "\u202e" not in source
    assert "\x1b" not in source
    text = Page(source).text
    assert "<script>alert(1)</script>" in text
    assert "{x} $title %s" in text
    assert "${body}" in text


anything = st.text(st.characters(), max_size=30) | st.sampled_from(
    ["</style>", "</title><script>", "$body", "<!--", "]]>", "&lt;", "\u202e", "\ud800", "'\">"]
)


@given(name=anything, old=anything, new=anything, reason=anything, setting=anything)
def test_any_text_stays_text(name: str, old: str, new: str, reason: str, setting: str) -> None:
    option = Option({name: new}, {name: (old, new)}, 0.5, 0.5, 1, "k", (reason,))
    result = Result(
        {name: old}, Outcome(OutcomeKind.FOUND, reason), (option,), ledger=SPENT,
        settings={"title": setting, "oracle": setting, "llm": setting, setting: [setting]},
    )  # fmt: skip
    source = page(result)
    source.encode()
    Page(source)
    Page(result._repr_html_())
    assert "\u202e" not in source
    assert esc(reason_text([reason])) in source or not reason_text([reason])


def test_an_option_that_wavers_is_listed_last() -> None:
    easy = replace(OPTIONS[2], proximity=0.9)
    source = page(replace(FOUND, options=(easy, *OPTIONS[:2])), n=2)
    table = source[source.index("<tbody>") :]
    assert table.index("Not approved each time") > table.index("60,000.5")
    assert '"tag warn">chance 55 %' in plain(page(FOUND))
    assert '"tag">chance 71 %' in plain(source)


def test_a_stop_does_not_hide_what_was_decided() -> None:
    stopped = replace(FOUND, outcome=Outcome(OutcomeKind.INTERRUPTED, "x"))
    assert "says: refused" in seen(stopped).text
    assert "has given no answer" in seen(replace(stopped, options=())).text
