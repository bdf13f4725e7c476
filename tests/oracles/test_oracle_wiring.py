"""From a CSV file to answers: the inferred card and the oracle against pandas and the model."""

from __future__ import annotations

import io
from collections.abc import Callable, Sequence
from typing import Any

import numpy as np
import oracle_data as data
import pandas as pd
import pytest

from waysout.datasets.infer import infer_card
from waysout.datasets.table import Table
from waysout.domain.card import Card
from waysout.domain.schema import Feature, Row, Schema
from waysout.errors import OracleError
from waysout.oracles.adapt import as_oracle
from waysout.oracles.layout_trial import MOST_EXTRA_ROWS
from waysout.oracles.probe import form_told, probe

N = 400
Made = tuple[Any, Any]  # a model, and its own probability of "yes"


class Wired:
    """One odd column ``x`` beside an income, as pandas reads it and as the inferred card does."""

    def __init__(self, cells: Sequence[str], name: str = "x", edit: Any = str) -> None:
        rng = np.random.default_rng(5)
        x = rng.choice(np.array(cells, dtype=object), N)
        income = rng.integers(10, 90, N)
        effect = {cell: 40 * ((i * 7) % 3 - 1) for i, cell in enumerate(cells)}
        score = income - 50 + np.array([effect[cell] for cell in x])
        label = np.where(score > 0, "yes", "no")
        frame = pd.DataFrame({"income": income.astype(str), name: x, "y": label})
        text = io.StringIO(frame.to_csv(index=False))
        self.table = pd.read_csv(text)[["income", name]].rename(columns={name: "x"})
        self.y = label
        records = frame.rename(columns={name: "x"}).to_dict("records")
        inferred = infer_card(
            Table(tuple(frame.columns), frame.to_dict("records")),  # type: ignore[arg-type]
            target="y",
            positive="yes",
            name="t",
        )
        self.card = Card.parse(edit(inferred.replace(f"[features.{name}]", "[features.x]")))
        self.rows: list[Row] = self.card.schema.parse_many(records)  # type: ignore[arg-type]

    def fitted(self, model: Any, table: pd.DataFrame | None = None) -> Made:
        table = self.table if table is None else table
        model.fit(table, self.y)
        return model, model.predict_proba(table)[:, list(model.classes_).index("yes")]

    def check(self, made: Made, **options: Any) -> Any:
        model, own = made
        oracle = as_oracle(model, self.card, **options)
        np.testing.assert_allclose(oracle.ask(self.rows).probability, own, rtol=0, atol=1e-6)
        return oracle


def encoder() -> Any:
    data.package("sklearn")
    from sklearn.compose import make_column_transformer
    from sklearn.pipeline import make_pipeline
    from sklearn.preprocessing import OneHotEncoder

    columns = make_column_transformer(
        (OneHotEncoder(handle_unknown="ignore"), ["x"]), remainder="passthrough"
    )
    return make_pipeline(columns, data.logistic())


def raw_function(wired: Wired) -> Made:
    model, own = wired.fitted(encoder())
    return (lambda frame: model.predict_proba(frame)[:, 1]), own


def as_category(wired: Wired, model: Any) -> Made:
    return wired.fitted(model, wired.table.astype({"x": "category"}))


def cat_text(wired: Wired) -> Made:
    return wired.fitted(data.cat(cat_features=["x"]), wired.table.astype({"x": str}))


def positions(wired: Wired) -> pd.DataFrame:
    data.package("sklearn")
    from sklearn.preprocessing import LabelEncoder

    return wired.table.assign(x=LabelEncoder().fit_transform(wired.table["x"]))


def hist() -> Any:
    data.package("sklearn")
    from sklearn.ensemble import HistGradientBoostingClassifier

    return HistGradientBoostingClassifier(max_iter=8, min_samples_leaf=5)


