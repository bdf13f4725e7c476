"""What comes out is what went in: each export, put to the model again by code that is not ours.

A model of scikit-learn is trained on a table as its user has it, and refuses levels that it does
not know. Everything that a search finds is then read back with pandas alone and put to that model:
it must approve all of it. A dozen cells by default, all of them with ``-m slow``.
"""

from __future__ import annotations

import json
from collections.abc import Callable
from functools import lru_cache
from pathlib import Path
from typing import Any

import numpy as np
import pytest

import waysout
from waysout.batch.marks import part_name
from waysout.batch.tables import PartRows
from waysout.domain.problem import Problem
from waysout.report.result import Result

pd = pytest.importorskip("pandas")
pytest.importorskip("sklearn")

COLUMNS = ["income", "term", "flag"]
CARD = """
card = 1
name = "spelled"
[outcome]
target = "y"
positive = "yes"
[features.income]
kind = "number"
decimals = 2
range = [0, 100]
[features.term]
kind = "integer"
range = [1, 30]
[features.flag]
"""
# The cells of the table, from a no to a yes, and what the card says of them.
SPELLINGS: dict[str, tuple[list[Any], str]] = {
    "Y/N": (["N", "Y"], "kind = 'boolean'\nlevels = ['N', 'Y']"),
    "yes/no": (["no", "yes"], "kind = 'boolean'\nlevels = ['no', 'yes']"),
    "0/1": ([0, 1], "kind = 'boolean'\nlevels = [0, 1]"),
    "True/False": ([False, True], "kind = 'boolean'"),
    "text of True/False": (["false", "true"], "kind = 'boolean'\nlevels = ['false', 'true']"),
    "1/2, a boolean": ([1, 2], "kind = 'boolean'\nlevels = [1, 2]"),
    "1/0, turned": ([1, 0], "kind = 'boolean'\nlevels = [1, 0]"),
    "codes": ([1, 2, 3], "kind = 'category'\nlevels = [1, 2, 3]"),
    "ordered codes": ([10, 20, 30], "kind = 'category'\nlevels = [10, 20, 30]\nordered = true"),
    "fractions": ([1.5, 2.5], "kind = 'category'\nlevels = [1.5, 2.5]"),
    "text of codes": (["1", "2"], "kind = 'category'\nlevels = ['1', '2']"),
    "leading zeros": (["007", "010"], "kind = 'category'\nlevels = ['007', '010']"),
    "blanks": ([" low", "high "], "kind = 'category'\nlevels = [' low', 'high ']"),
    "whole floats": ([1.0, 2.0], "kind = 'number'\nrange = [1, 2]\ndecimals = 0"),
    "missing": ([None, "low", "high"],
                "kind = 'category'\nlevels = ['low', 'high']\nmissing = 'keep'"),
    "missing codes": ([None, 1.0, 2.0],
                      "kind = 'category'\nlevels = [1.0, 2.0]\nmissing = 'keep'"),
}  # fmt: skip


@lru_cache
def searched(spelling: str) -> tuple[Any, Any, Problem, list[Result]]:
    """Return the table, the model trained on it, the problem, and results of rejected rows."""
    from sklearn.compose import ColumnTransformer
    from sklearn.linear_model import LogisticRegression
    from sklearn.pipeline import make_pipeline
    from sklearn.preprocessing import OneHotEncoder

    cells, told = SPELLINGS[spelling]
    draw = np.random.default_rng(0)
    place = draw.integers(0, len(cells), 400)
    table = pd.DataFrame({
        "income": draw.uniform(0, 100, 400).round(2), "term": draw.integers(1, 31, 400),
        "flag": pd.Series([cells[i] for i in place]).fillna(np.nan)
        if None in cells else pd.Series([cells[i] for i in place]),
    })  # fmt: skip
    worth = table["income"] - table["term"] + 40 * place / (len(cells) - 1)
    labels = np.where(worth > 70, "yes", "no")
    encode = ColumnTransformer([("flag", OneHotEncoder(), ["flag"])], remainder="passthrough")
    model = make_pipeline(encode, LogisticRegression(max_iter=2000)).fit(table, labels)
    card = waysout.Card.parse(CARD + told)
    rows = card.schema.parse_many(table.to_dict("records"))
    problem = Problem.from_card(card, waysout.as_oracle(model, card), training=rows)
    refused = (model.predict(table) == "no") & (worth > 50)
    # A missing value stays missing: of the people, one has none and one has another.
    wanted = [np.flatnonzero(refused & (place == at))[0] for at in (0, int(None in cells))]
    people = [rows[i] for i in wanted]
    results = list(waysout.find_many(problem, people, calls=0, oracle_rows=80))
    assert all(result.options for result in results)
    return table, model, problem, results


