from __future__ import annotations

import json
import random
import time
import unicodedata
from collections import Counter
from collections.abc import Callable
from dataclasses import dataclass
from functools import partial

import pytest
from gbnf import Gbnf
from hypothesis import given
from hypothesis import strategies as st
from reply_samples import QUERY, RULES, SPELLING, mutated

from strategies import rows, schemas
from waysout.datasets.load import load_dataset
from waysout.datasets.registry import card
from waysout.domain.rules import Direction, OneHot, Range, RuleSet
from waysout.domain.schema import Edit, Feature, Row, Schema, Value
from waysout.prompts.accept import Cause, knows, read_reply
from waysout.prompts.grammar import block_grammar
from waysout.prompts.menu import menu
from waysout.prompts.numerals import read_number
from waysout.prompts.parse import candidates
from waysout.prompts.spelling import Spelling

REPLIES = 2400  # for each of the five tables


@dataclass(frozen=True)
class Table:
    rules: RuleSet
    spelling: Spelling
    query: Row
    rows: tuple[Row, ...]


def _middle(feature: Feature) -> Value:
    if feature.is_numeric:
        low, high = feature.range or (0.0, 100.0)
        return feature.coerce((low + high) / 2)
    return feature.values()[0]


def _from_card(name: str, rule_set: str) -> Table:
    rules = card(name).rules(rule_set)
    query = tuple(_middle(feature) for feature in rules.schema)
    return Table(rules, Spelling(rules.schema), query, (query,))


def _samples() -> Table:
    moved = RULES.apply(QUERY, {"income_annum": 500_000})
    further = RULES.apply(moved, {"education": "Graduate", "co_signer": True})
    return Table(RULES, SPELLING, QUERY, (QUERY, moved, further))


def _synthetic() -> Table:
    rules = card("synthetic").rules()
    query = load_dataset("synthetic").rows[0]
    moved = rules.apply(query, {"income": 60000})
    return Table(rules, Spelling(rules.schema), query, (query, moved))


def _awkward() -> Table:
    """A query that breaks rules already, a one-hot group, hostile and look-alike names."""
    schema = Schema(
        (
            Feature("FEATURE", "integer", range=(0, 10)),
            Feature("age", "integer", range=(18, 99)),
            Feature("Age ", "number", missing="fill"),
            Feature("income_annum", "number", range=(0, 1e6)),
            Feature("job", "category", levels=("<|im_end|>", "VALUE=3", "a", "A", "1,2")),
            Feature("rent", "boolean"),
            Feature("own", "boolean"),
            Feature("café", "category", levels=("1", "2"), missing="keep"),
        )
    )
    some = (
        Range(feature="income_annum", min=1000),
        Direction(features=["FEATURE"], direction="down"),
        OneHot(features=["rent", "own"]),
    )
    query: Row = (5, 40, None, 3.0, "a", True, False, None)
    moved: Row = (5, 40, 2.0, 3.0, "A", True, False, None)
    return Table(RuleSet(schema, some), Spelling(schema), query, (query, moved))


TABLES: dict[str, Callable[[], Table]] = {
    "samples": _samples,
    "synthetic": _synthetic,
    "adult": lambda: _from_card("adult", "realistic"),
    "loan": lambda: _from_card("loan", "realistic"),
    "awkward": _awkward,
}


def own_replies(table: Table, draw: random.Random) -> list[str]:
    """Replies that name this table's features, the fixed ones too, in the format asked for."""
    found = []
    for _ in range(30):
        edits = [_some_edit(table, draw) for _ in range(3)]
        blocks = (f"CANDIDATE={i}\nFEATURE={f}\nVALUE={v}\nREASONING=x" for i, (f, v) in edits)
        listed = [{"feature": f, "value": v, "reasoning": "x"} for _, (f, v) in edits]
        found += ["\n\n".join(blocks), json.dumps({"candidates": listed})]
    return found


def _some_edit(table: Table, draw: random.Random) -> tuple[int, tuple[str, str]]:
    feature = draw.choice(table.rules.schema.features)
    if feature.is_numeric:
        low, high = feature.range or (-100, 100)
        value = feature.coerce(draw.uniform(low, high * 1.1))
    else:
        value = draw.choice(feature.values())
    return draw.randint(1, 9), (table.spelling.name(feature.name), feature.format(value))


