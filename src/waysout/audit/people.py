"""The people of a batch, read part by part: what an audit counts."""

from __future__ import annotations

import json
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import TYPE_CHECKING, Any, NamedTuple

import numpy as np
from numpy.typing import NDArray

from waysout.batch.marks import MANIFEST, read_manifest
from waysout.batch.sealed import damaged
from waysout.domain.schema import text_of
from waysout.errors import InputError, unknown
from waysout.llm.connect import stand_in
from waysout.report.words import Wording

if TYPE_CHECKING:
    import pandas as pd
    import pyarrow

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
# The columns of ways and of options that have what a person's row says of the nearest.
_OF_WAY = {"cost": "cost", "nearest": "levers"}
_OF_OPTION = {"cost": "distance", "nearest": "changed"}

Mask = NDArray[np.bool_]


@dataclass(frozen=True)
class People:
    """Everybody in the parts that are done.

    ``frame`` has a row for each person: the outcome, numbers, and the columns of the input that
    groups are made of (``input.NAME``), texts as categories. ``lists`` has, for each column of
    lists, a row for each text: its ``person`` and the ``text``. ``moves`` has a row for each lever
    of a person's nearest way, see `Move`. Cost, changes and levers are those of ways; of options
    where ``with_ways`` is false.
    """

    frame: pd.DataFrame
    lists: Mapping[str, pd.DataFrame]
    moves: pd.DataFrame
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


class Move(NamedTuple):
    """What a nearest way does to a lever: an ``amount`` ``more`` or ``less``, or ``to`` a level."""

    person: int
    lever: str
    move: str
    to: str
    amount: float


@dataclass(frozen=True)
class About:
    """What a batch was searched with, from its manifest; empty or None is unknown.

    ``rows`` counts the rows of the input, ``limit`` those the batch was to take. ``wording`` has
    the card's words for features, ``rules_in_words`` a sentence for each rule by its label; batches
    of earlier releases have neither.
    """

    title: str = ""
    llm: str = ""
    method: str = ""
    goal: Mapping[str, Any] | None = None
    rules: tuple[str, ...] = ()
    budget: Mapping[str, float] = field(default_factory=dict)
    rows: int | None = None
    limit: int | None = None
    wording: Mapping[str, Any] = field(default_factory=dict)
    rules_in_words: Mapping[str, str] = field(default_factory=dict)

    @property
    def stand_in(self) -> str:
        """What proposed in place of a language model: ``simulated``, ``scripted`` or nothing."""
        return stand_in(self.llm)

    @classmethod
    def read(cls, folder: Path) -> About:
        """Read the manifest of a batch; if there is none, nothing is known."""
        path, remedy = folder / MANIFEST, "put back a copy of it, or remove it"
        try:
            notes = read_manifest(folder, remedy)
        except FileNotFoundError:
            return cls()
        try:
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
                wording=dict(notes.get("wording") or {}),
                rules_in_words={
                    str(rule): str(said)
                    for rule, said in (notes.get("rules_in_words") or {}).items()
                },
            )
        except (ValueError, TypeError, AttributeError, KeyError) as error:
            raise damaged(path, repr(error), remedy) from None


