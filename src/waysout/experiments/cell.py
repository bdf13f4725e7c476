"""Cells: finished searches, measured. All tables are made of them, without any data or LLM."""

from __future__ import annotations

import gzip
import json
import zlib
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field, fields
from pathlib import Path
from typing import Any

from waysout.domain.schema import LARGEST
from waysout.errors import InputError, IntegrityError, shown
from waysout.experiments.arms import Arm

VERSION = 1
RESULTS_FILE = "results.sqlite"
_MARK = "waysout_cell"
_GZIP = b"\x1f\x8b"

Number = float | int
Key = tuple[str, str, int]


@dataclass(frozen=True)
class Cell:
    """One finished search of an arm for a query, asked of an LLM; no row of the data is in it.

    ``llm`` is empty where none is asked; ``query`` is the number of a row. ``oracle`` is the sha256
    of the trained model. ``found`` has, for each option in order, the LLM calls and the oracle rows
    spent when it was there. ``spec`` is what ``arm``, the arm's id, was made of. ``commit`` is that
    of the source, where it was known, and ``at`` the time, UTC.
    """

    arm: str
    llm: str
    query: int
    data: str
    oracle: str
    outcome: str
    reason: str = ""
    metrics: Mapping[str, Number | None] = field(default_factory=dict)
    spent: Mapping[str, Number] = field(default_factory=dict)
    found: tuple[tuple[int, int], ...] = ()
    spec: Mapping[str, Any] = field(default_factory=dict)
    version: str = ""
    commit: str = ""
    at: str = ""

    @property
    def key(self) -> Key:
        """What there is one cell of."""
        return self.arm, self.llm, self.query

    def value(self, name: str) -> float | None:
        """Return a figure: what was found if there is such, else what was spent."""
        known = self.metrics if name in self.metrics else self.spent
        value = known.get(name)
        return None if value is None else float(value)

    def to_json(self) -> str:
        """Write the cell as a line of an export."""
        table = {_MARK: VERSION} | {f.name: getattr(self, f.name) for f in fields(self)}
        return json.dumps(table, ensure_ascii=False, separators=(",", ":"), allow_nan=False)

    @classmethod
    def from_json(cls, text: str | bytes) -> Cell:
        """Read what `to_json` wrote, or raise `InputError`."""
        try:
            table = json.loads(text)
            if table.pop(_MARK, None) != VERSION:
                raise TypeError(f"it is none of version {VERSION}")
            return cls(**_checked(table))
        except (ValueError, TypeError, KeyError, AttributeError, RecursionError) as error:
            raise InputError(f"not a cell: {error}") from None


_TEXTS = ("arm", "llm", "data", "oracle", "outcome", "reason", "version", "commit", "at")


def _checked(table: dict[str, Any]) -> dict[str, Any]:
    """Return the fields of a cell, each of its type: an export may come from anybody."""
    for name in _TEXTS:
        if not isinstance(table[name], str):
            raise TypeError(f"{name} is a text, not {shown(table[name])}")
    for name in ("metrics", "spent"):
        for figure, value in table[name].items():
            if not (_is_number(value) or (value is None and name == "metrics")):
                raise TypeError(f"{figure} is a number, not {shown(value)}")
    if not isinstance(table["spec"], dict):
        raise TypeError(f"spec is a table, not {shown(table['spec'])}")
    found = tuple((_count(calls), _count(rows)) for calls, rows in table["found"])
    return table | {"query": _count(table["query"]), "found": found}


def _is_number(value: object) -> bool:
    if isinstance(value, bool) or not isinstance(value, (int, float)):
        return False
    return abs(value) <= LARGEST


def _count(value: object) -> int:
    if isinstance(value, bool) or not isinstance(value, int):
        raise TypeError(f"{shown(value)} is no whole number")
    return value


class Cells:
    """Cells in memory, to be read; of two of the same search the later one counts."""

    def __init__(self, cells: Iterable[Cell] = ()) -> None:
        self._cells: dict[Key, Cell] = {}
        for cell in cells:
            before = self._cells.get(cell.key)
            if before is None or before.at <= cell.at:
                self._cells[cell.key] = cell
        self._by_arm: dict[tuple[str, str], dict[int, Cell]] = {}
        for key in sorted(self._cells):
            self._by_arm.setdefault(key[:2], {})[key[2]] = self._cells[key]

    @classmethod
    def read(cls, places: Sequence[str | Path]) -> Cells:
        """Read folders of results and exports; they must be of the same oracles."""
        cells = cls(cell for place in places for cell in _read(Path(place)))
        oracles: dict[str, str] = {}
        for cell in cells:
            if oracles.setdefault(cell.data, cell.oracle) != cell.oracle:
                raise IntegrityError(
                    f"the searches on {cell.data} are of two oracles ({oracles[cell.data][:12]} "
                    f"and {cell.oracle[:12]}), which cannot be compared: give results of one"
                )
        return cells

    @property
    def llms(self) -> tuple[str, ...]:
        """The LLMs that were asked, by name."""
        return tuple(sorted({cell.llm for cell in self if cell.llm}))

    def of(self, arm: Arm, llm: str) -> dict[int, Cell]:
        """Return an arm's cells by query; one that asks no LLM has the same for all of them."""
        return dict(self._by_arm.get((arm.id, llm if arm.asks_llm else ""), {}))

    def __iter__(self) -> Iterator[Cell]:
        """Go through them by arm, LLM and query."""
        return (cell for of_arm in self._by_arm.values() for cell in of_arm.values())

    def __len__(self) -> int:
        return len(self._cells)


def _read(place: Path) -> Iterator[Cell]:
    """Read a folder of results, its SQLite file, or an export."""
    if place.suffix not in (".jsonl", ".gz"):
        from waysout.experiments.results import Results

        with Results.read(place.parent if place.name == RESULTS_FILE else place) as results:
            yield from results.cells()
        return
    for number, line in enumerate(_lines(place), 1):
        try:
            yield Cell.from_json(line)
        except InputError as error:
            raise InputError(f"{place}, line {number}: {error}") from None


def _lines(place: Path) -> list[bytes]:
    try:
        data = place.read_bytes()
        if data.startswith(_GZIP):
            data = gzip.decompress(data)
    except (OSError, EOFError, zlib.error) as error:
        reason = getattr(error, "strerror", None) or str(error)
        raise InputError(
            f"cannot read {place}: {reason}; give a folder of results or an export of one"
        ) from None
    return data.splitlines()


def write_cells(path: Path, cells: Iterable[Cell]) -> int:
    """Write an export, the same bytes for the same cells; returns how many there are."""
    from waysout.cache import write_atomically

    lines = [cell.to_json() for cell in sorted(cells, key=lambda cell: cell.key)]
    data = "".join(f"{line}\n" for line in lines).encode(errors="backslashreplace")
    packed = path.suffix == ".gz"
    write_atomically(path, gzip.compress(data, mtime=0) if packed else data)
    return len(lines)