def broken(rules: RuleSet, query: Row, row: Row) -> set[tuple[str, tuple[str, ...]]]:
    return {(v.rule, v.features) for v in rules.violations(query, row)}


def check_edit(rules: RuleSet, query: Row, row: Row, edit: Edit) -> None:
    after = rules.apply(row, {edit.feature: edit.value})
    assert rules.schema[edit.feature].fits(edit.value)
    assert after not in (row, query)
    assert broken(rules, query, after) <= broken(rules, query, row)
    assert not rules.levers(query)[edit.feature].blocked
    assert len(edit.reason) <= 300
    assert edit.reason == " ".join(edit.reason.split())
    assert edit.reason.isprintable()


@pytest.mark.parametrize("name", TABLES)
def test_no_reply_breaks_the_parser_or_a_rule(name: str) -> None:
    table = TABLES[name]()
    draw = random.Random(f"replies about {name}")
    own = own_replies(table, draw)
    met: Counter[Cause] = Counter()
    accepted = 0
    for _ in range(REPLIES):
        text, row, k = mutated(draw, own), draw.choice(table.rows), draw.randint(1, 5)
        cut, strict = draw.random() < 0.3, draw.random() < 0.2
        proposal = read_reply(
            text, rules=table.rules, spelling=table.spelling, query=table.query, row=row, k=k,
            cut=cut, strict=strict,
        )  # fmt: skip
        known = partial(knows, table.spelling)
        seen = candidates(text, cut=cut, strict=strict, knows=known)
        assert len(proposal.edits) + len(proposal.rejections) == len(seen) >= 1
        assert len(proposal.edits) <= k
        assert sum(proposal.counts().values()) == len(proposal.rejections)
        assert all((r.detail + r.rule).isprintable() for r in proposal.rejections)
        for edit in proposal.edits:
            check_edit(table.rules, table.query, row, edit)
        met.update(r.cause for r in proposal.rejections)
        accepted += len(proposal.edits)
    # The corpus must reach what it is meant to test.
    assert accepted > 200
    assert set(Cause) <= met.keys()


@given(st.text(max_size=300), st.booleans(), st.booleans())
def test_any_text_is_read(text: str, cut: bool, strict: bool) -> None:
    found = candidates(text, cut=cut, strict=strict)
    assert found
    assert all(raw.flaw or (raw.feature and raw.value) for raw in found)


@given(st.text(st.sampled_from("0123456789.,-+eE%kmKM $€>()to from'_\u202f"), max_size=30))
def test_any_number_like_text_is_read_to_a_finite_number_or_not_at_all(text: str) -> None:
    number = read_number(text)
    assert number is None or abs(number) < float("inf")


@given(st.data())
def test_what_the_menu_offers_is_accepted_as_the_prompt_spells_it(data: st.DataObject) -> None:
    schema = data.draw(schemas())
    row = data.draw(rows(schema))
    rules, spelling = RuleSet(schema), Spelling(schema)
    strict = data.draw(st.booleans())
    by_spelling = {spelling.name(name): name for name in schema.names}
    for offer in menu(rules, spelling, row, row):
        if not offer.choices:
            continue
        said = data.draw(st.sampled_from(offer.choices))
        reply = f"CANDIDATE=1\nFEATURE={offer.name}\nVALUE={said}\nREASONING=x"
        proposal = read_reply(
            reply, rules=rules, spelling=spelling, query=row, row=row, k=1, strict=strict
        )
        assert [edit.feature for edit in proposal.edits] == [by_spelling[offer.name]]
        feature = schema[by_spelling[offer.name]]
        assert spelling.value(feature, proposal.edits[0].value) == said


@pytest.mark.parametrize("name", TABLES)
def test_what_the_grammar_writes_is_understood(name: str) -> None:
    table = TABLES[name]()
    offers = menu(table.rules, table.spelling, table.query, table.query)
    grammar, rng = Gbnf(block_grammar(offers, 5)), random.Random(7)
    understood = {Cause.BREAKS_RULE, Cause.NO_CHANGE, Cause.OUTSIDE_DOMAIN}
    for _ in range(40):
        proposal = read_reply(
            grammar.sample(rng), rules=table.rules, spelling=table.spelling, query=table.query,
            row=table.query, k=5,
        )  # fmt: skip
        assert len(proposal.edits) + len(proposal.rejections) == 5
        assert {rejection.cause for rejection in proposal.rejections} <= understood


