from __future__ import annotations

import math
import tomllib
import unicodedata
from collections.abc import Sequence
from dataclasses import replace
from datetime import UTC, date, datetime
from typing import Any

import numpy as np
import pytest
from hypothesis import event, example, given, settings
from hypothesis import strategies as st

from waysout.datasets.infer import infer as infer_of
from waysout.datasets.infer import infer_card, outer_range
from waysout.datasets.infer_toml import toml
from waysout.datasets.table import Table
from waysout.domain.card import Card
from waysout.domain.distance import scale_of
from waysout.domain.key import bin_edges, rounded
from waysout.domain.rules import Direction, Immutable, OneHot, Step
from waysout.errors import CardError, InputError, RowError, TableError


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
    note = """# codes = "sorted" if your model was trained on LabelEncoder's positions"""
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


# --- columns that are carried along --------------------------------------------------------------


def carried(columns: dict[str, Any]) -> set[str]:
    """Return the opaque columns of the card inferred for a table."""
    size = len(next(iter(columns.values())))
    beside = {**columns, "beside": [i % 7 for i in range(size)]}
    return {feature.name for feature in infer(beside).schema if feature.is_opaque}


@pytest.mark.parametrize(
    "cells",
    [
        ["2020-01-31", "2020-02-01", "2020-01-31"],
        ["31.12.2020", "1.2.21", ""],
        ["12/31/2020", "1/2/2021", "NA"],
        ["2020-01-31T10:00:00", "2020-02-01 11:30", "2020-02-01 11:30"],
    ],
)
def test_texts_of_dates_are_carried_along_as_they_are(cells: list[str]) -> None:
    feature = infer({"day": cells, "x": [1, 2, 3]}).schema["day"]
    assert (feature.kind, feature.holds) == ("opaque", "")
    assert [feature.raw(feature.parse(c)) for c in cells[:2]] == cells[:2]
    assert "a number of days or years" in text_for({"day": cells, "x": [1, 2, 3]})


def test_cells_that_are_dates_reach_the_model_as_dates() -> None:
    days = [date(2020, 1, 31), datetime(2020, 2, 1, 10, 30, tzinfo=UTC), None, date(2020, 1, 31)]
    feature = infer({"day": days, "x": [1, 2, 3, 4]}).schema["day"]
    assert (feature.kind, feature.holds) == ("opaque", "date")
    assert [feature.parse(day) for day in days[:2]] == ["2020-01-31", "2020-02-01T10:30:00+00:00"]
    mixed = infer({"day": [date(2020, 1, 31), "soon", "soon", "late"], "x": [1, 2, 3, 4]})
    assert mixed.schema["day"].kind == "category"


@pytest.mark.parametrize("name", ["id", "ID", "loan_id", "customerId", "Kunden-ID", "Unnamed: 0"])
def test_identifiers_are_carried_along(name: str) -> None:
    schema = infer({name: ["11", "12", "13", "14"], "x": [1, 2, 3, 4]}).schema
    assert (schema[name].kind, schema[name].holds) == ("opaque", "number")
    assert schema.parse({name: "A 7", "x": 1}) == ("A 7", 1)
    assert carried({name: [f"K{i}" for i in range(4)]}) == {name}


@pytest.mark.parametrize(
    ("cells", "holds"), [([11, 12, 13, 14], "number"), (["11", "12", "13", "14"], "")]
)
def test_an_identifier_keeps_the_type_of_a_table_that_has_types(
    cells: list[object], holds: str
) -> None:
    columns = {"id": cells, "x": [1, 2, 3, 4], "y": ["no", "yes", "no", "yes"]}
    typed = replace(table_of(columns), typed=True)
    schema = Card.parse(infer_card(typed, target="y", positive="yes", name="t")).schema
    assert (schema["id"].kind, schema["id"].holds) == ("opaque", holds)
    assert schema["id"].raw(schema["id"].parse(cells[0])) == cells[0]


