"""A small lender of one's own: a table, its card, a LightGBM model and a pickled pipeline."""

from __future__ import annotations

import json
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest

from waysout.domain.problem import Problem
from waysout.run.find import PreparedRun
from waysout.run.progress import Progress

CARD = """
card = 1
name = "loans"
rule_set = "main"
rule_sets = ["main", "stuck"]
[outcome]
target = "status"
positive = "approved"
yes = "the loan is approved"
no = "the loan is refused"
ignore = ["loan_id"]
[features.age]
kind = "integer"
range = [18, 80]
[features.income]
kind = "integer"
range = [10, 90]
bins = [20, 30, 40, 50, 60, 70, 80]
[features.debt]
kind = "integer"
range = [0, 40]
bins = [10, 20, 30]
[features.job]
kind = "category"
levels = ["none", "part-time", "full-time"]
[[rules.main]]
kind = "immutable"
features = ["age"]
[[rules.stuck]]
kind = "immutable"
features = ["age", "income", "debt", "job"]
"""
JOBS = ("none", "part-time", "full-time")
# Rows of the table: one that is refused, and one that is approved.
REFUSED, APPROVED = 0, 1
FIND = ("find", "--model", "model.txt", "--data", "loans.csv", "--card", "loans.toml")
ROW = ("--row", str(REFUSED))


@pytest.fixture(scope="session")
def world(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A folder with all of it, for reading."""
    return make_world(tmp_path_factory.mktemp("loans"))


@pytest.fixture
def in_world(world: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Stand in that folder, with an empty folder of runs."""
    monkeypatch.chdir(world)
    monkeypatch.setenv("WAYSOUT_RUNS", str(tmp_path / "runs"))


@contextmanager
def cut_off(after: int = 1) -> Iterator[None]:
    """Stop each search after some answers (0: before it asks), as a signal would."""
    results = PreparedRun.results

    def cut(run: PreparedRun, problem: Problem, rows: list[Any]) -> Any:
        seen: list[Progress] = []
        stop = run.options["stop"]
        assert stop is not None

        def count(now: Progress) -> None:
            seen.append(now)
            if len(seen) == after:
                stop("cut off")

        if after == 0:
            stop("cut off")
        watched = replace(run, options={**run.options, "progress": count})
        return results(watched, problem, rows)

    with pytest.MonkeyPatch.context() as patched:
        patched.setattr(PreparedRun, "results", cut)
        yield


def make_world(folder: Path) -> Path:
    """Write the table, the card and both models to a folder."""
    joblib = pytest.importorskip("joblib", reason="needs joblib")
    lightgbm = pytest.importorskip("lightgbm", reason="needs lightgbm (waysout[train])")
    table = _table()
    table.to_csv(folder / "loans.csv", index_label="loan_id")
    (folder / "loans.toml").write_text(CARD)
    yes = table.pop("status") == "approved"
    joblib.dump(_pipeline().fit(table, yes.map({True: "approved", False: "refused"})),
                folder / "model.joblib")  # fmt: skip
    table["job"] = table["job"].astype("category").cat.set_categories(JOBS)
    params = {"objective": "binary", "verbosity": -1, "num_threads": 1, "seed": 0}
    data = lightgbm.Dataset(table, yes.astype(int))
    lightgbm.train(params, data, 30).save_model(str(folder / "model.txt"))
    (folder / "row.json").write_text(json.dumps(row()))
    return folder


def row(**other: object) -> dict[str, object]:
    """Return the refused row, with some other values."""
    return {"age": 40, "income": 42, "debt": 20, "job": "part-time"} | other


def _table() -> Any:
    import numpy as np
    import pandas as pd

    rng = np.random.default_rng(0)
    table: Any = pd.DataFrame(
        {
            "age": rng.integers(18, 80, 300),
            "income": rng.integers(10, 90, 300),
            "debt": rng.integers(0, 40, 300),
            "job": rng.choice(JOBS, 300),
        }
    )
    table.loc[REFUSED] = row()
    table.loc[APPROVED] = row(income=85, debt=2)
    score = table["income"] - table["debt"] + 10 * table["job"].map(JOBS.index)
    table["status"] = np.where(score > 35, "approved", "refused")
    return table


def _pipeline() -> Any:
    from sklearn.compose import make_column_transformer
    from sklearn.linear_model import LogisticRegression
    from sklearn.pipeline import make_pipeline
    from sklearn.preprocessing import OneHotEncoder, StandardScaler

    columns = make_column_transformer(
        (OneHotEncoder(), ["job"]), (StandardScaler(), ["age", "income", "debt"])
    )
    return make_pipeline(columns, LogisticRegression())
