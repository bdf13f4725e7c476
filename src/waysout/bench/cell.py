"""Cells: measured searches, from which all tables are built without any data or LLM."""

from __future__ import annotations

import gzip
import json
import re
import zlib
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field, fields
from itertools import chain, groupby, repeat
from pathlib import Path
from typing import Any

from waysout.bench.arms import ID_LENGTH, Arm, digest
from waysout.domain.schema import LARGEST
from waysout.errors import InputError, IntegrityError, shown, unknown

VERSION = 1
LARGEST_EXPORT = 2**30
RESULTS_FILE = "results.sqlite"
_MARK = "waysout_cell"
_GZIP = b"\x1f\x8b"
_CHUNK = 2**20
# Of more options than this, those found for the same spending are written once, with their number:
# a search of 100,000 rows would else take more than half a megabyte.
_MOST_LISTED = 1000
_MOST_OPTIONS = 10_000_000

Number = float | int
Key = tuple[str, str, int]


@dataclass(frozen=True)
class Cell:
    """One finished search of an arm for a query with an LLM; it contains no data row.

    ``arm`` is a digest of ``spec``, the settings of the search, so that plans share searches.
    ``made_of`` is a digest of all other inputs, unknown in older cells. ``llm`` is empty where none
    is used; ``query`` is a row number. ``oracle`` is the sha256 of the trained model. ``found`` has
    the LLM calls and the oracle rows spent when each option was found, in order. ``columns`` are
    lists of figures, such as one for each option, where the kind of the arm measures them.
    ``commit`` is that of the source, if known, and ``at`` the time in UTC.
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
    columns: Mapping[str, Sequence[Number | None]] = field(default_factory=dict)
    spec: Mapping[str, Any] = field(default_factory=dict)
    version: str = ""
    commit: str = ""
    at: str = ""
    made_of: str = ""

    @property
    def key(self) -> Key:
        """The key of the search: arm, LLM and query."""
        return self.arm, self.llm, self.query

    def value(self, name: str) -> float | None:
        """Return a figure by name, from the metrics or from what was spent."""
        known = self.metrics if name in self.metrics else self.spent
        value = known.get(name)
        return None if value is None else float(value)

    def to_json(self) -> str:
        """Write the cell as a line of an export."""
        table = {_MARK: VERSION} | {f.name: getattr(self, f.name) for f in fields(self)}
        if len(self.found) > _MOST_LISTED:
            table["found"] = [(*spent, len(list(run))) for spent, run in groupby(self.found)]
        if not self.columns:
            del table["columns"]  # most cells have none
        return json.dumps(table, ensure_ascii=False, separators=(",", ":"), allow_nan=False)

    @classmethod
    def from_json(cls, text: str | bytes) -> Cell:
        """Read what `to_json` wrote, or raise `InputError`."""
        try:
            table = json.loads(text)
            if table.pop(_MARK, None) != VERSION:
                raise TypeError(f"it does not have version {VERSION}")
            return cls(**_checked(table))
        except (ValueError, TypeError, KeyError, AttributeError, RecursionError) as error:
            raise InputError(f"not a cell: {error}") from None


_TEXTS = ("arm", "llm", "data", "oracle", "outcome", "reason", "version", "commit", "at", "made_of")


def _checked(table: dict[str, Any]) -> dict[str, Any]:
    """Return the fields of a cell, checked: an export may come from anywhere."""
    table = {"made_of": "", "columns": {}} | table
    for name in _TEXTS:
        if not isinstance(table[name], str):
            raise TypeError(f"{name} must be a string, not {shown(table[name])}")
    for name in ("metrics", "spent"):
        for figure, value in table[name].items():
            if not (_is_number(value) or (value is None and name == "metrics")):
                raise TypeError(f"{figure} must be a number, not {shown(value)}")
            if value is not None and value < 0 and (name == "spent" or isinstance(value, int)):
                raise ValueError(f"{figure} must not be negative, but is {shown(value)}")
    for name, column in table["columns"].items():
        if not all(value is None or _is_number(value) for value in column):
            raise TypeError(f"{name} must be a list of numbers")
    spec, data = table["spec"], table["data"]
    if not isinstance(spec, dict):
        raise TypeError(f"spec must be a table, not {shown(spec)}")
    if spec.get("data") != data:
        raise ValueError(f"its data is {shown(data)}, but its spec has another")
    if table["arm"] != (expected := digest(spec)[:ID_LENGTH]):
        raise ValueError(f"its arm is {shown(table['arm'])}, but its spec gives {expected}")
    counts = list(chain.from_iterable(table["found"]))
    if set(map(type, counts)) - {int} or min(counts, default=0) < 0:
        for count in counts:
            _count(count)
    found = tuple(map(tuple, table["found"]))
    if set(map(len, found)) - {2}:
        if sum(times for _, _, times in found) > _MOST_OPTIONS:  # a short line may claim any number
            raise ValueError(f"it has more than {_MOST_OPTIONS:,} options")
        # Those of a run are one object: searches of 100,000 rows have millions of options.
        runs = (repeat((calls, rows), times) for calls, rows, times in found)
        found = tuple(chain.from_iterable(runs))
    return table | {"query": _count(table["query"]), "found": found}


def _is_number(value: object) -> bool:
    if isinstance(value, bool) or not isinstance(value, (int, float)):
        return False
    return abs(value) <= LARGEST


def _count(value: object) -> int:
    if isinstance(value, bool) or not isinstance(value, int) or value < 0:
        raise TypeError(f"{shown(value)} is not a whole number of at least 0")
    return value


class Cells:
    """Cells in memory; of two cells of the same search, the later one is used."""

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
        """Read folders of results and exports, which must have used the same oracles.

        A name with ``*`` is a pattern and stands for all files that match it.
        """
        cells = cls(cell for place in places for path in _matching(place) for cell in _read(path))
        oracles: dict[str, str] = {}
        for cell in cells:
            if oracles.setdefault(cell.data, cell.oracle) != cell.oracle:
                raise IntegrityError(
                    f"the searches on {cell.data} used two oracles ({oracles[cell.data][:12]} and "
                    f"{cell.oracle[:12]}), so they are not comparable; pass results of only one"
                )
        return cells

    @property
    def llms(self) -> tuple[str, ...]:
        """The names of the LLMs that were used."""
        return tuple(sorted({cell.llm for cell in self if cell.llm}))

    def of(self, arm: Arm, llm: str) -> dict[int, Cell]:
        """Return an arm's cells by query; without an LLM they are the same for every ``llm``."""
        return dict(self._by_arm.get((arm.id, llm if arm.asks_llm else ""), {}))

    def __iter__(self) -> Iterator[Cell]:
        """Iterate by arm, LLM and query."""
        return (cell for of_arm in self._by_arm.values() for cell in of_arm.values())

    def __len__(self) -> int:
        return len(self._cells)