def test_an_identifier_of_few_groups_is_a_category() -> None:
    cells = [str(100 + i % 30) for i in range(90)]
    assert infer({"shop_id": cells}).schema["shop_id"].kind == "category"
    assert carried({"shop_id": [str(i // 2) for i in range(400)]}) == {"shop_id"}


@pytest.mark.parametrize("name", ["paid", "idle", "video", "width"])
def test_a_name_that_only_holds_the_letters_is_no_identifier(name: str) -> None:
    assert carried({name: [11, 12, 13, 14]}) == set()


def test_text_of_many_values_is_carried_along_only_where_there_is_enough_of_it() -> None:
    names = [f"person {i}" for i in range(30)]
    assert carried({"who": names}) == {"who"}
    assert carried({"who": [*names, *names[:8]]}) == {"who"}
    assert carried({"who": names[:5]}) == set()
    assert carried({"city": [f"city {i % 101}" for i in range(1000)]}) == {"city"}
    assert carried({"city": [f"city {i % 100}" for i in range(1000)]}) == set()
    assert carried({"code": [f"{'A' * (i % 2)}{i % 150}" for i in range(900)]}) == {"code"}


def test_empty_columns_and_long_texts_are_carried_along_with_the_reason() -> None:
    columns = {"e": [None, "", "NA"], "essay": ["x" * 1001, "b", "b"], "x": [1, 2, 3]}
    assert carried(columns) == {"e", "essay"}
    assert "# empty in every row: carried along, never proposed" in text_for(columns)
    assert 'for a feature, use kind = "category"' in text_for(columns)


def test_long_account_numbers_are_carried_along_as_numbers() -> None:
    numbers = [str(10**17 - 30 + i) for i in range(60)]
    feature = infer({"account": numbers, "x": [i % 9 for i in range(60)]}).schema["account"]
    assert (feature.kind, feature.holds) == ("opaque", "number")
    assert feature.parse(numbers[0]) == int(numbers[0])
    padded = [f"{i:08d}" for i in range(60)]
    feature = infer({"account": padded, "x": [i % 9 for i in range(60)]}).schema["account"]
    assert (feature.holds, feature.raw(feature.parse(padded[3]))) == ("", "00000003")


def test_a_value_the_table_never_had_is_no_error() -> None:
    schema = infer({"city": [f"city {i}" for i in range(200)], "x": [*range(200)]}).schema
    assert schema.parse({"city": "Atlantis", "x": 3}) == ("Atlantis", 3)


# --- numbers as tables write them ----------------------------------------------------------------


@pytest.mark.parametrize(
    ("cells", "values", "written", "kind", "unit"),
    [
        (["45 %", "7%", "12 %"], [45, 7, 12], "45 %", "integer", "%"),
        (["4.5%", "7%", "12%"], [4.5, 7, 12], "4.5%", "number", "%"),
        (["3,5", "4,25", "12"], [3.5, 4.25, 12], "4,25", "number", ""),
        (["1.234,5", "3,5", "1.000"], [1234.5, 3.5, 1000], "1.234,5", "number", ""),
        (["1,234", "999", "1,234,567"], [1234, 999, 1234567], "1,234,567", "integer", ""),
        (["0,123", "0,456", "1,234"], [0.123, 0.456, 1.234], "0,123", "number", ""),
        (["$1,234.50", "$5.00", "$0.10"], [1234.5, 5, 0.1], "$1,234.50", "number", "$"),
        (["1 234,50 €", "7,25 €", "-3,10 €"], [1234.5, 7.25, -3.1], "1 234,50 €", "number", "€"),
        (["EUR 5", "EUR 12", "EUR 7"], [5, 12, 7], "EUR 12", "integer", "EUR"),
    ],
)
def test_written_numbers_are_read(
    cells: list[str], values: list[float], written: str, kind: str, unit: str
) -> None:
    feature = infer({"x": [*cells, ""]}).schema["x"]
    assert (feature.kind, feature.written, feature.unit) == (kind, written, unit)
    assert [feature.parse(cell) for cell in cells] == values
    assert feature.range == (min(values), max(values))


@pytest.mark.parametrize(
    "cells",
    [
        ["36 months", "60 months", "36 months"],
        ["$5", "5 €", "7 %"],
        ["1,5", "a", "2"],
        ["1-2", "3-4", "5+"],
        ["12:30", "13:00", "1:00"],
    ],
)
def test_other_texts_with_digits_are_levels(cells: list[str]) -> None:
    assert infer({"x": cells}).schema["x"].kind == "category"


# --- typed cells ---------------------------------------------------------------------------------


def typed(columns: dict[str, Any]) -> Card:
    """Infer from a table whose cells have their own types, and read every row back."""
    given_table = replace(table_of(columns), typed=True)
    card = Card.parse(infer_card(given_table, name="t"))
    for row, record in zip(
        card.schema.parse_many(given_table.records), given_table.records, strict=True
    ):
        raw = card.schema.raw(row)
        assert raw == {n: record[n] for n in raw}
        assert [type(v) for v in raw.values()] == [type(record[n]) for n in raw]
    return card


def test_what_comes_out_of_a_typed_table_is_what_went_in() -> None:
    card = typed(
        {
            "digits": ["1", "01", "2", "01"],
            "two": ["0", "1", "0", "1"],
            "percent": ["45 %", "7 %", "45 %", "7 %"],
            "flag": [True, False, True, False],
            "bit": [0, 1, 1, 0],
            "float_bit": [0.0, 1.0, None, 0.0],
            "whole": [3.0, None, 5.0, 4.0],
            "count": [3, 4, 5, 4],
            "marital": [1.0, 2.0, 3.0, 2.0],
            "text": ["NA", "None", "?", "a"],
            "yes": ["Y", "N", "Y", "N"],
        }
    )
    kinds = {feature.name: feature.kind for feature in card.schema}
    assert kinds == {
        "digits": "category", "two": "category", "percent": "category", "flag": "boolean",
        "bit": "boolean", "float_bit": "boolean", "whole": "number", "count": "integer",
        "marital": "category", "text": "category", "yes": "boolean",
    }  # fmt: skip
    assert card.schema["whole"].decimals == 0
    assert card.schema["digits"].levels == ("01", "1", "2")


def test_a_typed_table_of_identifiers_keeps_their_types() -> None:
    days = [f"2020-01-{i + 1:02d}" for i in range(30)]
    card = typed({"id": [*range(30)], "code": [f"{i:03d}" for i in range(30)], "day": days,
                  "x": [i / 2 for i in range(30)]})  # fmt: skip
    assert [feature.kind for feature in card.schema] == ["opaque", "opaque", "opaque", "number"]


# --- one-hot groups ------------------------------------------------------------------------------


def dummies(prefix: str, levels: Sequence[str], picks: Sequence[int]) -> dict[str, list[int]]:
    return {f"{prefix}{lv}": [int(p == i) for p in picks] for i, lv in enumerate(levels)}


PICKS = [i * 7 % 3 for i in range(60)]


@pytest.mark.parametrize("prefix", ["job_", "current job=", "job."])
def test_dummies_are_found(prefix: str) -> None:
    columns = dummies(prefix, ["cook", "clerk", "self_employed"], PICKS)
    (rule,) = infer({**columns, "x": [*range(60)]}).rules().rules
    assert isinstance(rule, OneHot)
    assert (list(rule.features), rule.or_none) == ([*columns], False)


def test_dummies_without_the_first_level_may_all_be_off() -> None:
    columns = dummies("job_", ["cook", "clerk", "smith"], PICKS)
    del columns["job_cook"]
    (rule,) = infer({**columns, "x": [*range(60)]}).rules().rules
    assert isinstance(rule, OneHot)
    assert (list(rule.features), rule.or_none) == (["job_clerk", "job_smith"], True)


def test_booleans_make_a_group_and_a_level_that_never_occurs_belongs_to_it() -> None:
    columns = dummies("job_", ["cook", "clerk", "smith", "baker"], PICKS)
    flags = {name: [bool(cell) for cell in cells] for name, cells in columns.items()}
    for given_columns in (columns, flags):
        (rule,) = infer({**given_columns, "x": [*range(60)]}).rules().rules
        assert isinstance(rule, OneHot)
        assert list(rule.features) == [*columns]


def test_flags_that_are_no_group_have_no_rule() -> None:
    rare = {f"has_{n}": [int(i == n) for i in range(60)] for n in (3, 5)}
    assert infer({**rare, "x": [*range(60)]}).rules().rules == ()
    both = dummies("job_", ["cook", "clerk", "smith"], PICKS) | {"job_paid": [1] * 60}
    assert infer({**both, "x": [*range(60)]}).rules().rules == ()


def test_a_group_of_protected_columns_is_fixed_as_a_whole() -> None:
    columns = dummies("from_", ["native", "other", "unknown"], PICKS)
    (rule,) = infer({**columns, "x": [*range(60)]}).rules().rules
    assert isinstance(rule, Immutable)
    assert list(rule.features) == [*columns]


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


def test_protected_features_are_fixed_with_a_reason_for_each_kind() -> None:
    columns = {"Sex": ["m", "f"], "native-country": ["A", "B"], "Age": [20, 30], "x": [1, 2],
               "num_children": [0, 2]}  # fmt: skip
    rules = [rule for rule in infer(columns).rules().rules if isinstance(rule, Immutable)]
    assert {str(rule.features[0]): rule.why for rule in rules} == {
        "Sex": "nobody is asked to change their sex",
        "native-country": "nobody is asked to change their nationality",
        "Age": "nobody can change their age",
        "num_children": "how many depend on a person is not asked to change",
    }


@pytest.mark.parametrize(
    "name",
    ["age", "ApplicantAge", "AGE", "date_of_birth", "gender", "race", "ethnicity", "nationality",
     "citizenship", "country_of_birth", "foreign_worker", "religion", "maritalStatus", "disability",
     "Pregnancies", "sexual_orientation", "caste", "colour", "veteran", "dependents", "Alter",
     "Geschlecht", "sexe", "edad", "is_male", "Familienstand"],
)  # fmt: skip
def test_who_a_person_is_stays(name: str) -> None:
    (rule,) = infer({name: [1, 2, 3], "x": [1, 2, 3]}).rules().rules
    assert isinstance(rule, Immutable)
    assert list(rule.features) == [name]


@pytest.mark.parametrize(
    "name",
    ["average", "mileage", "essex", "embrace", "trace", "package", "usage", "language",
     "color_intensity", "stage", "percentage", "racecar"],
)  # fmt: skip
def test_names_are_matched_by_whole_words(name: str) -> None:
    assert not infer({name: [1, 2, 3]}).rules().rules


@pytest.mark.parametrize(
    ("name", "way"),
    [("wage", "up"), ("ApplicantIncome", "up"), ("monthly_salary", "up"), ("other_debts", "down"),
     ("has_degree", "up"), ("smoker", "down"), ("commute_km", "down"),
     ("debt_to_income", ""), ("income_tax", ""), ("loan_amount", "")],
)  # fmt: skip
def test_a_name_may_tell_the_only_way_anybody_wants(name: str, way: str) -> None:
    rules = infer({name: [1, 2, 3], "x": [1, 2, 3]}).rules().rules
    assert [(list(r.features), r.direction) for r in rules if isinstance(r, Direction)] == (
        [([name], way)] if way else []
    )


def test_levels_that_everybody_orders_have_an_order() -> None:
    card = infer({"education": ["master", "primary", "bachelor"], "job": ["cook", "clerk", "cook"]})
    assert card.schema["education"].levels == ("primary", "bachelor", "master")
    assert card.schema["education"].ordered
    assert not card.schema["job"].ordered
    (rule,) = card.rules().rules
    assert isinstance(rule, Direction)
    assert list(rule.features) == ["education"]


@pytest.mark.parametrize(
    "name", ["priors_count", "past_due", "NumDelinq", "previous_defaults", "evictions_past"]
)
def test_what_has_happened_is_fixed(name: str) -> None:
    (rule,) = infer({name: [1, 2, 3], "x": [1, 2, 3]}).rules().rules
    assert isinstance(rule, Immutable)
    assert (list(rule.features), rule.why) == ([name], "what has happened cannot be undone")


def test_a_rating_of_a_marriage_is_no_marriage() -> None:
    assert not infer({"rate_marriage": [1, 2, 3]}).rules().rules


def test_what_all_values_are_multiples_of_is_a_step() -> None:
    rules = infer({"deposit": [250 * i for i in range(30)], "x": [*range(30)]}).rules().rules
    assert [(rule.feature, rule.step) for rule in rules if isinstance(rule, Step)] == [
        ("deposit", 250)
    ]


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
    with pytest.raises(TableError, match="'id' is an identifier"):
        infer_card(table(id=[1, 2], y=["a", "b"]), target="y", positive="a", name="t")


@pytest.mark.parametrize(
    ("target", "labels", "positive", "yes", "no"),
    [
        ("hired", [1, 0], 1, "hired: yes", "hired: no"),
        ("loan_paid", [True, False], True, "loan paid: yes", "loan paid: no"),
        ("status", ["approved", "refused"], "approved", "status: approved", "status: refused"),
        ("status", ["a", "b", "c"], "a", "status: a", "status: not a"),
        ("target", [1, 0], 1, "the answer is yes", "the answer is no"),
        ("y", [True, False], True, "the answer is yes", "the answer is no"),
        ("class", ["good", "bad"], "good", "the answer is good", "the answer is bad"),
        ("default", [0, 1], 0, "default: no", "default: yes"),
    ],
)
def test_a_yes_and_a_no_are_said(
    target: str, labels: list[object], positive: object, yes: str, no: str
) -> None:
    rows = {"x": [*range(len(labels))], target: labels}
    outcome = Card.parse(infer_card(table_of(rows), target=target, positive=positive)).outcome
    assert (outcome.yes, outcome.no) == (yes, no)


def test_without_a_target_there_is_an_outcome_all_the_same() -> None:
    card = infer_of(table(x=[1, 2, 3]), positive="good")
    assert (card.outcome.target, card.outcome.positive) == ("outcome", "good")
    card = infer_of(table(x=[1, 2, 3], outcome=[4, 5, 6]))
    assert (card.schema.names, card.outcome.target) == (("x", "outcome"), "decision")
    assert card.outcome.positive == 1


def test_the_positive_value_is_guessed_where_it_is_plain() -> None:
    assert infer_of(table(x=[1, 2], y=["no", "yes"]), target="y").outcome.positive == "yes"
    assert infer_of(table(x=[1, 2], y=[0, 1]), target="y").outcome.positive == 1
    with pytest.raises(TableError, match=r"which value means yes\? Name one of 'a', 'b'"):
        infer_of(table(x=[1, 2], y=["a", "b"]), target="y")


def test_features_are_those_named_in_that_order() -> None:
    whole = table(a=[1, 2], b=[3, 4], c=[5, 6], y=[0, 1])
    card = infer_of(whole, target="y", features=["c", "a"])
    assert card.schema.names == ("c", "a")
    assert card.outcome.ignore == ()
    with pytest.raises(TableError, match="unknown column 'd'"):
        infer_of(whole, target="y", features=["d"])


def test_features_may_be_spelled_as_converters_write_them_unless_two_columns_are() -> None:
    whole = table(**{"a b": [1, 2], "a+b": [3, 4], "c d": [5, 6]}, y=[0, 1])
    card = infer_of(whole, target="y", features=["c_d", "a b"])
    assert card.schema.names == ("c d", "a b")
    with pytest.raises(TableError, match="unknown column 'a_b'"):
        infer_of(whole, target="y", features=["a_b"])


def test_wide_tables_do_not_compare_each_name_with_each(monkeypatch: pytest.MonkeyPatch) -> None:
    spelled: list[str] = []

    def noted(name: str) -> str:
        spelled.append(name)
        return name

    monkeypatch.setattr("waysout.datasets.infer._plain", noted)
    names = [f"c{i}" for i in range(200)]
    infer_of(table(**{name: [1, 2] for name in names}), features=names)
    assert len(spelled) <= 2 * len(names)


# --- size ----------------------------------------------------------------------------------------


def test_more_columns_than_anybody_reads_are_refused_unless_they_are_chosen() -> None:
    columns = {f"c{i}": [i, i + 1.5, None] for i in range(1000)}
    with pytest.raises(TableError, match=r"has 1,000 columns.*features=\[…\]"):
        infer(columns)
    card = infer_of(table_of(columns), features=[f"c{i}" for i in range(300, 310)])
    assert len(card.schema) == 10


def test_no_card_is_longer_than_five_hundred_lines_and_each_line_is_named() -> None:
    rng = np.random.default_rng(0)
    wide = {f"number {i}": rng.normal(size=30).tolist() for i in range(400)}
    deep = {f"city{i}": [f"a rather long name {j % 100}" for j in range(200)] for i in range(40)}
    for columns in (wide, deep):
        text = text_for(columns)
        assert len(text.splitlines()) <= 500
        assert len(Card.parse(text).schema) == len(columns)
        number = text.count("\n", 0, text.index("\n[features]") + 1) + 2
        broken = text.replace("[features]\n", '[features]\nodd = { kind = "nothing" }\n')
        with pytest.raises(CardError, match=rf"line {number}: feature 'odd': unknown kind"):
            Card.parse(broken)


def test_ten_thousand_values_of_text_are_no_levels() -> None:
    cells = [f"level {i}" for i in range(10_000)] * 2
    assert infer({"job": cells, "x": [1, 2] * 10_000}).schema["job"].kind == "opaque"


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
@example(table_of({"label": ["yes", "no"] * 2 + ["no"], "x": [0.0, 0.0, 1.0, 1.0, 2.3e-308]}))
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
