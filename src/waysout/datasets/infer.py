"""A first card for a table that has none.

Everything guessed is said in a comment beside it, with the way to change it: the card is a draft
for a person to read. What is written loads, and reads every row of the table it was made from.
"""

from __future__ import annotations

import math
import re
from collections.abc import Mapping, Sequence

import numpy as np

from waysout.datasets.infer_columns import NUMBER, Described, describe, outer_range, sort_cells
from waysout.datasets.infer_groups import Group, one_hot_groups
from waysout.datasets.infer_names import direction_of, why_fixed, words_of
from waysout.datasets.infer_toml import toml, wrapped
from waysout.datasets.table import Table
from waysout.domain.card import Card, label_text
from waysout.domain.key import MOST_BINS
from waysout.domain.schema import MISSING_TOKENS, Scalar, check_name, text_of
from waysout.errors import SchemaError, TableError, unknown

__all__ = ["infer", "infer_card", "outer_range"]

SET = "main"
_WANTED = {
    "up": "an option is something to work towards, not to give up",
    "down": "an option is to owe less, not more",
}
WIDEST = 400
"""The most columns of a card that nobody has chosen."""
LONGEST = 500
"""The most lines of a card."""
_SPELLED_OUT = 45  # with more features than this, each has a line

_SAYS_NOTHING = {"target", "y", "label", "labels", "class", "outcome", "result", "output", "answer"}
_YES, _NO = ("1", "true", "yes", "y", "t"), ("0", "false", "no", "n", "f")


def infer(
    table: Table,
    *,
    target: str | None = None,
    positive: object = None,
    name: str = "table",
    title: str | None = None,
    features: Sequence[str] | None = None,
) -> Card:
    """Return a first card for a table; `infer_card` gives its text."""
    text = infer_card(
        table, target=target, positive=positive, name=name, title=title, features=features
    )
    return Card.parse(text, source=f"the card inferred from {table.source}")


def infer_card(
    table: Table,
    *,
    target: str | None = None,
    positive: object = None,
    name: str = "table",
    title: str | None = None,
    features: Sequence[str] | None = None,
) -> str:
    """Write a first card for a table: TOML text with comments, to be read and edited.

    ``target`` is the label's column and ``positive`` the value in it that means yes; ``"1"`` also
    finds 1, 1.0 and true, and where the labels are yes and no it may be left out. Without a target
    the card's is called ``outcome``. ``features`` are the columns to describe, in this order; by
    default all. Raises `TableError` (or `RowError`) where no card can be made.
    """
    if not len(table):
        raise TableError(f"{table.source} has no rows; a card is inferred from values")
    columns = _columns(table)
    outcome = _Outcome.of(table, columns, target, positive)
    columns.pop(outcome.target, None)
    columns = _chosen(table, columns, features)
    found = [
        describe(sort_cells(clean, [r.get(column) for r in table.records], table.typed))
        for clean, column in columns.items()
    ]
    if all(feature.kind == "opaque" for feature in found):
        reasons = "; ".join(f"{f.name!r} is {f.notes[0]}" for f in found[:5])
        beside = f" beside the target {outcome.target!r}" if target is not None else ""
        raise TableError(
            f"{table.source} has no column to describe{beside}"
            + (f": {reasons}" if reasons else "")
        )
    rules = _Rules.of(table, found, columns)
    for in_lines in (len(found) > _SPELLED_OUT, True):
        parts = [_top(name, title, found), outcome.lines(), *_features(found, in_lines)]
        text = "\n\n".join([*parts, rules.lines()]) + "\n"
        if text.count("\n") <= LONGEST:
            break
    return text


def _columns(table: Table) -> dict[str, str]:
    """Return the table's columns, under the names that a card can use."""
    columns: dict[str, str] = {}
    for i, column in enumerate(table.columns, start=1):
        try:
            clean = check_name(column)
        except SchemaError as error:
            raise TableError(f"{table.source}, column {i}: {error}; rename it") from None
        if clean in columns:
            raise TableError(f"{table.source} has two columns named {clean!r}; rename one")
        columns[clean] = column
    return columns