COLUMNS: dict[str, tuple[str, ...]] = {
    "question mark": ("?", "cook", "clerk", "Pilot"),
    "None": ("None", "guarantor", "co-applicant"),
    "n/a": ("n/a", "A", "B"),
    "#N/A": ("#N/A", "A", "B"),
    "leading zeros": ("01", "02", "03", "04"),
    "spaces": (" Private", " State", " Self-emp"),
    "true and false": ("true", "false"),
    "TRUE and FALSE": ("TRUE", "FALSE"),
    "another Unicode form": ("e\u0301", "u\u0308", "a"),
}
MAKES: dict[str, Callable[[Wired], Made]] = {
    "one-hot": lambda w: w.fitted(encoder()),
    "function": raw_function,
    "lgbm": lambda w: as_category(w, data.lgbm()),
    "hist": lambda w: as_category(w, hist()),
}


@pytest.mark.parametrize("make", MAKES)
@pytest.mark.parametrize("column", COLUMNS)
def test_what_pandas_reads_is_what_the_model_gets(column: str, make: str) -> None:
    wired = Wired(COLUMNS[column])
    wired.check(MAKES[make](wired))


@pytest.mark.parametrize("column", ["spaces", "true and false", "leading zeros"])
def test_catboost_trained_on_text(column: str) -> None:
    wired = Wired(COLUMNS[column])
    wired.check(cat_text(wired))


def yes_no(wired: Wired, model: Any, table: pd.DataFrame) -> Made:
    model.fit(table, wired.y == "yes")
    return model, model.predict_proba(table)[:, 1]


@pytest.mark.parametrize("make", [data.lgbm, data.xgb, data.forest])
def test_integer_levels_stand_for_themselves(make: Any) -> None:
    wired = Wired(["1", "2", "3", "4"], "education")
    assert wired.card.schema["x"].kind == "category"
    wired.check(yes_no(wired, make(), wired.table))


@pytest.mark.parametrize("make", [data.lgbm, data.xgb, data.forest])
def test_positions_of_integer_levels_are_noticed(make: Any) -> None:
    wired = Wired(["1", "2", "3", "4"], "education")
    made = yes_no(wired, make(), positions(wired))
    with pytest.raises(OracleError, match=r"'x': .*codes = \{ \"1\" = 0, \"2\" = 1"):
        as_oracle(made[0], wired.card)
    codes = "codes = { 1 = 0, 2 = 1, 3 = 2, 4 = 3 }"
    wired = Wired(
        ["1", "2", "3", "4"], "education", lambda t: t.replace("levels =", f"{codes}\nlevels =")
    )
    wired.check(made)
    raw = yes_no(wired, make(), wired.table)
    if make is data.forest:  # Here both forms are tried.
        wired.check(raw)
    else:
        with pytest.raises(OracleError, match=r"codes = \{ \"1\" = 1, \"2\" = 2"):
            as_oracle(raw[0], wired.card)


@pytest.mark.parametrize("code", [-1, 2])
def test_the_number_for_missing(code: int) -> None:
    wired = Wired(["", "A", "B"])
    table = wired.table.assign(x=wired.table["x"].map({"A": 0, "B": 1}).fillna(code))
    made = wired.fitted(data.lgbm(), table)
    with pytest.raises(OracleError, match=f"missing_code = {code}"):
        as_oracle(made[0], wired.card)
    written = f'missing = "keep"\nmissing_code = {code}'
    wired = Wired(["", "A", "B"], edit=lambda t: t.replace('missing = "keep"', written))
    wired.check(made)


def test_a_listed_token_that_the_model_saw_as_a_category() -> None:
    def listed(text: str) -> str:
        text = text.replace('levels = ["?", "a", "b"]', 'levels = ["a", "b"]\nmissing = "keep"')
        text = text.replace('\ncodes = "sorted"', "\ncodes = { a = 1, b = 2 }", 1)
        return text.replace("missing_values = [", 'missing_values = ["?", ')

    wired = Wired(["?", "a", "b"], edit=listed)
    assert any(row[1] is None for row in wired.rows)
    for make in (lambda w: w.fitted(encoder()), lambda w: as_category(w, data.lgbm())):
        wired.check(make(wired))


