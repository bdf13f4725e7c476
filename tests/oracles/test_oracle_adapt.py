"""Every adapter against the model's own answers for the frame it was trained on."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np
import oracle_data as data
import pandas as pd
import pytest
from oracle_data import SCHEMA

from waysout.domain.card import Card
from waysout.domain.schema import Feature, Schema
from waysout.errors import OracleError
from waysout.oracles.adapt import as_oracle
from waysout.oracles.load import load_model

Made = tuple[Any, Any]  # a model, and its own probability of approval for each row
Make = Callable[[], Made]


def fitted(model: Any, table: Any, target: Any = None, column: int = 1) -> Made:
    model.fit(table, data.approved() if target is None else target)
    return model, model.predict_proba(table)[:, column]


def saved(model: Any, path: Path, save: str = "save_model") -> Any:
    getattr(model, save)(str(path))
    return load_model(path)


def text_pipeline() -> Made:
    return fitted(data.pipeline(data.logistic()), data.frame(), data.outcome(), 0)


def silent_pipeline() -> Made:
    model = data.pipeline(data.logistic(), handle_unknown="ignore")
    return fitted(model, data.frame(), data.outcome(), 0)


def silent_pipeline_on_codes() -> Made:
    model = data.pipeline(data.logistic(), handle_unknown="ignore")
    return fitted(model, data.coded(), data.outcome(), 0)


def padded_pipeline() -> Made:
    padded = data.frame().assign(job=" " + data.frame()["job"])
    return fitted(data.pipeline(data.logistic(), handle_unknown="ignore"), padded)


def scaled() -> Made:
    from sklearn.impute import SimpleImputer
    from sklearn.pipeline import make_pipeline
    from sklearn.preprocessing import StandardScaler

    return fitted(make_pipeline(SimpleImputer(), StandardScaler(), data.logistic()), data.coded())


def hist(table: pd.DataFrame) -> Made:
    data.package("sklearn")
    from sklearn.ensemble import HistGradientBoostingClassifier

    return fitted(HistGradientBoostingClassifier(max_iter=8, min_samples_leaf=5), table)


def in_search() -> Made:
    from sklearn.model_selection import GridSearchCV

    search = GridSearchCV(data.pipeline(data.logistic()), {"logisticregression__C": [1.0]}, cv=2)
    return fitted(search, data.frame(), data.outcome(), 0)


def lgbm_in_pipeline() -> Made:
    from sklearn.pipeline import make_pipeline

    return fitted(make_pipeline(data.lgbm()), data.categorical())


def odd_lgbm_categories() -> Made:
    """Two of four category columns are pandas categories; the others are numbers."""
    table = data.coded().assign(
        job=data.frame()["job"].astype("category"), own=data.frame()["own"].astype("category")
    )
    return fitted(data.lgbm(), table)


def category_codes(make: Callable[..., Any], **options: Any) -> Made:
    """Label codes, kept as pandas categories."""
    return fitted(make(**options), data.coded().astype({"job": "category", "größe": "category"}))


def number_as_category(model: Any) -> Made:
    return fitted(model, data.coded().astype({"loan amount": "category", "job": "category"}))


def cat_on(table: pd.DataFrame) -> Made:
    return fitted(data.cat(cat_features=data.CATEGORIES), table)


CASES: dict[str, Make] = {
    "logistic pipeline on text": text_pipeline,
    "pipeline that ignores unknown levels": silent_pipeline,
    "the same, fitted on codes": silent_pipeline_on_codes,
    "levels with stray spaces": padded_pipeline,
    "grid search": in_search,
    "scaler on codes": scaled,
    "forest on codes, named": lambda: fitted(data.forest(), data.coded()),
    "forest on codes, nameless": lambda: fitted(data.forest(), data.coded().to_numpy()),
    "forest, other order": lambda: fitted(data.forest(), data.coded()[data.coded().columns[::-1]]),
    "hist boosting, categories": lambda: hist(data.categorical()),
    "hist boosting, codes": lambda: hist(data.coded()),
    "lgbm, categories": lambda: fitted(data.lgbm(), data.categorical()),
    "lgbm, text target": lambda: fitted(data.lgbm(), data.categorical(), data.outcome(), 0),
    "lgbm, codes": lambda: fitted(data.lgbm(), data.coded()),
    "lgbm, nameless codes": lambda: fitted(data.lgbm(), data.coded().to_numpy()),
    "lgbm, some categories": odd_lgbm_categories,
    "lgbm, categories of codes": lambda: category_codes(data.lgbm),
    "lgbm in a pipeline": lgbm_in_pipeline,
    "xgb, categories": lambda: fitted(data.xgb(enable_categorical=True), data.categorical()),
    "xgb, codes": lambda: fitted(data.xgb(), data.coded()),
    "xgb, nameless codes": lambda: fitted(data.xgb(), data.coded().to_numpy()),
    "xgb, categories of codes": lambda: category_codes(data.xgb, enable_categorical=True),
    "xgb, other order": lambda: fitted(
        data.xgb(enable_categorical=True), data.categorical()[data.categorical().columns[::-1]]
    ),
    "catboost, text": lambda: cat_on(data.frame()),
    "catboost, categories": lambda: cat_on(data.categorical()),
    "catboost, categories of codes": lambda: cat_on(data.coded()),
    "catboost, other order": lambda: cat_on(data.frame()[data.frame().columns[::-1]]),
    "catboost, codes as numbers": lambda: fitted(data.cat(), data.coded()),
    "lgbm, a number as category": lambda: number_as_category(data.lgbm()),
    "xgb, a number as category": lambda: number_as_category(data.xgb(enable_categorical=True)),
    "catboost, a number as category": lambda: fitted(
        data.cat(cat_features=["loan amount", "job"]), data.coded()
    ),
    "catboost, nameless": lambda: fitted(data.cat(), data.coded().to_numpy()),
}


@pytest.mark.parametrize("case", CASES)
def test_answers_are_the_models_own(case: str) -> None:
    data.package("sklearn")
    model, own = CASES[case]()
    oracle = as_oracle(model, SCHEMA, positive="Approved")
    answers = oracle.ask(data.rows())
    np.testing.assert_allclose(answers.probability, own, rtol=0, atol=1e-9)
    decided = own != 0.5  # see test_a_tie_goes_as_the_model_says
    assert answers.decision[decided].tolist() == (own[decided] > 0.5).tolist()
    assert not oracle.labels_only
    assert oracle.assumed_class == (0 in list(model.classes_))
    # Decided once: a later batch, alone, gets the same form.
    assert oracle.ask(data.rows()[3:4]).probability[0] == pytest.approx(own[3], abs=1e-9)


FILES: dict[str, tuple[Make, str]] = {
    "lightgbm categories": (lambda: fitted(data.lgbm(), data.categorical()), "m.txt"),
    "lightgbm codes": (lambda: fitted(data.lgbm(), data.coded()), "m.lgb"),
    "xgboost categories json": (CASES["xgb, categories"], "m.json"),
    "xgboost categories ubj": (CASES["xgb, categories"], "m.ubj"),
    "xgboost codes json": (CASES["xgb, codes"], "m.json"),
    "xgboost codes ubj": (CASES["xgb, nameless codes"], "m.ubj"),
    "catboost text": (CASES["catboost, text"], "m.cbm"),
    "catboost codes": (CASES["catboost, codes as numbers"], "m.cbm"),
}


@pytest.mark.parametrize("case", FILES)
def test_answers_from_a_file_are_the_models_own(case: str, tmp_path: Path) -> None:
    make, name = FILES[case]
    model, own = make()
    loaded = saved(getattr(model, "booster_", model), tmp_path / name)
    oracle = as_oracle(loaded, SCHEMA, positive="Approved")
    answers = oracle.ask(data.rows())
    np.testing.assert_allclose(answers.probability, own, rtol=0, atol=1e-9)
    assert oracle.assumed_class


def trained_lightgbm() -> Made:
    lightgbm = data.package("lightgbm")
    options = {"objective": "binary", "verbose": -1, "num_threads": 1, "min_data_per_group": 5}
    table = lightgbm.Dataset(data.coded(), data.approved(), categorical_feature=["job", "größe"])
    booster = lightgbm.train(options, table, 5)
    return booster, booster.predict(data.coded())


def trained_xgboost() -> Made:
    """Codes that XGBoost was told are categories: it records no categories."""
    xgboost = data.package("xgboost")
    types = ["float", "int", "c", "c", "c", "int"]
    matrix = xgboost.DMatrix(data.coded(), data.approved(), feature_types=types)
    options = {"objective": "binary:logistic", "max_depth": 3, "nthread": 1}
    booster = xgboost.train(options, matrix, 5)
    return booster, booster.predict(matrix).astype(float)


def trained_catboost() -> Made:
    catboost = data.package("catboost")
    options = {"loss_function": "Logloss", "iterations": 5, "allow_writing_files": False}
    pool = catboost.Pool(data.frame(), data.approved(), cat_features=data.CATEGORIES)
    model = catboost.CatBoost({**options, "thread_count": 1}).fit(pool, verbose=False)
    return model, model.predict(pool, prediction_type="Probability")[:, 1]


@pytest.mark.parametrize("make", [trained_lightgbm, trained_xgboost, trained_catboost])
@pytest.mark.parametrize(("positive", "column"), [("Approved", 1), (1, 1), (0, 0)])
def test_bare_boosters_have_the_classes_0_and_1(make: Make, positive: Any, column: int) -> None:
    booster, own = make()
    oracle = as_oracle(booster, SCHEMA, positive=positive)
    expected = own if column else 1 - own
    np.testing.assert_allclose(oracle.ask(data.rows()).probability, expected, rtol=0, atol=1e-9)
    assert oracle.assumed_class == (positive == "Approved")


def test_categories_that_were_not_recorded_are_not_guessed() -> None:
    for booster, _ in (trained_lightgbm(), trained_xgboost()):
        with pytest.raises(OracleError, match=r"recorded no categories.*inputs='codes'"):
            as_oracle(booster, SCHEMA, positive=1, inputs="category")


def test_early_stopped_xgboost_uses_its_best_iteration(tmp_path: Path) -> None:
    model = data.xgb(early_stopping_rounds=2, learning_rate=1.0)
    model.fit(
        data.coded(), data.approved(), eval_set=[(data.coded(), 1 - data.approved())], verbose=False
    )
    own = model.predict_proba(data.coded())[:, 1]
    assert model.best_iteration + 1 < model.get_booster().num_boosted_rounds()
    for version in (model, saved(model, tmp_path / "m.ubj")):
        answers = as_oracle(version, SCHEMA, positive=1).ask(data.rows())
        np.testing.assert_allclose(answers.probability, own, rtol=0, atol=1e-9)


@pytest.mark.parametrize("make", ["sklearn", "lightgbm", "xgboost"])
def test_missing_categories_reach_the_model_as_missing(make: str) -> None:
    data.package("sklearn")
    gaps = np.arange(data.N) % 5 == 0
    raw = data.frame().assign(job=data.frame()["job"].where(~gaps))
    table = raw if make == "sklearn" else raw.astype(dict.fromkeys(data.CATEGORIES, "category"))
    makers: dict[str, Callable[[], Any]] = {
        "sklearn": lambda: data.pipeline(data.logistic()),
        "lightgbm": data.lgbm,
        "xgboost": lambda: data.xgb(enable_categorical=True),
    }
    model, own = fitted(makers[make](), table)
    rows = SCHEMA.parse_many(raw.to_dict("records"))  # type: ignore[arg-type]
    assert rows[0][2] is None
    answers = as_oracle(model, SCHEMA, positive=1).ask(rows)
    np.testing.assert_allclose(answers.probability, own, rtol=0, atol=1e-9)
    alone = as_oracle(model, SCHEMA, positive=1).ask(rows[:1])
    assert alone.probability[0] == pytest.approx(own[0], abs=1e-9)


def softmax_booster() -> Any:
    codes = {"high": 0, "low": 1, "mid": 2}
    target = [codes[b] for b in data.band()]
    xgboost = data.package("xgboost")
    matrix = xgboost.DMatrix(data.coded(), target)
    return xgboost.train({"objective": "multi:softmax", "num_class": 3, "nthread": 1}, matrix, 5)


@pytest.mark.parametrize(
    ("make", "table"),
    [
        (lambda: data.pipeline(data.logistic()), data.frame),
        (lambda: data.lgbm(), data.categorical),
        (lambda: data.lgbm(objective="multiclassova"), data.categorical),
        (lambda: data.cat(cat_features=data.CATEGORIES), data.frame),
        (
            lambda: data.cat(cat_features=data.CATEGORIES, loss_function="MultiClassOneVsAll"),
            data.frame,
        ),
    ],
)
def test_multiclass_takes_the_column_of_the_wanted_class(make: Any, table: Any) -> None:
    data.package("sklearn")
    model = make().fit(table(), data.band())
    own = model.predict_proba(table())
    column = list(model.classes_).index("high")
    oracle = as_oracle(model, SCHEMA, positive="high")
    answers = oracle.ask(data.rows())
    np.testing.assert_allclose(answers.probability, own[:, column], rtol=0, atol=1e-9)
    assert answers.decision.tolist() == (own.argmax(axis=1) == column).tolist()
    assert answers.decision.any()
    with pytest.raises(OracleError, match=r"'high', 'low', 'mid'.*positive_class="):
        as_oracle(model, SCHEMA, positive="Approved")


def test_raw_multiclass_booster_needs_a_class_number() -> None:
    booster = softmax_booster()
    with pytest.raises(OracleError, match=r"classes are 0, 1, 2, .* is 'high'"):
        as_oracle(booster, SCHEMA, positive="high")
    oracle = as_oracle(booster, SCHEMA, positive="high", positive_class="2")
    xgboost = data.package("xgboost")
    labels = booster.predict(xgboost.DMatrix(data.coded()))
    answers = oracle.ask(data.rows())
    assert oracle.labels_only
    assert answers.decision.tolist() == (labels == 2).tolist()
    assert set(answers.probability) == {0.0, 1.0}


class ScoresOnly:
    """Has a decision function and nothing else."""

    def __init__(self, model: Any) -> None:
        self.inner = model
        self.classes_ = model.classes_

    def decision_function(self, table: Any) -> Any:
        return self.inner.decision_function(table)


@pytest.mark.parametrize("wrap", [lambda m: m, ScoresOnly])
@pytest.mark.parametrize("target", [data.outcome, data.band])
def test_labels_only_models(wrap: Any, target: Any) -> None:
    data.package("sklearn")
    from sklearn.linear_model import Perceptron

    model = data.pipeline(Perceptron()).fit(data.frame(), target())
    wanted = "Approved" if target is data.outcome else "high"
    oracle = as_oracle(wrap(model), SCHEMA, positive=wanted, inputs="raw")
    answers = oracle.ask(data.rows())
    assert oracle.labels_only
    assert answers.decision.tolist() == (model.predict(data.frame()) == wanted).tolist()
    assert answers.probability.tolist() == answers.decision.astype(float).tolist()


class Backwards:
    """An estimator whose classes are not sorted."""

    classes_ = np.array(["yes", "no"])
    feature_names_in_ = np.array(["income"])

    def predict_proba(self, table: pd.DataFrame) -> Any:
        yes = np.where(table["income"].fillna(0) > 50, 0.9, 0.2)
        return np.column_stack([yes, 1 - yes])


def test_unsorted_classes() -> None:
    answers = as_oracle(Backwards(), SCHEMA, positive="yes").ask(data.rows())
    assert answers.decision.tolist() == (data.frame()["income"] > 50).tolist()


def test_bound_method_brings_its_classes() -> None:
    answers = as_oracle(Backwards().predict_proba, SCHEMA, positive="yes").ask(data.rows())
    assert answers.decision.tolist() == (data.frame()["income"] > 50).tolist()


def test_column_the_schema_lacks() -> None:
    table = data.coded().assign(incme=1.0)
    for model in (
        data.forest().fit(table, data.approved()),
        data.lgbm().fit(table, data.approved()),
    ):
        with pytest.raises(OracleError, match=r"'incme'.*did you mean 'income'.*function"):
            as_oracle(model, SCHEMA, positive=1)


def test_wrong_number_of_nameless_columns() -> None:
    model = data.forest().fit(data.coded().to_numpy()[:, :4], data.approved())
    with pytest.raises(OracleError, match="4 columns and the card describes 6"):
        as_oracle(model, SCHEMA, positive=1)


def test_columns_the_model_does_not_want_are_left_out() -> None:
    table = data.coded()[["own", "loan amount"]]
    model, own = fitted(data.forest(), table)
    answers = as_oracle(model, SCHEMA, positive=1).ask(data.rows())
    np.testing.assert_allclose(answers.probability, own, rtol=0, atol=1e-9)


def without_codes() -> Schema:
    return Schema(
        tuple(
            Feature(f.name, f.kind, levels=f.levels, missing=f.missing) if f.name == "job" else f
            for f in SCHEMA
        )
    )


@pytest.mark.parametrize("make", [data.lgbm, data.xgb, data.cat])
def test_no_codes_names_the_column_and_the_remedy(make: Any) -> None:
    model = make().fit(data.coded(), data.approved())
    with pytest.raises(OracleError, match=r"'job' .*codes = .*inputs='raw'"):
        as_oracle(model, without_codes(), positive=1)


def test_no_codes_for_an_estimator_says_what_was_tried() -> None:
    model = data.forest().fit(data.coded(), data.approved())
    oracle = as_oracle(model, without_codes(), positive=1)
    with pytest.raises(OracleError, match=r"(?s)could not convert string.*'job'.*codes = ") as info:
        oracle.ask(data.rows())
    assert "as 'raw'" in str(info.value)


def test_card_and_model_that_do_not_fit_are_told_apart() -> None:
    other = Schema(
        tuple(
            Feature("job", "category", levels=("nurse", "pilot")) if f.name == "job" else f
            for f in SCHEMA
        )
    )
    for model in (
        CASES["lgbm, categories"]()[0],
        CASES["xgb, categories"]()[0],
        text_pipeline()[0],
    ):
        with pytest.raises(OracleError, match="categories"):
            as_oracle(model, other, positive=1, positive_class=model.classes_[0])


def test_level_the_model_never_saw_is_noted() -> None:
    more = Schema(
        tuple(
            Feature("job", "category", levels=("judge", "clerk", "cook", "poet"))
            if f.name == "job"
            else f
            for f in SCHEMA
        )
    )
    for case in ("lgbm, categories", "xgb, categories", "pipeline that ignores unknown levels"):
        oracle = as_oracle(CASES[case]()[0], more, positive="Approved")
        assert "'job': the model never saw 'poet'" in oracle.notes[0]
        assert len(oracle.ask([more.replace(data.rows()[0], {"job": "poet"})])) == 1


@pytest.mark.parametrize(
    ("case", "inputs"),
    [
        ("lgbm, codes", "codes"),
        ("lgbm, categories", "category"),
        ("xgb, codes", "codes"),
        ("xgb, categories", "category"),
        ("catboost, text", "raw"),
        ("catboost, text", "category"),
        ("catboost, categories of codes", "codes"),
        ("forest on codes, named", "codes"),
        ("forest on codes, nameless", "codes"),
        ("lgbm in a pipeline", "category"),
    ],
)
def test_the_form_can_be_named(case: str, inputs: Any) -> None:
    model, own = CASES[case]()
    oracle = as_oracle(model, SCHEMA, positive=1, inputs=inputs)
    np.testing.assert_allclose(oracle.ask(data.rows()).probability, own, rtol=0, atol=1e-9)
    assert oracle.inputs == inputs


def test_xgboost_categories_cut_off_beyond_recovery_are_refused() -> None:
    """XGBoost 3.2 loses the end of its list, and two levels could have stood there."""
    table = pd.DataFrame({"city": pd.Categorical(["Ärö", "Öre", "Örö", "Öre"] * 20)})
    model = data.xgb(enable_categorical=True).fit(table, [0, 1, 1, 0] * 20)
    schema = Schema((Feature("city", "category", levels=("Ärö", "Öre", "Örö")),))
    refused = ""
    try:
        oracle = as_oracle(model, schema, positive=1)
    except OracleError as error:
        refused = str(error)
    if refused:
        assert "'Öre' or 'Örö'" in refused
    else:  # Later versions keep the whole list.
        answers = oracle.ask([(city,) for city in table["city"]])
        own = model.predict_proba(table)[:, 1]
        np.testing.assert_allclose(answers.probability, own, rtol=0, atol=1e-6)


def test_ambiguous_form_must_be_named() -> None:
    """Both forms of a number-like category are accepted, and both matter."""
    schema = Schema(
        tuple(
            Feature("grade", "category", levels=(1, 2), codes={"1": 0, "2": 1})
            if f.name == "grade"
            else f
            for f in SCHEMA
            if f.is_numeric or f.name == "grade"
        )
    )
    rows = schema.parse_many(data.frame().to_dict("records"))  # type: ignore[arg-type]
    table = data.frame()[list(schema.names)].fillna(0)
    from sklearn.linear_model import LogisticRegression

    model = LogisticRegression(max_iter=2000).fit(table, data.approved())
    with pytest.raises(OracleError, match="inputs='raw' or inputs='codes'"):
        as_oracle(model, schema, positive=1).ask([r for r in rows if None not in r])
    chosen = as_oracle(model, schema, positive=1, inputs="raw")
    assert chosen.ask([r for r in rows if None not in r][:3]).probability == pytest.approx(
        model.predict_proba(table[data.frame()["income"].notna()])[:3, 1]
    )
    assert chosen.inputs == "raw"


def test_ambiguous_lightgbm_categories_are_refused() -> None:
    """One list of yes and no, of an ordered category, and two columns that could have it."""
    schema = Schema(tuple(Feature(n, "boolean", levels=("No", "Yes")) for n in ("a", "b")))
    ordered = pd.CategoricalDtype(["Yes", "No"], ordered=True)
    table = pd.DataFrame({"a": data.frame()["own"].astype(ordered), "b": data.approved()})
    model = data.lgbm().fit(table, data.approved())
    with pytest.raises(OracleError, match="cannot tell which columns"):
        as_oracle(model, schema, positive=1)


@pytest.mark.parametrize("make", ["lightgbm", "xgboost", "catboost", "sklearn"])
def test_regressors_are_refused(make: str) -> None:
    data.package("sklearn")
    from sklearn.linear_model import LinearRegression

    table = data.coded().fillna(0)
    model = {
        "lightgbm": lambda: data.package("lightgbm").LGBMRegressor(n_estimators=3, verbose=-1),
        "xgboost": lambda: data.package("xgboost").XGBRegressor(n_estimators=3),
        "catboost": lambda: data.package("catboost").CatBoostRegressor(
            iterations=3, verbose=0, allow_writing_files=False
        ),
        "sklearn": LinearRegression,
    }[make]()
    model.fit(table, data.approved() + 0.25)
    with pytest.raises(OracleError, match=r"(wrap it in|pass) a function"):
        as_oracle(model, SCHEMA, positive=1).ask([r for r in data.rows() if None not in r])


def test_models_with_a_threshold_of_their_own_are_refused() -> None:
    data.package("sklearn")
    from sklearn.model_selection import FixedThresholdClassifier

    model = FixedThresholdClassifier(data.forest(), threshold=0.3).fit(
        data.coded(), data.approved()
    )
    with pytest.raises(OracleError, match=r"at_least"):
        as_oracle(model, SCHEMA, positive=1)


@pytest.mark.parametrize(
    ("model", "message"),
    [(dict, "is a class"), (3, "int is not a model"), ("m.pkl", "str is not a model")],
)
def test_what_is_no_model(model: Any, message: str) -> None:
    with pytest.raises(OracleError, match=message):
        as_oracle(model, SCHEMA, positive=1)


def test_unfitted_models_and_wrong_inputs() -> None:
    with pytest.raises(OracleError, match=r"No booster found|not fitted"):
        as_oracle(data.lgbm(), SCHEMA, positive=1)
    with pytest.raises(OracleError, match="not fitted"):
        as_oracle(data.forest(), SCHEMA, positive=1).ask(data.rows()[:2])
    with pytest.raises(OracleError, match="did you mean 'codes'"):
        as_oracle(len, SCHEMA, positive=1, inputs="code")  # type: ignore[arg-type]


def test_a_card_brings_its_own_label() -> None:
    outcome = '[outcome]\ntarget = "y"\npositive = 0\n'
    card = Card.parse(f'card = 1\nname = "t"\n{outcome}[features.x]\nkind = "number"\n')

    def two_classes(frame: pd.DataFrame) -> Any:
        return np.stack([frame["x"], 1 - frame["x"]], axis=1)

    assert as_oracle(two_classes, card).ask([(0.25,)]).probability.tolist() == [0.25]
    with pytest.raises(OracleError, match="which label means approval"):
        as_oracle(two_classes, card.schema)


@pytest.mark.parametrize("positive", [0, 1])
def test_a_tie_goes_as_the_model_says(positive: int) -> None:
    """Forests of an even number of trees are often undecided; `predict` then takes class 0."""
    data.package("sklearn")
    from sklearn.ensemble import RandomForestClassifier

    draws = np.random.default_rng(0)
    x, y = draws.normal(size=(80, 1)).round(1), draws.integers(0, 2, 80)
    model = RandomForestClassifier(2, random_state=0).fit(x, y)
    schema = Schema((Feature("x", "number"),))
    asked = [(value,) for value in np.linspace(-2, 2, 41).round(1).tolist()]
    chances = model.predict_proba(np.array(asked))[:, 1]
    assert (chances == 0.5).any()
    answers = as_oracle(model, schema, positive=positive).ask(asked)
    assert answers.decision.tolist() == (model.predict(np.array(asked)) == positive).tolist()
