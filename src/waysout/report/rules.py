"""Rules as a person reads them: what may change and how, with the card's reason.

A card writes `12*age + loan_months <= 840`; a person reads why that is asked, or, where the card
gives no reason, the same in words.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import replace
from typing import Any

from waysout.domain import rules as kinds
from waysout.domain.rules import Rule, Violation
from waysout.domain.rules.comparison import Comparison, parse_comparison
from waysout.domain.schema import Value
from waysout.report.words import Wording, capital, clean, counted, listed, number_text

_COMPARED = {
    "<=": "at most", "<": "less than", ">=": "at least", ">": "more than", "==": "exactly",
}  # fmt: skip
_MOST_NAMED = 8  # features or values of a rule; a person reads no longer lists
_MOST_HELD = 6  # features that stand in the way
_TURNED = {"<=": ">=", "<": ">", ">=": "<=", ">": "<", "==": "=="}


def limits_in_words(rules: Iterable[Rule], wording: Wording) -> list[str]:
    """Say rules in words, each once; grids that are alike but for their feature in one line."""
    steps: dict[Rule, list[str]] = {}
    for rule in rules:
        if isinstance(rule, kinds.Step):
            steps.setdefault(replace(rule, feature="", name=""), []).append(rule.feature)
    said = []
    for rule in rules:
        if isinstance(rule, kinds.Step):
            names = steps[replace(rule, feature="", name="")]
            said.append(_with_why(_steps(rule, names, wording), rule))
        else:
            said.append(rule_words(rule, wording))
    return list(dict.fromkeys(said))


def rule_words(rule: Rule, wording: Wording) -> str:
    """Say a rule in words, with its reason in brackets; a rule of another's making says its own.

    >>> rule = kinds.Direction(features=["income", "savings"], direction="up", why="to work for")
    >>> rule_words(rule, Wording())
    'Income and savings may only go up (to work for)'
    >>> rule_words(kinds.Linear(that="12*age + loan_months <= 840"), Wording())
    '12 × age plus loan months is at most 840'
    """
    # A sum says less than the reason for it.
    if isinstance(rule, kinds.Linear) and clean(rule.why):
        return capital(clean(rule.why))
    say = _SAYERS.get(type(rule))
    return _with_why(clean(rule.says) if say is None else say(rule, wording), rule)


def _with_why(said: str, rule: Rule) -> str:
    why = clean(rule.why)
    return capital(f"{said} ({why})" if why else said)


def _names(rule: Any, wording: Wording) -> str:
    names = [wording.name(name) for name in rule.features]
    # What stays as it is is named in full: it is what a person asks about first.
    return listed(names if isinstance(rule, kinds.Immutable) else _few(names))


def _few(texts: Sequence[str]) -> list[str]:
    rest = len(texts) - _MOST_NAMED
    return [*texts[:_MOST_NAMED], f"{rest} others"] if rest > 1 else list(texts)


def _stays(count: int) -> str:
    return "stays as it is" if count == 1 else "stay as they are"


def _steps(rule: kinds.Step, features: Sequence[str], wording: Wording) -> str:
    names = listed([wording.name(feature) for feature in features])
    start = f"{number_text(rule.start)} plus " if rule.start else ""
    return f"{names}: a new value is {start}a multiple of {wording.value(features[0], rule.step)}"


def _limits(feature: str, low: object, high: object, wording: Wording) -> str:
    """Say a range; its ends are written together, with one unit."""
    if low is not None and high is not None:
        first, last = wording.values(feature, low, high)  # type: ignore[arg-type]
        return f"{first} to {wording.with_unit(feature, last, high)}"  # type: ignore[arg-type]
    end = low if high is None else high
    return f"{'at least' if high is None else 'at most'} {wording.value(feature, end)}"  # type: ignore[arg-type]


def _either(feature: str, values: Sequence[Value], wording: Wording, unit: bool = True) -> str:
    """Say which values; numbers are written together, with one unit."""
    texts = wording.values(feature, *values)
    if unit and all(wording.is_amount(feature, value) for value in values):
        texts[-1] = wording.with_unit(feature, texts[-1], values[-1])
    return listed(_few(texts), "or")


def _transitions(rule: kinds.Transitions, wording: Wording) -> str:
    name, parts = wording.name(rule.feature), []
    for before, after in rule.forbid.items():
        start = "" if before == "*" else f"from {wording.value(rule.feature, before)} "
        parts.append(f"{start}to {_either(rule.feature, after, wording)}")
    return f"{name} never changes {listed(parts)}"


def _conditions(table: Mapping[str, Any], wording: Wording) -> str:
    """Say conditions of a card, such as ``{ age = { max = 20 }, job = ["cook"] }``."""
    texts = []
    for feature, want in table.items():
        if isinstance(want, Mapping):
            said = _limits(feature, want.get("min"), want.get("max"), wording)
        else:
            said = _either(feature, want if isinstance(want, (list, tuple)) else [want], wording)
        texts.append(f"{wording.name(feature)} is {said}")
    return listed(texts)


def _linear(rule: kinds.Linear, wording: Wording) -> str:
    return clean(rule.name) or comparison_words(parse_comparison(rule.that), wording)


def comparison_words(parsed: Comparison, wording: Wording) -> str:
    """Say a linear comparison: what stands with a plus on the left, the rest on the right.

    >>> comparison_words(parse_comparison("debts <= 0.5*income + 100"), Wording())
    'debts is at most 0.5 × income plus 100'
    """
    left = [(name, c) for name, c in parsed.terms if c > 0]
    right = [(name, -c) for name, c in parsed.terms if c < 0]
    compared, constant = parsed.comparison, -parsed.constant
    if not left:
        left, right, constant, compared = right, [], -constant, _TURNED[compared]
    sums = [_sum(left, 0.0 if constant >= 0 else -constant, wording)]
    sums.append(_sum(right, max(constant, 0.0), wording) or "0")
    return f"{sums[0]} is {_COMPARED[compared]} {sums[1]}"


def _sum(terms: Iterable[tuple[str, float]], constant: float, wording: Wording) -> str:
    texts = [f"{'' if c == 1 else f'{number_text(c)} × '}{wording.name(n)}" for n, c in terms]
    return " plus ".join([*texts, *([number_text(constant)] if constant else [])])


_SAYERS: Mapping[type[Rule], Callable[[Any, Wording], str]] = {
    kinds.Immutable: lambda r, w: f"{_names(r, w)} {_stays(len(r.features))}",
    kinds.Range: lambda r, w: f"{w.name(r.feature)} is {_limits(r.feature, r.min, r.max, w)}",
    kinds.Step: lambda r, w: _steps(r, [r.feature], w),
    kinds.Allowed: lambda r, w: f"{w.name(r.feature)} is {_either(r.feature, r.values, w)}",
    kinds.Never: lambda r, w: (
        f"{_names(r, w)} {'is' if len(r.features) == 1 else 'are'} never set to "
        f"{_either(r.features[0], r.values, w, unit=len(r.features) == 1)}"
    ),
    kinds.Direction: lambda r, w: f"{_names(r, w)} may only go {r.direction}",
    kinds.Transitions: _transitions,
    kinds.Linked: lambda r, w: f"{w.name(r.sets)} follows {w.name(r.feature)}",
    kinds.OneHot: lambda r, w: (
        f"{'at most' if r.or_none else 'exactly'} one of {_names(r, w)} is yes"
    ),
    kinds.Linear: _linear,
    kinds.Implies: lambda r, w: f"if {_conditions(r.when, w)}, then {_conditions(r.then, w)}",
    kinds.Exclude: lambda r, w: f"not allowed: {_conditions(r.values, w)}",
    kinds.Custom: lambda r, w: clean(r.label),
    kinds.MaxChanges: lambda r, w: f"at most {counted(r.at_most, 'thing')} may change",
}


def obstacle_words(violation: Violation, wording: Wording) -> str:
    """Say which features a rule holds, and why: "income and savings: ruled out by you"."""
    said, _, why = clean(violation.reason).rpartition(": ")
    if not violation.features:
        return f"{clean(violation.rule)}: {clean(violation.reason)}"
    if not said:
        return why
    names = [wording.name(name) for name in violation.features]
    rest = len(names) - _MOST_HELD
    told = listed([*names[:_MOST_HELD], *([f"{rest} more"] if rest > 0 else [])])
    return f"{told}: {why}"
