"""A model, a frame, one line: what `find` and `Explainer` accept, infer, refuse and return."""

from __future__ import annotations

import threading
import time
from collections.abc import Callable, Iterator
from contextlib import suppress
from typing import Any

import numpy as np
import pandas as pd
import pytest

import waysout
from waysout.datasets.frames import Frame
from waysout.domain.result import OutcomeKind
from waysout.errors import InputError, OracleError, OracleTimeout, RowError, WaysoutError

sklearn = pytest.importorskip("sklearn")

from sklearn.compose import make_column_transformer  # noqa: E402
from sklearn.ensemble import RandomForestClassifier  # noqa: E402
from sklearn.linear_model import LogisticRegression  # noqa: E402
from sklearn.pipeline import make_pipeline  # noqa: E402
from sklearn.preprocessing import OneHotEncoder, StandardScaler  # noqa: E402

ROWS = 60


@pytest.fixture(scope="module")
def people() -> pd.DataFrame:
    draws = np.random.default_rng(3)
    n = 400
    return pd.DataFrame(
        {
            "customer_id": [f"C{i:05d}" for i in range(n)],
            "age": draws.integers(20, 70, n),
            "income": draws.normal(40, 12, n).round(1),
            "debt": draws.integers(0, 30, n),
            "job": draws.choice(["clerk", "cook", "driver"], n),
            "owns_home": draws.choice(["N", "Y"], n),
        }
    )


@pytest.fixture(scope="module")
def labels(people: pd.DataFrame) -> pd.Series[Any]:
    score = people["income"] - 1.5 * people["debt"] + 6 * (people["owns_home"] == "Y")
    return pd.Series(np.where(score > 25, "good", "bad"), name="risk")


@pytest.fixture(scope="module")
def model(people: pd.DataFrame, labels: pd.Series[Any]) -> Any:
    encode = make_column_transformer(
        (OneHotEncoder(handle_unknown="ignore"), ["job", "owns_home"]),
        (StandardScaler(), ["age", "income", "debt"]),
    )
    made = make_pipeline(encode, LogisticRegression())
    return made.fit(people.drop(columns="customer_id"), labels)


@pytest.fixture(scope="module")
def refused(people: pd.DataFrame, model: Any) -> int:
    return int(np.flatnonzero(model.predict(people.drop(columns="customer_id")) == "bad")[0])


def approved(model: Any, frame: pd.DataFrame) -> bool:
    """Ask the model itself, without any of our code."""
    return bool((model.predict(frame[list(model.feature_names_in_)]) == "good").all())


def test_one_line(people: pd.DataFrame, model: Any, refused: int) -> None:
    result = waysout.find(model, people.iloc[refused], data=people, positive="good")
    assert result.ways
    assert approved(model, result.to_frame(all_features=True))
    assert all("age" not in way.changes for way in result.ways)
    assert all(way.row["customer_id"] == people["customer_id"][refused] for way in result.ways)


def test_what_was_inferred_is_said(people: pd.DataFrame, model: Any, refused: int) -> None:
    result = waysout.find(
        model, people.iloc[refused], data=people, positive="good", oracle_rows=ROWS
    )
    (told,) = [note for note in result.notes if "inferred" in note]
    assert "income, debt, job and owns_home" in told
    assert "fixed (nobody can change their age): age" in told
    assert "only up: income; only down: debt" in told
    assert "carried along: customer_id" in told
    assert told in " ".join(str(result).split())


def test_labels_rules_and_directions(
    people: pd.DataFrame, labels: pd.Series[Any], model: Any, refused: int
) -> None:
    result = waysout.find(
        model, people.iloc[refused], data=people, y=labels, positive="good",
        fixed=["owns_home", "job"], only_down=["debt"], only_up=["income"], oracle_rows=ROWS,
    )  # fmt: skip
    assert result.ways
    for option in result.options:
        assert set(option.changes) <= {"income", "debt"}
        old, new = option.row, people.iloc[refused]
        assert float(old["income"]) >= new["income"]  # type: ignore[arg-type]
        assert float(old["debt"]) <= new["debt"]  # type: ignore[arg-type]


def test_y_may_be_a_column(people: pd.DataFrame, labels: pd.Series[Any], model: Any) -> None:
    whole = people.assign(risk=labels)
    explainer = waysout.Explainer(model, whole, "risk", positive="good")
    assert explainer.data is not None
    assert sum(explainer.data.labels) == (labels == "good").sum()
    assert "risk" not in explainer.card.schema


