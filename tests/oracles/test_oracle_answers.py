"""What functions may return, which class is approval, and every way an answer can be wrong."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import numpy as np
import pandas as pd
import pytest

from waysout.domain.oracle import Answers
from waysout.domain.schema import Feature, Row, Schema
from waysout.errors import OracleError
from waysout.oracles.adapt import as_oracle
from waysout.oracles.answers import WantedClass, ask_checked, choose_class

SCHEMA = Schema(
    (
        Feature("income", "number"),
        Feature("job", "category", levels=("clerk", "cook"), codes={"clerk": 5, "cook": 6}),
    )
)
ROWS: list[Row] = [(10.0, "clerk"), (90.0, "cook"), (50.0, "clerk")]
CHANCE = np.array([0.1, 0.9, 0.6])
YES = [False, True, True]


def returning(value: Any) -> Any:
    return lambda frame: value


@pytest.mark.parametrize(
    ("returned", "labels_only"),
    [
        (CHANCE, False),
        (CHANCE.astype(np.float32), False),
        (CHANCE.tolist(), False),
        (pd.Series(CHANCE, index=[7, 8, 9]), False),
        (CHANCE.astype(object), False),
        (CHANCE.reshape(-1, 1), False),
        (np.column_stack([1 - CHANCE, CHANCE]), False),
        (pd.DataFrame({"no": 1 - CHANCE, "yes": CHANCE}), False),
        (CHANCE - np.array([1e-7, 0, 0]), False),
        ([0, 1, 1], True),
        (np.array([False, True, True]), True),
        (["no", "yes", "yes"], True),
        (pd.Series(["no", "yes", "yes"], dtype="category"), True),
        (np.array([["no"], ["yes"], ["yes"]]), True),
    ],
)
def test_what_a_function_may_return(returned: Any, labels_only: bool) -> None:
    oracle = as_oracle(returning(returned), SCHEMA, positive="yes", name="mine")
    answers = oracle.ask(ROWS)
    assert answers.decision.tolist() == YES
    expected = np.array(YES, dtype=float) if labels_only else CHANCE
    assert answers.probability == pytest.approx(expected, abs=1e-6)
    assert answers.probability.dtype == np.float64
    assert (oracle.labels_only, oracle.name) == (labels_only, "mine")


def test_three_columns_of_a_function_are_numbered() -> None:
    table = np.array([[0.2, 0.45, 0.35], [0.5, 0.3, 0.2], [0.0, 0.0, 1.0]])
    answers = as_oracle(returning(table), SCHEMA, positive="mid", positive_class=1).ask(ROWS)
    assert answers.probability.tolist() == [0.45, 0.3, 0.0]
    assert answers.decision.tolist() == [True, False, False]  # a plurality is enough
    for positive in ("mid", 1):
        with pytest.raises(OracleError, match=r"3 columns without names.*positive_class="):
            as_oracle(returning(table), SCHEMA, positive=positive).ask(ROWS)


def test_named_columns_are_the_classes() -> None:
    table = pd.DataFrame({"yes": CHANCE, "no": 1 - CHANCE})
    oracle = as_oracle(returning(table), SCHEMA, positive="yes")
    assert oracle.ask(ROWS).probability == pytest.approx(CHANCE)
    assert not oracle.assumed_class
    labels = pd.DataFrame({1: CHANCE, 2: 1 - CHANCE})
    assert as_oracle(returning(labels), SCHEMA, positive=1).ask(ROWS).decision.tolist() == YES
    with pytest.raises(OracleError, match=r"'yes', 'no'.*positive_class="):
        as_oracle(returning(table), SCHEMA, positive="Approved").ask(ROWS)


@pytest.mark.parametrize("kind", ["series", "labels", "frame"])
def test_answers_that_carry_their_index_go_to_their_rows(kind: str) -> None:
    def grouped(frame: pd.DataFrame) -> Any:
        frame = frame.sort_values("income", ascending=False)
        chance = frame["income"] / 100
        if kind == "series":
            return chance
        if kind == "labels":
            return (chance >= 0.5).map({True: "yes", False: "no"})
        return pd.DataFrame({"no": 1 - chance, "yes": chance})

    answers = as_oracle(grouped, SCHEMA, positive="yes").ask(ROWS)
    expected = [0.0, 1.0, 1.0] if kind == "labels" else [0.1, 0.9, 0.5]
    assert answers.probability == pytest.approx(expected)


@pytest.mark.parametrize("index", [["c", "a", "b"], [7, 5, 6], [0, 0, 1], [0.5, 0.1, 0.2]])
def test_an_index_of_the_models_own_tells_nothing(index: list[Any]) -> None:
    own = pd.Series([0.1, 0.9, 0.5], index)
    assert as_oracle(returning(own), SCHEMA, positive="yes").ask(ROWS).probability.tolist() == [
        0.1, 0.9, 0.5,
    ]  # fmt: skip


def test_what_a_model_masks_is_no_answer() -> None:
    masked = np.ma.masked_array([0.1, 0.9, 0.5], [False, True, False])
    with pytest.raises(OracleError, match=r"returned nan.*row 1"):
        as_oracle(returning(masked), SCHEMA, positive="yes").ask(ROWS)
    labels = np.ma.masked_array([0, 1, 1], [False, False, True])
    with pytest.raises(OracleError, match=r"returned None.*row 2"):
        as_oracle(returning(labels), SCHEMA, positive=1).ask(ROWS)
    whole = np.ma.masked_array([0.1, 0.9, 0.5])
    assert as_oracle(returning(whole), SCHEMA, positive="yes").ask(ROWS).decision.tolist() == YES


def test_two_nameless_columns() -> None:
    table = np.column_stack([1 - CHANCE, CHANCE])
    for positive, index in (("Approved", 1), (1, 1), (True, 1), (False, 0), ("0", 0)):
        oracle = as_oracle(returning(table), SCHEMA, positive=positive)
        assert oracle.ask(ROWS).probability == pytest.approx(table[:, index])
        assert oracle.assumed_class
    with pytest.raises(OracleError, match=r"which of them is 2 is not known"):
        as_oracle(returning(table), SCHEMA, positive=2).ask(ROWS)


def test_what_was_taken_for_a_yes_is_said() -> None:
    table = np.column_stack([1 - CHANCE, CHANCE])
    nameless = as_oracle(returning(table), SCHEMA, positive="good")
    nameless.ask(ROWS)
    assert nameless.notes == (
        "the model returned 2 columns without names; column 1 was taken for a yes: pass "
        "positive_class=0 if it is the other",
    )
    told = as_oracle(returning(table), SCHEMA, positive="good", positive_class=1)
    told.ask(ROWS)
    assert told.notes == ()
    for returned in ([0, 1, 1], pd.DataFrame({"0": 1 - CHANCE, "1": CHANCE})):
        oracle = as_oracle(returning(returned), SCHEMA, positive="good")
        assert oracle.ask(ROWS).decision.tolist() == YES
        (note,) = oracle.notes
        assert all(part in note for part in ("0", "1", "'good'", "was taken for a yes", "pass"))


@pytest.mark.parametrize(
    ("returned", "positive"),
    [(["bad", "good", "good"], 1), ([1, 2, 2], "good"), (["b", "g", "g"], True)],
)
def test_labels_that_cannot_match_are_an_error(returned: Any, positive: Any) -> None:
    first, last = repr(returned[0]), repr(returned[-1])
    both = rf"labels {first}, {last}, and the card's label for a yes is {positive!r}"
    with pytest.raises(OracleError, match=both):
        as_oracle(returning(returned), SCHEMA, positive=positive).ask(ROWS)
    oracle = as_oracle(returning(returned), SCHEMA, positive=positive, positive_class=returned[-1])
    assert oracle.ask(ROWS).decision.tolist() == YES


def test_labels_among_which_no_yes_was_seen_are_told() -> None:
    answers = [["low", "mid", "low"], ["low", "high", "low"], ["low", "mid", "low"]]
    oracle = as_oracle(lambda frame: answers.pop(0), SCHEMA, positive="high")
    oracle.ask(ROWS)
    assert "'low', 'mid' so far, and none is the card's label for a yes, 'high'" in oracle.notes[0]
    for _ in range(2):
        oracle.ask(ROWS)
        assert oracle.notes == ()


def test_one_number_is_the_chance_of_approval_unless_said_otherwise() -> None:
    assert as_oracle(returning(CHANCE), SCHEMA, positive=0).ask(ROWS).decision.tolist() == YES
    turned = as_oracle(returning(CHANCE), SCHEMA, positive="yes", positive_class=0).ask(ROWS)
    assert turned.probability == pytest.approx(1 - CHANCE)


@pytest.mark.parametrize(
    ("inputs", "expected"),
    [
        ("auto", "clerk"),
        ("raw", "clerk"),
        ("dicts", "clerk"),
        ("category", "clerk"),
        ("codes", 5.0),
    ],
)
def test_inputs_of_a_function(inputs: Any, expected: Any) -> None:
    seen: list[Any] = []

    def model(batch: Any) -> Any:
        first = batch[0] if inputs in ("dicts", "codes") else batch.iloc[0]
        seen.append(first["job"] if inputs != "codes" else first[1])
        return CHANCE

    as_oracle(model, SCHEMA, positive="yes", inputs=inputs).ask(ROWS)
    assert seen == [expected]


def test_no_rows_do_not_reach_the_model() -> None:
    def never(frame: Any) -> Any:
        raise AssertionError

    answers = as_oracle(never, SCHEMA, positive="yes").ask([])
    assert len(answers) == 0
    assert [answers.probability.dtype.kind, answers.decision.dtype.kind] == ["f", "b"]


def test_one_call_a_batch() -> None:
    sizes: list[int] = []

    def model(frame: pd.DataFrame) -> Any:
        sizes.append(len(frame))
        return np.zeros(len(frame))

    as_oracle(model, SCHEMA, positive="yes").ask(ROWS * 10)
    assert sizes == [30]


@pytest.mark.parametrize(
    ("classes", "positive", "positive_class", "expected"),
    [
        (("no", "yes"), "yes", None, (1, False)),
        (("yes", "no"), "yes", None, (0, False)),
        ((0, 1), "Approved", None, (1, True)),
        ((1, 0), "Approved", None, (0, True)),
        ((0, 1), 0, None, (0, False)),
        ((0, 1), "0", None, (0, False)),
        ((0, 1), True, None, (1, False)),
        ((False, True), 1, None, (1, False)),
        ((False, True), "Approved", None, (1, True)),
        (("0", "1"), "Approved", None, (1, True)),
        ((0.0, 1.0), "Approved", "1", (1, False)),
        ((0.0, 1.0), "Approved", "0.0", (0, False)),
        ((1, 2), 1, None, (0, False)),
        ((-1, 1), "Approved", "-1", (0, False)),
        ((np.int64(3), np.int64(4)), 4, None, (1, False)),
        (("1", 1), 1, None, (1, False)),
        ((True, False), np.True_, None, (0, False)),
    ],
)
def test_which_class_is_approval(
    classes: Any, positive: Any, positive_class: Any, expected: Any
) -> None:
    assert choose_class(classes, WantedClass(positive, positive_class)) == expected


@pytest.mark.parametrize(
    ("classes", "positive", "positive_class"),
    [
        ((1, 2), "Approved", None),
        ((0, 1), "Approved", 2),
        (("no", "yes"), 1, None),
        ((0,), "a", None),
    ],
)
def test_class_that_must_be_named(classes: Any, positive: Any, positive_class: Any) -> None:
    with pytest.raises(OracleError, match="positive_class="):
        choose_class(classes, WantedClass(positive, positive_class))


@pytest.mark.parametrize(
    ("returned", "message"),
    [
        ([0.1, 0.9], r"asked for 3 rows and returned list of shape \(2,\)"),
        (0.5, r"shape \(\)"),
        (None, r"shape \(\)"),
        (np.zeros((3, 2, 2)), r"shape \(3, 2, 2\)"),
        ([[0.1], [0.2, 0.8], [0.3]], "different lengths"),
        ([0.1, np.nan, 0.5], r"returned nan .*row 1 .*income=90, job=cook"),
        ([0.1, 0.9, np.inf], r"returned inf .*row 2"),
        ([0.1, 1.7, 0.5], r"returned 1.7 .*row 1 .*margins"),
        ([-0.01, 0.9, 0.5], r"returned -0.01 .*row 0"),
        ([[0.1, 0.2], [0.5, 0.5], [1, 0]], "row 0 .*add up|add up to 0.3"),
        ([[0.1, np.nan], [0.5, 0.5], [1, 0]], "returned nan"),
        ([["a", "b"]] * 3, "returned .*'a'.* where a probability"),
        (["yes", None, "no"], r"None .*row 1"),
        ([{"yes": 1}] * 3, "label was expected"),
        ([0.1, "yes", 0.9], r"returned 'yes' where a probability was expected.*row 1"),
        (np.array([1, 2, 3], dtype="m8[ns]"), r"returned timedelta64\[ns\]"),
        (pd.to_datetime(["2026-01-01"] * 3), r"returned datetime64"),
        (np.array([1j, 0, 1]), "returned complex128"),
        (pd.Series([0.1, 0.9, "no"]), r"returned 'no' where a probability was expected.*row 2"),
        ([10**400] * 3, r"returned 10{58}… where a class label was expected.*row 0"),
        ([0, -(10**5000), 1], r"returned a number of thousands of digits where a class.*row 1"),
        ([[0.5, 0.5], [0, 10**400], [1, 0]], r"returned 10{78}… where a probability"),
    ],
)
def test_wrong_answers_are_refused(returned: Any, message: str) -> None:
    with pytest.raises(OracleError, match=message):
        as_oracle(returning(returned), SCHEMA, positive="yes").ask(ROWS)


def test_a_text_after_probabilities_is_no_label() -> None:
    def model(frame: Any) -> Any:
        return ["maybe" if income == 90.0 else income / 100 for income in frame["income"]]

    oracle = as_oracle(model, SCHEMA, positive="yes")
    with pytest.raises(OracleError, match=r"returned 'maybe' .*row 1"):
        oracle.ask(ROWS)
    with pytest.raises(OracleError, match=r"returned 'maybe' .*row 0"):  # alone it looks like one
        oracle.ask(ROWS[1:2])
    assert oracle.ask(ROWS[::2]).probability.tolist() == [0.1, 0.5]
    assert not oracle.labels_only


@pytest.mark.parametrize(
    ("error", "column"),
    [
        (KeyError("job"), "job"),
        (ValueError("could not convert string to float: 'cook'"), "job"),
        (ValueError("Feature names unseen at fit time:\n- income\n"), "income"),
    ],
)
def test_model_that_raises_names_the_column(error: Exception, column: str) -> None:
    def model(frame: Any) -> Any:
        raise error

    with pytest.raises(OracleError, match=f"{type(error).__name__}.*column '{column}'") as info:
        as_oracle(model, SCHEMA, positive="yes").ask(ROWS)
    assert info.value.__cause__ is error


def test_labels_of_a_function_under_their_own_name() -> None:
    model = returning(["bad", "good", "good"])
    named = as_oracle(model, SCHEMA, positive="yes", positive_class="good")
    assert named.ask(ROWS).decision.tolist() == YES


class Odd:
    """Has three classes and does not answer accordingly."""

    classes_ = ("a", "b", "c")

    def __init__(self, method: str, returned: Any) -> None:
        setattr(self, method, returning(returned))


@pytest.mark.parametrize(
    ("method", "returned", "message"),
    [
        ("predict_proba", [[0.5, 0.5]] * 3, "3 classes and returned 2 columns"),
        ("predict", [["a", "b"]] * 3, r"labels of shape \(3, 2\)"),
    ],
)
def test_classes_and_columns_that_do_not_fit(method: str, returned: Any, message: str) -> None:
    with pytest.raises(OracleError, match=message):
        as_oracle(Odd(method, returned), SCHEMA, positive="a", inputs="raw").ask(ROWS)


@pytest.mark.parametrize(
    ("rows", "message"),
    [
        ([{"income": 1.0, "job": "cook"}], "dict .*schema.parse_many"),
        (pd.DataFrame({"income": [1.0], "job": ["cook"]}), "DataFrame.*(?s:.)*parse_many"),
        ([(1.0,)], "typed rows"),
        ([[1.0, "cook"]], "given list"),
        ([ROWS[0], (1.0, "nurse")], r"column 'job': 'nurse' .*'clerk', 'cook'"),
        ([(1.0, "COOK")], "column 'job': 'COOK'"),
        ([(1.0, None)], "column 'job': None"),
        ([("1", "cook")], r"column 'income': '1' \(str\)"),
        ([(float("nan"), "cook")], "column 'income': nan"),
        ([(True, "cook")], "column 'income': True"),
    ],
)
def test_rows_that_are_not_typed_are_refused(rows: Any, message: str) -> None:
    with pytest.raises(OracleError, match=message):
        as_oracle(lambda f: np.zeros(len(f)), SCHEMA, positive="yes").ask(rows)


def test_decimals_bound_proposals_not_rows() -> None:
    schema = Schema((Feature("ratio", "number", decimals=1),))
    assert len(as_oracle(lambda f: f["ratio"], schema, positive="yes").ask([(0.123,)])) == 1


@pytest.mark.parametrize("watches", [True, False])
def test_an_oracle_may_reuse_its_arrays(watches: bool) -> None:
    class Own:
        name, labels_only = "own", False

        def __init__(self) -> None:
            self.watches = watches
            self.probability, self.decision = np.zeros(9), np.zeros(9, dtype=np.bool_)

        def ask(self, rows: Sequence[Row]) -> Answers:
            count = len(rows)
            self.probability[:count] = [row[0] / 100 for row in rows]  # type: ignore[operator]
            self.decision[:count] = self.probability[:count] >= 0.5
            return Answers(self.probability[:count], self.decision[:count])

    own = Own()
    first = ask_checked(own, ROWS)
    ask_checked(own, ROWS[::-1])
    assert first.probability.tolist() == [0.1, 0.9, 0.5]
    assert first.decision.tolist() == YES
