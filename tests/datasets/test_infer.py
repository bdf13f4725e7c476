from __future__ import annotations

import math
import time
import tomllib
import unicodedata
from collections.abc import Sequence
from typing import Any

import numpy as np
import pytest
from hypothesis import event, given, settings
from hypothesis import strategies as st

from waysout.datasets.infer import infer_card, outer_range
from waysout.datasets.infer_columns import toml
from waysout.datasets.table import Table
from waysout.domain.card import Card
from waysout.domain.distance import scale_of
from waysout.domain.key import bin_edges, rounded
from waysout.errors import InputError, RowError, TableError


def table(**columns: Sequence[object]) -> Table:
    return table_of(columns)


def table_of(columns: dict[str, Any]) -> Table:
    rows = zip(*columns.values(), strict=True)
    return Table(tuple(columns), [dict(zip(columns, row, strict=True)) for row in rows])


def infer(columns: dict[str, Any], positive: object = "yes") -> Card:
    """Infer, load, and read every row back: what holds for every inferred card."""
    size = len(next(iter(columns.values())))
    whole = {**columns, "y": ["yes" if i % 2 else "no" for i in range(size)]}
    text = infer_card(table_of(whole), target="y", positive=positive, name="t")
    card = Card.parse(text)
    card.schema.parse_many(table_of(whole).records)
    return card


def text_for(columns: dict[str, Any]) -> str:
    size = len(next(iter(columns.values())))
    whole = {**columns, "y": ["yes" if i % 2 else "no" for i in range(size)]}
    return infer_card(table_of(whole), target="y", positive="yes", name="t")


def uncommented(text: str) -> str:
    """Put the examples of an inferred card to work."""
    return "\n".join(
        line[1:] if line.startswith("#") and line[1:2] not in ("", " ") else line
        for line in text.splitlines()
    )


# --- kinds ---------------------------------------------------------------------------------------

KINDS = {
    "integers as text": (["1", "22", "-3", "22"], "integer"),
    "integers": ([1, 22, -3, 22], "integer"),
    "floats that are whole": ([1.0, 22.0, None, 3.0], "integer"),
    "whole numbers written with a point": (["1.0", "2.0", "3.0", "1.0"], "integer"),
    "numbers": (["1.5", "2", "-0.25", "1e3"], "number"),
    "numpy numbers": ([np.float64(1.5), np.int64(2), np.float32(0.25), 1], "number"),
    "booleans": ([True, False, True, True], "boolean"),
    "yes and no": (["Yes", "No", "No", "Yes"], "boolean"),
    "true and false": (["false", "true", "true", "true"], "boolean"),
    "t and f": (["t", "f", "f", "t"], "boolean"),
    "zero and one": (["0", "1", "1", "0"], "boolean"),
    "zero and one as numbers": ([0, 1, 1, 0], "boolean"),
    "one and two": ([1, 2, 1, 2], "integer"),
    "text": (["a", "b", "c", "a"], "category"),
    "text and numbers": (["a", "1", "2", "a"], "category"),
    "text and typed numbers": (["a", 1, 2.5, True], "category"),
    "leading zeros": (["01234", "56789", "01234", "11111"], "category"),
    "mixed spellings of yes": (["Yes", "yes", "No", "No"], "category"),
    "one word only": (["Yes", "Yes", "Yes", "Yes"], "category"),
    "beyond exact numbers": (["12345678901234567890", "2", "2", "2"], "category"),
    "infinity": (["inf", "1", "2", "1"], "category"),
}


@pytest.mark.parametrize(("cells", "kind"), KINDS.values(), ids=KINDS)
def test_kind_follows_the_cells(cells: list[object], kind: str) -> None:
    assert infer({"x": cells}).schema["x"].kind == kind


def test_levels_are_sorted_with_codes_in_that_order() -> None:
    feature = infer({"job": ["cook", "Baker", "clerk", "cook"]}).schema["job"]
    assert feature.level_texts == ("Baker", "clerk", "cook")
    assert feature.codes == {"Baker": 0.0, "clerk": 1.0, "cook": 2.0}


def test_whole_numbers_named_like_codes_stay_whole_numbers_in_numeric_order() -> None:
    feature = infer({"MARRIAGE": ["10", "2", "1", "2"]}).schema["MARRIAGE"]
    assert (feature.kind, feature.levels) == ("category", (1, 2, 10))
    assert feature.codes == {}
    note = "LabelEncoder's positions: codes = { 1 = 0, 2 = 1, 10 = 2 }"
    assert note in text_for({"MARRIAGE": ["10", "2", "1", "2"]})