def test_an_order_makes_levels_go_up(people: pd.DataFrame, model: Any, refused: int) -> None:
    order = {"job": ["driver", "cook", "clerk"]}
    explainer = waysout.Explainer(model, people, positive="good", only_up=order)
    assert explainer.card.schema["job"].levels == ("driver", "cook", "clerk")
    with pytest.raises(WaysoutError, match="lacks 'clerk'"):
        _ = waysout.Explainer(model, people, positive="good", only_up={"job": ["cook"]}).problem
    ordered = people.assign(job=pd.Categorical(people["job"], order["job"], ordered=True))
    same = waysout.Explainer(model, ordered, positive="good", only_up=["job"])
    assert same.card.schema["job"].ordered


def test_what_is_fixed_by_default_can_be_freed(people: pd.DataFrame, model: Any) -> None:
    bound = waysout.Explainer(model, people, positive="good").problem
    query = bound.row(dict(people.iloc[0]))
    assert "age" not in bound.rules.actionable(query)
    freed = waysout.Explainer(model, people, positive="good", free=["age"]).problem
    assert "age" in freed.rules.actionable(query)
    with pytest.raises(WaysoutError, match="did you mean 'age'"):
        _ = waysout.Explainer(model, people, positive="good", free=["aeg"]).problem


def test_batch_keeps_order_and_gives_one_table(people: pd.DataFrame, model: Any) -> None:
    explainer = waysout.Explainer(model, people, positive="good")
    results = explainer.batch(people.iloc[:12], oracle_rows=40)
    assert [result.index for result in results] == list(range(12))
    truth = model.predict(people.iloc[:12])
    for result, label in zip(results, truth, strict=True):
        assert (result.outcome.kind is OutcomeKind.ALREADY_APPROVED) == (label == "good")
    table = results.to_frame(all_features=True)
    assert approved(model, table)
    assert set(table["query"]) == {r.index for r in results if r.ways}
    assert "12 people" in str(results)
    assert len(results[2:5]) == 3


@pytest.mark.parametrize("form", ["series", "mapping", "one-row frame", "array", "tuple", "list"])
def test_forms_of_a_row(form: str, people: pd.DataFrame, model: Any, refused: int) -> None:
    """Values without names are in the order of the data, whatever the model's own."""
    explainer = waysout.Explainer(model, people, positive="good")
    row: Any = {
        "series": people.iloc[refused],
        "mapping": people.iloc[refused].to_dict(),
        "one-row frame": people.iloc[[refused]],
        "array": people.iloc[refused].to_numpy(),
        "tuple": tuple(people.iloc[refused]),
        "list": list(people.iloc[refused]),
    }[form]
    result = explainer.find(row, oracle_rows=30)
    usual = explainer.find(people.iloc[refused], oracle_rows=30)
    assert [way.row for way in result.ways] == [way.row for way in usual.ways]


def test_polars_in_polars_out(people: pd.DataFrame, model: Any, refused: int) -> None:
    pl = pytest.importorskip("polars")
    frame = pl.from_pandas(people)
    result = waysout.find(model, frame[refused], data=frame, positive="good", oracle_rows=ROWS)
    found = result.to_frame(all_features=True)
    assert isinstance(found, pl.DataFrame)
    assert approved(model, found.to_pandas())
    results = waysout.Explainer(model, frame, positive="good").batch(frame[:4], oracle_rows=30)
    whole = results.to_frame(all_features=True)
    assert isinstance(whole, pl.DataFrame)
    assert approved(model, whole.to_pandas())


def test_numpy_with_names() -> None:
    draws = np.random.default_rng(0)
    X = draws.normal(size=(200, 3)).round(2)
    y = (X[:, 0] + X[:, 1] > 0).astype(int)
    model = RandomForestClassifier(20, random_state=0).fit(X, y)
    row = X[np.flatnonzero(model.predict(X) == 0)[0]]
    result = waysout.find(model, row, data=X, y=y, features=["a", "b", "c"], oracle_rows=ROWS)
    assert result.ways
    rows = np.array([list(way.row.values()) for way in result.ways], dtype=float)
    assert (model.predict(rows) == 1).all()
    with pytest.raises(InputError, match=r"features=\['income'"):
        waysout.find(model, row, data=X)


