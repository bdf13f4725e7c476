"""The files of a batch: for each part a row per option, and beside it a row per person.

A folder of parts reads as one Parquet data set: all have the same columns, and what is no part has
a name that starts with an underscore, which every reader of such folders passes over.
"""

from __future__ import annotations

import errno
import json
import math
import os
import re
import secrets
from collections.abc import Callable, Container, Iterable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Any, Generic, TypeVar

from waysout.batch.job import PartTask
from waysout.datasets.table import parquet_packages
from waysout.domain.result import Option, OutcomeKind, ResultData, plain
from waysout.domain.schema import Feature, Schema
from waysout.errors import InputError, IntegrityError, UnavailableError, shown, unknown
from waysout.store.tables import faults

if TYPE_CHECKING:
    import pyarrow

PEOPLE = "_people"
STORES = "_stores"
VERSION = "1"
_MARK = "waysout_batch"
_PART = re.compile(r"part-(\d{6}|[1-9]\d{6,})\.parquet", re.ASCII)
_TYPES = {"integer": "int64", "number": "float64", "boolean": "bool", "category": "string"}

T = TypeVar("T")


@dataclass(frozen=True, slots=True)
class _Column(Generic[T]):
    """A column's name, its type (``strings`` are a list) and the cell that something has in it."""

    name: str
    type: str
    cell: Callable[[T], Any]


@dataclass(frozen=True, slots=True)
class _Found:
    """An option, whose it is, and how many were found before it."""

    row_id: int
    number: int
    option: Option


@dataclass(frozen=True, slots=True)
class _Person:
    """A result, the row of the input that it belongs to, and the option with the least to do."""

    result: ResultData
    raw: Mapping[str, Any]
    nearest: Option | None


# Writing ---------------------------------------------------------------------------------------


def part_name(part: int) -> str:
    """Return the name of a part's files.

    >>> part_name(7), part_name(12_345_678)
    ('part-000007.parquet', 'part-12345678.parquet')
    """
    return f"part-{part:06d}.parquet"


def store_path(out: Path, part: int) -> Path:
    """Return where the answers of a part are kept."""
    return out / STORES / f"part-{part:06d}.db"


class PartRows:
    """What becomes of a part's people, in columns as they come: much smaller than their results.

    ``columns`` are those of the input, kept as text.
    """

    def __init__(self, schema: Schema, columns: Sequence[str]) -> None:
        self._person_columns = [*_PERSON, *map(_input_column, columns)]
        self._option_columns = _option_columns(schema)
        self._tables: dict[int, tuple[pyarrow.Table, pyarrow.Table]] = {}

    def add(self, raw: Mapping[str, Any], result: ResultData) -> None:
        """Add the result of a row, whose number is its index."""
        found = [_Found(result.index, i, option) for i, option in enumerate(result.options)]
        person = _table(self._person_columns, [_Person(result, raw, _nearest(result))])
        self._tables[result.index] = person, _table(self._option_columns, found)

    def write(self, out: Path, part: int) -> None:
        """Write both files, in the order of the rows.

        The part is done with the last rename: whoever is killed before leaves one that is not, also
        where the part has been written before, with fewer rows.
        """
        arrow, _ = parquet_packages()
        ordered = [self._tables[index] for index in sorted(self._tables)]
        people = [_table(self._person_columns, []), *(person for person, _ in ordered)]
        found = [_table(self._option_columns, []), *(found for _, found in ordered)]
        with faults(out):
            (out / part_name(part)).unlink(missing_ok=True)
        _write(out / PEOPLE / part_name(part), arrow.concat_tables(people))
        _write(out / part_name(part), arrow.concat_tables(found))


def write_part(
    out: Path, task: PartTask, schema: Schema, columns: Sequence[str], results: Sequence[ResultData]
) -> None:
    """Write what became of a part's rows, of which each has one result, in any order."""
    if sorted(r.index for r in results) != list(range(task.first, task.first + len(task))):
        raise ValueError(f"part {task.part} has not one result for each of its rows")
    rows = PartRows(schema, columns)
    for result in results:
        rows.add(task.rows[result.index - task.first], result)
    rows.write(out, task.part)


def sweep(out: Path) -> None:
    """Remove what writers left that were killed."""
    for folder in (out, out / PEOPLE):
        for file in folder.glob("_part-*.parquet.*"):
            file.unlink(missing_ok=True)


def _write(path: Path, table: pyarrow.Table) -> None:
    _, parquet = parquet_packages()
    # A name of its own: a worker that was taken for dead may be writing the same part.
    temporary = path.with_name(f"_{path.name}.{secrets.token_hex(4)}")
    with faults(path):
        path.parent.mkdir(parents=True, exist_ok=True)
        try:
            with temporary.open("xb") as file:
                # As one table, else every person would be a group of their own in the file.
                whole = table.combine_chunks()
                parquet.write_table(whole, file, compression="zstd", write_page_checksum=True)
                file.flush()
                os.fsync(file.fileno())
            temporary.replace(path)
        finally:
            temporary.unlink(missing_ok=True)


