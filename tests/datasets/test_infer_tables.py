"""Cards for fourteen tables: what is inferred leads to no impossible row.

breast cancer, wine, iris, digits and diabetes (bundled with scikit-learn); tips and gapminder
(inside plotly, which dice-ml brings); loan, adult, credit, heloc and the synthetic table; one of
dummies like Titanic's, and an awkward one. Each is read from a CSV file and as typed records. What
an option may be is judged here by the cells alone: no rule and no card of Waysout has a say.
"""

from __future__ import annotations

import csv
import random
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from datetime import date
from importlib import resources
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from waysout.datasets import registry
from waysout.datasets.infer import infer_card
from waysout.datasets.load import labelled
from waysout.datasets.table import Table, read_table
from waysout.domain.card import Card
from waysout.domain.problem import Problem
from waysout.errors import UnavailableError
from waysout.oracles.adapt import as_oracle
from waysout.run.find import find

pd = pytest.importorskip("pandas")
pytest.importorskip("sklearn")

ROWS, QUERIES = 60, 2
Record = dict[str, Any]


@dataclass(frozen=True)
class Example:
    """A table, and what a person knows of it."""

    records: Sequence[Record]
    target: str
    positive: object
    carried: tuple[str, ...] = ()
    fixed: tuple[str, ...] = ()
    groups: tuple[tuple[str, ...], ...] = ()
    or_none: tuple[tuple[str, ...], ...] = ()
    reads: Mapping[str, Callable[[str], float]] = field(default_factory=dict)
    """How a person would read the numbers of a column that pandas takes for text."""


def bundled(name: str, yes: Callable[[Any], Any]) -> Example:
    datasets = pytest.importorskip("sklearn.datasets")
    frame = getattr(datasets, f"load_{name}")(as_frame=True).frame
    frame["target"] = yes(frame["target"]).astype(int)
    return Example(plain(frame.sample(min(len(frame), 200), random_state=0)), "target", 1)


def plain(frame: Any) -> list[Record]:
    """Return the rows of a frame as plain Python values."""
    cells = frame.astype(object).where(frame.notna(), None)
    return [dict(zip(frame.columns, row, strict=True)) for row in cells.to_numpy().tolist()]


def packaged(name: str) -> Any:
    pytest.importorskip("plotly", reason="the table is inside plotly, which is not installed")
    file = resources.files("plotly") / "package_data" / "datasets" / f"{name}.csv.gz"
    if not file.is_file():
        pytest.skip(f"this plotly has no table {name}")
    with file.open("rb") as stored:
        return pd.read_csv(stored, compression="gzip")


def tips() -> Example:
    frame = packaged("tips")
    frame["generous"] = frame["tip"] / frame["total_bill"] > 0.15
    return Example(plain(frame.drop(columns="tip")), "generous", True, fixed=("sex",))


def gapminder() -> Example:
    frame = packaged("gapminder")
    frame["lifeExp"] = frame["lifeExp"] > 60
    return Example(plain(frame.head(300)), "lifeExp", True)


def registered(name: str) -> Example:
    try:
        path = registry.need(name)
    except UnavailableError as error:
        pytest.skip(f"the table {name} is not here: {error}")
    outcome = registry.card(name).outcome
    # The file as our own reader gives it: not every one of them has a header of its own.
    table = read_table(path)
    frame = pd.DataFrame(table.records[:250]).drop(columns=list(outcome.ignore))
    fixed = {"adult": ("age", "sex", "race", "native-country"), "loan": ("no_of_dependents",),
             "credit": ("AGE", "SEX", "MARRIAGE")}  # fmt: skip
    for column in frame:
        numbers = pd.to_numeric(frame[column], errors="coerce")
        frame[column] = frame[column] if numbers.isna().any() else numbers
    return Example(plain(frame), outcome.target, outcome.positive, fixed=fixed.get(name, ()))


def titanic() -> Example:
    rng = random.Random(3)
    records: list[Record] = []
    for i in range(200):
        male, port, deck = rng.random() < 0.6, rng.choice("CQS"), rng.choice("ABCD")
        fare = round(rng.expovariate(1 / 30), 2)
        records.append({
            "PassengerId": i + 1, "Name": f"Passenger, Mr. No. {i}", "Ticket": f"A/5 {20000 + i}",
            "Pclass": rng.choice([1, 2, 3]), "Fare": fare,
            "Age": float(rng.randrange(1, 80)) if rng.random() < 0.8 else None,
            "Sex_female": int(not male), "Sex_male": int(male),
            **{f"Embarked_{p}": int(p == port) for p in "CQS"},
            **{f"Deck_{d}": deck == d for d in "BCD"},  # the first was dropped
            "Survived": int((not male) * 1.5 + fare / 60 + (port == "C") + (deck == "B") > 1.6),
        })  # fmt: skip
    return Example(
        records, "Survived", 1,
        carried=("PassengerId", "Name", "Ticket"),
        fixed=("Age", "Sex_female", "Sex_male"),
        groups=(("Sex_female", "Sex_male"), ("Embarked_C", "Embarked_Q", "Embarked_S")),
        or_none=(("Deck_B", "Deck_C", "Deck_D"),),
    )  # fmt: skip