def test_a_sample_of_a_large_frame_holds_every_level_and_extreme(people: pd.DataFrame) -> None:
    from waysout.datasets.frames import Frame

    frame = people.copy()
    frame.loc[7, "job"] = "pilot"
    frame.loc[9, "income"] = 900.0
    kept = Frame.of(frame.drop(columns="customer_id")).sample(most=50)
    assert kept is not None
    assert {7, 9} <= set(kept)
    assert len(kept) < 70
    assert Frame.of(frame).sample(most=400) is None


# Nothing silently wrong ---------------------------------------------------------------------------


def test_classes_that_say_nothing_are_asked_about(people: pd.DataFrame, model: Any) -> None:
    with pytest.raises(InputError, match=r"classes are 'bad' and 'good'.*positive='good'"):
        waysout.find(model, people.iloc[0], data=people)


def test_labels_that_do_not_match(people: pd.DataFrame, labels: pd.Series[Any], model: Any) -> None:
    with pytest.raises(WaysoutError, match=r"'ok'.*'bad', 'good'"):
        waysout.find(model, people.iloc[0], data=people, y=labels, positive="ok")
    numbers = (labels == "good").astype(int)
    with pytest.raises(OracleError, match="'bad', 'good'"):
        waysout.find(model, people.iloc[0], data=people, y=numbers)
    with pytest.raises(InputError, match="399 labels"):
        waysout.find(model, people.iloc[0], data=people, y=numbers[:-1])
    with pytest.raises(RowError, match="label is missing"):
        waysout.find(model, people.iloc[0], data=people, y=numbers.where(numbers.index != 3))


def test_a_decision_that_the_labels_contradict(
    people: pd.DataFrame, labels: pd.Series[Any], model: Any
) -> None:
    with pytest.raises(OracleError, match="swapped"):
        waysout.find(
            lambda frame: model.predict_proba(frame)[:, 0], people.iloc[0], data=people,
            y=labels, positive="good", features=list(model.feature_names_in_),
        )  # fmt: skip


def test_a_constant_model(people: pd.DataFrame, labels: pd.Series[Any]) -> None:
    def same(frame: pd.DataFrame) -> Any:
        return np.full(len(frame), 0.3)

    with pytest.raises(OracleError, match=r"0\.3"):
        waysout.find(same, people.iloc[0], data=people, y=labels, positive="good")
    result = waysout.find(same, people.iloc[0], data=people, oracle_rows=10)
    assert any("0.3" in note for note in result.notes)


def test_two_nameless_columns_say_which_was_taken(people: pd.DataFrame, model: Any) -> None:
    result = waysout.find(
        lambda frame: np.asarray(model.predict_proba(frame)), people.iloc[0], data=people,
        features=list(model.feature_names_in_), oracle_rows=10,
    )  # fmt: skip
    assert any("column 1" in note for note in result.notes)


@pytest.mark.parametrize(
    ("wrong", "says"),
    [
        ({"fixed": "age"}, r"fixed is a list.*\['age'\]"),
        ({"fixed": ["agee"]}, "did you mean 'age'"),
        ({"only_up": ["job"]}, "no order"),
        ({"data": None}, "data=X"),
        ({"data": "people.csv"}, "DataFrame"),
        ({"features": ["income", "salary"]}, "'salary'"),
        ({"y": "label"}, "'label'"),
        ({"colour": 1}, "colour"),
    ],
)
def test_wrong_arguments_are_named(
    wrong: dict[str, Any], says: str, people: pd.DataFrame, model: Any
) -> None:
    given = {"data": people, "positive": "good", **wrong}
    with pytest.raises((WaysoutError, TypeError), match=says):
        waysout.find(model, people.iloc[0], **given)


def test_a_problem_is_set_up_already(people: pd.DataFrame, model: Any) -> None:
    problem = waysout.Explainer(model, people, positive="good").problem
    with pytest.raises(InputError, match="fixed=… sets up a model"):
        waysout.find(problem, people.iloc[0].to_dict(), fixed=["debt"])
    assert waysout.find(problem, people.iloc[0].to_dict(), oracle_rows=10).query["debt"] is not None


