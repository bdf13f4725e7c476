"""The files of a batch: for each part a row per way, and beside it a row per person.

A folder of parts reads as one Parquet data set: all have the same columns, and everything else in
it has a name that starts with an underscore, which readers of such folders ignore.
"""

from __future__ import annotations

import json
import math
import os
import re
import secrets
from collections.abc import Iterable, Iterator, Mapping, Sequence
from contextlib import contextmanager, suppress
from enum import StrEnum
from pathlib import Path
from typing import TYPE_CHECKING, Any

from waysout.batch.marks import (
    AGAIN,
    DONE,
    PEOPLE,
    Mark,
    are_kept,
    batch_of,
    files_of,
    mark_done,
    mark_of,
    marked,
    part_name,
    read_checked,
    refuse_folder,
    remove_file,
    unmark,
)
from waysout.datasets.table import parquet_packages
from waysout.domain.result import Option, OutcomeKind, ResultData, Safer, Way, plain
from waysout.domain.schema import Feature, Schema, Value, text_of
from waysout.domain.spelling import typed
from waysout.errors import InputError, IntegrityError, shown, unknown
from waysout.files import private_folder, sha256
from waysout.store.tables import faults

if TYPE_CHECKING:
    import pyarrow

STORES = "_stores"
VERSION = "1"
_MARK = "waysout_batch"
_PART = re.compile(r"part-(\d{6}|[1-9]\d{6,})\.parquet", re.ASCII)
_TYPES = {"integer": "int64", "number": "float64", "boolean": "bool", "category": "string",
          "opaque": "string"}  # fmt: skip
_TYPES_OF_CELLS = {int: "int64", float: "float64", bool: "bool", str: "string"}


class Contents(StrEnum):
    """What has a row in the parts of a batch."""

    WAYS = "ways"
    OPTIONS = "options"
    """Every option, and every way whose row is no option's."""
    BEFORE_WAYS = "options alone"
    """Every option, in the columns of releases that wrote no ways: their folders stay as they are.
    """


# The columns and their Arrow types; ``strings`` is a list of strings.
_OPTION = {
    "row_id": "int64", "option": "int32", "key": "string", "changes": "string",
    "changed": "strings", "probability": "float64", "proximity": "float64", "distance": "float64",
    "sparsity": "int32", "stable": "bool", "reasons": "strings",
}  # fmt: skip
_WAY = {
    "way": "int32", "levers": "strings", "cost": "float64", "irreducible": "bool", "tight": "bool",
    "holds": "bool", "variants": "int32", "at_least": "float64",
}  # fmt: skip
_SPENT = {
    "llm_calls": "int32", "attempts": "int32", "tokens_in": "int64", "tokens_out": "int64",
    "cached_tokens": "int64", "oracle_rows": "int32", "setup_rows": "int32", "money": "float64",
    "seconds": "float64",
}  # fmt: skip
_PERSON = {
    "row_id": "int64", "outcome": "string", "reason": "string", "probability": "float64",
    "best_probability": "float64", "options": "int32", "nearest_distance": "float64",
    "nearest_changes": "int32", "fewest_changes": "int32", "nearest": "strings",
    "alone": "strings", "levers": "strings", "binding": "strings", **_SPENT,
    "calls_saved": "int32",
}  # fmt: skip
_WAY_PERSON = {
    "ways": "int32", "approved_rows": "int32", "nearest_way": "strings",
    "nearest_way_cost": "float64", "nearest_way_distance": "float64",
    "nearest_way_changes": "int32", "nearest_way_holds": "bool", "ways_fewest_changes": "int32",
    "ways_alone": "strings", "ways_levers": "strings",
}  # fmt: skip


# Writing ---------------------------------------------------------------------------------------


def store_path(out: Path, part: int) -> Path:
    """Return the path of a part's store."""
    return out / STORES / f"part-{part:06d}.db"


