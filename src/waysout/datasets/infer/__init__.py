"""A first card for a table that nobody has described yet.

Everything guessed is said in a comment beside it, with the way to change it: the card is a draft
for a person to read. What is written loads, and reads every row of the table it was made from.
"""

from __future__ import annotations

import re
from collections.abc import Mapping, Sequence

from waysout.datasets.infer.cells import positive_label, sort_cells
from waysout.datasets.infer.features import Described, describe, outer_range, reason_to_ignore
from waysout.datasets.infer.rules import SET, rules_text
from waysout.datasets.infer.toml import comment, quoted, toml_list, toml_scalar
from waysout.datasets.table import Table
from waysout.domain.schema import MISSING_TOKENS, Scalar, check_name, text_of
from waysout.errors import SchemaError, TableError, unknown

__all__ = ["infer_card", "outer_range"]


def infer_card(
    table: Table, *, target: str, positive: object, name: str, title: str | None = None
) -> str:
    """Write a first card for a table: TOML text with comments, to be read and edited.

    ``target`` is the label's column and ``positive`` the value in it that means yes; ``"1"`` also
    finds 1, 1.0 and true. Raises `TableError` (or `RowError`) where no card can be made.
    """
    if not len(table):
        raise TableError(f"{table.source} has no rows; a card is inferred from values")
    columns = _clean_names(table)
    wanted = text_of(target)
    if wanted not in columns:
        raise TableError(f"{table.source}: {unknown('column', target, columns)}")
    yes = positive_label(table, columns[wanted], positive)
    ignored, features = _sort_columns(table, columns, wanted)
    parts = [
        _top(name, title, features),
        _outcome(wanted, yes, ignored),
        *("\n".join(feature.lines()) for feature in features),
        rules_text(features),
    ]
    return "\n\n".join(parts) + "\n"


def _clean_names(table: Table) -> dict[str, str]:
    """Return the table's columns under the names a card can use."""
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


def _sort_columns(
    table: Table, columns: Mapping[str, str], target: str
) -> tuple[dict[str, str], list[Described]]:
    """Tell columns that say nothing about a person from features, with the reason."""
    ignored: dict[str, str] = {}
    features = []
    for name, column in columns.items():
        if name == target:
            continue
        cells = sort_cells(name, [record.get(column) for record in table.records])
        if reason := reason_to_ignore(cells):
            ignored[name] = reason
        else:
            features.append(describe(cells))
    if not features:
        reasons = "; ".join(f"{n!r} {reason}" for n, reason in list(ignored.items())[:5])
        raise TableError(
            f"{table.source} has no column to describe beside the target {target!r}"
            + (f": {reasons}" if reasons else "")
        )
    return ignored, features


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
        f"name = {quoted(clean)}",
        f"title = {quoted(title or name)}",
        f'rule_sets = ["{SET}"]',
        "# How the table spells a missing value; a level listed under a feature is never missing.",
        f"missing_values = {toml_list([*MISSING_TOKENS, *odd])}",
    ])  # fmt: skip


def _outcome(target: str, positive: Scalar, ignored: Mapping[str, str]) -> str:
    value = text_of(positive)
    lines = [
        "[outcome]",
        f"target = {quoted(target)}",
        f"positive = {toml_scalar(positive)}",
        f"yes = {quoted(f'{target} is {value}')}  # better: how a person would say it",
        f"no = {quoted(f'{target} is not {value}')}",
    ]
    lines += [comment(f"{name!r} {reason}") for name, reason in ignored.items()]
    if ignored:
        lines.append("# Ignored columns are no features; a model that was trained on one needs it.")
        lines.append(f"ignore = {toml_list(list(ignored))}")
    return "\n".join(lines)