def test_layouts_that_agree_at_first_are_not_settled() -> None:
    """A model on codes that looks at the category only where the income is high."""
    levels = (1, 2, 3)
    codes = {"1": 0.0, "2": 1.0, "3": 2.0}
    schema = Schema(
        (Feature("income", "integer"), Feature("x", "category", levels=levels, codes=codes))
    )

    class Gated:
        n_features_in_ = 2
        classes_ = np.array([0, 1])

        def predict_proba(self, table: Any) -> Any:
            values = np.asarray(table, dtype=float)
            # Beyond the codes it was trained on, nothing changes.
            known = (values[:, 1] == 0.0) * 0.5
            chance = np.where(values[:, 0] > 50, known, 0.1)
            return np.column_stack([1 - chance, chance])

    oracle = as_oracle(Gated(), schema, positive=1)
    low: list[Row] = [(i, str(i % 3 + 1)) for i in range(40)]
    assert set(oracle.ask(low).probability) == {0.1}
    assert "no category changed the answers so far" in oracle.notes[-1]
    high: list[Row] = [(60 + i, str(i % 3 + 1)) for i in range(30)]
    expected = [0.5 * (row[1] == "1") for row in high]
    assert oracle.ask(high).probability.tolist() == expected
    assert (oracle.inputs, oracle.notes) == ("codes", ())
    # The same where the telling rows are the last of the first batch.
    mixed = as_oracle(Gated(), schema, positive=1)
    assert mixed.ask(low + high).probability.tolist() == [0.1] * 40 + expected


def test_a_form_that_no_answer_tells_is_looked_for_with_few_rows_and_all_are_counted() -> None:
    """A pipeline of numbers alone would else be asked each row in every form for ever."""
    sizes: list[int] = []

    class Numbers:
        n_features_in_ = 2
        classes_ = np.array([0, 1])

        def predict_proba(self, table: Any) -> Any:
            sizes.append(len(table))
            chance = np.asarray(pd.DataFrame(table).iloc[:, 0], dtype=float) / 1000
            return np.column_stack([1 - chance, chance])

    codes = {"1": 0.0, "2": 1.0, "3": 2.0}
    grade = Feature("x", "category", levels=(1, 2, 3), codes=codes)
    schema = Schema((Feature("income", "integer"), grade))
    oracle, asked = as_oracle(Numbers(), schema, positive=1), 0
    for count in (40, 1, 7, 600, 30, 30, *[2000] * 12, 500):
        numbers = [i % 900 for i in range(asked, asked + count)]
        rows: list[Row] = [(i, str(i % 3 + 1)) for i in numbers]
        assert oracle.ask(rows).probability.tolist() == [i / 1000 for i in numbers]
        asked += count
        assert sum(sizes) == asked + oracle.extra_rows
        assert oracle.extra_rows + oracle.extra_rows_left == MOST_EXTRA_ROWS
    assert sizes[-1] == 500
    assert oracle.extra_rows_left < 2
    assert "no category changed the answers so far" in oracle.notes[-1]


def test_a_probe_counts_the_rows_that_found_the_form() -> None:
    wired = Wired(["a", "b", "c"])
    model, _ = wired.fitted(encoder())
    asked: list[int] = []
    predict = model.predict_proba

    class Counted:
        n_features_in_ = 2
        classes_ = model.classes_

        def predict_proba(self, table: Any) -> Any:
            asked.append(len(table))
            return predict(pd.DataFrame(table, columns=["income", "x"]))

    oracle = as_oracle(Counted(), wired.card)
    assert f"up to {MOST_EXTRA_ROWS:,} to find out in which form" in form_told(oracle)
    assert probe(oracle, wired.rows, max_rows=40, again=8).rows_asked == sum(asked) > 48
    assert form_told(oracle) == ""


def test_an_encoder_behind_another_step_is_no_evidence() -> None:
    data.package("sklearn")
    from sklearn.pipeline import make_pipeline
    from sklearn.preprocessing import FunctionTransformer

    wired = Wired(["low", "mid", "high"])
    for change in (
        lambda t: t.assign(x=t["x"].map({"low": 0, "mid": 1, "high": 2})),
        lambda t: t.assign(x=t["x"].astype(str).str.upper()),
    ):
        wired.check(wired.fitted(make_pipeline(FunctionTransformer(change), encoder())))


