"""Results in the spelling of the user's table, or in the types that rows have.

Results hold what the table holds: ``Y`` or ``1`` where a row inside the search has ``True``, the
integer 1 where it has the text of a level. Earlier releases wrote the inner values. Both are read
here through the schema.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import replace
from typing import TypeVar

from waysout.domain.memory import read_again
from waysout.domain.result import Option, ResultData, Tip, Way
from waysout.domain.schema import Feature, Row, Schema, Value
from waysout.errors import RowError, SchemaError

_Result = TypeVar("_Result", bound=ResultData)
_Option = TypeVar("_Option", bound=Option)
_Write = Callable[[str, Value], Value]


def row_of(schema: Schema, option: Option) -> Row:
    """Return the row of an option as the search had it."""
    return read_again(schema, option.row.values())


def typed(schema: Schema, option: _Option) -> _Option:
    """Return an option with the values that rows inside a search have."""
    return _rewritten(option, lambda name, value: _read(schema[name], value))


def as_in_table(schema: Schema, result: _Result) -> _Result:
    """Return a result, which may be of an earlier release, with the values of the table.

    A query that cannot be read, of a search that failed for it, stays as it is.
    """

    def write(name: str, value: Value) -> Value:
        feature = schema[name]
        return feature.raw(_read(feature, value))

    try:
        query = {name: write(name, value) for name, value in result.query.items()}
    except (RowError, SchemaError):
        return result
    return replace(
        result,
        query=query,
        options=tuple(_rewritten(option, write) for option in result.options),
        near_misses=tuple(_rewritten(option, write) for option in result.near_misses),
        ways=tuple(_rewritten(way, write) for way in result.ways),
        tipping={
            name: tuple(_tip(schema, name, tip, write) for tip in tips)
            for name, tips in result.tipping.items()
        },
    )


def _read(feature: Feature, value: Value) -> Value:
    return None if value is None else feature.parse(value)


def _rewritten(option: _Option, write: _Write) -> _Option:
    if isinstance(option, Way):
        option = replace(
            option,
            variants=tuple(_rewritten(variant, write) for variant in option.variants),
            safer=tuple(_rewritten(safer, write) for safer in option.safer),
        )
    return replace(
        option,
        row={name: write(name, value) for name, value in option.row.items()},
        changes={
            name: (write(name, old), write(name, new))
            for name, (old, new) in option.changes.items()
        },
    )


def _tip(schema: Schema, name: str, tip: Tip, write: _Write) -> Tip:
    def told(value: Value) -> Value:
        # The values of a one-hot group are its features.
        of_group = schema[name].kind != "category" and isinstance(value, str) and value in schema
        return value if of_group else write(name, value)

    return tip.rewritten(told)
