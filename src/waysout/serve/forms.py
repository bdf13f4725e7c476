"""Problems, rows and locks as JSON: what a page shows and sends."""

from __future__ import annotations

import math
from dataclasses import asdict
from typing import Any, cast

from waysout.domain.problem import Problem
from waysout.domain.result import ResultData
from waysout.domain.rules import (
    Allowed,
    Exclude,
    Immutable,
    Lever,
    Range,
    Rule,
    Step,
    Violation,
)
from waysout.domain.rules.base import ROUNDING
from waysout.domain.schema import Feature, Row, Schema, Value
from waysout.errors import RowError, RuleError, SchemaError, UnavailableError, shown
from waysout.methods import about, all_methods, method_class
from waysout.report.rules import rule_words
from waysout.report.tipping import alone
from waysout.report.words import Wording, goal_text, goal_words, limits_of
from waysout.run.plan import level_words, wording
from waysout.serve.models import Locks

WHY = "ruled out by you"


def problem_line(problem: Problem) -> dict[str, Any]:
    """Return a problem in short."""
    told = {name: getattr(problem, name) for name in ("name", "title", "yes", "no")}
    return {**told, "oracle": problem.oracle.name}


def problem_form(problem: Problem) -> dict[str, Any]:
    """Return all that a page needs to ask for a row."""
    say = Wording(wording(problem.schema))
    steps = {rule.feature: rule.step for rule in problem.rules.rules if isinstance(rule, Step)}
    features = [
        {
            **{name: getattr(feature, name) for name in ("name", "kind", "unit", "about")},
            "label": feature.label,
            "levels": _levels(feature) if feature.has_levels else None,
            "range": None if feature.range is None else list(feature.range),
            "decimals": feature.decimals,
            "step": steps.get(feature.name, feature.resolution),
            "may_be_missing": feature.is_opaque or feature.missing != "refuse",
            "ordered": feature.ordered,
        }
        for feature in problem.schema
    ]
    return {
        **problem_line(problem),
        "labels_only": problem.oracle.labels_only,
        "goal": goal_text(asdict(problem.goal)),
        "goal_words": f"Goal: {goal_words(asdict(problem.goal))}.",
        "safer": list(problem.goal.safer),
        "limits_of_chance": list(limits_of({"goal": asdict(problem.goal)})),
        "features": features,
        "rules": [
            {"name": rule.label, "words": rule_words(rule, say)} for rule in problem.rules.rules
        ],
    }


def violation_words(problem: Problem, violation: Violation) -> str:
    """Say which rule is broken, in words; a value outside its own domain says so itself."""
    rule = problem.rules.rule_of(violation)
    say = Wording(wording(problem.schema))
    return violation.reason if rule is None else rule_words(rule, say)


def _levels(feature: Feature) -> list[dict[str, Any]]:
    told = zip(feature.levels, level_words(feature).values(), strict=True)
    return [{"value": value, "words": words} for value, words in told]


def form_row(schema: Schema, row: Row) -> dict[str, Value]:
    """Return a row for a form: levels as the table has them, and plain numbers to be moved."""
    return {f.name: form_value(f, value) for f, value in zip(schema, row, strict=True)}


def form_value(feature: Feature, value: Value) -> Value:
    """Return one value for a form."""
    return value if feature.is_numeric else feature.raw(value)


def told_pairs(problem: Problem, query: Row, row: Row) -> dict[str, list[Value]]:
    """Return what a row changes: from and to, as the table holds them."""
    return {name: list(pair) for name, pair in problem.told_changes(query, row).items()}


def method_forms(asks_llm: bool, knows_rows: bool) -> list[dict[str, Any]]:
    """Return the methods that a service can offer, with or without an LLM and known rows."""
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


def lever_forms(problem: Problem, query: Row) -> dict[str, dict[str, Any]]:
    """Return the values each feature may be set to."""
    return {name: lever_form(lever) for name, lever in problem.rules.levers(query).items()}


def lever_form(lever: Lever) -> dict[str, Any]:
    """Return the values one feature may be set to."""
    is_open, choices = lever.is_open, lever.choices()
    step = lever.step or lever.feature.resolution
    low: float | None = None
    high: float | None = None
    if is_open and choices is None:
        low, high = lever.bounds()
        if step is not None:  # a slider begins and ends on the grid
            first = math.ceil((low - lever.start) / step - ROUNDING)
            last = math.floor((high - lever.start) / step + ROUNDING)
            ends = (lever.feature.coerce(lever.start + step * n) for n in (first, last))
            low, high = (float(cast(float, end)) for end in ends)
    return {
        "open": is_open,
        "says": lever.describe(),
        "why": "" if is_open else lever.describe(),
        "low": low,
        "high": high,
        "step": step,
        "choices": None if choices is None else [form_value(lever.feature, c) for c in choices],
    }


def lever_tips(result: ResultData) -> list[dict[str, Any]]:
    """Return what each lever does alone, those that turn the decision first."""
    said: dict[str, list[str]] = {}
    for one in alone(result, Wording.of(result), not_asked=True):
        name = f"{one.name[:1].upper()}{one.name[1:]}"
        said.setdefault(one.feature, []).append(f"{name} alone: {one.said}.")
    return [
        {"feature": name, "said": told, "moves": [tip.as_dict() for tip in result.tipping[name]]}
        for name, told in said.items()
    ]


def lock_rules(problem: Problem, query: Row, locks: Locks) -> list[Rule]:
    """Return locks as rules, to be added to those of the card."""
    rules: list[Rule] = []

    def known(name: str) -> tuple[Feature, Value]:
        try:
            return problem.schema[name], query[problem.schema.index(name)]
        except SchemaError as error:
            raise RuleError(str(error)) from None

    if locks.fixed:
        rules.append(Immutable(features=list(dict.fromkeys(locks.fixed)), why=WHY))
    for name, ends in locks.ranges.items():
        rules.append(Range(feature=name, min=ends.min, max=ends.max, why=WHY))
    for name, values in locks.choices.items():
        feature, now = known(name)
        admitted = [*values, *([] if now is None else [now])]
        rules.append(Allowed(feature=feature.name, values=admitted, why=WHY))
    for changes in locks.excluded:
        conditions = {name: _as_far(*known(name), pair[1]) for name, pair in changes.items()}
        rules.append(Exclude(values=conditions, why=WHY))
    return rules


def _as_far(feature: Feature, now: Value, raw: Value) -> Any:
    """Return the condition of going at least as far as a change went.

    A person who cannot do this cannot do more of it, and near copies of an option just ruled out
    would be an insult. The direction is that from the person's own value, whatever was sent.
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