def test_leading_zeros_are_read_as_pandas_reads_them() -> None:
    feature = infer({"zip": ["01", "02", "10", "02"]}).schema["zip"]
    assert (feature.kind, feature.levels, feature.codes) == ("category", (1, 2, 10), {})
    assert feature.parse("01") == "1"
    assert 'levels = ["01", ...]' in text_for({"zip": ["01", "02", "10", "02"]})
    mixed = infer({"zip": ["01", "02", "x", "02"]}).schema["zip"]
    assert mixed.levels == ("01", "02", "x")


@pytest.mark.parametrize(
    "cells", [["true", "false"], ["TRUE", "FALSE"], ["True", "false"], [True, False]]
)
def test_true_and_false_are_booleans_as_pandas_reads_them(cells: list[object]) -> None:
    feature = infer({"x": [*cells, "", ""]}).schema["x"]
    assert (feature.kind, feature.levels, feature.codes) == ("boolean", (False, True), {})
    assert feature.raw(feature.parse(cells[0])) is True


def test_levels_keep_the_spelling_of_the_table() -> None:
    cells = [" Private", " State", " Private", "e\u0301"]
    feature = infer({"work": cells}).schema["work"]
    assert feature.level_texts == ("Private", "State", "é")
    assert [feature.raw(feature.parse(cell)) for cell in cells] == cells
    assert "more than one way (' a', 'a')" in text_for({"work": [" a", " a", "a", "b"]})


def test_a_number_of_something_is_no_code() -> None:
    assert infer({"education-num": [1, 2, 3, 2]}).schema["education-num"].kind == "integer"


def test_the_spellings_of_a_boolean_are_kept() -> None:
    schema = infer({"car": ["Yes", "No"] * 2, "own": ["1", "0"] * 2, "b": [True, False] * 2}).schema
    assert schema["car"].levels == ("No", "Yes")
    assert schema["own"].levels == (0, 1)
    assert schema["b"].levels == (False, True)


def test_numbers_get_range_scale_bins_and_decimals() -> None:
    cells = [f"{i / 8:.3f}" for i in range(200)]
    card = infer({"x": cells})
    feature = card.schema["x"]
    assert feature.range == (0.0, 24.875)
    assert feature.decimals == 3
    assert card.scales["x"] == 6.25
    assert card.bins["x"] == (2.4, 4.9, 7.4, 9.9, 12.0, 15.0, 17.0, 20.0, 22.0)


def test_accidental_decimals_are_not_taken_over() -> None:
    assert infer({"x": [0.1 + 0.2, 100.7, 57.25, 3.5]}).schema["x"].decimals == 2


def test_tiny_numbers_keep_the_decimals_they_need() -> None:
    assert infer({"x": ["0.000001", "0.000002", "0.000005", "0.000003"]}).schema["x"].decimals == 6


# --- missing, odd, constant, empty ---------------------------------------------------------------


def test_missing_cells_are_kept_missing_and_said_so() -> None:
    columns = {"x": ["1", "?", "3", ""], "job": ["cook", "NA", "clerk", "cook"]}
    card = infer(columns)
    assert card.schema["x"].missing == card.schema["job"].missing == "keep"
    assert card.schema["job"].level_texts == ("clerk", "cook")
    assert "# missing in 2 of 4 rows (empty, '?')" in text_for(columns)
    assert "# missing_code = -1" in text_for(columns)


def test_a_token_that_pandas_keeps_is_a_level_of_text_and_missing_among_numbers() -> None:
    columns = {"x": ["1", "?", "3", "4"], "b": ["0", "?", "1", "1"], "job": ["a", "?", "b", "a"]}
    schema = infer(columns).schema
    assert schema["job"].level_texts == ("?", "a", "b")
    assert schema["job"].codes == {"?": 0.0, "a": 1.0, "b": 2.0}
    assert (schema["x"].kind, schema["b"].kind) == ("integer", "boolean")
    assert schema.parse({"x": "?", "b": "?", "job": "?"}) == (None, None, "?")
    assert "'?' looks like a missing value" in text_for(columns)


@pytest.mark.parametrize("token", ["None", "n/a", "<NA>", "#N/A", "NULL", "-nan"])
def test_what_pandas_reads_as_missing_is_missing(token: str) -> None:
    feature = infer({"job": ["a", token, "b", "a"]}).schema["job"]
    assert feature.level_texts == ("a", "b")
    assert feature.parse(token) is None


