"""How the fields of a rule are read, so that a wrong one fails with its value and the remedy."""

from __future__ import annotations

from waysout.domain.schema import LARGEST, Feature, Schema, Value
from waysout.errors import RowError, RuleError, SchemaError, shown


def find_feature(schema: Schema, name: object) -> tuple[int, Feature]:
    """Return a feature and its position, or say which there are."""
    if not isinstance(name, str):
        raise RuleError(f"a feature is named by text, not {shown(name)}")
    try:
        return schema.index(name), schema[name]
    except SchemaError as error:
        raise RuleError(str(error)) from None


def find_features(schema: Schema, names: object) -> list[tuple[int, Feature]]:
    """Return the features of a list, each once."""
    if not isinstance(names, (list, tuple)) or not names:
        raise RuleError(f"features is a list of names, not {shown(names)}")
    if len(set(map(str, names))) != len(names):
        raise RuleError(f"a feature is listed twice in {list(names)!r}")
    return [find_feature(schema, name) for name in names]


def read_value(feature: Feature, raw: object) -> Value:
    """Return a rule's value, typed by its feature."""
    try:
        value = feature.parse(raw)
    except RowError as error:
        raise RuleError(f"feature {feature.name!r}: {error.reason}") from None
    if value is None:
        raise RuleError(f"feature {feature.name!r}: a rule cannot ask for a missing value")
    return value


def read_values(feature: Feature, raws: object) -> tuple[Value, ...]:
    """Return a rule's values, typed by their feature."""
    if not isinstance(raws, (list, tuple)) or not raws:
        raise RuleError(f"feature {feature.name!r}: give a list of values, not {shown(raws)}")
    return tuple(read_value(feature, raw) for raw in raws)


def read_number(what: str, raw: object) -> float:
    """Return a finite number."""
    if isinstance(raw, bool) or not isinstance(raw, (int, float)) or not abs(raw) <= LARGEST:
        raise RuleError(f"{what} must be a finite number of at most ±1e15, not {shown(raw)}")
    return float(raw)


def read_limits(feature: Feature, low: object, high: object) -> tuple[float, float]:
    """Read a pair of limits for a numeric feature; both may not be absent, nor contradict."""
    if not feature.is_numeric:
        raise RuleError(f"feature {feature.name!r} is a {feature.kind}; min and max need a number")
    if low is None and high is None:
        raise RuleError(f"feature {feature.name!r}: give min, max or both")
    lowest = -LARGEST if low is None else read_number("min", low)
    highest = LARGEST if high is None else read_number("max", high)
    if lowest > highest:
        raise RuleError(f"feature {feature.name!r}: the range {low} to {high} is empty")
    return lowest, highest


def moved(feature: Feature, before: Value, after: Value) -> str:
    """Say how a value moves."""
    ends = ["missing" if v is None else feature.format(v) for v in (before, after)]
    return f"goes from {ends[0]} to {ends[1]}"
