"""Problems, rows and locks as JSON: what a page shows and sends, and what it means."""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from dataclasses import asdict
from typing import Any, cast

from waysout.domain.problem import Problem
from waysout.domain.rules import Allowed, Exclude, Immutable, Lever, Range, Rule, Step
from waysout.domain.rules.base import ROUNDING
from waysout.domain.schema import Feature, Row, Schema, Value, text_of
from waysout.errors import RowError, RuleError, SchemaError, UnavailableError, shown
from waysout.methods import about, all_methods, method_class
from waysout.report.words import goal_text
from waysout.serve.models import Locks

WHY = "you said so"


def problem_line(problem: Problem) -> dict[str, Any]:
    """Return a problem in a line."""
    return {
        "name": problem.name,
        "title": problem.title,
        "yes": problem.yes,
        "no": problem.no,
        "oracle": problem.oracle.name,
    }


def problem_form(problem: Problem) -> dict[str, Any]:
    """Return all that a page needs to ask for a row."""
    steps = {rule.feature: rule.step for rule in problem.rules.rules if isinstance(rule, Step)}
    return {
        **problem_line(problem),
        "labels_only": problem.oracle.labels_only,
        "goal": goal_text(asdict(problem.goal)),
        "features": [_feature(feature, steps) for feature in problem.schema],
        "rules": [
            {"name": rule.label, "says": rule.says, "why": rule.why} for rule in problem.rules.rules
        ],
    }


def method_forms(asks_llm: bool, knows_rows: bool) -> list[dict[str, Any]]:
    """Return the ways to search that a service offers, with what it has."""
    found = []
    for name in all_methods():
        try:
            made = method_class(name)
        except UnavailableError:  # another package's, which must not hide the others
            continue
        runs_here = asks_llm or not (made.needs_llm and made.needs_calls)
        if runs_here and (knows_rows or not made.needs_known):
            found.append({"name": name, "what": about(name), "llm": made.needs_llm})
    return found


def _feature(feature: Feature, steps: Mapping[str, float]) -> dict[str, Any]:
    return {
        "name": feature.name,
        "kind": feature.kind,
        "unit": feature.unit,
        "about": feature.about,
        "levels": None if feature.is_numeric else _levels(feature),
        "range": None if feature.range is None else list(feature.range),
        "decimals": feature.decimals,
        "step": steps.get(feature.name, feature.resolution),
        "may_be_missing": feature.missing != "refuse",
        "ordered": feature.ordered,
    }


def _levels(feature: Feature) -> list[dict[str, Any]]:
    plain = feature.levels == (False, True)
    spelled = ("no", "yes") if plain else map(text_of, feature.levels)
    return [
        {"value": value, "words": feature.words.get(level, words)}
        for value, level, words in zip(feature.values(), feature.level_texts, spelled, strict=True)
    ]


def lever_forms(problem: Problem, query: Row) -> dict[str, dict[str, Any]]:
    """Return for each feature what it may be set to."""
    return {name: _lever(lever) for name, lever in problem.rules.levers(query).items()}


def _lever(lever: Lever) -> dict[str, Any]:
    is_open, choices = lever.is_open, lever.choices()
    low, high = _ends(lever) if is_open and choices is None else (None, None)
    return {
        "open": is_open,
        "says": lever.describe(),
        "why": "" if is_open else lever.describe(),
        "low": low,
        "high": high,
        "step": lever.step or lever.feature.resolution,
        "choices": None if choices is None else list(choices),
    }


def _ends(lever: Lever) -> tuple[float, float]:
    """Return where a slider begins and ends: on the grid, where there is one."""
    low, high = lever.bounds()
    step = lever.step or lever.feature.resolution
    if step is None:
        return low, high
    first = math.ceil((low - lever.start) / step - ROUNDING)
    last = math.floor((high - lever.start) / step + ROUNDING)
    return _typed(lever, lever.start + step * first), _typed(lever, lever.start + step * last)


def _typed(lever: Lever, number: float) -> float:
    return float(cast(float, lever.feature.coerce(number)))


def lock_rules(problem: Problem, query: Row, locks: Locks) -> list[Rule]:
    """Return locks as rules, to be added to those of the card."""
    rules: list[Rule] = []
    schema = problem.schema
    if locks.fixed:
        rules.append(Immutable(features=list(dict.fromkeys(locks.fixed)), why=WHY))
    for name, ends in locks.ranges.items():
        rules.append(Range(feature=name, min=ends.min, max=ends.max, why=WHY))
    for name, values in locks.choices.items():
        feature = _known(schema, name)
        now = query[schema.index(name)]
        stay = [] if now is None else [now]
        rules.append(Allowed(feature=feature.name, values=[*values, *stay], why=WHY))
    rules += [_exclusion(schema, query, changes) for changes in locks.excluded]
    return rules


def _exclusion(schema: Schema, query: Row, changes: Mapping[str, Sequence[Value]]) -> Exclude:
    conditions = {
        name: _as_far(_known(schema, name), query[schema.index(name)], pair[1])
        for name, pair in changes.items()
    }
    return Exclude(values=conditions, why=WHY)


def _as_far(feature: Feature, now: Value, raw: Value) -> Any:
    """Return the condition of going at least as far as a change went.

    The direction is that from the person's own value, whatever was sent as such.
    """
    try:
        new = feature.parse(raw)
    except RowError as error:
        raise RuleError(f"excluded: {feature.name!r}: {error.reason}") from None
    if new is None or new == now:
        raise RuleError(f"excluded: {feature.name!r} does not change when it is {shown(raw)}")
    if not feature.is_numeric:
        return new
    if now is None:
        return {"min": new, "max": new}
    return {"min": new} if float(new) > float(now) else {"max": new}


def _known(schema: Schema, name: str) -> Feature:
    try:
        return schema[name]
    except SchemaError as error:
        raise RuleError(str(error)) from None