def test_a_vote_over_categories() -> None:
    data.package("sklearn")
    from sklearn.ensemble import VotingClassifier

    for name, cells in (("x", ["a", "b", "c"]), ("education", ["1", "2", "3"])):
        wired = Wired(cells, name)
        wired.table["z"] = pd.Categorical(np.where(wired.table["income"] % 2, "odd", "even"))
        z = Feature("z", "category", levels=("even", "odd"))
        schema = Schema((*wired.card.schema.features, z))
        rows = [(*row, str(z)) for row, z in zip(wired.rows, wired.table["z"], strict=True)]
        table = wired.table.astype({"x": "category"}) if name == "x" else wired.table
        vote = VotingClassifier([("a", data.lgbm()), ("b", hist())], voting="soft")
        model, own = wired.fitted(vote, table)
        oracle = as_oracle(model, schema, positive="yes", inputs="category")
        np.testing.assert_allclose(oracle.ask(rows).probability, own, rtol=0, atol=1e-9)


def test_a_vote_whose_voters_have_a_length() -> None:
    data.package("sklearn")
    from sklearn.ensemble import RandomForestClassifier, VotingClassifier
    from sklearn.linear_model import LogisticRegression
    from sklearn.pipeline import make_pipeline
    from sklearn.preprocessing import StandardScaler

    wired = Wired(["1", "2", "3"], "education")
    forest = RandomForestClassifier(10, random_state=0)
    for line in (LogisticRegression(), make_pipeline(StandardScaler(), LogisticRegression())):
        vote = VotingClassifier([("a", line), ("b", forest)], voting="soft")
        wired.check(wired.fitted(vote, wired.table))


def test_refused_in_every_form_names_the_option() -> None:
    class Never:
        n_features_in_ = 2
        classes_ = (0, 1)
        tells = True

        def predict_proba(self, table: Any) -> Any:
            raise ValueError(f"no {table!r}" if self.tells else "no")

    wired = Wired(["a", "b"])
    with pytest.raises(OracleError, match=r"(?s)every form tried.*inputs='category'"):
        as_oracle(Never(), wired.card).ask(wired.rows[:3])
    Never.tells = False  # the form is not what it minds
    with pytest.raises(OracleError, match=r"in whatever form: the model raised ValueError: no$"):
        as_oracle(Never(), wired.card).ask(wired.rows[:3])


def letters() -> tuple[Schema, pd.DataFrame, Any]:
    rng = np.random.default_rng(0)
    levels = ("a", "b", "c", "unknown")
    codes = {level: float(i) for i, level in enumerate(levels)}
    schema = Schema(tuple(Feature(n, "category", levels=levels, codes=codes) for n in "ABCD"))
    table = pd.DataFrame({name: rng.choice(levels, N) for name in "ABCD"})
    score = schema.encode(schema.parse_many(table.to_dict("records"))) @ [1, 2, 3, 4]  # type: ignore[arg-type]
    return schema, table, (score > np.median(score)).astype(int)


def test_lists_of_categories_that_could_be_other_columns_are_refused() -> None:
    schema, table, y = letters()
    turned = pd.CategoricalDtype(["unknown", "a", "b", "c"], ordered=True)
    mixed = table.astype({"A": turned, "B": "category", "C": "category"})
    mixed["D"] = mixed["D"].map({"a": 0, "b": 1, "c": 2, "unknown": 3})
    model = data.lgbm().fit(mixed, y, categorical_feature=["B", "C", "D"])
    with pytest.raises(OracleError, match=r"cannot tell which columns.*inputs="):
        as_oracle(model, schema, positive=1)


