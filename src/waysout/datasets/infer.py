"""A first card for a table that has none.

Everything guessed is said in a comment beside it, with the way to change it: the card is a draft
for a person to read. What is written loads, and reads every row of the table it was made from.
"""

from __future__ import annotations

import math
import re
from collections.abc import Mapping, Sequence

from waysout.datasets.infer_columns import (
    NUMBER,
    PROTECTED_WORDS,
    Described,
    comment,
    describe,
    outer_range,
    sort_cells,
    toml,
    toml_list,
)
from waysout.datasets.table import Table
from waysout.domain.card import label_text
from waysout.domain.key import MOST_BINS
from waysout.domain.schema import MISSING_TOKENS, Scalar, check_name, text_of
from waysout.errors import SchemaError, TableError, unknown

__all__ = ["infer_card", "outer_range"]

SET = "main"


def infer_card(
    table: Table, *, target: str, positive: object, name: str, title: str | None = None
) -> str:
    """Write a first card for a table: TOML text with comments, to be read and edited.

    ``target`` is the label's column and ``positive`` the value in it that means yes; ``"1"`` also
    finds 1, 1.0 and true. Raises `TableError` (or `RowError`) where no card can be made.
    """
    if not len(table):
        raise TableError(f"{table.source} has no rows; a card is inferred from values")
    columns: dict[str, str] = {}  # under the names that a card can use
    for i, column in enumerate(table.columns, start=1):
        try:
            clean = check_name(column)
        except SchemaError as error:
            raise TableError(f"{table.source}, column {i}: {error}; rename it") from None
        if clean in columns:
            raise TableError(f"{table.source} has two columns named {clean!r}; rename one")
        columns[clean] = column
    wanted = text_of(target)
    if wanted not in columns:
        raise TableError(f"{table.source}: {unknown('column', target, columns)}")
    yes = _positive_label(table, columns.pop(wanted), positive)
    ignored: dict[str, str] = {}  # columns that say nothing about a person, and why
    features = []
    for clean, column in columns.items():
        cells = sort_cells(clean, [record.get(column) for record in table.records])
        if reason := cells.reason_to_ignore():
            ignored[clean] = reason
        else:
            features.append(describe(cells))
    if not features:
        reasons = "; ".join(f"{n!r} {reason}" for n, reason in list(ignored.items())[:5])
        raise TableError(
            f"{table.source} has no column to describe beside the target {wanted!r}"
            + (f": {reasons}" if reasons else "")
        )
    parts = [_top(name, title, features), _outcome(wanted, yes, ignored)]
    parts += ["\n".join(feature.lines()) for feature in features]
    return "\n\n".join([*parts, _rules(features)]) + "\n"


def _positive_label(table: Table, column: str, positive: object) -> Scalar:
    """Return the positive value as the table spells it."""
    labels: dict[str, object] = {}
    for record in table.records:
        raw = record.get(column)
        if text_of(raw) if isinstance(raw, str) else not NUMBER.is_missing(raw):
            labels.setdefault(label_text(raw), raw)
    wanted = label_text(positive)
    spellings = {True: ("true", "1"), False: ("false", "0")}
    found = [
        raw
        for label, raw in labels.items()
        if label == wanted or (isinstance(raw, bool) and wanted.casefold() in spellings[raw])
    ]
    where = f"{table.source}, column {column!r}"
    if not found:
        raise TableError(f"{where}: {unknown('value', positive, labels)}")
    if len(labels) < 2:
        raise TableError(f"{where} is always {text_of(found[0])!r}: no row has been refused")
    text = text_of(found[0])
    if isinstance(found[0], bool):
        return found[0]
    return int(text) if re.fullmatch(r"0|-?[1-9]\d{0,14}", text, re.ASCII) else text


def _top(name: str, title: str | None, features: Sequence[Described]) -> str:
    clean = re.sub(r"[^\w-]+", "-", name).strip("-")[:64] or "table"
    odd = dict.fromkeys(token for feature in features for token in feature.odd)
    return "\n".join([
        "# A first card, inferred from the table: read it through and correct what is wrong.",
        "# - Fill in about (and unit = \"...\" for numbers): people and LLMs read them.",
        "# - Keep the features in the order your model was trained on.",
        "# - bins decide which values count as different, scale how far apart they are.",
        "# - codes are what a label-encoded model was trained on: 0, 1, 2 ... in sorted order of",
        "#   the levels, as scikit-learn's LabelEncoder gives them. Correct them if yours differ.",
        "#   Levels that are numbers need none: without codes they stand for themselves.",
        "# - Levels that rise (school < college) may be listed that way, with ordered = true.",
        "card = 1",
        f"name = {toml(clean)}",
        f"title = {toml(title or name)}",
        f'rule_sets = ["{SET}"]',
        "# How the table spells a missing value; a level listed under a feature is never missing.",
        f"missing_values = {toml_list([*MISSING_TOKENS, *odd])}",
    ])  # fmt: skip


def _outcome(target: str, positive: Scalar, ignored: Mapping[str, str]) -> str:
    value = text_of(positive)
    lines = [
        "[outcome]",
        f"target = {toml(target)}",
        f"positive = {toml(positive)}",
        f"yes = {toml(f'{target} is {value}')}  # better: how a person would say it",
        f"no = {toml(f'{target} is not {value}')}",
    ]
    lines += [comment(f"{name!r} {reason}") for name, reason in ignored.items()]
    if ignored:
        lines.append("# Ignored columns are no features; a model that was trained on one needs it.")
        lines.append(f"ignore = {toml_list(list(ignored))}")
    return "\n".join(lines)


def _rules(features: Sequence[Described]) -> str:
    """Write the rules that names suggest, then examples as comments."""
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
    return [f"[[rules.{SET}]]", *(f"{key} = {toml(value)}" for key, value in rule.items())]


def _examples(features: Sequence[Described], taken: Sequence[str]) -> list[dict[str, object]]:
    """Return rules about the table's own features, for a person to adopt or delete."""
    free = [f for f in features if f.name not in taken] or list(features)
    found: list[dict[str, object]] = [{"kind": "immutable", "features": [free[0].name]}]
    # Whatever has many values makes the better example; a lone number stands in for both.
    numbers = [f for f in free if f.is_numeric]
    numbers.sort(key=lambda f: len(f.cells.numbers) <= MOST_BINS)
    if numbers:
        first, second = numbers[0], numbers[min(1, len(numbers) - 1)]
        step = 10.0 ** math.floor(math.log10(max(1e-9, (first.cells.scale() or 10.0) / 10)))
        step = max(1.0, step) if first.kind == "integer" else step
        lowest = float(first.cells.values().min())
        found += [
            {"kind": "direction", "features": [first.name], "direction": "up"},
            {"kind": "range", "feature": first.name, "min": lowest},
            {"kind": "step", "feature": first.name, "step": step},
        ]
        if first is not second and "`" not in first.name + second.name:
            found.append({"kind": "linear", "that": f"`{first.name}` <= 2*`{second.name}`"})
    categories = [f for f in free if f.kind == "category" and len(f.levels) > 1]
    if categories:
        name, (one, other) = categories[0].name, categories[0].levels[:2]
        found.append({"kind": "never", "features": [name], "values": [one]})
        found.append({"kind": "transitions", "feature": name, "forbid": {text_of(one): [other]}})
    return [*found, {"kind": "max-changes", "at_most": 3}]
