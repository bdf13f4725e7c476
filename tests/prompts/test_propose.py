from __future__ import annotations

import asyncio
import json
from dataclasses import replace

import pytest

from waysout.datasets.load import load_dataset
from waysout.domain.problem import Problem
from waysout.domain.rules import Immutable, RuleSet
from waysout.domain.schema import Feature, Row, Schema
from waysout.llm.base import Finish, Reply
from waysout.llm.simulated import Simulated
from waysout.oracles.adapt import as_oracle
from waysout.prompts.accept import Cause
from waysout.prompts.propose import Proposer, Style
from waysout.prompts.render import Record, Tag, Template, Topic

BLOCK = "CANDIDATE=1\nFEATURE=savings\nVALUE=9,000\nREASONING=more to fall back on"


@pytest.fixture(scope="module")
def topic() -> Topic:
    return Topic.of_card(load_dataset("synthetic").card)


@pytest.fixture(scope="module")
def query() -> Row:
    return load_dataset("synthetic").rows[828]


def test_a_request_asks_for_k_edits_in_the_form_the_backend_knows(topic: Topic, query: Row) -> None:
    held = Proposer(topic, "grammar").request(query, query, k=3, seed=4, draw=2, temperature=0.2)
    assert held is not None
    assert (held.k, held.seed, held.draw, held.temperature) == (3, 4, 2, 0.2)
    assert held.constraint is not None
    assert 'root ::= "CANDIDATE=1\\n"' in held.constraint.grammar
    assert held.constraint.grammar.count("CANDIDATE=") == 3
    assert "CANDIDATE=1" in held.messages[0].content
    assert [item.name for item in held.menu][:2] == ["education", "employment"]


def test_a_json_backend_is_asked_for_json(topic: Topic, query: Row) -> None:
    request = Proposer(topic, "json_schema").request(query, query)
    assert request is not None
    assert request.constraint is not None
    assert request.constraint.json_schema is not None
    assert '{"candidates": [' in request.messages[0].content
    assert "CANDIDATE=" not in request.messages[0].content


def test_without_constraints_every_backend_gets_the_block(topic: Topic, query: Row) -> None:
    request = Proposer(topic, "json_schema", Style(constrain=False)).request(query, query)
    assert request is not None
    assert request.constraint is None
    assert "CANDIDATE=1" in request.messages[0].content


def test_what_was_tried_reaches_the_prompt(topic: Topic, query: Row) -> None:
    tried = [Record((("savings", 9000),), Tag.REJECTED, 0.4)]
    request = Proposer(topic).request(query, query, history=tried, avoid=["savings"])
    assert request is not None
    assert "savings=9000: rejected, chance 40%" in request.messages[0].content
    assert "Tried often of late: savings." in request.messages[0].content


def test_a_reply_is_read_as_the_style_says(topic: Topic, query: Row) -> None:
    [edit] = Proposer(topic).read(Reply(BLOCK), query, query).edits
    assert (edit.feature, edit.value, edit.reason) == ("savings", 9000, "more to fall back on")
    nonsense = Reply(BLOCK, model="llamacpp:smollm2-135m")  # it is known to write no reasons
    assert Proposer(topic).read(nonsense, query, query).edits == (replace(edit, reason=""),)
    strict = Proposer(topic, style=Style(strict=True)).read(Reply(BLOCK), query, query)
    assert [r.cause for r in strict.rejections] == [Cause.BAD_TYPE]


def test_a_reply_that_was_cut_does_not_lose_digits_unnoticed(topic: Topic, query: Row) -> None:
    torn = "CANDIDATE=1\nFEATURE=savings\nVALUE=90"
    finishes: tuple[Finish, ...] = ("length", "bytes", "time", "filtered")
    for finish in finishes:
        proposal = Proposer(topic).read(Reply(torn, finish=finish), query, query)
        assert [r.cause for r in proposal.rejections] == [Cause.TRUNCATED]


def test_a_problem_and_its_card_are_one_topic(topic: Topic) -> None:
    card = load_dataset("synthetic").card
    oracle = as_oracle(lambda frame: [0.0] * len(frame), card)
    assert Topic.of_problem(Problem.from_card(card, oracle)) == topic


def test_nothing_is_asked_where_nothing_may_change() -> None:
    schema = Schema((Feature("age", "integer"),))
    rules = RuleSet(schema, (Immutable(features=["age"]),))
    assert Proposer(Topic("t", "no", "yes", rules)).request((40,), (40,)) is None


@pytest.mark.parametrize("template", ["waysout", "paper"])
def test_a_whole_round_with_the_simulated_llm(topic: Topic, query: Row, template: Template) -> None:
    proposer = Proposer(topic, style=Style(template))
    kept = 0
    for draw in range(20):
        request = proposer.request(query, query, draw=draw)
        assert request is not None
        reply = asyncio.run(Simulated(1).complete(request))
        proposal = proposer.read(reply, query, query)
        for edit in proposal.edits:
            row = topic.rules.apply(query, {edit.feature: edit.value})
            assert topic.rules.violations(query, row) == ()
        kept += len(proposal.edits)
    assert kept > 50


def test_a_schema_travels_as_json(topic: Topic, query: Row) -> None:
    request = Proposer(topic, "json_schema").request(query, query)
    assert request is not None
    assert request.constraint is not None
    assert json.loads(json.dumps(request.constraint.json_schema))["type"] == "object"
    assert len(request.key("m")) == 64
