"""What one change does alone is said of values that were asked, and of no others."""

from __future__ import annotations

from dataclasses import replace

import pytest
from report_samples import CORPUS, QUERY, TIPPED, WAYS, WORDING

from waysout.domain.result import Interval, Tip, TipStatus
from waysout.domain.schema import Value
from waysout.report.result import Result
from waysout.report.tipping import alone, first_of
from waysout.report.words import AsStored, Wording

TURNS, NOT_UP_TO, NOT_ASKED = TipStatus


def told(tip: Tip, feature: str = "term") -> Result:
    return replace(WAYS, tipping={feature: (tip,)})


def said(tip: Tip, feature: str = "term", wording: Wording | None = None) -> str:
    (one,) = alone(told(tip, feature), wording or AsStored(), not_asked=True)
    return one.said


def turns(*intervals: Interval, move: str = "up", limit: Value = 84, on: bool = False) -> Tip:
    return Tip(move, TURNS, intervals, (), limit, on)


@pytest.mark.parametrize(
    ("tip", "text"),
    [
        (turns(Interval(48, 84, 6, 47), on=True), "a yes from 48 on (47 is a no)"),
        (turns(Interval(48, 84, 6, 47)), "a yes from 48 to 84 (47 is a no)"),
        (turns(Interval(48, 48, 1, 47)), "a yes at 48 (47 is a no)"),
        (turns(Interval(48, 48, 1, 47, 50)), "a yes at 48 (47 and 50 are a no)"),
        (
            turns(Interval(48, 48, 1, 40, sharp=False)),
            "a yes at 48 (40 is a no; nothing between was asked)",
        ),
        (turns(Interval(37, 37, 1, 36)), "a yes at 37"),
        (turns(Interval(48, 48, 1, 36, sharp=False)), "a yes at 48 (nothing nearer was asked)"),
        (
            turns(Interval(48, 48, 1, 36, 50, sharp=False)),
            "a yes at 48 (50 is a no; nothing nearer was asked)",
        ),
        (
            turns(Interval(30, 12, 6, 31), move="down", limit=12, on=True),
            "a yes from 30 down (31 is a no)",
        ),
        (
            turns(Interval(48, 50, 2, 47, 52), Interval(60, 84, 6, 55)),
            "a yes from 48 to 50 (47 and 52 are a no) and from 60 to 84 (55 is a no)",
        ),
        (Tip("up", NOT_UP_TO, (), (48, 60, 84), 84), "not enough up to 84"),
        (Tip("down", NOT_UP_TO, (), (30, 20, 12), 12), "not enough down to 12"),
        (Tip("up", NOT_UP_TO, (), (60, 84), 84), "not enough at 60 and 84"),
        (Tip("up", NOT_ASKED, (), (48,), 84), "not enough at 48"),
        (Tip("up", NOT_ASKED, (), (48, 50, 60), 84), "not enough up to 60"),
        (Tip("up", NOT_ASKED, (), (), 84), "not asked (up to 84)"),
        (Tip("down", NOT_ASKED, (), (), 12), "not asked (down to 12)"),
    ],
)
def test_numbers(tip: Tip, text: str) -> None:
    assert said(tip) == text


def test_levels_in_order() -> None:
    owns = Interval("own", "own", 1, "shared")
    assert said(turns(owns, limit="palace"), "home") == "a yes with own (shared is a no)"
    refused = Tip("up", NOT_UP_TO, (), ("shared", "own"), "own")
    assert said(refused, "home") == "shared and own are not enough"


def test_levels_without_an_order() -> None:
    own, parents = Interval("own", "own", 1), Interval("parents", "parents", 1)
    tip = Tip("to", TURNS, (own,), ("shared",))
    assert said(tip, "home") == "own is enough; shared is not enough"
    both = Tip("to", TURNS, (own, parents), ("shared", "none"))
    assert said(both, "home") == "own and parents are enough; shared and none are not enough"
    assert said(Tip("to", NOT_UP_TO, (), ("shared",)), "home") == "shared is not enough"
    assert said(Tip("to", NOT_ASKED), "home") == "not asked"
    assert said(Tip("to", TURNS, (Interval(True, True, 1),)), "car") == "yes is enough"


def test_the_values_of_a_one_hot_group_are_features() -> None:
    query: dict[str, Value] = {"job_none": 1, "job_part_time": 0, "job_full_time": 0}
    tip = Tip("to", TURNS, (Interval("job_full_time", "job_full_time", 1),), ("job_part_time",))
    result = replace(WAYS, query=query, tipping={"job_none": (tip,)})
    (one,) = alone(result, Wording())
    assert (one.name, one.now) == ("job", "job none")
    assert one.said == "job full time is enough; job part time is not enough"


def test_the_words_of_the_card_and_one_unit() -> None:
    wording = Wording(WORDING)
    tip = turns(Interval(49000.0, 90000.0, 6, 9900.0), limit=90000.0, on=True)
    assert said(tip, "income", wording) == "a yes from 49,000 euros a year on (9,900 is a no)"
    tip = Tip("to", TURNS, (Interval("own", "own", 1),))
    assert said(tip, "home", wording) == "a house of one's own is enough"


def test_what_turns_comes_first_and_what_was_not_asked_only_where_it_is_wanted() -> None:
    short = alone(TIPPED, AsStored())
    assert [tip.feature for tip in short] == ["income", "term"]
    assert [tip.feature for tip in alone(TIPPED, AsStored(), not_asked=True)] == [
        "income", "term", "home", "term",
    ]  # fmt: skip
    assert [tip.feature for tip in first_of(short, [], 5)] == ["income"]
    assert [tip.feature for tip in first_of(short, ["term"], 5)] == ["income", "term"]
    assert len(first_of(short, ["term"], 1)) == 1


@pytest.mark.parametrize("text", CORPUS.values(), ids=CORPUS)
def test_what_is_untrusted_stays_text_everywhere(text: str) -> None:
    query: dict[str, Value] = {**QUERY, text: text}
    tip = Tip("to", TURNS, (Interval(f"{text}?", f"{text}?", 1),), (f"{text}!",))
    result = replace(WAYS, query=query, tipping={text: (tip,)})
    for source in (result.to_html(), result.to_letter(html=True), result._repr_html_()):
        assert source is not None
        assert "<script" not in source
        assert "<img" not in source
        assert "\u202e" not in source
    assert not {"\x1b", "\x00", "\u202e"}.intersection(str(result))


def test_a_probability_that_was_asked_for_is_no_yes() -> None:
    tip = turns(Interval(48, 84, 6, 47), on=True)
    asked = replace(told(tip), settings={**WAYS.settings, "goal": {"at_least": 0.8}})
    (one,) = alone(asked, AsStored())
    assert one.said == "enough from 48 on (47 is not)"


def test_a_one_hot_group_is_known_by_the_table_s_own_spelling() -> None:
    group = {"home_rent": "Y", "home_own": "N"}
    told = {name: {"true": "Y", "words": {"N": "no", "Y": "yes"}} for name in group}
    tip = Tip("to", TURNS, (Interval("home_own", "home_own", 1),))
    result = replace(WAYS, query=group, tipping={"home_rent": (tip,)})
    (one,) = alone(result, Wording(told))
    assert (one.name, one.now, one.said) == ("home", "home rent", "home own is enough")
    # A level may be called as another feature is.
    (one,) = alone(result, Wording())
    assert one.now == "Y"