def _table(columns: Sequence[_Column[T]], things: Sequence[T]) -> pyarrow.Table:
    arrow, _ = parquet_packages()
    types = [_arrow_type(column.type) for column in columns]
    fields = [(column.name, kind) for column, kind in zip(columns, types, strict=True)]
    cells = [[_storable(column.cell(thing)) for thing in things] for column in columns]
    arrays = [arrow.array(cell, kind) for cell, kind in zip(cells, types, strict=True)]
    schema = arrow.schema(fields, metadata={_MARK: VERSION})
    return arrow.Table.from_arrays(arrays, schema=schema)


def _arrow_type(name: str) -> pyarrow.DataType:
    arrow, _ = parquet_packages()
    return arrow.list_(arrow.string()) if name == "strings" else arrow.type_for_alias(name)


def _storable(cell: Any) -> Any:
    """Return what Parquet can hold: a number that is none is missing, and text has UTF-8."""
    if isinstance(cell, str):
        # Half a character (a lone surrogate) has no UTF-8, and is no reason to write nothing.
        return cell.encode("utf-8", "replace").decode()
    if isinstance(cell, float):
        return cell if math.isfinite(cell) else None
    return [_storable(item) for item in cell] if isinstance(cell, (list, tuple)) else cell


# Columns ---------------------------------------------------------------------------------------


def _nearest(result: ResultData) -> Option | None:
    """Return the option nearest to the query; of equals that of fewer changes, or found first."""
    return min(result.options, key=lambda o: (-o.proximity, o.sparsity), default=None)


def _distance(option: Option | None) -> float | None:
    if option is None or not option.proximity > 0:
        return None
    return 1 / option.proximity - 1


def _levers(options: Iterable[Option]) -> list[str]:
    """Return the features that some option changes, in the order they were found."""
    return list(dict.fromkeys(name for option in options for name in option.changes))


def _alone(result: ResultData) -> list[str]:
    # Two features that a rule ties together are one change.
    return _levers(option for option in result.options if option.sparsity == 1)


def _binding(result: ResultData) -> list[str]:
    return list(dict.fromkeys(violation.rule for violation in result.outcome.binding))


def _json(changes: Mapping[str, Any]) -> str:
    return json.dumps(plain(changes), ensure_ascii=False, allow_nan=False)


def _spent(name: str, type_: str) -> _Column[_Person]:
    return _Column(name, type_, lambda person: getattr(person.result.ledger, name))


_OPTION: tuple[_Column[_Found], ...] = (
    _Column("row_id", "int64", lambda found: found.row_id),
    _Column("option", "int32", lambda found: found.number),
    _Column("key", "string", lambda found: found.option.key),
    _Column("changes", "string", lambda found: _json(found.option.changes)),
    _Column("changed", "strings", lambda found: list(found.option.changes)),
    _Column("probability", "float64", lambda found: found.option.probability),
    _Column("proximity", "float64", lambda found: found.option.proximity),
    _Column("distance", "float64", lambda found: _distance(found.option)),
    _Column("sparsity", "int32", lambda found: found.option.sparsity),
    _Column("stable", "bool", lambda found: found.option.stable),
    _Column("reasons", "strings", lambda found: found.option.reasons),
)
_PERSON: tuple[_Column[_Person], ...] = (
    _Column("row_id", "int64", lambda person: person.result.index),
    _Column("outcome", "string", lambda person: str(person.result.outcome.kind)),
    _Column("reason", "string", lambda person: person.result.outcome.reason),
    _Column("probability", "float64", lambda p: p.result.settings.get("query_probability")),
    _Column("best_probability", "float64", lambda person: person.result.outcome.best_probability),
    _Column("options", "int32", lambda person: len(person.result.options)),
    _Column("nearest_distance", "float64", lambda person: _distance(person.nearest)),
    _Column("nearest_changes", "int32", lambda p: p.nearest.sparsity if p.nearest else None),
    _Column(
        "fewest_changes",
        "int32",
        lambda p: min((o.sparsity for o in p.result.options), default=None),
    ),
    _Column(
        "nearest", "strings", lambda person: _levers([person.nearest] if person.nearest else [])
    ),
    _Column("alone", "strings", lambda person: _alone(person.result)),
    _Column("levers", "strings", lambda person: _levers(person.result.options)),
    _Column("binding", "strings", lambda person: _binding(person.result)),
    *(_spent(name, "int32") for name in ("llm_calls", "attempts")),
    *(_spent(name, "int64") for name in ("tokens_in", "tokens_out", "cached_tokens")),
    *(_spent(name, "int32") for name in ("oracle_rows", "setup_rows")),
    *(_spent(name, "float64") for name in ("money", "seconds")),
    _Column("calls_saved", "int32", lambda p: p.result.metrics.get("calls_saved", 0)),
)


