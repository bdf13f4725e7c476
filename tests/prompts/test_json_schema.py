from __future__ import annotations

import json
import random
from collections.abc import Callable, Iterator
from decimal import Decimal
from typing import Any

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from menu_samples import CARDS, card_menu, fits, menus

from waysout.domain.schema import Value
from waysout.errors import InputError
from waysout.llm.base import Editable
from waysout.prompts.json_schema import candidates_schema
from waysout.prompts.spelling import Spelling

TYPES: dict[str, tuple[type, ...]] = {
    "object": (dict,), "array": (list,), "string": (str,), "integer": (int,), "number": (int, float)
}  # fmt: skip


def valid(schema: dict[str, Any], found: Any) -> bool:
    """Judge by the keywords we use, and stumble over any other."""
    if "anyOf" in schema:
        return any(valid(option, found) for option in schema["anyOf"])
    if not isinstance(found, TYPES[schema["type"]]):
        return False
    checks = (_holds(k, v, found, schema) for k, v in schema.items() if k != "type")
    return all(checks)


def _holds(keyword: str, wanted: Any, found: Any, schema: dict[str, Any]) -> bool:
    judges: dict[str, Callable[[], bool]] = {
        "enum": lambda: found in wanted,
        "minimum": lambda: bool(found >= wanted),
        "maximum": lambda: bool(found <= wanted),
        "multipleOf": lambda: bool(found % wanted == 0),
        "maxLength": lambda: bool(len(found) <= wanted),
        "maxItems": lambda: bool(len(found) <= wanted),
        "minItems": lambda: bool(len(found) >= wanted),
        "items": lambda: all(valid(wanted, item) for item in found),
        "properties": lambda: all(valid(wanted[n], v) for n, v in found.items() if n in wanted),
        "required": lambda: set(wanted) <= set(found),
        "additionalProperties": lambda: wanted or set(found) <= set(schema["properties"]),
    }
    return judges[keyword]()