@pytest.mark.parametrize("gap", [None, math.nan, np.nan, float("nan")])
def test_typed_gaps_are_missing(gap: object) -> None:
    card = infer({"x": [1, gap, 3, gap], "job": ["cook", gap, "clerk", gap]})
    assert card.schema.parse({"x": gap, "job": gap}) == (None, None)


def test_a_word_among_many_numbers_means_missing() -> None:
    columns = {"x": [*map(str, range(30)), "unknown", "unknown"], "job": ["unknown", "cook"] * 16}
    card = infer(columns)
    assert (card.schema["x"].kind, card.schema["x"].missing) == ("integer", "keep")
    assert card.schema.parse({"x": "unknown", "job": "unknown"}) == (None, "unknown")
    assert "numbers but for 'unknown', read as missing" in text_for(columns)


@pytest.mark.parametrize("bad", ["1e308", "inf", "-Infinity", math.inf, 10**400, 2e15])
def test_a_number_beyond_all_bounds_names_its_row_and_column(bad: object) -> None:
    with pytest.raises(RowError, match=r"row 30, column 'x': .*at most ±1e15") as error:
        infer({"x": [i + 0.5 for i in range(30)] + [bad]})
    assert (error.value.row, error.value.column) == (30, "x")


@pytest.mark.parametrize("constant", [7, 0.1])
def test_a_constant_column_is_noted(constant: float) -> None:
    text = text_for({"x": [constant] * 3, "job": ["cook"] * 3})
    assert text.count("always the same value") == 2
    assert "scale" not in tomllib.loads(text)["features"]["x"]


def test_negative_codes_among_counts_are_asked_about() -> None:
    text = text_for({"x": [*range(30), -9, -9, -8], "t": [*range(-20, 13)]})
    assert text.count("mean that there is no figure?") == 1
    assert "does -9, -8 mean" in text


def test_dates_are_noted() -> None:
    assert "look like dates" in text_for({"day": ["2020-01-31", "2020-02-01", "2020-01-31"]})


# --- columns that are no features ----------------------------------------------------------------


@pytest.mark.parametrize("name", ["id", "ID", "loan_id", "customerId", "Kunden-ID", "Unnamed: 0"])
def test_identifiers_are_ignored(name: str) -> None:
    card = infer({name: [11, 12, 13, 14], "x": [1, 2, 3, 4]})
    assert card.outcome.ignore == (name,)
    assert card.schema.names == ("x",)


@pytest.mark.parametrize("name", ["paid", "idle", "video", "width"])
def test_a_name_that_only_holds_the_letters_is_no_identifier(name: str) -> None:
    assert infer({name: [11, 12, 13, 14]}).outcome.ignore == ()


def test_distinct_text_is_ignored_only_where_there_is_enough_of_it() -> None:
    names = [f"person {i}" for i in range(30)]
    assert infer({"who": names, "x": range(30)}).outcome.ignore == ("who",)
    assert infer({"who": names[:5], "x": range(5)}).outcome.ignore == ()


def test_empty_columns_and_long_texts_are_ignored_with_the_reason() -> None:
    columns = {"e": [None, "", "NA"], "essay": ["x" * 1001, "b", "b"], "x": [1, 2, 3]}
    assert infer(columns).outcome.ignore == ("e", "essay")
    assert "# 'e' is empty in every row" in text_for(columns)


def test_long_account_numbers_are_ignored() -> None:
    numbers = [str(10**15 - 30 + i) for i in range(60)]
    assert infer({"account": numbers, "x": range(60)}).outcome.ignore == ("account",)


# --- names ---------------------------------------------------------------------------------------

NAMES = [
    "a b", "a.b", 'say "hi"', "back\\slash", "ünïcödé", "收入", "😀", "a#b", "[x]", "a = b", "'",
    "`", "e\u0301", "x\u200by", "rtl \u202e", "-", "1", "true", "𝔘𝔫𝔦", "card", "features",
]  # fmt: skip


@pytest.mark.parametrize("name", NAMES)
def test_any_name_survives(name: str) -> None:
    card = infer({name: ["1", "2", "3"], f"{name} 2": ["a", name, "c"]})
    assert len(card.schema) == 2
    Card.parse(uncommented(text_for({name: ["1", "2", "3"], f"{name} 2": [4, 5, 6]})))


@pytest.mark.parametrize("name", ["a\nb", "a\tb", "a\x00", "\x7f", "a\u2028b", "\ud800", "", "  "])
def test_a_name_with_a_control_character_is_refused_by_its_position(name: str) -> None:
    with pytest.raises(TableError, match=r"column 2: .*rename it"):
        infer_card(table_of({"x": [1], name: [2], "y": [3]}), target="y", positive=3, name="t")