def test_a_dataset_brings_its_card() -> None:
    data = waysout.load_dataset("synthetic")

    def model(frame: pd.DataFrame) -> Any:
        return frame["savings"] / 20_000

    result = waysout.find(
        lambda frame: np.clip(model(frame), 0, 1), data.rows[828], data=data, oracle_rows=ROWS
    )
    assert [dict(way.changes) for way in result.ways] == [{"savings": (7500, 10100)}]
    with pytest.raises(InputError, match="a card says it already"):
        waysout.find(model, data.rows[828], data=data, y=[1])


def test_one_order_everywhere(people: pd.DataFrame, model: Any, refused: int) -> None:
    result = waysout.find(model, people.iloc[refused], data=people, positive="good")
    assert len(result.ways) > 1
    rows = result.to_frame(all_features=True)[list(people.columns)].to_dict("records")
    assert rows == [dict(way.row) for way in result.ways]
    assert result.pick(len(result.ways)) == tuple(result.ways)


def test_labels_may_have_no_name_but_must_belong_to_the_rows(
    people: pd.DataFrame, labels: pd.Series[Any], model: Any
) -> None:
    pl = pytest.importorskip("polars")
    unnamed = pl.Series(labels.tolist())
    made = waysout.Explainer(model, people, unnamed, positive="good")
    assert made.data is not None
    assert sum(made.data.labels) == (labels == "good").sum()
    with pytest.raises(InputError, match=r"different indexes.*y\.loc\[X\.index\]"):
        _ = waysout.Explainer(model, people, labels.sample(frac=1.0), positive="good").problem


def test_a_column_that_is_the_label_is_refused(
    people: pd.DataFrame, labels: pd.Series[Any]
) -> None:
    leaking = people.assign(answer=labels)
    with pytest.raises(InputError, match=r"'answer' of data is the same as y"):
        waysout.find(lambda f: f["income"] / 100, leaking.iloc[0], data=leaking, y=labels,
                     positive="good")  # fmt: skip


def test_columns_named_by_numbers_come_out_as_they_went_in() -> None:
    draws = np.random.default_rng(0)
    X = pd.DataFrame(draws.normal(size=(200, 3)).round(2))
    y = (X[0] + X[1] > 0).astype(int)
    model = RandomForestClassifier(20, random_state=0).fit(X.to_numpy(), y)
    query = X.iloc[int(np.flatnonzero(model.predict(X.to_numpy()) == 0)[0])]
    result = waysout.find(model, query, data=X, fixed=[2], oracle_rows=ROWS)  # type: ignore[list-item]
    rows = result.to_frame(all_features=True)[X.columns]
    assert (rows[2] == query[2]).all()
    assert (model.predict(rows.to_numpy()) == 1).all()


def test_data_that_cannot_be_read_is_named(people: pd.DataFrame, model: Any) -> None:
    twice = pd.concat([people, people[["age"]]], axis=1)
    with pytest.raises(WaysoutError, match="two columns named 'age'"):
        waysout.find(model, people.iloc[0], data=twice, positive="good")
    with pytest.raises(InputError, match="data has 1 row"):
        waysout.find(model, people.iloc[0], data=people.iloc[[0]], positive="good")
    with pytest.raises(InputError, match=r"only_up=\{'job': \[levels from low to high\]\}"):
        waysout.find(model, people.iloc[0], data=people, positive="good", only_up=["job"])


def test_percent_in_a_frame_is_a_number(people: pd.DataFrame) -> None:
    share = (people["debt"] * 1.7).round(1).map("{} %".format).str.replace(".", ",")
    frame = people.assign(share=share)

    def model(rows: pd.DataFrame) -> Any:
        assert rows["share"].str.endswith(" %").all()
        read = rows["share"].str.rstrip(" %").str.replace(",", ".").astype(float)
        return 1 - read / 51

    row = frame.iloc[int(people["debt"].argmax())]
    result = waysout.find(model, row, data=frame, oracle_rows=ROWS)
    (way,) = result.ways
    assert isinstance(way.row["share"], str)
    assert model(pd.DataFrame([way.row])).iloc[0] >= 0.5
    few = waysout.Card.infer(pd.DataFrame({"share": ["10 %", "5 %", "20 %"] * 9}))
    assert few.schema["share"].levels == ("5 %", "10 %", "20 %")


def test_what_a_function_raises_is_told(people: pd.DataFrame) -> None:
    def model(rows: Any) -> Any:
        raise RuntimeError("licence server down")

    with pytest.raises(OracleError, match="licence server down"):
        waysout.find(model, people.iloc[0], data=people)