def _chosen(
    table: Table, columns: Mapping[str, str], features: Sequence[str] | None
) -> dict[str, str]:
    """Return the columns to describe."""
    if features is None and len(columns) > WIDEST:
        raise TableError(
            f"{table.source} has {len(columns):,} columns, and nobody can read a card of more than "
            f"{WIDEST}: name those your model was trained on (features=[…]), or give the model"
        )
    if features is None:
        return dict(columns)
    alike: dict[str, list[str]] = {}
    for column in columns:
        alike.setdefault(_plain(column), []).append(column)
    chosen: dict[str, str] = {}
    for name in map(text_of, features):
        # LightGBM and ONNX converters write "loan amount" as "loan_amount".
        found = [name] if name in columns else alike.get(_plain(name), [])
        if len(found) != 1:
            raise TableError(f"{table.source}: {unknown('column', name, columns)}")
        chosen[found[0]] = columns[found[0]]
    return chosen


def _plain(name: str) -> str:
    return re.sub(r"\W", "_", name)


class _Outcome:
    """The target, the value that means yes, and how a person would say it."""

    def __init__(self, target: str, positive: Scalar, other: str = "") -> None:
        self.target = target
        self.positive = positive
        self.other = other

    @classmethod
    def of(
        cls, table: Table, columns: Mapping[str, str], target: str | None, positive: object
    ) -> _Outcome:
        """Find the outcome in a table; without a target, make one up."""
        if target is None:
            free = (n for n in ("outcome", "decision", "the outcome") if n not in columns)
            given = 1 if positive is None else positive
            plain = given if isinstance(given, (str, int, float)) else text_of(given)
            return cls(next(free, "the decision"), plain)
        wanted = text_of(target)
        if wanted not in columns:
            raise TableError(f"{table.source}: {unknown('column', target, columns)}")
        labels = _labels(table, columns[wanted])
        yes = _positive_label(f"{table.source}, column {wanted!r}", labels, positive)
        others = [text_of(raw) for label, raw in labels.items() if label != label_text(yes)]
        return cls(wanted, yes, others[0] if len(others) == 1 else "")

    def lines(self) -> str:
        """Write the outcome's part of the card."""
        yes, no = self.words()
        return "\n".join([
            "[outcome]",
            f"target = {toml(self.target)}",
            f"positive = {toml(self.positive)}",
            f"yes = {toml(yes)}  # better: how a person would say it",
            f"no = {toml(no)}",
        ])  # fmt: skip

    def words(self) -> tuple[str, str]:
        """Say a yes and a no; a column called "target" has no name worth saying."""
        value, other = text_of(self.positive), self.other
        folded, against = value.casefold(), other.casefold()
        plain = " ".join(self.target.replace("_", " ").split())
        says = "the answer is" if words_of(plain) <= _SAYS_NOTHING else f"{plain}:"
        if folded in _YES and against in (*_NO, ""):
            return f"{says} yes", f"{says} no"
        if folded in _NO and against in _YES:
            # A refusal of something bad: "default: no" is the good news.
            return (f"{says} no", f"{says} yes") if says.endswith(":") else ("a yes", "a no")
        return f"{says} {value}", f"{says} {other or f'not {value}'}"


def _labels(table: Table, column: str) -> dict[str, object]:
    """Return the different labels, by the text that tells them apart."""
    labels: dict[str, object] = {}
    for record in table.records:
        raw = record.get(column)
        if text_of(raw) if isinstance(raw, str) else not NUMBER.is_missing(raw):
            labels.setdefault(label_text(raw), raw)
    return labels


def _positive_label(where: str, labels: Mapping[str, object], positive: object) -> Scalar:
    """Return the positive value as the table spells it."""
    if positive is None:
        folded = {label.casefold(): raw for label, raw in labels.items()}
        if len(labels) != 2 or not any(
            a in folded and b in folded for a, b in zip(_YES, _NO, strict=True)
        ):
            shown = ", ".join(map(repr, list(labels)[:12]))
            raise TableError(f"{where}: which value means yes? Name one of {shown}")
        found = [raw for label, raw in folded.items() if label in _YES]
    else:
        wanted = label_text(positive)
        spellings = {True: ("true", "1"), False: ("false", "0")}
        found = [
            raw
            for label, raw in labels.items()
            if label == wanted or (isinstance(raw, bool) and wanted.casefold() in spellings[raw])
        ]
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
        "# - The rules at the end say what may change: they are the part to write yourself.",
        "# - Fill in about (and unit = \"...\" for numbers): people and LLMs read them.",
        "# - Keep the features in the order your model was trained on.",
        "# - bins decide which values count as different, scale how far apart they are.",
        "# - Codes that are sorted are LabelEncoder's; codes = { a = 1, b = 2 } says other ones.",
        "# - Levels that rise (school < college) may be listed that way, with ordered = true.",
        '# - What is missing stays so; missing = "fill" lets it be filled in.',
        "card = 1",
        f"name = {toml(clean)}",
        f"title = {toml(title or '')}  # what a letter or a page is about",
        f'rule_sets = ["{SET}"]',
        "# How the table spells a missing value; a level listed under a feature is never missing.",
        f"missing_values = {wrapped(map(toml, [*MISSING_TOKENS, *odd]))}",
    ])  # fmt: skip