def awkward() -> Example:
    rng = random.Random(4)
    records: list[Record] = []
    for i in range(200):
        rate, income, job = rng.randrange(5, 60), rng.randrange(500, 9000), rng.randrange(3)
        own = rng.choice("YN")
        records.append({
            "case no": f"{i:05d}", "customer_id": 5_000_000 + 3 * i,
            "note": f"called on day {i}; said: \"please, {rng.random()}\"",
            "city": f"Town {rng.randrange(150)}", "signed": date(2020, 1, 1 + i % 28),
            "signed on": f"{1 + i % 28}.12.2020", "Own House": own,
            "rate": f"{rate} %", "income": f"{income // 1000}.{income % 1000:03d},{i % 9}"
            if income > 999 else f"{income},{i % 9}",
            "Grade": rng.choice(["A", "a", " B", "C+"]), "zip": rng.choice(["01", "02", "11"]),
            "constant": 7, "years": rng.choice([1.0, 2.0, 3.0, None]),
            "married": rng.choice([True, False]), "branch_code": rng.choice([1, 2, 5]),
            "score": rng.choice(["?", *map(str, range(30))]),
            **{f"job_{name}": int(job == j) for j, name in enumerate(("cook", "clerk", "smith"))},
            "hired": "yes" if income / 1000 + (own == "Y") * 3 + (job == 1) * 2 > 7 else "no",
        })  # fmt: skip
    return Example(
        records, "hired", "yes",
        carried=("case no", "customer_id", "note", "city", "signed", "signed on"),
        fixed=("married",),
        groups=(("job_cook", "job_clerk", "job_smith"),),
        reads={
            "rate": lambda text: float(text.removesuffix("%")),
            "income": lambda text: float(text.replace(".", "").replace(",", ".")),
            "score": lambda text: float(text) if text != "?" else np.nan,
        },
    )  # fmt: skip


EXAMPLES: dict[str, Callable[[], Example]] = {
    "breast cancer": lambda: bundled("breast_cancer", lambda y: y == 1),
    "wine": lambda: bundled("wine", lambda y: y == 0),
    "iris": lambda: bundled("iris", lambda y: y == 2),
    "digits": lambda: bundled("digits", lambda y: y == 9),
    "diabetes": lambda: bundled("diabetes", lambda y: y > y.median()),
    "tips": tips,
    "gapminder": gapminder,
    "loan": lambda: registered("loan"),
    "adult": lambda: registered("adult"),
    "credit": lambda: registered("credit"),
    "heloc": lambda: registered("heloc"),
    "synthetic": lambda: registered("synthetic"),
    "titanic": titanic,
    "awkward": awkward,
}


def _cases() -> Iterator[Any]:
    """Each table from a file or from typed cells by default, both with ``-m slow``."""
    for i, name in enumerate(EXAMPLES):
        for j, source in enumerate(("csv", "typed")):
            twice = name in ("titanic", "awkward")
            later = name in ("digits", "credit") or (not twice and (i + j) % 2)
            marks = [pytest.mark.slow] if later else []
            yield pytest.param(name, source, marks=marks, id=f"{name}-{source}")


@pytest.mark.parametrize(("name", "source"), list(_cases()))
def test_no_impossible_row_comes_of_an_inferred_card(
    name: str, source: str, tmp_path: Path
) -> None:
    example = EXAMPLES[name]()
    table, frame = (from_csv if source == "csv" else from_records)(example, tmp_path)
    text = infer_card(table, target=example.target, positive=example.positive, name="t")
    assert len(text.splitlines()) <= 500
    card = Card.parse(text)
    dataset = labelled(card, table)
    inputs = frame.drop(columns=example.target)
    model = trained(inputs, np.array(dataset.labels))
    problem = Problem.from_card(card, as_oracle(model, card, positive_class=True))
    refused = np.flatnonzero(~problem.oracle.ask(dataset.rows).decision)
    judge, found = Judge(example, table), []
    for i in refused[:QUERIES].tolist():
        for option in find(problem, table.records[i], data=dataset, oracle_rows=ROWS).options:
            raw = dict(option.row)
            assert not judge.impossible(i, raw)
            found.append(judge.read(raw))
    again = pd.DataFrame(found)[inputs.columns].astype(inputs.dtypes)
    # At exactly one half `predict` says no, and an oracle yes.
    assert (model.predict_proba(again)[:, 1] >= 0.5).all()