class PartRows:
    """The rows of a part's files, as Arrow tables: much smaller than the results.

    ``columns`` are those of the input, kept as text. Features hold what the user's table holds, in
    its own type; without ``as_in_table`` what rows inside a search have, as in the folders of
    earlier releases: all parts of a folder have the same columns.
    """

    def __init__(
        self,
        schema: Schema,
        columns: Sequence[str],
        contents: Contents = Contents.WAYS,
        *,
        as_in_table: bool = True,
    ) -> None:
        with_ways = contents is not Contents.BEFORE_WAYS
        ours = _OPTION | (_WAY if with_ways else {})
        self._contents = contents
        self._inputs = {name: f"input.{_storable(name)}" for name in columns}
        inputs = dict.fromkeys(self._inputs.values(), "string")
        self._person = _schema(_PERSON | (_WAY_PERSON if with_ways else {}) | inputs)
        # A feature whose name is one of ours is called feature_NAME.
        self._features: dict[str, str] = {}
        for feature in schema:
            name = feature.name
            while name in ours or (name != feature.name and name in schema.names):
                name = f"feature_{name}"
            self._features[feature.name] = name
        self._schema, self._as_in_table = schema, as_in_table
        kinds = {
            self._features[feature.name]:
            _type_of(feature) if as_in_table else _TYPES[feature.kind]
            for feature in schema
        }  # fmt: skip
        self._option = _schema(ours | kinds)
        self._tables: dict[int, tuple[pyarrow.Table, pyarrow.Table]] = {}

    def add(self, raw: Mapping[str, Any], result: ResultData) -> None:
        """Add the result of a row, whose number is its index."""
        inputs = {column: _text(raw.get(name)) for name, column in self._inputs.items()}
        person = _table(self._person, [_person_cells(result) | inputs])
        numbers = {option.key: number for number, option in enumerate(result.options)}
        options = [
            self._cells(result.index, numbers.get(option.key), rank, option)
            for rank, option in _written(result, self._contents)
        ]
        self._tables[result.index] = person, _table(self._option, options)

    def _cells(
        self, index: int, number: int | None, rank: int | None, option: Option
    ) -> dict[str, Any]:
        option = option if self._as_in_table else typed(self._schema, option)
        features = {
            column: _cell(option.row.get(name), self._option.field(column).type)
            for name, column in self._features.items()
        }
        return _option_cells(index, number, option) | _way_cells(rank, option) | features

    def write(self, out: Path, part: int, *, keeps_store: bool = False) -> None:
        """Write both files, in the order of the rows; ``keeps_store`` is for the mark.

        The part is done with its mark: a kill before that leaves a part that is not done, even if
        it was written before, with fewer rows.
        """
        arrow, _ = parquet_packages()
        ordered = [self._tables[index] for index in sorted(self._tables)]
        people = [_table(self._person, []), *(person for person, _ in ordered)]
        options = [_table(self._option, []), *(options for _, options in ordered)]
        with faults(out):
            unmark(out, part)
            remove_file(out / part_name(part))
        private_folder(out / DONE)  # a folder without marks would be an earlier release's
        tables = zip(files_of(part), (people, options), strict=True)
        digests = {name: _write(out / name, arrow.concat_tables(rows)) for name, rows in tables}
        mark_done(out, part, Mark(len(ordered), digests, keeps_store, batch_of(out)))


def _type_of(feature: Feature) -> str:
    """Return the type of a feature's column: that of its cells in the user's table.

    Numbers stay numbers where the table writes them in its own way, as in ``12,5 %``: that way is
    text, and goes into a text column; so does a feature whose levels are of several types.
    """
    if feature.is_numeric:
        example = feature.raw(1 if feature.kind == "integer" else 1.0)
        return "string" if isinstance(example, str) else _TYPES[feature.kind]
    kinds = {type(level) for level in feature.levels}
    if kinds == {int, float}:
        return "float64"
    return _TYPES_OF_CELLS.get(kinds.pop(), "string") if len(kinds) == 1 else "string"


def _cell(value: Value, kind: pyarrow.DataType) -> Any:
    """Return a value for a column; a column of text holds text."""
    arrow, _ = parquet_packages()
    is_text = value is None or isinstance(value, str) or not arrow.types.is_string(kind)
    return value if is_text else text_of(value)


def sweep(out: Path) -> None:
    """Remove the unfinished files of writers that were killed."""
    for folder in (out, out / PEOPLE):
        for file in folder.glob("_part-*.parquet.*"):
            file.unlink(missing_ok=True)
    for file in (out / DONE).glob(".part-*.json.*"):
        file.unlink(missing_ok=True)


def _write(path: Path, table: pyarrow.Table) -> str:
    """Write a file for its owner alone, and return the digest of what is to be in it."""
    arrow, parquet = parquet_packages()
    # As one chunk, else every person would be a row group of their own in the file.
    whole, data = table.combine_chunks(), arrow.BufferOutputStream()
    # Checksums of pages are for other readers; ours compare the digest, see `marks`.
    parquet.write_table(whole, data, compression="zstd", write_page_checksum=True)
    written = data.getvalue().to_pybytes()
    # Under a random name: a worker that was taken for dead may be writing the same part.
    temporary = path.with_name(f"_{path.name}.{secrets.token_hex(4)}")
    private_folder(path.parent)
    refuse_folder(path)
    with faults(path):
        try:
            handle = os.open(temporary, os.O_CREAT | os.O_EXCL | os.O_WRONLY, 0o600)
            with os.fdopen(handle, "wb") as file:
                file.write(written)
                file.flush()
                os.fsync(file.fileno())
            temporary.replace(path)
        finally:
            temporary.unlink(missing_ok=True)
    return sha256(written)