def test_a_batch_shows_itself_in_a_notebook(people: pd.DataFrame, model: Any) -> None:
    results = waysout.Explainer(model, people, positive="good").batch(people[:4], oracle_rows=20)
    assert "4 people" in results._repr_html_()


def test_the_page_is_served_from_python(people: pd.DataFrame, model: Any) -> None:
    pytest.importorskip("fastapi")
    import json
    import urllib.request

    explainer = waysout.Explainer(model, people, positive="good")
    page = explainer.serve(port=0, block=False)
    try:
        with urllib.request.urlopen(f"{page.url}api/problems/data/examples") as answer:
            found = json.load(answer)
    finally:
        page.close()
    assert found


def test_a_model_of_another_order_and_rows_without_names() -> None:
    draws = np.random.default_rng(5)
    Z = pd.DataFrame(draws.random((300, 3)).round(3), columns=["a", "b", "c"])
    y = (Z["a"] > 0.5).astype(int)
    model = RandomForestClassifier(21, random_state=0).fit(Z[["c", "a", "b"]], y)
    i = int(np.flatnonzero(model.predict(Z[["c", "a", "b"]]) == 0)[0])
    result = waysout.find(model, Z.iloc[i].to_numpy(), data=Z, y=y, oracle_rows=ROWS)
    assert dict(result.query) == Z.iloc[i].to_dict()
    rows = result.to_frame(all_features=True)[["c", "a", "b"]]
    assert (model.predict(rows) == 1).all()
    whole = waysout.Explainer(model, Z, y).batch(Z.iloc[[i]].to_numpy(), oracle_rows=ROWS)
    assert [dict(way.row) for way in whole[0].ways] == [dict(way.row) for way in result.ways]
    with pytest.raises(InputError, match="the row has 2 values, and data has 3 columns"):
        waysout.find(model, (0.1, 0.2), data=Z)


def test_none_comes_back_as_none(people: pd.DataFrame) -> None:
    nickname = [None if i % 3 else "Jo" for i in range(len(people))]
    frame = people.assign(nickname=pd.Series(nickname, dtype=object))
    person = frame.iloc[int(people["debt"].argmax())].copy()
    person["nickname"] = None
    result = waysout.find(lambda f: 1 - f["debt"] / 30, person, data=frame, oracle_rows=ROWS)
    assert all(cell is None for cell in result.to_frame(all_features=True)["nickname"])


def test_a_regression_is_no_classifier(people: pd.DataFrame) -> None:
    from sklearn.linear_model import LinearRegression

    numbers = people[["debt", "income"]]
    model = LinearRegression().fit(numbers, people["age"])
    with pytest.raises(OracleError, match="LinearRegression is a regression"):
        waysout.find(model, numbers.iloc[0], data=numbers)
    with pytest.raises(OracleError) as told:
        waysout.find(LogisticRegression(), numbers.iloc[0], data=numbers)
    assert str(told.value).count("not fitted yet") == 1


def test_a_card_goes_with_a_frame(people: pd.DataFrame, labels: pd.Series[Any], model: Any) -> None:
    card = waysout.Card.infer(people.assign(risk=labels), target="risk", positive="good")
    explainer = waysout.Explainer(model, people, labels, card=card)
    assert explainer.card is card
    assert explainer.data is not None
    assert sum(explainer.data.labels) == (labels == "good").sum()
    assert explainer.find(people.iloc[0], oracle_rows=20).notes == ()


def test_a_row_that_hangs_is_given_up_when_the_user_says(people: pd.DataFrame) -> None:
    frame = people.drop(columns="customer_id").head(60)
    slow = frame.iloc[7]

    def hangs(asked: pd.DataFrame) -> Any:
        while (asked["income"] == slow["income"]).any():
            time.sleep(0.01)  # a wait that can be ended
        return asked["income"] / 100

    explainer = waysout.Explainer(hangs, data=frame, row_seconds=0.3)
    for found in (
        waysout.find(hangs, slow, data=frame, row_seconds=0.3, oracle_rows=10),
        explainer.batch(frame.iloc[6:9], oracle_rows=10)[1],
    ):
        assert found.outcome.kind is OutcomeKind.FAILED
        assert "did not answer a row within 0.303 s" in found.outcome.reason