def read_people(
    folder: Path, by: Sequence[str], wording: Wording
) -> tuple[People, list[tuple[str, ...]]]:
    """Return the people of a batch, and the columns that each of ``by`` names.

    Each of ``by`` is a column of the input, or several with commas between them.
    """
    from waysout.batch.tables import people, people_and_options
    from waysout.datasets.table import parquet_packages

    first = next(iter(people(folder)), None)
    if first is None:
        raise InputError(f"{folder} holds no finished part of a batch: run waysout batch first")
    known = [name.removeprefix(INPUT) for name in first.column_names if name.startswith(INPUT)]
    crossed = _crossed(by, known)
    texts = ["outcome", *dict.fromkeys(INPUT + name for names in crossed for name in names)]

    with_ways = "ways" in first.column_names
    numeric = _NUMBERS | (_WAY_NUMBERS if with_ways else _OPTION_NUMBERS)
    listed = _LISTS | (_WAY_LISTS if with_ways else _OPTION_LISTS)
    of_nearest = _OF_WAY if with_ways else _OF_OPTION

    # Texts become categories part by part, so that a million people fit into memory.
    arrow, _ = parquet_packages()
    frames: list[Any] = []
    lists: dict[str, list[Any]] = {name: [] for name in listed}
    moves: list[Any] = []
    count = 0
    wanted = ["row_id", *texts, *numeric.values(), *listed.values()]
    for table, ways in people_and_options(
        folder, wanted, ["row_id", *of_nearest.values(), "changes"]
    ):
        coded = {name: table[name].combine_chunks().dictionary_encode() for name in texts}
        numbers = {name: table[column].cast("float64") for name, column in numeric.items()}
        frames.append(arrow.table({**coded, **numbers}))
        for name, column in listed.items():
            cells = table[column].combine_chunks()
            owners = np.arange(count, count + len(table), dtype=np.int32)
            owners = np.repeat(owners, cells.value_lengths().fill_null(0))
            flat = cells.flatten().dictionary_encode()
            lists[name].append(arrow.table({"person": owners, "text": flat}))
        signs = {(numeric | listed)[name]: column for name, column in of_nearest.items()}
        moves.append(_move_table(count, _nearest(table, ways, signs), wording))
        count += len(table)

    def joined(tables: list[Any]) -> pd.DataFrame:
        whole: pd.DataFrame = arrow.concat_tables(tables).unify_dictionaries().to_pandas()
        return whole

    told = {name: joined(tables) for name, tables in lists.items()}
    return People(joined(frames), told, joined(moves), len(frames), with_ways), crossed


def _crossed(by: Sequence[str], known: Sequence[str]) -> list[tuple[str, ...]]:
    """Return the columns that each of ``by`` names."""
    crossed: dict[tuple[str, ...], None] = {}
    for asked in by:  # a column may have a comma in its name
        names = [asked] if asked in known else [name.strip() for name in asked.split(",")]
        for name in names:
            if name not in known:
                raise InputError(unknown("column", name, known))
        crossed[tuple(dict.fromkeys(names))] = None
    return list(crossed)


def _nearest(
    people: pyarrow.Table, ways: pyarrow.Table, signs: Mapping[str, str]
) -> Iterator[tuple[int, list[str], dict[str, Any]]]:
    """Yield for each person of a part the index, and the levers and changes of the nearest way.

    It is recognised by its cost and its levers, by the names (``signs``) that these have in both
    tables: the rank would do but for ways that the model did not approve each time.
    """
    import pyarrow

    (cost, way_cost), (levers, way_levers) = signs.items()
    owners = np.searchsorted(people["row_id"].to_numpy(), ways["row_id"].to_numpy())
    same_cost = people[cost].to_numpy()[owners] == ways[way_cost].to_numpy()
    ways = ways.filter(pyarrow.array(same_cost))
    left = dict(enumerate(people[levers].to_pylist()))
    columns = (ways[way_levers].to_pylist(), ways["changes"].to_pylist())
    for person, moved, changes in zip(owners[same_cost].tolist(), *columns, strict=True):
        if moved == left.get(person):
            del left[person]
            yield person, moved, json.loads(changes)


def _move_table(
    first: int, nearest: Iterable[tuple[int, list[str], dict[str, Any]]], wording: Wording
) -> pyarrow.Table:
    import pyarrow

    moves = []
    for person, levers, changes in nearest:
        for lever in levers:
            if lever in changes:  # a one-hot group is named by its first feature, which may stay
                old, new = changes[lever]
                moves.append(Move(first + person, lever, *_move(lever, old, new, wording)))
    code = pyarrow.dictionary(pyarrow.int32(), pyarrow.string())
    kinds = (pyarrow.int32(), code, code, code, pyarrow.float64())
    columns = zip(*moves, strict=True) if moves else ([] for _ in kinds)
    arrays = [pyarrow.array(list(c), kind) for c, kind in zip(columns, kinds, strict=True)]
    return pyarrow.table(arrays, names=Move._fields)


def _move(lever: str, old: Any, new: Any, wording: Wording) -> tuple[str, str, float]:
    if not (wording.is_amount(lever, old) and wording.is_amount(lever, new)):
        return "to", text_of(new), float("nan")
    return ("more" if new > old else "less"), "", abs(float(new) - float(old))
