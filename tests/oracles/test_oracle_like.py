"""Rows in the form of the user's own data: container, columns, order, names and types."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import numpy as np
import oracle_data as data
import pandas as pd
import pytest

from waysout.domain.schema import MISSING_TOKENS, Feature, Row, Schema
from waysout.errors import OracleError
from waysout.oracles.adapt import ModelOracle, as_oracle, model_columns
from waysout.oracles.like import like_layout

AWKWARD = Schema(
    (
        Feature("n", "integer", missing="keep"),
        Feature("x", "number", missing="keep"),
        Feature("job", "category", levels=("cook", "clerk"), missing="keep"),
        Feature("grade", "category", levels=("1", "2"), missing="keep"),
        Feature("own", "boolean", levels=("N", "Y"), missing="keep"),
        Feature("flag", "boolean", missing="keep"),
    )
)
ROWS: list[Row] = [(3, 2.5, "cook", "2", True, False), (4, 1.0, "clerk", "1", False, True)]
GAPS: Row = (None, None, None, None, None, None)


def awkward() -> pd.DataFrame:
    return pd.DataFrame(
        {
            "own": ["Y", "N"],
            "grade": [2, 1],
            "job": pd.Categorical(["cook", "clerk"], categories=["judge", "clerk", "cook"]),
            "n": np.array([3, 4], dtype=np.int16),
            "x": np.array([2.5, 1.0], dtype=np.float32),
            "flag": [False, True],
        }
    )


class Spy:
    """A function that keeps what it was given."""

    def __init__(self, refuses: Callable[[Any], bool] = lambda batch: False) -> None:
        self.given: list[Any] = []
        self.refuses = refuses

    def __call__(self, batch: Any) -> Any:
        self.given.append(batch)
        if self.refuses(batch):
            raise TypeError("not that form")
        return np.full(len(batch), 0.25)


def handed_over(like: Any, schema: Schema = AWKWARD, *rows: Row) -> Any:
    spy = Spy()
    as_oracle(spy, schema, positive=1, like=like).ask(rows or ROWS)
    return spy.given[-1]


def test_a_pandas_frame_comes_back_as_it_was() -> None:
    pd.testing.assert_frame_equal(handed_over(awkward()), awkward())


@pytest.mark.parametrize("form", ["numpy_nullable", "pyarrow"])
def test_nullable_types_are_kept(form: Any) -> None:
    data.package("pyarrow")
    like = awkward().convert_dtypes(dtype_backend=form)
    pd.testing.assert_frame_equal(handed_over(like), like)
    gaps = handed_over(like, AWKWARD, GAPS, ROWS[0])
    assert gaps.dtypes.tolist() == like.dtypes.tolist()
    assert gaps.isna().all(axis=1).tolist() == [True, False]


def test_what_a_type_cannot_hold_widens_it_as_pandas_would() -> None:
    frame = handed_over(awkward(), AWKWARD, GAPS, ROWS[0])
    assert [str(frame[name].dtype) for name in ("n", "grade", "flag")] == [
        "float64", "float64", "object",
    ]  # fmt: skip
    assert frame["job"].dtype == awkward()["job"].dtype
    schema = Schema((Feature("n", "number"),))
    like = pd.DataFrame({"n": np.array([1, 2], dtype=np.int8)})
    assert handed_over(like, schema, (2.5,), (1.0,))["n"].tolist() == [2.5, 1.0]
    assert handed_over(like, schema, (300.0,))["n"].tolist() == [300]
    nullable = handed_over(like.astype("Int64"), schema, (2.5,))
    assert nullable["n"].tolist() == [2.5]


def test_a_missing_value_is_what_the_data_has_there() -> None:
    question = Feature(
        "job", "category", levels=("a", "b"), missing="keep", missing_tokens=(*MISSING_TOKENS, "?")
    )
    schema = Schema((question,))
    for token in ("?", None, np.nan, ""):
        like = pd.DataFrame({"job": pd.Series(["a", token, "b", token], dtype=object)})
        given = handed_over(like, schema, (None,), ("a",))["job"].tolist()
        assert given == [token, "a"] or (token != token and given[0] != given[0])


def test_a_level_is_spelled_as_in_the_data() -> None:
    schema = Schema((Feature("job", "category", levels=("cook", "clerk")),))
    like = pd.DataFrame({"job": [" cook", "cook ", " cook", "clerk"]})
    assert handed_over(like, schema, ("cook",), ("clerk",))["job"].tolist() == [" cook", "clerk"]


def test_names_that_are_no_text_are_kept() -> None:
    schema = Schema((Feature("0", "number"), Feature("1", "number")))
    like = pd.DataFrame({1: [1.0], 0: [2.0]})
    frame = handed_over(like, schema, (5.0, 6.0))
    assert list(frame.columns) == [1, 0]
    assert frame.to_numpy().tolist() == [[6.0, 5.0]]


def test_dates_are_dates() -> None:
    days = Feature("day", "category", levels=("2024-02-29", "2025-01-01"), missing="keep")
    schema = Schema((days,))
    for zone in (None, "Europe/Berlin"):
        stamps = pd.to_datetime(pd.Series(["2024-02-29"])).dt.tz_localize(zone)
        like = pd.DataFrame({"day": stamps})
        given = handed_over(like, schema, ("2025-01-01",), (None,))["day"]
        assert given.dtype == stamps.dtype
        assert given[0] == pd.Timestamp("2025-01-01", tz=zone)
        assert pd.isna(given[1])


@pytest.mark.parametrize("dtype", [np.float64, np.float32, np.int64, object])
def test_a_matrix_keeps_its_type(dtype: Any) -> None:
    schema = Schema(
        (Feature("x", "number"), Feature("grade", "category", levels=(1, 2), missing="keep"))
    )
    like = np.array([[1, 2], [3, 1]], dtype=dtype)
    matrix = handed_over(like, schema, (5.0, "2"), (4.0, "1"))
    assert matrix.dtype == dtype
    assert matrix.tolist() == [[5, 2], [4, 1]]
    assert np.isnan(handed_over(like, schema, (5.0, None)).astype(float)[0, 1])


def test_a_matrix_of_objects_keeps_text_and_numbers_apart() -> None:
    like = np.array([["cook", 1, True], ["clerk", 2, False]], dtype=object)
    schema = Schema(
        (
            Feature("job", "category", levels=("cook", "clerk")),
            Feature("n", "integer"),
            Feature("flag", "boolean"),
        )
    )
    assert handed_over(like, schema, ("clerk", 7, True)).tolist() == [["clerk", 7, True]]
    texts = like[:, :1].astype(str)
    given = handed_over(texts, Schema(schema.features[:1]), ("clerk",))
    assert given.dtype.kind == "U"


def test_polars_frames_keep_their_types() -> None:
    pl = data.package("polars")
    like = pl.DataFrame(
        {"own": ["Y", "N"], "grade": [2, 1], "job": ["cook", "clerk"], "n": [3, 4],
         "x": [2.5, 1.0], "flag": [False, True]},
        schema_overrides={"job": pl.Enum(["clerk", "cook"]), "n": pl.UInt8, "x": pl.Float32,
                          "own": pl.Categorical},
    )  # fmt: skip
    frame = handed_over(like)
    assert isinstance(frame, pl.DataFrame)
    assert frame.schema == like.schema
    assert frame.equals(like)
    gaps = handed_over(like, AWKWARD, GAPS, ROWS[0])
    assert gaps.schema == like.schema
    assert gaps.null_count().row(0) == (1,) * 6
    dates = pl.DataFrame({"day": ["2024-02-29"], "at": ["2024-02-29T10:00:00"]}).with_columns(
        pl.col("day").str.to_date(), pl.col("at").str.to_datetime(time_zone="UTC")
    )
    texts = [
        Feature(name, "category", levels=(level, "2025-01-01"))
        for name, level in (("day", "2024-02-29"), ("at", "2024-02-29T10:00:00"))
    ]
    assert handed_over(dates, Schema(tuple(texts)), tuple(f.levels[0] for f in texts)).equals(dates)


def test_categories_the_data_lacks_are_said() -> None:
    schema = Schema((Feature("job", "category", levels=("cook", "judge")),))
    like = pd.DataFrame({"job": pd.Categorical(["cook"])})
    spy = Spy()
    oracle = as_oracle(spy, schema, positive=1, like=like)
    oracle.ask([("judge",), ("cook",)])
    assert spy.given[0]["job"].isna().tolist() == [True, False]
    assert "'judge'" in oracle.notes[0]


def test_what_a_function_raises_on_the_data_is_told_and_no_other_form_is_tried() -> None:
    spy = Spy(lambda batch: not isinstance(batch, pd.DataFrame))
    oracle = as_oracle(spy, data.SCHEMA, positive=1, like=data.frame().to_numpy())
    with pytest.raises(OracleError, match="not that form"):
        oracle.ask(data.rows()[:3])
    assert [type(batch).__name__ for batch in spy.given] == ["ndarray"]


def test_all_refused_forms_are_told() -> None:
    from sklearn.linear_model import LogisticRegression

    model = LogisticRegression().fit(data.coded().fillna(0), data.approved())
    oracle = as_oracle(model, data.SCHEMA, positive=1, like=data.frame())
    with pytest.raises(OracleError) as told:
        oracle.ask(data.rows())  # NaN, which a logistic regression refuses in any form
    assert "like the data: " in str(told.value)
    assert "as 'codes': " in str(told.value)


def test_like_must_fit_the_card_and_the_model() -> None:
    extra = data.frame().assign(note="x", id=1)
    with pytest.raises(OracleError, match="does not describe: 'note', 'id'"):
        as_oracle(Spy(), data.SCHEMA, positive=1, like=extra)
    model = data.pipeline(data.logistic()).fit(data.frame(), data.approved())
    oracle = as_oracle(model, data.SCHEMA, positive=1, like=extra)  # The model wants none of them.
    assert oracle.ask(data.rows()).probability == pytest.approx(by(model, data.frame()))
    with pytest.raises(OracleError, match="like does not have: unknown column 'income'"):
        as_oracle(model, data.SCHEMA, positive=1, like=data.frame().drop(columns="income"))
    with pytest.raises(OracleError, match=r"shape \(200, 5\).*describes 6"):
        like_layout(data.frame().to_numpy()[:, :5], data.SCHEMA)
    with pytest.raises(OracleError, match="like is a list"):
        like_layout([1], data.SCHEMA)
    with pytest.raises(OracleError, match="several columns named 'income'"):
        like_layout(pd.DataFrame([[1, 2]], columns=["income", "income "]), data.SCHEMA)


def by(model: Any, table: Any) -> Any:
    return model.predict_proba(table)[:, 1]


def tables() -> dict[str, Any]:
    reverse = data.frame()[data.frame().columns[::-1]]
    return {"text": data.frame(), "codes": data.coded(), "categories": data.categorical(),
            "another order": reverse, "nullable": data.coded().convert_dtypes()}  # fmt: skip


def plain_codes(table: pd.DataFrame) -> Schema:
    """The schema a user has who only ever saw the codes."""
    features = {
        name: Feature(name, "category", levels=tuple(sorted(set(table[name].tolist()))))
        for name in data.CATEGORIES
    }
    return Schema(tuple(features.get(f.name, f) for f in data.SCHEMA))


@pytest.mark.parametrize("form", ["text", "another order"])
def test_a_pipeline_answers_as_for_the_frame(form: str) -> None:
    table = tables()[form]
    check(data.pipeline(data.logistic()).fit(table, data.approved()), table, data.SCHEMA, "like")


@pytest.mark.parametrize("form", ["codes", "nullable"])
def test_a_forest_answers_as_for_the_frame(form: str) -> None:
    table = tables()[form]
    check(data.forest().fit(table, data.approved()), table, plain_codes(table), "like")


def test_hist_boosting_answers_as_for_the_frame() -> None:
    data.package("sklearn")
    from sklearn.ensemble import HistGradientBoostingClassifier

    model = HistGradientBoostingClassifier(max_iter=8, categorical_features="from_dtype")
    table = tables()["categories"]
    check(model.fit(table, data.approved()), table, data.SCHEMA, "like")


def test_a_pipeline_on_polars_answers_as_for_the_frame() -> None:
    data.package("polars")
    import polars as pl

    # The encoder must be told that null is a level: polars has no NaN in text.
    table = pl.from_pandas(data.frame()).with_columns(pl.col("income").fill_null(50.0))
    rows = [(50.0 if row[0] is None else row[0], *row[1:]) for row in data.rows()]
    model = data.pipeline(data.logistic()).fit(table, data.approved())
    oracle = as_oracle(model, data.SCHEMA, positive=1, like=table)
    assert oracle.ask(rows).probability == pytest.approx(by(model, table), abs=1e-12)
    assert oracle.inputs == "like"


@pytest.mark.parametrize("make", [data.lgbm, lambda: data.xgb(enable_categorical=True)])
@pytest.mark.parametrize("form", ["codes", "categories"])
def test_boosters_answer_as_for_the_frame(make: Any, form: str) -> None:
    table = tables()[form]
    schema = data.SCHEMA if form == "categories" else plain_codes(table)
    check(make().fit(table, data.approved()), table, schema)


def test_a_booster_that_does_not_tell_gets_the_form_of_the_data() -> None:
    """One list of 1 and 0, of an ordered category, and two columns that could have it."""
    names = ("owns it", "b")
    schema = Schema(tuple(Feature(name, "category", levels=(0, 1)) for name in names))
    ordered = pd.CategoricalDtype([1, 0], ordered=True)
    own = (data.frame()["own"] == "Yes").astype(int)
    table = pd.DataFrame({"owns it": own.astype(ordered), "b": data.frame()["grade"] - 1})
    model = data.lgbm().fit(table, data.approved())
    with pytest.raises(OracleError, match="cannot tell which columns"):
        as_oracle(model, schema, positive=1)
    check(model, table, schema, "like")
    with pytest.raises(OracleError, match="cannot tell which columns"):
        as_oracle(model.booster_, schema, positive=1, like=table)


@pytest.mark.parametrize("form", ["text", "categories"])
def test_catboost_answers_as_for_the_frame(form: str) -> None:
    table = tables()[form]
    model = data.cat(cat_features=data.CATEGORIES).fit(table, data.approved())
    check(model, table, data.SCHEMA)


def test_catboost_gets_texts_as_they_are_also_where_they_are_few() -> None:
    table = data.frame()[["income", "job"]].assign(income=data.frame()["income"].fillna(50))
    table["job"] += " by trade"
    levels = tuple(sorted(table["job"].unique()))
    jobs = Feature("job", "category", levels=levels, codes={job: i for i, job in enumerate(levels)})
    model = data.cat(text_features=["job"]).fit(table, data.approved())
    check(model, table, Schema((Feature("income", "number"), jobs)))


def test_catboost_with_embeddings_says_what_to_do() -> None:
    pairs = pd.Series([[1.0, i % 2] for i in range(data.N)], dtype=object)
    table = data.frame()[["income"]].assign(job=pairs)
    model = data.cat(embedding_features=["job"]).fit(table, data.approved())
    schema = Schema((Feature("income", "number"), Feature("job", "opaque")))
    with pytest.raises(OracleError, match=r"embeddings \(column 'job'\).*pass a function"):
        as_oracle(model, schema, positive=1)


def check(model: Any, table: Any, schema: Schema, inputs: str | None = None) -> ModelOracle:
    oracle = as_oracle(model, schema, positive=1, like=table)
    rows = schema.parse_many(table.to_dict("records"))
    assert oracle.ask(rows).probability == pytest.approx(by(model, table), abs=1e-7)
    assert inputs in (None, oracle.inputs)
    return oracle


def test_a_named_form_overrides_the_data() -> None:
    table = data.coded()
    model = data.forest().fit(table, data.approved())
    oracle = as_oracle(model, data.SCHEMA, positive=1, like=data.frame(), inputs="codes")
    assert oracle.ask(data.rows()).probability == pytest.approx(by(model, table))
    assert oracle.inputs == "codes"


def test_a_bound_method_is_asked_for_its_owners_columns() -> None:
    table = data.frame()
    model = data.pipeline(data.logistic()).fit(table[table.columns[::-1]], data.approved())
    oracle = as_oracle(model.predict_proba, data.SCHEMA, positive=1, like=table)
    assert oracle.ask(data.rows()).probability == pytest.approx(by(model, table))


def test_model_columns() -> None:
    names = tuple(data.frame().columns)
    assert model_columns(data.forest().fit(data.coded(), data.approved())) == names
    assert model_columns(data.forest().fit(data.coded().to_numpy(), data.approved())) is None
    assert model_columns(data.forest()) is None
    assert model_columns(len) is None
    piped = data.pipeline(data.logistic()).fit(data.frame().assign(id=1), data.approved())
    assert model_columns(piped) == names  # The pipeline drops the identifier.
    assert model_columns(piped.predict_proba) == names


@pytest.mark.parametrize("make", [data.lgbm, data.xgb, data.cat])
def test_model_columns_of_boosters(make: Any) -> None:
    table = data.coded().rename(columns={"loan amount": "loan"})
    assert model_columns(make().fit(table, data.approved())) == tuple(table.columns)
    assert model_columns(make().fit(table.to_numpy(), data.approved())) is None
    assert model_columns(make()) is None
