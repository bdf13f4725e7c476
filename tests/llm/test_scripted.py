from __future__ import annotations

import asyncio
import json
import random
import tomllib
from collections import Counter
from importlib import resources
from typing import Any

import pytest

import waysout
from waysout.bench.tables_base import llm_words
from waysout.datasets.registry import card
from waysout.domain.schema import Feature, Row, Value
from waysout.errors import InputError
from waysout.llm.base import Editable, Message, Reply, Request
from waysout.llm.connect import stand_in
from waysout.llm.scripted import Scripted, common_sense
from waysout.prompts.accept import Cause
from waysout.prompts.propose import Proposer, Style
from waysout.prompts.render import Topic
from waysout.prompts.spelling import Spelling

TABLES = ("loan", "adult", "credit", "heloc")
PAPER = Style("paper", constrain=False, strict=True)
MENU = (
    Editable("cibil_score", "510", (), 300, 900, decimals=0),
    Editable("loan_amount", "8400000", (), 300_000, 1e15, step=100_000, decimals=0),
    Editable("education", "HS-grad", ("11th", "Bachelors", "Doctorate")),
    Editable("PAY_AMT1", "0", (), 0, 1_700_000, decimals=0),
    Editable("loan_term", "8", ("2", "4", "12", "20")),
    Editable("MSinceMostRecentDelq", "-7", (), -9, 83, decimals=0),
    Editable("mood", "good", ("bad", "splendid")),
)


def ask(menu: tuple[Editable, ...] = MENU, seed: int = 1, **settings: Any) -> Reply:
    request = Request((Message("user", "the prompt"),), menu=menu, **settings)
    return asyncio.run(Scripted(seed).complete(request))


def edits(reply: Reply) -> list[tuple[str, str]]:
    lines = [line.partition("=") for line in reply.text.splitlines() if line]
    said = [value for key, _, value in lines if key in ("FEATURE", "VALUE")]
    return list(zip(said[::2], said[1::2], strict=True))


def values(item: Editable, draws: int = 60) -> set[str]:
    """Return all that is ever proposed for a feature."""
    return {v for draw in range(draws) for _, v in edits(ask((item,), k=1, draw=draw))}


def test_it_keeps_the_protocol() -> None:
    waysout.check_backend(waysout.connect("scripted:1"))


def test_the_same_request_gets_the_same_reply_and_another_draw_another() -> None:
    assert ask().text == ask().text
    assert len({ask().text, ask(draw=1).text, ask(seed=2).text}) == 3


def test_it_says_scripted_wherever_it_shows_and_is_no_llm() -> None:
    reply = ask()
    assert reply.model == waysout.connect("scripted:1").name == "scripted:1"
    assert reply.usage.estimated
    assert reply.text.count("REASONING=scripted: ") == 5
    assert stand_in("scripted:1") == "scripted"
    assert llm_words("scripted:1") == "scripted:1 (scripted: no language model)"


@pytest.mark.parametrize("seed", ["", "x", "-1", "1.5", "1234567890"])
def test_a_seed_is_a_whole_number(seed: str) -> None:
    with pytest.raises(InputError):
        waysout.connect(f"scripted:{seed}")


def test_every_edit_is_of_another_feature_and_goes_the_better_way() -> None:
    for draw in range(100):
        found = dict(edits(ask(draw=draw)))
        assert len(found) == 5
        assert "MSinceMostRecentDelq" not in found  # never late: there is nothing better
        assert 510 < int(found.get("cibil_score", 900)) <= 900
        assert 300_000 <= int(found.get("loan_amount", 300_000)) < 8_400_000
        assert int(found.get("loan_amount", 0)) % 100_000 == 0
        assert 0 < int(found.get("PAY_AMT1", 1)) <= 10_000
        assert found.get("education", "Doctorate") in ("Bachelors", "Doctorate")


def test_numbers_go_some_or_all_of_the_way_in_round_steps() -> None:
    assert values(MENU[0]) == {"550", "610", "700", "800", "900"}
    assert values(MENU[4]) == {"2", "4", "12", "20"}  # sense does not say


def test_small_numbers_take_the_steps_that_there_are() -> None:
    assert values(Editable("PAY_0", "2", (), -2, 8, decimals=0)) == {"1", "0", "-1"}
    assert values(Editable("NumInqLast6M", "1", (), -9, 66, decimals=0)) == {"0"}
    # The way up from a code that says "no figure" begins at zero.
    assert min(map(int, values(Editable("AverageMInFile", "-8", (), -9, 390, decimals=0)))) > 0


def test_what_is_barred_or_stands_at_its_good_end_is_left_alone() -> None:
    barred = Editable("MaxDelq2PublicRecLast12M", "5", (), -9, 9, decimals=0, never=(7.0,))
    assert values(barred) == {"6"}
    for name, now in (("PAY_0", "-1"), ("PAY_2", "-2"), ("BILL_AMT1", "-50"), ("age", "60")):
        assert not values(Editable(name, now, (), -100, 100, decimals=0))
    assert not values(Editable("self_employed", "No", ("Yes",)))


