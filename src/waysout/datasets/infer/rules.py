"""The rules that names suggest, and examples about the table's own features for a person to try."""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence

from waysout.datasets.infer.features import PROTECTED_WORDS, Described
from waysout.datasets.infer.toml import toml_inline
from waysout.domain.key import MOST_BINS
from waysout.domain.schema import text_of

SET = "main"


def rules_text(features: Sequence[Described]) -> str:
    """Write the rule set: what was guessed, then the examples as comments."""
    fixed = [f.name for f in features if f.cells.words & PROTECTED_WORDS]
    ages = [f.name for f in features if f.is_numeric and "age" in f.cells.words]
    active: list[dict[str, object]] = []
    if fixed:
        why = "who a person is cannot be asked to change"
        active.append({"kind": "immutable", "features": fixed, "why": why})
    if rising := [name for name in ages if name not in fixed]:
        why = "nobody grows younger"
        active.append({"kind": "direction", "features": rising, "direction": "up", "why": why})
    lines = ["# Rules: what may change, and how. docs/cards.md lists every kind."]
    if active:
        lines.append("# These were guessed from the names of the columns; check them.")
    for rule in active:
        lines += ["", *_rule_lines(rule)]
    lines += ["", "# Examples: take away the # at the start of a rule's lines to use it."]
    for rule in _examples(features, [*fixed, *ages]):
        lines += ["#", *(f"#{line}" for line in _rule_lines(rule))]
    return "\n".join(lines)


def _rule_lines(rule: Mapping[str, object]) -> list[str]:
    return [f"[[rules.{SET}]]", *(f"{key} = {toml_inline(value)}" for key, value in rule.items())]


def _examples(features: Sequence[Described], taken: Sequence[str]) -> list[dict[str, object]]:
    """Return rules about the table's own features, for a person to take over or throw away."""
    free = [f for f in features if f.name not in taken] or list(features)
    numbers = [f for f in free if f.is_numeric]
    categories = [f for f in free if f.kind == "category" and len(f.levels) > 1]
    found: list[dict[str, object]] = [{"kind": "immutable", "features": [free[0].name]}]
    if numbers:
        found += _numeric_examples(numbers)
    if categories:
        name, (one, other) = categories[0].name, categories[0].levels[:2]
        found.append({"kind": "never", "features": [name], "values": [one]})
        found.append({"kind": "transitions", "feature": name, "forbid": {text_of(one): [other]}})
    found.append({"kind": "max-changes", "at_most": 3})
    return found


def _numeric_examples(numbers: Sequence[Described]) -> list[dict[str, object]]:
    # Whatever has many values makes the better example; a lone number stands in for both.
    ranked = sorted(numbers, key=lambda f: len(f.cells.numbers) <= MOST_BINS)
    first, second = ranked[0], ranked[min(1, len(ranked) - 1)]
    values = first.cells.values()
    step = 10.0 ** math.floor(math.log10(max(1e-9, (first.cells.scale() or 10.0) / 10)))
    found: list[dict[str, object]] = [
        {"kind": "direction", "features": [first.name], "direction": "up"},
        {"kind": "range", "feature": first.name, "min": float(values.min())},
        {
            "kind": "step",
            "feature": first.name,
            "step": max(1.0, step) if first.kind == "integer" else step,
        },
    ]
    if first is not second and "`" not in first.name + second.name:
        found.append({"kind": "linear", "that": f"`{first.name}` <= 2*`{second.name}`"})
    return found