def _option_columns(schema: Schema) -> list[_Column[_Found]]:
    ours = {column.name for column in _OPTION}
    taken = ours.union(schema.names)
    names = [_free(f.name, taken) if f.name in ours else f.name for f in schema]
    return [*_OPTION, *map(_feature_column, schema, names)]


def _free(name: str, taken: Container[str]) -> str:
    return _free(f"feature_{name}", taken) if name in taken else name


def _feature_column(feature: Feature, name: str) -> _Column[_Found]:
    return _Column(name, _TYPES[feature.kind], lambda found: found.option.row.get(feature.name))


def _input_column(name: str) -> _Column[_Person]:
    return _Column(f"input.{_storable(name)}", "string", lambda person: _text(person.raw.get(name)))


def _text(cell: object) -> str | None:
    """Return a cell of the input as text; a missing one stays missing.

    >>> _text(" 1.50"), _text(7), _text(float("nan")), _text(b"caf\\xc3\\xa9"), _text([1, None])
    (' 1.50', '7', None, 'café', '[1, None]')
    """
    if cell is None or (isinstance(cell, float) and math.isnan(cell)):
        return None
    if isinstance(cell, bytes):
        return cell.decode("utf-8", "replace")
    try:
        return str(cell)
    except ValueError:  # Python refuses to write out very long integers
        return shown(cell)


# Reading ---------------------------------------------------------------------------------------


def people_done(out: Path, part: int) -> int | None:
    """Return how many people a part has, or None where it is not done."""
    path = out / PEOPLE / part_name(part)
    # One without the other is what a crash of the whole machine can leave.
    if not (path.is_file() and (out / path.name).is_file()):
        return None
    with _opened(out, path) as file:
        rows: int = file.metadata.num_rows
        return rows


def has_failed(out: Path, part: int) -> bool:
    """Whether somebody failed in a part that is done."""
    found = _read(out, out / PEOPLE / part_name(part), ["outcome"])
    return OutcomeKind.FAILED in found["outcome"].to_pylist()


def people(out: Path, columns: Sequence[str] | None = None) -> Iterator[pyarrow.Table]:
    """Yield the people of the parts that are done, a table for each part, in their order."""
    for path in _parts(out):
        yield _read(out, out / PEOPLE / path.name, columns)


def options(out: Path, columns: Sequence[str] | None = None) -> Iterator[pyarrow.Table]:
    """Yield the options of the parts that are done, a table for each part, in their order."""
    for path in _parts(out):
        yield _read(out, path, columns)


def _parts(out: Path) -> list[Path]:
    if not out.is_dir():
        raise InputError(f"there is no folder {out}; name the one that a batch was written to")
    numbered = [
        (int(match[1]), file) for file in out.iterdir() if (match := _PART.fullmatch(file.name))
    ]
    return [file for _, file in sorted(numbered)]


def _read(out: Path, path: Path, columns: Sequence[str] | None) -> pyarrow.Table:
    with _opened(out, path) as file:
        known = file.schema_arrow.names
        for name in columns or ():
            if name not in known:
                raise InputError(f"{path}: {unknown('column', name, known)}")
        found = file.read(columns)
        # Parquet takes "a" for all that is called "a.…" too.
        return found if columns is None else found.select(columns)


@contextmanager
def _opened(out: Path, path: Path) -> Iterator[Any]:
    """Open a file of a batch, or say what is wrong with it."""
    arrow, parquet = parquet_packages()
    both = f"{out / path.name} and {out / PEOPLE / path.name}"
    try:
        with parquet.ParquetFile(path, page_checksum_verification=True) as file:
            _check_version(path, (file.schema_arrow.metadata or {}).get(_MARK.encode()))
            yield file
    except (arrow.ArrowException, OSError, UnicodeDecodeError) as error:
        # What the system complains of has a number; what a file lacks has none.
        if getattr(error, "errno", None) not in (None, errno.ENOENT):
            raise UnavailableError(f"cannot read {path}: {error}") from None
        what = "is damaged" if path.is_file() else "is missing"
        raise IntegrityError(
            f"{path} {what} ({error}); delete {both}, then run the same command again"
        ) from None


def _check_version(path: Path, version: bytes | None) -> None:
    if version is None:
        raise InputError(f"{path} was not written by a batch; move it to another folder")
    if version != VERSION.encode():
        raise InputError(f"{path} has version {shown(version)}; this release reads {VERSION}")
