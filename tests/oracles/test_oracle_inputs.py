"""Rows in the forms models are trained on."""

from __future__ import annotations

import math
import subprocess
import sys
from dataclasses import replace
from datetime import datetime
from typing import Any

import numpy as np
import pandas as pd
import pytest

from waysout.domain.schema import MISSING_TOKENS, Feature, Row, Schema
from waysout.errors import OracleError
from waysout.oracles.inputs import (
    InputColumn,
    InputKind,
    InputLayout,
    check_rows,
    codes_of,
    match,
    places,
)

SCHEMA = Schema(
    (
        Feature("debt ratio", "number", missing="keep"),
        Feature("term", "integer", missing="keep"),
        Feature("job", "category", levels=("cook", "clerk"), codes={"cook": 1, "clerk": 0}),
        Feature("grade", "category", levels=(1, 2), missing="keep"),
        Feature("own", "boolean", levels=("No", "Yes")),
        Feature("flag", "boolean", missing="keep"),
    )
)
ZEROS = Feature("x", "category", levels=("01", "02"), codes={"01": 0, "02": 1})
THREE = {"01": 0, "02": 1, "3": 2}
QUESTION = Feature(
    "x", "category", levels=("a", "b"), missing="keep", missing_tokens=(*MISSING_TOKENS, "?")
)
FULL: Row = (0.5, 12, "cook", "2", True, False)
GAPS: Row = (None, None, "clerk", None, False, None)


def filled(kind: Any, *rows: Row, named: bool = True) -> Any:
    return InputLayout.plain(kind, places(SCHEMA), named=named).build(rows)


def test_raw_frame_is_what_read_csv_gives() -> None:
    frame = filled("raw", FULL, FULL)
    assert frame.iloc[0].tolist() == [0.5, 12, "cook", 2, "Yes", False]
    kinds = [frame[name].dtype.kind for name in ("debt ratio", "term", "grade", "flag")]
    assert kinds == ["f", "i", "i", "b"]


def test_missing_values_are_nan_and_integers_become_floats() -> None:
    frame = filled("raw", FULL, GAPS)
    assert frame["term"].dtype == frame["grade"].dtype == np.float64
    assert frame.isna().iloc[1].tolist() == [True, True, False, True, False, True]
    assert frame["flag"].tolist()[0] is False


def test_text_column_without_values_stays_text() -> None:
    schema = Schema((Feature("job", "category", levels=("a", "b"), missing="keep"),))
    layout = InputLayout.plain("raw", places(schema))
    assert layout.build([(None,)])["job"].dtype == layout.build([("a",)])["job"].dtype


def test_codes() -> None:
    matrix = filled("codes", FULL, GAPS, named=False)
    assert matrix.dtype == np.float64
    np.testing.assert_array_equal(
        matrix, [[0.5, 12, 1, 2, 1, 0], [math.nan, math.nan, 0, math.nan, 0, math.nan]]
    )
    named = filled("codes", FULL, GAPS)
    assert list(named) == list(SCHEMA.names)
    np.testing.assert_array_equal(named.to_numpy(), matrix)


def test_categories() -> None:
    frame = filled("category", FULL, GAPS)
    assert [str(d) for d in frame.dtypes[2:]] == ["category"] * 4
    assert frame["grade"].cat.categories.tolist() == [1, 2]
    assert frame["grade"].isna().tolist() == [False, True]


def test_dicts_are_plain() -> None:
    assert filled("dicts", FULL)[0] == SCHEMA.raw(FULL)
    assert filled("dicts", GAPS)[0]["term"] is None


@pytest.mark.parametrize(
    ("feature", "expected"),
    [
        (Feature("x", "category", levels=(3, 1)), [3.0, 1.0]),
        (Feature("x", "boolean"), [0.0, 1.0]),
        (Feature("x", "boolean", levels=(1, 2)), [1.0, 2.0]),
        (
            Feature("x", "boolean", levels=("idle", "busy"), codes={"idle": 1, "busy": 0}),
            [1.0, 0.0],
        ),
    ],
)
def test_codes_of_levels(feature: Feature, expected: list[float]) -> None:
    assert list(codes_of(feature).values()) == expected


@pytest.mark.parametrize(
    ("feature", "message"),
    [
        (Feature("x", "category", levels=("a", "b")), r"'x'.*codes = .*inputs='raw'"),
        (Feature("x", "category", levels=("a", "b"), codes={"a": 0}), "no code for the level 'b'"),
        # The alphabet says busy = 0, the card's order says idle = 0.
        (Feature("x", "boolean", levels=("idle", "busy")), "has no codes"),
    ],
)
def test_codes_that_cannot_be_known(feature: Feature, message: str) -> None:
    with pytest.raises(OracleError, match=message):
        codes_of(feature)


