"""A JSON schema for replies as JSON, made from a menu.

It keeps to what OpenAI's strict mode takes: an object at the root, everything required, nothing
else allowed, at most a thousand listed values (the length of a reason is left out for OpenAI by the
backend). Other servers skip, without a word, what they do not know (llama.cpp skips the limits of
numbers with decimals), so a reply is validated all the same.
"""

from __future__ import annotations

import json
from collections.abc import Iterable, Sequence
from decimal import Decimal
from typing import Any

from waysout.llm.base import Editable
from waysout.prompts.grammar import LONGEST_REASON
from waysout.prompts.menu import MOST_FEATURES, Domain, domains, short_lists

MOST_LISTED = 1000
"""Names and values listed in the whole schema; beyond it the longest lists give way."""

JsonSchema = dict[str, Any]


def candidates_schema(menu: Sequence[Editable], k: int) -> JsonSchema:
    """Return the JSON schema of a reply of exactly ``k`` candidates.

    >>> schema = candidates_schema([Editable("age", "7", (), 3, 9, decimals=0)], 2)
    >>> edit = schema["properties"]["candidates"]["items"]
    >>> edit["required"], edit["properties"]["feature"]
    (['feature', 'value', 'reasoning'], {'type': 'string', 'enum': ['age']})
    >>> edit["properties"]["value"]["anyOf"][0]
    {'type': 'integer', 'minimum': 3, 'maximum': 6}
    """
    values = domains(menu)
    # For each list of features with the same values: the schema of the feature, and of its value.
    pairs: list[tuple[JsonSchema, JsonSchema]] = []
    if len(values) > MOST_FEATURES:
        pairs = [({"type": "string"}, {"anyOf": [{"type": "string"}, {"type": "number"}]})]
    else:
        short = short_lists(values, MOST_LISTED - len(values))
        together: dict[str, list[str]] = {}
        for name, one in values.items():
            together.setdefault(json.dumps(_value(one, listed=name in short)), []).append(name)
        for value, names in together.items():
            pairs.append(({"type": "string", "enum": names}, json.loads(value)))
    # A small model without this limit writes one reason until its tokens are spent.
    reasoning = {"type": "string", "maxLength": LONGEST_REASON}
    edits = (_object({"feature": f, "value": v, "reasoning": reasoning}) for f, v in pairs)
    many = {"type": "array", "items": _any_of(edits), "minItems": k, "maxItems": k}
    return _object({"candidates": many})


def _object(properties: JsonSchema) -> JsonSchema:
    return {
        "type": "object",
        "properties": properties,
        "required": list(properties),
        "additionalProperties": False,
    }


def _any_of(schemas: Iterable[JsonSchema]) -> JsonSchema:
    options = list(schemas)
    return options[0] if len(options) == 1 else {"anyOf": options}


def _value(one: Domain, *, listed: bool) -> JsonSchema:
    if one.texts:
        return {"type": "string"} | ({"enum": list(one.texts)} if listed else {})
    if one.points:
        return {"type": "number"} | ({"enum": [_plain(p) for p in one.points]} if listed else {})
    spans: list[JsonSchema] = []
    for low, high in one.spans:
        schema: JsonSchema = {
            "type": "number" if one.decimals else "integer",
            "minimum": _plain(Decimal(low).scaleb(-one.decimals)),
            "maximum": _plain(Decimal(high).scaleb(-one.decimals)),
        }
        # The keyword counts from zero, and so cannot describe a grid that starts elsewhere.
        if one.step > 1 and one.start % one.step == 0:
            schema["multipleOf"] = one.step
        spans.append(schema)
    return _any_of(spans)


def _plain(number: Decimal) -> float | int:
    return int(number) if number == int(number) else float(number)