def text_columns(table: Any) -> dict[str, type]:
    texts = any(isinstance(cell, str) for cell in table["flag"])
    return {"flag": str} if texts else {}


def by_json(table: Any, problem: Problem, result: Result, folder: Path) -> Any:
    del problem, folder
    again = Result.from_json(result.to_json())
    assert again == result
    read = json.loads(again.to_json())
    found = [*read["options"], *read["ways"]]
    found += [variant for way in read["ways"] for variant in way["variants"]]
    rows = [option["row"] for option in found]
    cells = [np.nan if row["flag"] is None else row["flag"] for row in rows]
    return pd.DataFrame(rows).assign(flag=pd.Series(cells, dtype=table["flag"].dtype))


def by_csv(table: Any, problem: Problem, result: Result, folder: Path) -> Any:
    del problem
    result.to_csv(folder / "options.csv", all_options=True, all_features=True)
    return pd.read_csv(folder / "options.csv", dtype=text_columns(table))


def by_frame(table: Any, problem: Problem, result: Result, folder: Path) -> Any:
    del problem, folder
    frame = result.with_like(table).to_frame(all_options=True, all_features=True)
    assert frame[COLUMNS].dtypes.equals(table[COLUMNS].dtypes)
    return frame


def by_parquet(table: Any, problem: Problem, result: Result, folder: Path) -> Any:
    pytest.importorskip("pyarrow")
    del table
    rows = PartRows(problem.schema, COLUMNS)
    rows.add(dict(result.query), result)
    rows.write(folder, 0)
    frame = pd.read_parquet(folder / part_name(0))
    return frame.assign(flag=frame["flag"].fillna(np.nan)) if frame["flag"].isna().any() else frame


EXPORTS: dict[str, Callable[[Any, Problem, Result, Path], Any]] = {
    "json": by_json, "csv": by_csv, "frame": by_frame, "parquet": by_parquet
}  # fmt: skip
FEW = {(spelling, list(EXPORTS)[i % 4]) for i, spelling in enumerate(SPELLINGS)}


@pytest.mark.parametrize(
    ("spelling", "export"),
    [
        pytest.param(s, e, marks=() if (s, e) in FEW else pytest.mark.slow)
        for s in SPELLINGS for e in EXPORTS
    ],
)  # fmt: skip
def test_the_model_approves_all_that_comes_back(spelling: str, export: str, tmp_path: Path) -> None:
    table, model, problem, results = searched(spelling)
    known = {(type(cell), str(cell)) for cell in table["flag"].tolist()}
    changed = 0
    for result in results:
        again = EXPORTS[export](table, problem, result, tmp_path)
        assert len(again) >= len(result.ways) > 0
        assert (model.predict(again[COLUMNS]) == "yes").all()
        # In the table's own spelling and type, and no row became another on the way.
        assert {(type(cell), str(cell)) for cell in again["flag"].tolist()} <= known
        told = {problem.row(o.row) for o in (*result.options, *result.ways)}
        told |= {problem.row(v.row) for way in result.ways for v in (*way.variants, *way.safer)}
        assert {problem.row(row) for row in again[COLUMNS].to_dict("records")} <= told
        changed += sum("flag" in option.changes for option in result.options)
    assert changed  # else nothing was tried


def test_tipping_points_and_changes_have_the_table_s_values() -> None:
    for spelling, (cells, _) in SPELLINGS.items():
        *_, results = searched(spelling)
        for result in results:
            told = [value for o in result.options for value in o.changes.get("flag", ())]
            for tip in result.tipping.get("flag", ()):
                told += [*tip.refused, *(end for i in tip.intervals for end in (i.first, i.last))]
            assert told or result.query["flag"] is None
            assert {(type(value), value) for value in told} <= {(type(c), c) for c in cells}


def test_a_polars_table_gets_a_polars_frame_back() -> None:
    pl = pytest.importorskip("polars")
    table, _, _, results = searched("Y/N")
    like = pl.from_pandas(table).with_columns(pl.col("flag").cast(pl.Categorical))
    frame = results[0].with_like(like).to_frame(all_features=True)
    assert isinstance(frame, pl.DataFrame)
    assert frame.select(COLUMNS).schema == like.schema
    assert set(frame["flag"]) <= {"N", "Y"}