@pytest.mark.parametrize(
    ("feature", "categories", "expected"),
    [
        (SCHEMA["job"], ["clerk", "cook"], {"cook": 1, "clerk": 0}),
        (SCHEMA["job"], [" clerk", math.nan], {"clerk": 0}),
        (SCHEMA["job"], [0, 1], {"cook": 1, "clerk": 0}),
        (SCHEMA["grade"], [1, 2], {"1": 0, "2": 1}),
        (SCHEMA["grade"], [2.0, 1.0], {"1": 1, "2": 0}),
        (SCHEMA["own"], ["No", "Yes"], {False: 0, True: 1}),
        (SCHEMA["own"], [0, 1], {False: 0, True: 1}),
        (SCHEMA["flag"], [False, True], {False: 0, True: 1}),
        (SCHEMA["term"], [12, 24], {12: 0, 24: 1}),
        (Feature("x", "category", levels=(1, 2), codes={"1": 0, "2": 1}), [0, 1], {"1": 0, "2": 1}),
        (Feature("x", "category", levels=("01", "02")), [1, 2], {"01": 0, "02": 1}),
        (ZEROS, [1, 2], {"01": 0, "02": 1}),
        (ZEROS, [0, 1], {"01": 0, "02": 1}),
        (Feature("x", "category", levels=(1, 2, 3)), [1, 2], {"1": 0, "2": 1}),
        (Feature("x", "category", levels=(1, 2)), [0, 1, 2], {"1": 1, "2": 2}),
        (QUESTION, ["?", "a", "b"], {"a": 1, "b": 2, None: 0}),
        (QUESTION, ["a", "b", math.nan], {"a": 0, "b": 1}),
        (QUESTION, ["?", "a", math.nan], {"a": 1}),
    ],
)
def test_levels_among_a_models_categories(feature: Feature, categories: Any, expected: Any) -> None:
    assert match(feature, categories) == expected


@pytest.mark.parametrize(
    ("feature", "categories"),
    [
        # 1 to 3 are levels, and may as well be the codes of 2 to 4.
        (Feature("x", "category", levels=(1, 2, 3, 4)), [0, 1, 2, 3]),
        (Feature("x", "category", levels=("01", "02", "3"), codes=THREE), [1, 2, 4]),
        (Feature("x", "category", levels=("1", "01")), [1]),
        (Feature("x", "category", levels=(1, 2), codes={"1": 2, "2": 1}), [1, 2]),
        (replace(QUESTION, missing_tokens=("?", "-")), ["?", "-", "a"]),
        (Feature("x", "category", levels=("None", "a")), ["a", math.nan]),
    ],
)
def test_categories_that_fit_in_no_way_or_in_two(feature: Feature, categories: Any) -> None:
    with pytest.raises(OracleError, match="column 'x'"):
        match(feature, categories)


def test_a_missing_value_in_the_spelling_the_model_saw() -> None:
    place = places(Schema((QUESTION,)))[0]
    for make, expected in ((InputColumn.spelled, ["?", "b"]), (InputColumn.positions, [0.0, 2.0])):
        assert make(place, ["?", "a", "b"]).cells([(None,), ("b",)]) == expected


def test_the_code_of_a_missing_value() -> None:
    feature = Feature("x", "category", levels=("a",), codes={"a": 3}, missing="keep")
    for code, expected in ((None, math.nan), (-1, -1.0)):
        schema = Schema((replace(feature, missing_code=code),))
        matrix = InputLayout.plain("codes", places(schema), named=False).build([(None,), ("a",)])
        np.testing.assert_array_equal(matrix, [[expected], [3.0]])


def test_places() -> None:
    by_name = places(SCHEMA, ["own", "debt_ratio"])
    assert [(p.name, p.position) for p in by_name] == [("own", 4), ("debt_ratio", 0)]
    for generic in ("Column_{}", "f{}", "{}"):
        spots = places(SCHEMA, [generic.format(i) for i in range(6)])
        assert [p.position for p in spots] == list(range(6))
    with pytest.raises(OracleError, match="trained on 2 columns and the card describes 6"):
        places(SCHEMA, ["f0", "f1"])


def test_names_that_differ_only_in_signs_are_not_guessed() -> None:
    twins = Schema((Feature("a b", "number"), Feature("a-b", "number")))
    assert [p.position for p in places(twins, ["a-b", "a b"])] == [1, 0]
    with pytest.raises(OracleError, match="'a_b'"):
        places(twins, ["a_b"])


def test_importing_loads_nothing_heavy() -> None:
    names = ("adapt", "cache", "load", "probe")
    code = (
        f"import sys, {', '.join(f'waysout.oracles.{name}' for name in names)}\n"
        "heavy = {'pandas', 'sklearn', 'lightgbm', 'xgboost', 'catboost', 'onnxruntime', 'skops'}\n"
        "sys.exit(', '.join(heavy & set(sys.modules)) or 0)"
    )
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, check=False)
    assert done.returncode == 0, done.stderr.decode()


def test_opaque_cells_reach_a_model_as_they_are() -> None:
    schema = Schema(
        (
            Feature("note", "opaque"),
            Feature("signed", "opaque", holds="date"),
            Feature("case", "opaque", holds="number"),
            Feature("term", "integer"),
        )
    )
    raws: list[dict[str, Any]] = [
        {"note": "a b", "signed": "2024-02-29", "case": "7", "term": 12},
        {"note": None, "signed": None, "case": 8, "term": 24},
    ]
    rows = schema.parse_many(raws)
    check_rows(schema, rows)
    kinds: tuple[InputKind, ...] = ("raw", "codes", "category")
    for kind in kinds:
        frame = InputLayout.plain(kind, places(schema)).build(rows)
        assert frame["note"][0] == "a b"
        assert frame["signed"][0] == pd.Timestamp("2024-02-29")
        assert frame[["note", "signed"]].isna().to_numpy()[1].all()
        assert frame["case"].tolist() == [7, 8]
        assert frame["case"].dtype.kind == "i"
    matrix = InputLayout.plain("raw", places(schema), named=False).build(rows)
    assert matrix[0].tolist() == ["a b", datetime(2024, 2, 29), 7, 12]  # noqa: DTZ001
    dicts = InputLayout.plain("dicts", places(schema)).build(rows)
    assert dicts[0] == {"note": "a b", "signed": "2024-02-29", "case": 7, "term": 12}