def _features(features: Sequence[Described], in_lines: bool) -> list[str]:
    if in_lines:
        return ["\n".join(["[features]", *(feature.line() for feature in features)])]
    return ["\n".join(feature.lines()) for feature in features]


class _Rules:
    """The rules that names and one-hot columns suggest, and examples of others."""

    def __init__(
        self, features: Sequence[Described], fixed: Mapping[str, str], groups: Sequence[Group]
    ) -> None:
        self.features = features
        self.fixed = fixed
        self.groups = groups

    @classmethod
    def of(cls, table: Table, features: Sequence[Described], columns: Mapping[str, str]) -> _Rules:
        """Find the rules of a table."""
        movable = [feature for feature in features if feature.kind != "opaque"]
        fixed = {f.name: why for f in movable if (why := why_fixed(f.name))}
        flags = {
            f.name: np.array([_is_on(record.get(columns[f.name])) for record in table.records])
            for f in movable
            if f.is_flag
        }
        free = []
        for group in one_hot_groups(flags):
            # What fixes one of a group fixes all of it.
            why = next((fixed[name] for name in group.names if name in fixed), "")
            if why:
                fixed |= dict.fromkeys(group.names, why)
            else:
                free.append(group)
        return cls(features, fixed, free)

    def lines(self) -> str:
        """Write the rules, then examples as comments."""
        active: list[dict[str, object]] = []
        rule: dict[str, object]
        for why in dict.fromkeys(self.fixed.values()):
            names = [name for name, reason in self.fixed.items() if reason == why]
            active.append({"kind": "immutable", "features": names, "why": why})
        for way, why in _WANTED.items():
            if names := [f.name for f in self._directed() if direction_of(f.name) == way]:
                rule = {"kind": "direction", "features": names, "direction": way, "why": why}
                active.append(rule)
        for feature in self._directed():
            if step := feature.step():
                rule = {"kind": "step", "feature": feature.name, "step": step}
                active.append({**rule, "why": f"all values are multiples of {step}"})
        for group in self.groups:
            rule = {"kind": "one-hot", "features": list(group.names)}
            active.append({**rule, "or_none": True} if group.or_none else rule)
        lines = ["# Rules: what may change, and how. docs/cards.md lists every kind."]
        if active:
            lines.append("# These were guessed from the columns and their names; check them.")
        for rule in active:
            lines += ["", *_rule_lines(rule)]
        lines += ["", "# Examples: take away the # at the start of a rule's lines to use it."]
        for rule in self._examples():
            lines += ["#", *(f"#{line}" for line in _rule_lines(rule))]
        return "\n".join(lines)

    def _directed(self) -> list[Described]:
        """Return the features that have an up and a down, and may change."""
        ordered = (f for f in self.features if f.kind != "category" or f.more.get("ordered"))
        grouped = {name for group in self.groups for name in group.names}
        return [f for f in ordered if f.kind != "opaque" and f.name not in grouped | {*self.fixed}]

    def _examples(self) -> list[dict[str, object]]:
        """Return rules about the table's own features, for a person to adopt or delete."""
        grouped = {name for group in self.groups for name in group.names}
        movable = [f for f in self.features if f.kind != "opaque"]
        free = [f for f in movable if f.name not in grouped | self.fixed.keys()] or movable
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
            forbid = {text_of(one): [other]}
            found.append({"kind": "never", "features": [name], "values": [one]})
            found.append({"kind": "transitions", "feature": name, "forbid": forbid})
        return [*found, {"kind": "max-changes", "at_most": 3}]


def _is_on(raw: object) -> bool:
    return text_of(raw).casefold() in ("1", "true", "1.0")


def _rule_lines(rule: Mapping[str, object]) -> list[str]:
    return [f"[[rules.{SET}]]", *(f"{key} = {toml(value)}" for key, value in rule.items())]