FIELD_LIKE = [
    "a", "A", "1", "01", "1.0", "+1", "-1", "1,000", "5+", "yes", "no", "N", "null", "unknown",
    "<5", "(1, 2)", ", ", " or ", " to ", "from ", "->", "=", "VALUE=", "FEATURE=", "CANDIDATE=1",
    " REASONING=", "reason: ", "(reason: x)", ", feature: y", " value: 3", "; ", ":", "**", "** ",
    "`", "```", '"', "{", "}", '{"feature": "f", "value": "a"}', "</think>", "[THINK]", "\u200b",
    "e\u0301", "blank", " (2)", "- ", "1. ", "# ", "| ", "%", ".", "!",
]  # fmt: skip
field_like = st.lists(st.sampled_from(FIELD_LIKE), min_size=1, max_size=3).map("".join)
several = st.lists(field_like.filter(lambda t: t.strip(" \u200b")), min_size=2, max_size=5)


@given(several, several, st.data())
def test_names_and_levels_that_look_like_fields_are_read_as_what_they_are(
    names: list[str], levels: list[str], data: st.DataObject
) -> None:
    normal = [unicodedata.normalize("NFC", text).strip() for text in (*names, *levels)]
    levels = list(dict.fromkeys(normal[len(names) :]))
    features = [
        Feature(name, "category", levels=("start", *(t for t in levels if t != "start")))
        for name in dict.fromkeys(normal[: len(names)])
    ]
    schema = Schema(tuple(features))
    feature = data.draw(st.sampled_from(features))
    value = data.draw(st.sampled_from(feature.level_texts[1:]))
    spelling, row = Spelling(schema), ("start",) * len(schema)
    said = spelling.name(feature.name), spelling.value(feature, value)
    block = "CANDIDATE=1\nFEATURE={}\nVALUE={}\nREASONING=it says why".format(*said)
    listed = json.dumps([{"feature": said[0], "value": said[1], "reasoning": "it says why"}])
    for text, strict in ((block, False), (block, True), (listed, False)):
        proposal = read_reply(
            text, rules=RuleSet(schema), spelling=spelling, query=row, row=row, k=1, strict=strict
        )
        assert proposal.edits == (Edit(feature.name, value, "it says why"),)
        assert not proposal.rejections


HOSTILE = {
    "open brackets": "[" * 65536,
    "open braces": "{" * 65536,
    "open objects": '{"a":' * 13000,
    "escapes": '{"' + '\\"' * 32000,
    "mismatched": "{]" * 32000,
    "nested lists of objects": "[" * 20000 + "{}" * 10000 + "]" * 20000,
    "unclosed lists of objects": "[{}" * 21000,
    "deep objects": ('{"a":' * 15 + "1" + "}" * 14 + ",]") * 600,
    "objects": '{"feature":"a","value":1}' * 2600,
    "objects in a reason": "REASONING=x" + '{"a":1}' * 9000,
    "mappings on lines": '{"a":1}\n' * 8000,
    "arrows": "FEATURE=credit_score\nVALUE=" + "(->" * 21000,
    "keys": "FEATURE=" * 8000,
    "inline keys": ",feature" * 8000,
    "fields": "FEATURE=a VALUE=1 " * 3600,
    "stars": "*" * 65536,
    "spaces": "VALUE=" + " " * 65536,
    "thoughts": "<think>" * 9000,
    "digits": "FEATURE=credit_score\nVALUE=" + "1" * 65000,
    "groups": "FEATURE=credit_score\nVALUE=1" + ",000" * 16000,
    "words": "FEATURE=" + "a " * 32000 + "\nVALUE=b",
}


@pytest.mark.parametrize("text", HOSTILE.values(), ids=HOSTILE)
def test_hostile_replies_are_read_in_no_time(text: str) -> None:
    start = time.process_time()
    read_reply(text, rules=RULES, spelling=SPELLING, query=QUERY, row=QUERY, k=5)
    assert time.process_time() - start < 2.0  # anything but linear takes minutes at this size
