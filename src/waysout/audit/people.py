"""The people of a batch, read part by part: what an audit counts."""

from __future__ import annotations

import json
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import TYPE_CHECKING, Any

import numpy as np
from numpy.typing import NDArray

from waysout.errors import InputError, unknown
from waysout.llm.connect import is_simulated

if TYPE_CHECKING:
    import pandas as pd

INPUT = "input."
# What is counted, by the columns of a batch that have it.
_NUMBERS = {"probability": "probability", "options": "options", "llm_calls": "llm_calls"}
_LISTS = {"binding": "binding"}
_WAY_NUMBERS = {
    "cost": "nearest_way_cost", "changes": "nearest_way_changes", "holds": "nearest_way_holds",
    "fewest_changes": "ways_fewest_changes", "ways": "ways",
}  # fmt: skip
_WAY_LISTS = {"nearest": "nearest_way", "alone": "ways_alone", "levers": "ways_levers"}
# Folders of releases that wrote no ways.
_OPTION_NUMBERS = {
    "cost": "nearest_distance", "changes": "nearest_changes", "fewest_changes": "fewest_changes",
}  # fmt: skip
_OPTION_LISTS = {name: name for name in _WAY_LISTS}

Mask = NDArray[np.bool_]


@dataclass(frozen=True)
class People:
    """Everybody in the parts that are done.

    ``frame`` has a row for each person: the outcome, numbers, and the columns of the input that
    groups are made of (``input.NAME``), texts as categories. ``lists`` has, for each column of
    lists, a row for each text: its ``person`` and the ``text``. Cost, changes and levers are those
    of ways; of options where ``with_ways`` is false.
    """

    frame: pd.DataFrame
    lists: Mapping[str, pd.DataFrame]
    parts: int
    with_ways: bool

    def ended(self, *kinds: str) -> Mask:
        """Return which people's searches ended in one of these ways."""
        return self.frame["outcome"].isin(kinds).to_numpy()

    def counts(
        self, name: str, codes: NDArray[np.intp], groups: int, among: Mask
    ) -> list[dict[str, int]]:
        """Count for each group the people who have a text, the most frequent first."""
        told = self.lists[name]
        told = told[among[told["person"]]]
        texts = told["text"].cat.categories
        table = np.zeros((groups, len(texts)), dtype=np.int64)
        np.add.at(table, (codes[told["person"]], told["text"].cat.codes), 1)
        order = np.argsort(-table, axis=1, kind="stable")
        return [
            {str(texts[i]): int(row[i]) for i in places if row[i]}
            for row, places in zip(table, order, strict=True)
        ]


@dataclass(frozen=True)
class About:
    """What a batch was searched with, from its manifest; empty or None is unknown.

    ``rows`` counts the rows of the input, ``limit`` those the batch was to take.
    """

    title: str = ""
    llm: str = ""
    method: str = ""
    goal: Mapping[str, Any] | None = None
    rules: tuple[str, ...] = ()
    budget: Mapping[str, float] = field(default_factory=dict)
    rows: int | None = None
    limit: int | None = None

    @property
    def simulated(self) -> bool:
        """Whether the LLM was the simulated one."""
        return is_simulated(self.llm)

    @classmethod
    def read(cls, folder: Path) -> About:
        """Read the manifest of a batch; if it cannot be read, nothing is known."""
        try:
            notes = json.loads((folder / "_manifest.json").read_text("utf-8"))
            problem, budget = notes["problem"], notes.get("plan", {}).get("budget", {})
            return cls(
                title=str(problem.get("title") or ""),
                llm=str(notes.get("llm") or ""),
                method=str(notes.get("method") or ""),
                goal=dict(problem.get("goal") or {}) or None,
                rules=tuple(map(str, problem.get("rules") or ())),
                budget={n: most for n, most in budget.items() if isinstance(most, (int, float))},
                rows=None if notes.get("rows") is None else int(notes["rows"]),
                limit=None if notes.get("limit") is None else int(notes["limit"]),
            )
        except (OSError, ValueError, TypeError, AttributeError, KeyError, RecursionError):
            return cls()


def read_people(folder: Path, by: Sequence[str]) -> tuple[People, list[tuple[str, ...]]]:
    """Return the people of a batch, and the columns that each of ``by`` names.

    Each of ``by`` is a column of the input, or several with commas between them.
    """
    from waysout.batch.tables import people
    from waysout.datasets.table import parquet_packages

    first = next(iter(people(folder)), None)
    if first is None:
        raise InputError(f"{folder} holds no finished part of a batch: run waysout batch first")
    known = [name.removeprefix(INPUT) for name in first.column_names if name.startswith(INPUT)]
    crossed: dict[tuple[str, ...], None] = {}
    for asked in by:  # a column may have a comma in its name
        names = [asked] if asked in known else [name.strip() for name in asked.split(",")]
        for name in names:
            if name not in known:
                raise InputError(unknown("column", name, known))
        crossed[tuple(dict.fromkeys(names))] = None
    texts = ["outcome", *dict.fromkeys(INPUT + name for names in crossed for name in names)]

    with_ways = "ways" in first.column_names
    numeric = _NUMBERS | (_WAY_NUMBERS if with_ways else _OPTION_NUMBERS)
    listed = _LISTS | (_WAY_LISTS if with_ways else _OPTION_LISTS)

    # Texts become categories part by part, so that a million people fit into memory.
    arrow, _ = parquet_packages()
    frames: list[Any] = []
    lists: dict[str, list[Any]] = {name: [] for name in listed}
    count = 0
    for table in people(folder, [*texts, *numeric.values(), *listed.values()]):
        coded = {name: table[name].combine_chunks().dictionary_encode() for name in texts}
        numbers = {name: table[column].cast("float64") for name, column in numeric.items()}
        frames.append(arrow.table({**coded, **numbers}))
        for name in listed:
            column = table[listed[name]].combine_chunks()
            owners = np.arange(count, count + len(table), dtype=np.int32)
            owners = np.repeat(owners, column.value_lengths().fill_null(0))
            flat = column.flatten().dictionary_encode()
            lists[name].append(arrow.table({"person": owners, "text": flat}))
        count += len(table)

    def joined(tables: list[Any]) -> pd.DataFrame:
        whole: pd.DataFrame = arrow.concat_tables(tables).unify_dictionaries().to_pandas()
        return whole

    told = {name: joined(tables) for name, tables in lists.items()}
    return People(joined(frames), told, len(frames), with_ways), list(crossed)