class Proxy:
    """A model that does something when one of its attributes is looked at."""

    def __init__(self, name: str, do: Callable[[], Any]) -> None:
        self.name, self.do = name, do

    def __getattr__(self, name: str) -> Any:
        if name == self.name:
            return self.do()
        raise AttributeError(name)

    def predict_proba(self, frame: pd.DataFrame) -> Any:
        raise AssertionError


class Sleep:
    """What sleeps until the test has ended; ``whole`` tells whether somebody waited for its end."""

    def __init__(self) -> None:
        self.begun, self.over = threading.Event(), threading.Event()
        self.whole = False

    def __call__(self) -> None:
        self.begun.set()
        self.whole |= not self.over.wait(10)


@pytest.fixture
def sleep() -> Iterator[Sleep]:
    made = Sleep()
    yield made
    made.over.set()


@pytest.mark.parametrize("attribute", ["classes_", "ask", "feature_names_in_"])
def test_a_model_that_hangs_when_it_is_looked_at_is_given_up(
    attribute: str, people: pd.DataFrame, sleep: Sleep
) -> None:
    with pytest.raises(OracleTimeout, match=r"within 0\.202 s"):
        waysout.find(Proxy(attribute, sleep), people.iloc[0], data=people, row_seconds=0.2)
    assert not sleep.whole


@pytest.mark.parametrize("attribute", ["classes_", "ask"])
@pytest.mark.parametrize("kind", [SystemExit, ConnectionError])
def test_a_model_that_exits_or_fails_when_it_is_looked_at_is_refused(
    attribute: str, kind: type[BaseException], people: pd.DataFrame
) -> None:
    def fail() -> Any:
        raise kind("gone")

    with pytest.raises(OracleError, match=f"the model raised {kind.__name__}: gone"):
        waysout.find(Proxy(attribute, fail), people.iloc[0], data=people)


def test_classes_that_nobody_needs_are_not_looked_at(
    people: pd.DataFrame, labels: pd.Series[Any], sleep: Sleep
) -> None:
    class Own(Proxy):
        name = "own"

        def ask(self, rows: Any) -> Any:
            raise AssertionError

    for given in ({"positive": 1}, {"y": labels, "positive": "good"}):
        assert waysout.Explainer(Own("classes_", sleep), people, **given).problem
    assert not sleep.begun.is_set()


def test_a_model_that_hangs_holds_up_no_other_explainer(people: pd.DataFrame, sleep: Sleep) -> None:
    hangs = waysout.Explainer(Proxy("classes_", sleep), people)

    def wait() -> None:
        with suppress(OracleError):
            assert hangs.card

    waiting = threading.Thread(target=wait)
    waiting.start()
    assert sleep.begun.wait(60)
    other = waysout.Explainer(lambda frame: frame["income"] / 100, people)
    assert other.problem is other.problem
    assert not sleep.whole
    sleep.over.set()
    waiting.join(60)


def test_a_column_that_lightgbm_writes_in_another_way_is_found(
    people: pd.DataFrame, labels: pd.Series[Any]
) -> None:
    lightgbm = pytest.importorskip("lightgbm")
    table = people[["income", "debt"]].rename(columns={"debt": "monthly debt"})
    model = lightgbm.LGBMClassifier(n_estimators=5, verbose=-1, n_jobs=1).fit(table, labels)
    assert model.feature_name_ == ["income", "monthly_debt"]
    person = table.iloc[int(np.flatnonzero(model.predict(table) == "bad")[0])]
    found = waysout.find(model, person, data=table, y=labels, positive="good", oracle_rows=60)
    assert found.outcome.kind is OutcomeKind.FOUND


@pytest.mark.parametrize("cell", [[1, 2], {"a": 1}, np.ones(2)])
def test_cells_that_hold_several_values_reach_no_model(cell: Any, people: pd.DataFrame) -> None:
    """As text they might be answered for, and wrongly."""
    table = people[["income"]].assign(history=pd.Series([cell] * len(people), dtype=object))
    person = table.iloc[int(people["income"].argmin())]

    def rich(frame: pd.DataFrame) -> Any:
        return frame["income"].to_numpy() > 60

    with pytest.raises(OracleError, match=r"'history' holds several values .*features=\["):
        waysout.find(rich, person, data=table, positive=True, oracle_rows=60)
    only = ["income"]
    found = waysout.find(rich, person, data=table, positive=True, oracle_rows=60, features=only)
    assert len(Frame.of(table).sample(100) or ()) >= 100
    assert [list(way.changes) for way in found.ways[:1]] == [["income"]]
