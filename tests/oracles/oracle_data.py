"""One small table with all that adapters get wrong, and models trained on it in every form."""

from __future__ import annotations

from functools import lru_cache
from typing import Any

import numpy as np
import pandas as pd
import pytest

from waysout.domain.schema import Feature, Row, Schema

N = 200
JOBS = {"clerk": 0, "cook": 1, "judge": 2}
SIZES = {"klein": 1, "groß": 0}

SCHEMA = Schema(
    (
        Feature("income", "number", missing="keep"),
        Feature("loan amount", "integer"),
        Feature("job", "category", levels=("judge", "clerk", "cook"), codes=JOBS, missing="keep"),
        Feature("größe", "category", levels=("klein", "groß"), codes=SIZES),
        Feature("grade", "category", levels=(1, 2)),
        Feature("own", "boolean", levels=("No", "Yes")),
    )
)
CATEGORIES = ["job", "größe", "grade", "own"]


def package(name: str) -> Any:
    return pytest.importorskip(name, reason=f"the optional package {name} is not installed")


@lru_cache
def frame() -> pd.DataFrame:
    """The table as read_csv would give it."""
    rng = np.random.default_rng(7)
    income = rng.normal(50, 20, N).round(1)
    income[rng.random(N) < 0.1] = np.nan
    return pd.DataFrame(
        {
            "income": income,
            "loan amount": rng.integers(1, 60, N),
            "job": rng.choice(list(JOBS), N),
            "größe": rng.choice(list(SIZES), N),
            "grade": rng.choice([1, 2], N),
            "own": rng.choice(["No", "Yes"], N),
        }
    )


@lru_cache
def approved() -> Any:
    table = frame()
    score = table["income"].fillna(50) - table["loan amount"] / 2
    score = score + 15 * (table["job"] == "judge") + 12 * (table["größe"] == "groß")
    score = score + 14 * (table["own"] == "Yes") - 12 * (table["grade"] == 2)
    return np.asarray((score > score.median()).astype(int))


@lru_cache
def outcome() -> Any:
    return np.where(approved() == 1, "Approved", "Rejected")


@lru_cache
def band() -> Any:
    """Three classes, of which the wanted one is not the last."""
    income = frame()["income"].fillna(50) + 10 * (frame()["job"] == "judge")
    return np.asarray(
        pd.cut(income, [-999, 42, 58, 999], labels=["low", "high", "mid"]).astype(str)
    )


@lru_cache
def rows() -> tuple[Row, ...]:
    return tuple(SCHEMA.parse_many(frame().to_dict("records")))  # type: ignore[arg-type]


def coded() -> pd.DataFrame:
    """The table as a label-encoded model was trained on."""
    own = frame()["own"].map({"No": 0, "Yes": 1})
    return frame().assign(job=frame()["job"].map(JOBS), größe=frame()["größe"].map(SIZES), own=own)


def categorical() -> pd.DataFrame:
    return frame().astype(dict.fromkeys(CATEGORIES, "category"))


def pipeline(final: Any, **encoder: Any) -> Any:
    """An unfitted pipeline that encodes and imputes the raw table."""
    package("sklearn")
    from sklearn.compose import make_column_transformer
    from sklearn.impute import SimpleImputer
    from sklearn.pipeline import make_pipeline
    from sklearn.preprocessing import OneHotEncoder, StandardScaler

    numbers = make_pipeline(SimpleImputer(), StandardScaler())
    columns = make_column_transformer(
        (OneHotEncoder(**encoder), CATEGORIES), (numbers, ["income", "loan amount"])
    )
    return make_pipeline(columns, final)


def logistic() -> Any:
    from sklearn.linear_model import LogisticRegression

    return LogisticRegression(max_iter=2000)


def forest(**options: Any) -> Any:
    package("sklearn")
    from sklearn.ensemble import RandomForestClassifier

    return RandomForestClassifier(8, random_state=0, **options)


def lgbm(**options: Any) -> Any:
    options = {"n_estimators": 8, "min_child_samples": 5, "verbose": -1, "n_jobs": 1, **options}
    return package("lightgbm").LGBMClassifier(**options)


def xgb(**options: Any) -> Any:
    return package("xgboost").XGBClassifier(n_estimators=8, max_depth=3, n_jobs=1, **options)


def cat(**options: Any) -> Any:
    options = {"iterations": 8, "depth": 3, "verbose": 0, "thread_count": 1, **options}
    return package("catboost").CatBoostClassifier(allow_writing_files=False, **options)