def _schema(types: Mapping[str, str]) -> pyarrow.Schema:
    arrow, _ = parquet_packages()
    strings = arrow.list_(arrow.string())
    kinds = [
        strings if kind == "strings" else arrow.type_for_alias(kind) for kind in types.values()
    ]
    return arrow.schema(zip(types, kinds, strict=True), metadata={_MARK: VERSION})


def _table(schema: pyarrow.Schema, rows: Sequence[Mapping[str, Any]]) -> pyarrow.Table:
    arrow, _ = parquet_packages()
    arrays = [
        arrow.array([_storable(row[name]) for row in rows], kind)
        for name, kind in zip(schema.names, schema.types, strict=True)
    ]
    return arrow.Table.from_arrays(arrays, schema=schema)


def _storable(cell: Any) -> Any:
    """Return what Parquet can hold: NaN and infinity become missing, and text is valid UTF-8."""
    if isinstance(cell, str):
        # A lone surrogate has no UTF-8, and is no reason to write nothing.
        return cell.encode("utf-8", "replace").decode()
    if isinstance(cell, float):
        return cell if math.isfinite(cell) else None
    return [_storable(item) for item in cell] if isinstance(cell, (list, tuple)) else cell


# Cells -----------------------------------------------------------------------------------------


def _option_cells(row_id: int, number: int | None, option: Option) -> dict[str, Any]:
    return {
        "row_id": row_id,
        "option": number,
        "key": option.key,
        "changes": json.dumps(plain(option.changes), ensure_ascii=False, allow_nan=False),
        "changed": list(option.changes),
        "probability": option.probability,
        "proximity": option.proximity,
        "distance": _distance(option),
        "sparsity": option.sparsity,
        "stable": option.stable,
        "reasons": option.reasons,
    }


def _written(result: ResultData, contents: Contents) -> list[tuple[int | None, Option]]:
    """Return what has a row, each with its rank if it is a way, or a safer variant of one.

    Ways go best first, options in the order they were found. A way that has walked its numbers back
    from the row of its option follows after the options, and safer variants after their ways.
    """
    left = {} if contents is Contents.BEFORE_WAYS else dict(enumerate(result.ways))
    safer = {rank: way.safer for rank, way in left.items()}
    found: list[tuple[int | None, Option]] = []
    if contents is not Contents.WAYS or not left:
        for option in result.options:
            rank = next((rank for rank, way in left.items() if way.row == option.row), None)
            found.append((rank, option if rank is None else left.pop(rank)))
    for rank, variants in safer.items():
        found += [(rank, left[rank])] if rank in left else []
        found += [(rank, variant) for variant in variants]
    return found


def _way_cells(rank: int | None, option: Option) -> dict[str, Any]:
    if isinstance(option, Safer):
        return {**dict.fromkeys(_WAY), "way": rank, "at_least": option.at_least}
    if not isinstance(option, Way):
        return dict.fromkeys(_WAY)
    return {
        "at_least": None,
        "way": rank,
        "levers": option.levers,
        "cost": option.cost,
        "irreducible": option.irreducible,
        "tight": option.tight,
        "holds": option.holds,
        "variants": len(option.variants),
    }


def _person_cells(result: ResultData) -> dict[str, Any]:
    options, outcome = result.options, result.outcome
    # The nearest to the query; of equals the one with fewer changes, or found first.
    nearest = min(options, key=lambda option: (-option.proximity, option.sparsity), default=None)
    return {
        "row_id": result.index,
        "outcome": str(outcome.kind),
        "reason": outcome.reason,
        "probability": result.settings.get("query_probability"),
        "best_probability": outcome.best_probability,
        "options": len(options),
        "nearest_distance": _distance(nearest),
        "nearest_changes": nearest.sparsity if nearest else None,
        "fewest_changes": min((option.sparsity for option in options), default=None),
        "nearest": _levers([nearest] if nearest else []),
        # By sparsity, because two features that a rule ties together are one change.
        "alone": _levers(option for option in options if option.sparsity == 1),
        "levers": _levers(options),
        "binding": list(dict.fromkeys(violation.rule for violation in outcome.binding)),
        **result.ledger.as_dict(),
        "calls_saved": result.metrics.get("calls_saved", 0),
        **_ways_cells(result),
    }