def test_lists_of_categories_whose_columns_do_not_matter_are_used() -> None:
    """Positions and codes are the same numbers, whichever columns were categories."""
    schema, table, y = letters()
    mixed = table.astype({"A": "category", "C": "category"})
    for name in "BD":
        mixed[name] = mixed[name].map({"a": 0, "b": 1, "c": 2, "unknown": 3})
    model = data.lgbm().fit(mixed, y)
    rows = schema.parse_many(table.to_dict("records"))  # type: ignore[arg-type]
    answers = as_oracle(model, schema, positive=1).ask(rows)
    np.testing.assert_allclose(answers.probability, model.predict_proba(mixed)[:, 1], atol=1e-9)


def test_softmax_of_the_wrapper_gives_probabilities() -> None:
    target = pd.factorize(data.band())[0]
    model = data.xgb(objective="multi:softmax", num_class=3).fit(data.coded(), target)
    oracle = as_oracle(model, data.SCHEMA, positive=0)
    own = model.predict_proba(data.coded())[:, 0]
    np.testing.assert_allclose(oracle.ask(data.rows()).probability, own, rtol=0, atol=1e-6)
    assert not oracle.labels_only


def test_catboost_integers_beside_a_missing_value_stay_integers() -> None:
    feature = Feature("x", "category", levels=(1, 2), missing="keep", missing_code=-1)
    schema = Schema((Feature("income", "integer"), feature))
    wired = Wired(["1", "2", "-1"], "education")
    made = wired.fitted(data.cat(cat_features=["x"]), wired.table)
    rows = [(row[0], None if row[1] == "-1" else row[1]) for row in wired.rows]
    answers = as_oracle(made[0], schema, positive="yes", inputs="codes").ask(rows)
    np.testing.assert_allclose(answers.probability, made[1], rtol=0, atol=1e-9)


def test_small_batches_of_lightgbm_use_one_thread() -> None:
    model = data.lgbm().fit(data.coded(), data.approved())
    threads: list[Any] = []
    predict = model.booster_.predict

    def counted(batch: Any, **options: Any) -> Any:
        threads.append(options)
        return predict(batch, **options)

    model.booster_.predict = counted
    oracle = as_oracle(model, data.SCHEMA, positive=1)
    few = oracle.ask(data.rows())
    many = oracle.ask(data.rows() * 5)
    assert threads == [{"num_threads": 1}, {}]
    assert few.probability.tolist() == many.probability[: data.N].tolist()


def test_numbers_beside_the_cards_range_are_noted() -> None:
    wired = Wired(["1", "2", "3", "4"])
    assert wired.card.schema["x"].kind == "integer"
    assert wired.check(wired.fitted(data.lgbm())).notes == ()
    model, _ = wired.fitted(data.lgbm(), positions(wired))
    assert "trained on the numbers 0 to 3" in as_oracle(model, wired.card).notes[0]


def test_columns_a_pipeline_never_looks_at_need_no_description() -> None:
    """Many models are fitted on the whole table, its identifiers included."""
    pytest.importorskip("sklearn", reason="needs scikit-learn (waysout[sklearn])")
    from sklearn.compose import make_column_transformer
    from sklearn.linear_model import LogisticRegression
    from sklearn.pipeline import make_pipeline
    from sklearn.preprocessing import OneHotEncoder, StandardScaler

    schema = Schema((Feature("job", "category", levels=("a", "b")), Feature("x", "number")))
    table = pd.DataFrame({"id": range(40), "job": ["a", "b"] * 20, "x": np.arange(40) / 7})
    encode = make_column_transformer((OneHotEncoder(), ["job"]), ("passthrough", ["x"]))
    model = make_pipeline(encode, LogisticRegression()).fit(table, [0, 1, 1, 0] * 10)
    rows = schema.parse_many(table.to_dict("records"))  # type: ignore[arg-type]
    answers = as_oracle(model, schema, positive=1).ask(rows)
    own = model.predict_proba(table)[:, 1]
    np.testing.assert_allclose(answers.probability, own, rtol=0, atol=1e-9)
    needs_all = make_pipeline(StandardScaler(), LogisticRegression()).fit(
        table[["id", "x"]], [0, 1] * 20
    )
    with pytest.raises(OracleError, match="'id'"):
        as_oracle(needs_all, schema, positive=1)