def test_names_that_are_the_same_in_another_normal_form_are_refused() -> None:
    with pytest.raises(TableError, match="two columns named 'é'"):
        infer({"é": [1, 2], "e\u0301": [1, 2]})


@pytest.mark.parametrize(
    "text",
    ["", '"', "\\", "\\n", "\n", "\x00\x1f\x7f\x85", "a\u2028b", "\u202e", "😀\U000e0001", "'"],
)
def test_quoted_text_reads_back(text: str) -> None:
    line = toml(text)
    assert tomllib.loads(f"x = {line}\n{line} = 1") == {"x": text, text: 1}
    assert len(line.splitlines()) == 1


def test_half_a_character_is_refused() -> None:
    with pytest.raises(TableError, match="half a character"):
        infer({"x": ["\ud800", "b"]})


@pytest.mark.parametrize(
    ("name", "clean"),
    [("my table (2).v1", "my-table-2-v1"), ("***", "table"), ("x" * 99, "x" * 64)],
)
def test_the_card_gets_a_name_it_may_have(name: str, clean: str) -> None:
    made = infer_card(table(x=[1, 2], y=["a", "b"]), target="y", positive="a", name=name)
    assert Card.parse(made).name == clean


# --- rules ---------------------------------------------------------------------------------------


def test_protected_features_are_fixed_and_age_only_rises() -> None:
    columns = {"Sex": ["m", "f"], "native-country": ["A", "B"], "Age": [20, 30], "x": [1, 2]}
    card = infer(columns)
    rules = card.rules()
    row = card.schema.parse({"Sex": "m", "native-country": "A", "Age": 25, "x": 1})
    changed = card.schema.parse({"Sex": "f", "native-country": "A", "Age": 20, "x": 2})
    assert [v.features[0] for v in rules.violations(row, changed)] == ["Sex", "Age"]


def test_a_year_of_birth_is_fixed_not_rising() -> None:
    card = infer({"birth_age": [20, 30, 40], "x": [1, 2, 3]})
    assert [rule.kind for rule in card.rules().rules] == ["immutable"]


@pytest.mark.parametrize("name", ["average", "mileage", "essex", "embrace", "trace"])
def test_names_are_matched_by_whole_words(name: str) -> None:
    assert not infer({name: [1, 2, 3]}).rules().rules


def test_every_example_works_once_uncommented() -> None:
    text = text_for({"a b": [*range(40)], "n": [0.5, 2] * 20, "job": ["cook", "clerk"] * 20})
    kinds = {rule.kind for rule in Card.parse(uncommented(text)).rules().rules}
    assert kinds == {
        "immutable", "direction", "range", "step", "linear", "never", "transitions", "max-changes",
    }  # fmt: skip


def test_an_inferred_card_without_guesses_has_an_empty_rule_set() -> None:
    card = infer({"x": [1, 2, 3]})
    assert card.default_rules == "main"
    assert card.rules().rules == ()


# --- the outcome ---------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("labels", "positive", "written"),
    [
        (["1", "0"], "1", 1),
        ([1, 0], "1", 1),
        ([1.0, 0.0], "1", 1),
        (["1.0", "0.0"], "1", "1.0"),
        ([1, 0], "1.0", 1),
        ([True, False], "true", True),
        ([True, False], "0", False),
        ([True, False], True, True),
        ([" Yes ", "No"], "Yes", "Yes"),
        (["e\u0301", "a"], "é", "é"),
        (["007", "8"], "007", "007"),
        ([np.int64(2), np.int64(3)], 3, 3),
        ([0.5, 1.5], "0.5", "0.5"),
    ],
)
def test_the_positive_value_is_found_whatever_its_type(
    labels: list[object], positive: object, written: object
) -> None:
    made = infer_card(table(x=[1, 2], y=labels), target="y", positive=positive, name="t")
    card = Card.parse(made)
    assert card.outcome.positive == written
    assert type(card.outcome.positive) is type(written)
    assert [card.is_positive(label) for label in labels].count(True) == 1


def test_the_target_is_found_under_another_normal_form() -> None:
    made = infer_card(
        table_of({"x": [1, 2], " e\u0301tat ": ["a", "b"]}), target="état", positive="a", name="t"
    )
    assert Card.parse(made).outcome.target == "état"


def test_an_unknown_target_is_suggested() -> None:
    with pytest.raises(TableError, match="did you mean 'loan_status'"):
        infer_card(table(x=[1], loan_status=["a"]), target="loan_statsu", positive="a", name="t")