def test_an_unknown_feature_goes_either_way_within_reach() -> None:
    found = {float(v) for v in values(Editable("x", "40", (), -1e15, 1e15))}
    assert min(found) < 40 < max(found)
    assert all(-60 <= v <= 140 for v in found)
    on_grid = {float(v) for v in values(Editable("x", "0.3", (), 0, 0.9, step=0.1, decimals=1))}
    assert on_grid == {0.0, 0.1, 0.2, 0.4, 0.5, 0.6, 0.7, 0.8, 0.9} & on_grid
    assert {0.0, 0.9} <= on_grid


@pytest.mark.parametrize("now", ["(not known)", "", "nan", "inf"])
def test_a_missing_number_gets_the_good_end(now: str) -> None:
    assert values(Editable("cibil_score", now, (), 300, 900, decimals=0)) == {"900"}


def test_other_values_of_a_feature_fill_up_a_short_menu() -> None:
    found = edits(ask(MENU[:2], k=5))
    assert Counter(name for name, _ in found).keys() == {"cibil_score", "loan_amount"}
    assert len(set(found)) == 5


def test_what_sense_knows_comes_first_the_more_so_when_cold() -> None:
    menu = (*(Editable(f"x{i}", "5", (), 0, 10, decimals=0) for i in range(6)), *MENU[:4])

    def known(temperature: float) -> int:
        drawn = (edits(ask(menu, k=4, draw=d, temperature=temperature)) for d in range(50))
        return sum(not name.startswith("x") for found in drawn for name, _ in found)

    assert 200 == known(0.0) > known(0.7) > known(2.0) > 80


def test_nothing_sensible_is_nothing_said() -> None:
    assert ask((MENU[5],)).text == ask(()).text == ""


def test_a_name_of_the_table_with_other_levels_is_unknown() -> None:
    assert values(Editable("education", "low", ("middle", "high"))) == {"middle", "high"}
    assert values(Editable("age", "young", ("old",))) == {"old"}
    assert values(Editable("occupation", "3", (), 0, 9, decimals=0))


def random_row(features: tuple[Feature, ...], rng: random.Random) -> Row:
    def value(feature: Feature) -> Value:
        if feature.range is None:
            return rng.choice(list(feature.values()))
        low, high = map(int, feature.range)
        return rng.choice((low, high, rng.randint(low, high), max(low, 0)))

    return tuple(value(feature) for feature in features)


@pytest.mark.parametrize("form", ["none", "json_schema"])
@pytest.mark.parametrize("table", TABLES)
def test_every_edit_is_accepted_on_the_four_tables(table: str, form: Any) -> None:
    known, rng = card(table), random.Random(table)
    style = PAPER if form == "none" else Style()
    proposer = Proposer(Topic.of_card(known), form, style)
    for draw in range(60):
        query = random_row(tuple(known.schema), rng)
        row = query
        for _ in range(3):  # as a search goes down its tree
            request = proposer.request(query, row, draw=draw)
            assert request is not None
            reply = asyncio.run(Scripted(3).complete(request))
            if form == "json_schema":
                assert list(json.loads(reply.text)) == ["candidates"]
            read = proposer.read(reply, query, row)
            assert not read.rejections
            assert len({(edit.feature, edit.value) for edit in read.edits}) == 5
            assert all(edit.reason.startswith("scripted: ") for edit in read.edits)
            row = proposer.topic.rules.apply(row, {read.edits[0].feature: read.edits[0].value})


@pytest.mark.parametrize("table", TABLES)
def test_under_stricter_rules_only_those_of_several_features_refuse(table: str) -> None:
    known, rng = card(table), random.Random(table)
    proposer = Proposer(Topic.of_card(known, "realistic"), "none", PAPER)
    for draw in range(60):
        row = random_row(tuple(known.schema), rng)
        request = proposer.request(row, row, draw=draw)
        if request is None:
            continue
        read = proposer.read(asyncio.run(Scripted(3).complete(request)), row, row)
        assert {refused.cause for refused in read.rejections} <= {Cause.BREAKS_RULE}


def test_the_table_and_the_cards_name_the_same_features_and_levels() -> None:
    text = resources.files("waysout.llm").joinpath("scripted.toml").read_text("utf-8")
    levels: dict[str, set[str]] = {}
    for table in TABLES:
        known = card(table)
        spelling = Spelling(known.schema)
        levers = known.rules("paper").levers(random_row(tuple(known.schema), random.Random(1)))
        for feature in known.schema:
            if not levers[feature.name].blocked:
                name = spelling.name(feature.name)
                found = () if feature.is_numeric else spelling.levels(feature).values()
                levels.setdefault(name, set()).update(found)
    assert tomllib.loads(text).keys() == levels.keys() == common_sense().keys()
    for name, sense in common_sense().items():
        assert not sense.ranks or sense.ranks.keys() == levels[name], name
        assert bool(levels[name]) == (sense.up is sense.down is None), name