def from_csv(example: Example, folder: Path) -> tuple[Table, Any]:
    """Return the table as read from a CSV file, and the frame a data scientist would make of it."""
    path = folder / "table.csv"
    names = list(example.records[0])
    with path.open("w", encoding="utf-8", newline="") as file:
        writer = csv.writer(file)
        writer.writerow(names)
        writer.writerows([["" if c is None else c for c in r.values()] for r in example.records])
    frame = pd.read_csv(path)
    for column, read in example.reads.items():
        frame[column] = frame[column].astype(str).map(read)
    return read_table(path), frame


def from_records(example: Example, folder: Path) -> tuple[Table, Any]:
    """Return the table with the cells' own types, and the same as a frame."""
    names = tuple(example.records[0])
    return Table(names, example.records, typed=True), pd.DataFrame(list(example.records))


def trained(frame: Any, yes: Any) -> Any:
    """Return a small model of the columns a data scientist would take: no ids, texts or dates."""
    from sklearn.compose import ColumnTransformer
    from sklearn.ensemble import RandomForestClassifier
    from sklearn.impute import SimpleImputer
    from sklearn.pipeline import make_pipeline
    from sklearn.preprocessing import OneHotEncoder

    numbers, levels = [], []
    for name, column in frame.items():
        if column.dtype.kind in "iuf" and not str(name).casefold().endswith("id"):
            numbers.append(name)
        elif column.dtype.kind == "b" or (column.dtype.kind in "OUT" and column.nunique() < 60):
            levels.append(name)
    levels = [name for name in levels if not isinstance(frame[name].dropna().iloc[0], date)]
    table = ColumnTransformer([
        ("numbers", SimpleImputer(), numbers),
        ("levels", OneHotEncoder(handle_unknown="ignore"), levels),
    ])  # fmt: skip
    forest = RandomForestClassifier(15, max_depth=8, random_state=0)
    return make_pipeline(table, forest).fit(frame, yes)


class Judge:
    """Tells by a table's cells what a row of it can be."""

    def __init__(self, example: Example, table: Table) -> None:
        self.example = example
        self.table = table
        self.reads = {} if table.typed else example.reads
        self.cells = {n: [record[n] for record in table.records] for n in table.columns}
        self.texts = {name: {str(cell) for cell in cells} for name, cells in self.cells.items()}
        self.kinds = {name: {type(c) for c in cells} for name, cells in self.cells.items()}
        self.ends = {name: self._ends(name) for name in table.columns}

    def _ends(self, name: str) -> tuple[float, float]:
        numbers = [self._number(name, cell) for cell in self.cells[name]]
        known = [number for number in numbers if not np.isnan(number)]
        return min(known, default=np.inf), max(known, default=-np.inf)

    def _number(self, name: str, cell: Any) -> float:
        read = self.reads.get(name, float) if isinstance(cell, str) else float
        try:
            return read(cell)
        except (TypeError, ValueError):
            return np.nan

    def read(self, raw: Mapping[str, Any]) -> Record:
        """Return a row as the model's frame has it."""
        return {n: self._number(n, cell) if n in self.reads else cell for n, cell in raw.items()}

    def impossible(self, i: int, raw: Mapping[str, Any]) -> list[str]:
        """Return what no row of this table can be, or this person's cannot become."""
        example, wrong = self.example, []
        for name, value in raw.items():
            own = self.table.records[i][name]
            if self._same(name, value, own):
                continue
            if name in example.carried + example.fixed:
                wrong.append(f"{name} changed")
            low, high = self.ends[name]
            if str(value) not in self.texts[name] and not low <= self._number(name, value) <= high:
                wrong.append(f"{name} is {value!r}")
            if self.table.typed and type(value) not in self.kinds[name]:
                wrong.append(f"{name} is a {type(value).__name__}")
        on = {name: str(value) in ("1", "True", "1.0") for name, value in raw.items()}
        wrong += [f"{g} has not one" for g in example.groups if sum(on[n] for n in g) != 1]
        wrong += [f"{g} has several" for g in example.or_none if sum(on[n] for n in g) > 1]
        return wrong

    def _same(self, name: str, value: Any, own: Any) -> bool:
        """Whether two cells are the same, however they are written."""
        if str(value) == str(own) or (value is None and own in (None, "", "?")):
            return True
        if isinstance(own, date):
            return str(value) == own.isoformat()
        return self._number(name, value) == self._number(name, own)