def llm_meant(known: Sequence[str], wanted: str) -> str:
    """Return the LLM that a name refers to, or raise `InputError`.

    The name may be that in its cells, a connection string, or the model alone, also a prefix that
    ends at a word boundary: ``simulated:1`` is not ``simulated:12``.

    >>> llm_meant(["openai:gemma-3@http://localhost:80", "simulated:1"], "gemma")
    'openai:gemma-3@http://localhost:80'
    """
    from waysout.bench.status import llm_name

    named = llm_name(wanted)
    for exact in (wanted, named):
        if exact in known:
            return exact
    if not known:
        return named
    found = [llm for llm in known if _begins(llm, wanted) or _begins(llm, named)]
    if not found:
        raise InputError(unknown("LLM in these results", wanted, known))
    if len(found) > 1:
        raise InputError(f"{shown(wanted)} matches {' and '.join(found)}; use a longer name")
    return found[0]


def one_llm(known: Sequence[str], wanted: str = "") -> str:
    """Return the LLM of that name, or the only one; empty if no LLM was used."""
    if wanted:
        return llm_meant(known, wanted)
    if len(known) > 1:
        each = "".join(f"\n  {llm}" for llm in known)
        raise InputError(f"the results have several LLMs; choose one of them:{each}")
    return next(iter(known), "")


def _begins(llm: str, beginning: str) -> bool:
    whole_words = re.compile(rf"{re.escape(beginning)}(?!\w)")
    return any(whole_words.match(name) for name in (llm, llm.partition(":")[2]))


def _matching(place: str | Path) -> list[Path]:
    path = Path(place)
    if "*" not in path.name or path.exists():
        return [path]
    found = sorted(path.parent.glob(path.name))
    if not found:
        raise InputError(f"no file matches {place}")
    return found


def _read(place: Path) -> Iterator[Cell]:
    """Read a folder of results, its SQLite file, or an export."""
    if place.suffix not in (".jsonl", ".gz"):
        from waysout.bench.results import Results

        with Results.read(place.parent if place.name == RESULTS_FILE else place) as results:
            yield from results.cells()
        return
    parts, size = list[bytes](), 0
    try:
        with place.open("rb") as file:
            packed = file.read(len(_GZIP)) == _GZIP
        with gzip.open(place) if packed else place.open("rb") as file:
            while part := file.read(_CHUNK):
                parts.append(part)
                size += len(part)
                if size > LARGEST_EXPORT:  # a small compressed file may expand beyond memory
                    raise InputError(
                        f"{place} is larger than {LARGEST_EXPORT:,} bytes: export fewer searches "
                        "at once"
                    )
    except (OSError, EOFError, zlib.error) as error:
        reason = getattr(error, "strerror", None) or str(error)
        raise InputError(
            f"cannot read {place}: {reason}; pass a folder of results or an export of one"
        ) from None
    for number, line in enumerate(b"".join(parts).splitlines(), 1):
        try:
            yield Cell.from_json(line)
        except InputError as error:
            raise InputError(f"{place}, line {number}: {error}") from None


def write_cells(path: Path, cells: Iterable[Cell]) -> int:
    """Write an export, with the same bytes for the same cells; return the number of cells."""
    from waysout.files import write_atomically

    lines = [cell.to_json() for cell in sorted(cells, key=lambda cell: cell.key)]
    data = "".join(f"{line}\n" for line in lines).encode(errors="backslashreplace")
    packed = path.suffix == ".gz"
    write_atomically(path, gzip.compress(data, mtime=0) if packed else data)
    return len(lines)
