"""What a command reads: a card, a table, a model, and one row of the table."""

from __future__ import annotations

import json
import sys
from collections.abc import Mapping, Sequence
from contextlib import nullcontext
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Any

from waysout.cli.output import say

if TYPE_CHECKING:
    from waysout.datasets.load import Dataset
    from waysout.datasets.table import Table
    from waysout.domain.card import Card
    from waysout.domain.known import Known
    from waysout.domain.problem import Problem
    from waysout.domain.schema import Row, Value
    from waysout.run.source import Source, Trust


def find_card(name_or_path: str, *, trust_code: bool = False) -> Card:
    """Return the card of a known data set, or read one from a file."""
    from waysout.datasets import registry
    from waysout.domain.card import Card

    if name_or_path in registry.DATASETS:
        return registry.card(name_or_path)
    return Card.load(name_or_path, trust_code=trust_code)


def find_table(name_or_path: str) -> Table:
    """Return the table of a known data set, or read one from a file."""
    from waysout.datasets import registry
    from waysout.datasets.table import read_table

    known = name_or_path in registry.DATASETS
    return read_table(registry.get(name_or_path) if known else name_or_path)


def read_rows(table: Table, card: Card) -> Dataset | Sequence[Row]:
    """Return a table's rows as the card reads them, with their labels where it has any."""
    from waysout.datasets.load import labelled

    if card.outcome.target in table.columns:
        return labelled(card, table)
    target = card.outcome.target
    say(f"note: the table has no labels (no column {target!r}), so none could be checked")
    return card.schema.parse_many(table.records)


def goal_of(at_least: Sequence[float] | None, rise: float | None) -> dict[str, Any]:
    """Return a source's goal from the options of a command."""
    from waysout.domain.oracle import Goal
    from waysout.errors import InputError

    if at_least and rise is not None:
        raise InputError("--at-least and --rise contradict each other")
    goal = Goal.of_levels(at_least or ())
    return {"at_least": goal.at_least, "rise": rise, "safer": goal.safer}


def check_source(source: Source) -> None:
    """Refuse options that cannot make a problem, by their names on the command line."""
    from waysout.datasets.registry import DATASETS
    from waysout.errors import InputError

    if source.at_least is not None and source.rise is not None:
        raise InputError("--at-least and --rise contradict each other")
    if source.data in DATASETS:
        return
    if not source.card and Path(source.data).exists():
        raise InputError(
            f"the table {source.data} needs its card: --card CARD.toml (waysout card infer makes "
            "one)"
        )
    if source.card and not source.model:
        raise InputError("name the model that decides: --model FILE")


@dataclass(frozen=True)
class Sourced:
    """A problem, the table it came with, and its rows, with known outcomes if it has labels."""

    problem: Problem
    table: Table
    rows: Sequence[Row]
    known: Known | None

    def query(self, raw: Mapping[str, Any]) -> dict[str, Value]:
        """Return a row of the table as the schema reads it."""
        return self.problem.schema.as_dict(self.problem.row(raw))


def open_source(source: Source, trust: Trust) -> Sourced:
    """Read the card, the table and the model, and make a problem of them."""
    from waysout.datasets.load import Dataset
    from waysout.run.source import card_of, problem_of

    card = card_of(source, trust)
    table = find_table(source.data)
    found = read_rows(table, card)
    known, rows = (found, found.rows) if isinstance(found, Dataset) else (None, found)
    return Sourced(problem_of(source, trust, card, rows), table, rows, known)


def check_chosen(row: int | None, where: str, json_row: Path | None) -> None:
    """Refuse anything but one way to name a row."""
    from waysout.errors import InputError

    if sum((row is not None, bool(where), json_row is not None)) != 1:
        raise InputError("name one row: --row N, --where 'COLUMN == VALUE' or --json-row FILE")


def find_row(table: Table, row: int | None, where: str, json_row: Path | None) -> Mapping[str, Any]:
    """Return one row: by its number, by a condition, or from a file."""
    from waysout.errors import InputError

    if json_row is not None:
        return _read_json(json_row)
    if where:
        return _matching(table, where)
    if row is None or row >= len(table):
        raise InputError(
            f"{table.source} has {len(table)} rows, counted from 0; there is no row {row}"
        )
    return table.records[row]


_LONGEST_ROW = 2**24
"""How many characters a row may have as JSON: a device, or a program's output, may have no end."""


def _read_json(path: Path) -> Mapping[str, Any]:
    from waysout.errors import InputError

    piped = str(path) == "-"
    name = "stdin" if piped else str(path)
    try:
        # As Excel and PowerShell write it, with a mark at its beginning.
        with nullcontext(sys.stdin) if piped else path.open(encoding="utf-8-sig") as file:
            text = file.read(_LONGEST_ROW + 1)
        if len(text) > _LONGEST_ROW:
            raise InputError(
                f"{name} is too long for a row: it has over {_LONGEST_ROW:,} characters"
            )
        found = json.loads(text.removeprefix("\ufeff"))
    except OSError as error:
        raise InputError(f"cannot read {name}: {error.strerror}") from None
    except UnicodeDecodeError as error:
        raise InputError(f"{name} is not UTF-8 text ({error.reason})") from None
    except (ValueError, RecursionError) as error:
        raise InputError(f"{name} is not JSON: {error}") from None
    if not isinstance(found, dict):
        raise InputError(f"{name} holds no object of the form {{column: value, …}}")
    return found


_MOST_SHOWN = 5


def _matching(table: Table, where: str) -> Mapping[str, Any]:
    """Return the one row that meets a condition."""
    from waysout.cli.where import rows_where
    from waysout.errors import InputError

    found = rows_where(table, where)
    if len(found) == 1:
        return table.records[found[0]]
    some = ", ".join(map(str, found[:_MOST_SHOWN])) + (", …" if len(found) > _MOST_SHOWN else "")
    which = f" ({some}): add a condition, or take one of them with --row" if found else ""
    raise InputError(f"{len(found):,} rows of {table.source} meet {where!r}{which}")