def test_a_positive_value_that_never_occurs_lists_those_that_do() -> None:
    with pytest.raises(TableError, match=r"'y'.*did you mean 'Approved'.*'Approved', 'Rejected'"):
        infer_card(
            table(x=[1, 2], y=["Approved", "Rejected"]), target="y", positive="approved", name="t"
        )


@pytest.mark.parametrize("labels", [["a", "a"], ["a", ""], ["a", None], ["a", math.nan]])
def test_a_single_class_is_refused(labels: list[object]) -> None:
    with pytest.raises(TableError, match="always 'a'"):
        infer_card(table(x=[1, 2], y=labels), target="y", positive="a", name="t")


def test_more_than_two_classes_are_fine() -> None:
    made = infer_card(table(x=[1, 2, 3], y=["a", "b", "c"]), target="y", positive="b", name="t")
    assert Card.parse(made).outcome.positive == "b"


def test_no_rows_and_no_features_are_refused() -> None:
    with pytest.raises(TableError, match="has no rows"):
        infer_card(Table(("x", "y"), []), target="y", positive=1, name="t")
    with pytest.raises(TableError, match="no column to describe beside the target 'y'"):
        infer_card(table(y=["a", "b"]), target="y", positive="a", name="t")
    with pytest.raises(TableError, match="'id' is different in every row"):
        infer_card(table(id=[1, 2], y=["a", "b"]), target="y", positive="a", name="t")


# --- size ----------------------------------------------------------------------------------------


def test_a_thousand_columns() -> None:
    start = time.perf_counter()
    assert len(infer({f"c{i}": [i, i + 1.5, None] for i in range(1000)}).schema) == 1000
    assert time.perf_counter() - start < 20


def test_ten_thousand_levels() -> None:
    start = time.perf_counter()
    cells = [f"level {i}" for i in range(10_000)] * 2
    assert len(infer({"job": cells}).schema["job"].levels) == 10_000
    assert "10000 levels" in text_for({"job": cells})
    assert time.perf_counter() - start < 20


# --- statistics ----------------------------------------------------------------------------------


def test_bins_and_scale_are_the_key_s_and_the_distance_s() -> None:
    cells = [i * i / 7 for i in range(50)]
    card = infer({"x": cells})
    assert card.bins["x"] == bin_edges(cells)
    assert card.scales["x"] == rounded(scale_of(np.array(cells)).value, 3)


@given(st.lists(st.floats(-1e15, 1e15), min_size=1, max_size=60))
def test_the_outer_range_holds_every_value(numbers: list[float]) -> None:
    low, high = outer_range(np.array(numbers))
    assert low <= min(numbers) <= max(numbers) <= high


def test_the_outer_range_is_round() -> None:
    assert outer_range(np.array([0.0, 99999.0])) == (0.0, 100000.0)


# --- whatever the table ---------------------------------------------------------------------------

CELLS = st.one_of(
    st.none(),
    st.booleans(),
    st.integers(-(10**18), 10**18),
    st.integers(-2, 3),
    st.floats(),
    st.sampled_from(["", "?", "NA", "yes", "no", "0", "1", "1.0", "01", "-7", "inf", "1e400", "x"]),
    st.text(max_size=8),
)
NAMES_GIVEN = st.text(
    st.characters(exclude_categories=["Cc", "Cs", "Zl", "Zp"]), min_size=1, max_size=6
).map(lambda name: f"x{name}")
KINDS_OF_COLUMN = st.sampled_from([CELLS, st.integers(), st.floats(), st.text(max_size=3)])


def _clean(name: str) -> str:
    return unicodedata.normalize("NFC", name).strip()


@st.composite
def tables(draw: st.DrawFn) -> Table:
    names = draw(st.lists(NAMES_GIVEN, min_size=1, max_size=4, unique_by=_clean))
    size = draw(st.integers(2, 30))
    columns: dict[str, Any] = {"label": ["yes", "no"] * (size // 2) + ["no"] * (size % 2)}
    for name in names:
        cells = draw(KINDS_OF_COLUMN)
        columns[name] = draw(st.lists(cells, min_size=size, max_size=size))
    return table_of(columns)


@settings(deadline=None, max_examples=300)
@given(tables())
def test_an_inferred_card_loads_and_reads_its_own_table(drawn: Table) -> None:
    try:
        text = infer_card(drawn, target="label", positive="yes", name="t")
    except InputError as error:
        event("refused")
        if "no column to describe" in str(error) or "not a finite number" in str(error):
            return
        raise
    event("inferred")
    card = Card.parse(text)
    card.schema.parse_many(drawn.records)
    Card.parse(uncommented(text))
