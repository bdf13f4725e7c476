"""What llama.cpp itself makes of the grammars and schemas: `WAYSOUT_GGUF=FILE pytest -m llm`."""

from __future__ import annotations

import json
import os
from functools import cache
from typing import Any

import pytest
from gbnf import Gbnf
from menu_samples import CARDS, card_menu

from waysout.llm.base import Editable
from waysout.prompts.grammar import block_grammar
from waysout.prompts.json_schema import candidates_schema

pytestmark = pytest.mark.llm


@cache
def server() -> Any:
    path = os.environ.get("WAYSOUT_GGUF")
    if not path:
        pytest.skip("WAYSOUT_GGUF is not set: there is no model to ask")
    llama = pytest.importorskip("xllamacpp")
    settings = llama.CommonParams()
    settings.model.path = path
    settings.n_ctx = 4096
    settings.n_parallel = 1
    settings.cpuparams.n_threads = 1
    settings.verbosity = -1
    return llama.Server(settings)


def ask(offers: tuple[Editable, ...], **held_to: object) -> str:
    lines = [f"{offer.name}, now {offer.now}" for offer in offers[:30]]
    question = "Which five edits would get this loan approved?\n" + "\n".join(lines)
    reply = server().handle_chat_completions(
        {
            "messages": [{"role": "user", "content": question}],
            "max_tokens": 1200,
            "temperature": 1.0,
            "seed": 1,
            **held_to,
        }
    )
    assert "error" not in reply, reply["error"]
    assert reply["choices"][0]["finish_reason"] == "stop"
    return str(reply["choices"][0]["message"]["content"])


ODD = (
    Editable('a "b" \\n', "x", ("\\", '"', ">50K", "{2}?")),
    Editable("漢字 ::= ü", "1.5", (), -3, 12.75, decimals=2),
    Editable("[x] | (y)", "0", (), -40_000, 40_000, 250, 0, 0),
    Editable("no limits", "unknown", (), -1e15, 1e15),
)
LARGE = (
    Editable("town", "x", tuple(f"town {i * 7919 % 1000}" for i in range(200))),
    Editable("street", "x", tuple(f"street {i}" for i in range(10_000))),
    *(Editable(f"f{i}", "7", (), -300 - i, 50_000 + 7 * i, decimals=0) for i in range(198)),
)
WIDE = tuple(Editable(f"f{i}", "1", (), 0, i + 2, decimals=0) for i in range(1000))

MENUS = {name: card_menu(name)[0] for name in CARDS} | {"odd": ODD, "large": LARGE, "wide": WIDE}


@pytest.mark.parametrize("name", MENUS)
def test_a_model_held_to_the_grammar_replies_in_it(name: str) -> None:
    grammar = block_grammar(MENUS[name], 5)
    reply = ask(MENUS[name], grammar=grammar)
    assert Gbnf(grammar).matches(reply), reply


@pytest.mark.parametrize("offer", ODD, ids=["texts", "decimals", "grid", "unlimited"])
def test_every_kind_of_value_is_understood(offer: Editable) -> None:
    grammar = block_grammar([offer], 5)
    reply = ask((offer,), grammar=grammar)
    assert Gbnf(grammar).matches(reply), reply


@pytest.mark.parametrize("name", MENUS)
def test_a_model_held_to_the_schema_replies_with_edits_from_the_menu(name: str) -> None:
    form = {"type": "json_schema", "json_schema": {"schema": candidates_schema(MENUS[name], 5)}}
    edits = json.loads(ask(MENUS[name], response_format=form))["candidates"]
    assert len(edits) == 5
    assert all(list(edit) == ["feature", "value", "reasoning"] for edit in edits)
    names = {offer.name for offer in MENUS[name]}
    assert name == "wide" or all(edit["feature"] in names for edit in edits)