def instance(schema: dict[str, Any], rng: random.Random) -> Any:
    """Return something the schema allows."""
    if "anyOf" in schema:
        return instance(rng.choice(schema["anyOf"]), rng)
    if "enum" in schema:
        return rng.choice(schema["enum"])
    match schema["type"]:
        case "object":
            return {name: instance(part, rng) for name, part in schema["properties"].items()}
        case "array":
            count = rng.randint(schema["minItems"], schema["maxItems"])
            return [instance(schema["items"], rng) for _ in range(count)]
        case "string":
            return "x" * rng.randint(1, schema.get("maxLength", 9))
        case "integer":
            step = schema.get("multipleOf", 1)
            low, high = -(-schema["minimum"] // step), schema["maximum"] // step
            return rng.choice([low, high, rng.randint(low, high)]) * step
    return rng.choice([schema["minimum"], schema["maximum"]])


def parts(schema: object) -> Iterator[dict[str, Any]]:
    """Yield every schema within a schema."""
    if isinstance(schema, dict):
        yield schema
    for part in schema.values() if isinstance(schema, dict) else schema:  # type: ignore[attr-defined]
        if isinstance(part, (dict, list)):
            yield from parts(part)


def reply(*edits: tuple[str, object]) -> dict[str, Any]:
    return {"candidates": [{"feature": f, "value": v, "reasoning": "so"} for f, v in edits]}


def takes(offer: Editable, value: object) -> bool:
    return valid(candidates_schema([offer], 1), reply((offer.name, value)))


def text_of(value: object) -> str:
    return value if isinstance(value, str) else f"{Decimal(repr(value)):f}"


# --- what is allowed ---


@settings(max_examples=60)
@given(menus(), st.integers(1, 6), st.randoms(use_true_random=False))
def test_what_the_schema_allows_is_on_the_menu(
    offers: tuple[Editable, ...], k: int, rng: random.Random
) -> None:
    by_name = {offer.name: offer for offer in offers}
    schema = candidates_schema(offers, k)
    found = instance(schema, rng)
    assert valid(schema, found)
    assert len(found["candidates"]) == k
    for edit in found["candidates"]:
        assert list(edit) == ["feature", "value", "reasoning"]
        assert fits(by_name[edit["feature"]], text_of(edit["value"]))


@given(menus(), st.data())
def test_what_is_on_the_menu_the_schema_allows(
    offers: tuple[Editable, ...], data: st.DataObject
) -> None:
    offer = data.draw(st.sampled_from(offers))
    low, high, step = offer.low, offer.high, 10.0 ** -(offer.decimals or 0)
    numbers = [low, high, low - step, high + step, (low + high) / 2]
    texts = [*offer.choices, offer.now, "else"]
    value = data.draw(st.sampled_from(texts if offer.choices else [*numbers, float(offer.now)]))
    if isinstance(value, float):
        value = round(value, offer.decimals) if offer.decimals else int(value)
    assert valid(candidates_schema(offers, 1), reply((offer.name, value))) == fits(
        offer, text_of(value)
    )


@pytest.mark.parametrize("name", CARDS)
def test_on_every_card_values_are_admitted(name: str) -> None:
    offers, rules, row = card_menu(name)
    schema, rng = candidates_schema(offers, 5), random.Random(42)
    spelling, levers = Spelling(rules.schema), rules.levers(row)
    seen = set()
    for _ in range(60):
        for edit in instance(schema, rng)["candidates"]:
            feature = spelling.find(edit["feature"], strict=True)
            assert feature is not None
            text = text_of(edit["value"])
            value: Value = feature.coerce(spelling.find_level(feature, text) or text)
            lever = levers[feature.name]
            assert lever.admits(value) or value in lever.never, edit
            seen.add(edit["feature"])
    assert seen == {offer.name for offer in offers}


@pytest.mark.parametrize(
    "wrong",
    [
        reply(("job", "cook")),
        reply(("job", "cook"), ("job", "cook"), ("job", "cook")),
        reply(("job", "cook"), ("job", "chef")),
        reply(("job", "cook"), ("age", "cook")),
        reply(("job", "cook"), ("age", 7)),
        reply(("job", "cook"), ("age", 7.5)),
        reply(("job", "cook"), ("job", 8)),
        {"candidates": [{"feature": "job", "value": "cook"}] * 2},
        reply(("job", "cook"), ("age", 8)) | {"more": 1},
        [],
    ],
)
def test_anything_else_is_no_reply(wrong: object) -> None:
    offers = [Editable("job", "chef", ("cook",)), Editable("age", "7", (), 3, 9, decimals=0)]
    schema = candidates_schema(offers, 2)
    assert valid(schema, reply(("job", "cook"), ("age", 8)))
    assert not valid(schema, wrong)


def test_a_short_grid_is_listed() -> None:
    months = Editable("months", "36", (), 12, 60, 12, 0, 0)
    assert [n for n in range(100) if takes(months, n)] == [12, 24, 48, 60]
    halves = Editable("share", "0.5", (), 0, 1, 0.25, 0, 2)
    assert [n / 8 for n in range(9) if takes(halves, n / 8)] == [0, 0.25, 0.75, 1]


def test_a_long_grid_from_zero_is_held_and_another_is_not() -> None:
    sums = Editable("sum", "500", (), 0, 40_000, 500, 0, 0)
    assert [n for n in range(0, 2001, 100) if takes(sums, n)] == [0, 1000, 1500, 2000]
    assert takes(Editable("sum", "501", (), 1, 40_001, 500, 1, 0), 1001)


def test_an_empty_menu_has_no_schema() -> None:
    with pytest.raises(InputError, match="nothing may be edited"):
        candidates_schema([], 5)


# --- what servers ask of a schema ---


def long_menu() -> list[Editable]:
    lists = [Editable(f"list {i}", "x", tuple(map(str, range(100 + i)))) for i in range(12)]
    grids = [Editable(f"grid {i}", "0", (), 0, 50 + i, 1, 0, 0) for i in range(12)]
    return [*lists, *grids, Editable("towns", "x", tuple(f"town {i}" for i in range(201)))]


MENUS = {name: card_menu(name)[0] for name in CARDS} | {
    "long": tuple(long_menu()),
    "full": tuple(Editable(f"f{i}", "x", tuple(f"{i}-{j}" for j in range(100))) for i in range(10)),
    "wide": tuple(Editable(f"f{i}", "1", (), 0, i + 2, decimals=0) for i in range(1000)),
}


@pytest.mark.parametrize("name", MENUS)
def test_every_object_is_closed_and_everything_in_it_required(name: str) -> None:
    schema = candidates_schema(MENUS[name], 5)
    objects = [part for part in parts(schema) if part.get("type") == "object"]
    assert schema in objects
    assert len(objects) >= 2
    for part in objects:
        assert part["additionalProperties"] is False
        assert part["required"] == list(part["properties"])


@pytest.mark.parametrize("name", MENUS)
def test_no_more_than_a_thousand_values_are_listed(name: str) -> None:
    listed = [part["enum"] for part in parts(candidates_schema(MENUS[name], 5)) if "enum" in part]
    assert sum(map(len, listed)) <= 1000
    assert all(listed)


@pytest.mark.parametrize("name", MENUS)
def test_the_schema_is_plain_json(name: str) -> None:
    schema = candidates_schema(MENUS[name], 5)
    assert json.loads(json.dumps(schema, allow_nan=False)) == schema
    assert len(json.dumps(schema)) < 30_000


def test_the_longest_lists_become_plain_text() -> None:
    schema = candidates_schema(MENUS["long"], 1)
    assert valid(schema, reply(("towns", "any town")))
    assert valid(schema, reply(("list 11", "any")))
    assert not valid(schema, reply(("list 0", "any")))
    assert not valid(schema, reply(("grid 0", 51)))


def test_of_very_many_features_only_the_form_is_held() -> None:
    schema = candidates_schema(MENUS["wide"], 1)
    assert valid(schema, reply(("f7", 3)))
    assert valid(schema, reply(("f7", "3")))
    assert not valid(schema, reply(("f7", None)))


def test_features_with_the_same_values_share_a_schema() -> None:
    schema = candidates_schema([Editable(name, "no", ("yes",)) for name in "abc"], 1)
    edit = schema["properties"]["candidates"]["items"]
    assert edit["properties"]["feature"]["enum"] == ["a", "b", "c"]