def _ways_cells(result: ResultData) -> dict[str, Any]:
    """Return what a person's ways are; the nearest is the cheapest of the best standing."""
    ways = result.ways
    nearest = min(ways, key=lambda w: (w.stable is False, w.standing, w.cost), default=None)
    return {
        "ways": len(ways),
        "approved_rows": result.metrics.get("valid") or 0,
        "nearest_way": nearest.levers if nearest else (),
        "nearest_way_cost": nearest.cost if nearest else None,
        "nearest_way_distance": _distance(nearest),
        "nearest_way_changes": nearest.sparsity if nearest else None,
        "nearest_way_holds": nearest.holds if nearest else None,
        "ways_fewest_changes": min((way.sparsity for way in ways), default=None),
        "ways_alone": _in_order(way.levers for way in ways if len(way.levers) == 1),
        "ways_levers": _in_order(way.levers for way in ways),
    }


def _distance(option: Option | None) -> float | None:
    if option is None or not option.proximity > 0:
        return None
    return 1 / option.proximity - 1


def _levers(options: Iterable[Option]) -> list[str]:
    """Return the features that the options change, in the order they were found."""
    return _in_order(option.changes for option in options)


def _in_order(several: Iterable[Iterable[str]]) -> list[str]:
    return list(dict.fromkeys(name for names in several for name in names))


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
    """Return how many people a part has, or None if it is not done, or not to be read.

    Whether the files are still what was written is looked at where they are read, and once for all
    parts when a batch is resumed.
    """
    # A file may be missing even so: this is what a crash of the whole machine can leave.
    if not all((out / name).is_file() for name in files_of(part)):
        return None
    with suppress(IntegrityError):
        mark = mark_of(out, part)
        return None if mark is None else mark.rows
    return None


def has_failed(out: Path, part: int) -> bool:
    """Whether a row failed in a part that is done."""
    return OutcomeKind.FAILED in people_of(out, part, ["outcome"])["outcome"].to_pylist()


def has_ways(out: Path) -> bool:
    """Whether the people of a batch tell of ways: all do but those of earlier releases."""
    for part in _parts(out):
        with _opened(out, out / PEOPLE / part_name(part)) as file:
            return "ways" in file.schema_arrow.names
    return True


def people(out: Path, columns: Sequence[str] | None = None) -> Iterator[pyarrow.Table]:
    """Yield the people of the parts that are done, a table for each part, in their order."""
    for part in _parts(out):
        yield people_of(out, part, columns)


def options(out: Path, columns: Sequence[str] | None = None) -> Iterator[pyarrow.Table]:
    """Yield the ways or options of the parts that are done, a table for each, in their order."""
    for part in _parts(out):
        yield options_of(out, part, columns)


def people_and_options(
    out: Path, columns: Sequence[str], option_columns: Sequence[str]
) -> Iterator[tuple[pyarrow.Table, pyarrow.Table]]:
    """Yield both tables of each part that is done: parts may be added between two passes."""
    for part in _parts(out):
        yield people_of(out, part, columns), options_of(out, part, option_columns)


def people_of(out: Path, part: int, columns: Sequence[str] | None = None) -> pyarrow.Table:
    """Return the people of a part."""
    return _read(out, out / PEOPLE / part_name(part), columns)


def options_of(out: Path, part: int, columns: Sequence[str] | None = None) -> pyarrow.Table:
    """Return the ways or options of a part."""
    return _read(out, out / part_name(part), columns)


def _parts(out: Path) -> list[int]:
    if not out.is_dir():
        raise InputError(f"there is no folder {out}; name the one that a batch was written to")
    return marked(out) if are_kept(out) else written(out)


def written(out: Path) -> list[int]:
    """Return the numbers of the parts whose ways are on file, done or not, in order."""
    names = (_PART.fullmatch(file.name) for file in out.iterdir())
    return sorted(int(match[1]) for match in names if match)


def _read(out: Path, path: Path, columns: Sequence[str] | None) -> pyarrow.Table:
    with _opened(out, path) as file:
        known = file.schema_arrow.names
        for name in columns or ():
            if name not in known:
                raise InputError(f"{path}: {unknown('column', name, known)}")
        found = file.read(columns)
        # Parquet reads "a" as everything whose name starts with "a.", too.
        return found if columns is None else found.select(columns)


@contextmanager
def _opened(out: Path, path: Path) -> Iterator[Any]:
    """Open a file of a batch, or say what is wrong with it."""
    arrow, parquet = parquet_packages()
    # Read once: what is checked is what is read.
    data = arrow.BufferReader(read_checked(out, path))
    try:
        with parquet.ParquetFile(data, page_checksum_verification=True) as file:
            version = (file.schema_arrow.metadata or {}).get(_MARK.encode())
            if version is None:
                raise InputError(f"{path} was not written by a batch; move it to another folder")
            if version != VERSION.encode():
                raise InputError(
                    f"{path} has version {shown(version)}; this release reads {VERSION}"
                )
            yield file
    except (arrow.ArrowException, OSError, UnicodeDecodeError) as error:
        raise IntegrityError(f"{path} is damaged ({error}): {AGAIN}") from None
