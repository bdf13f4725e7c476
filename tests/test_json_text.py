from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pytest

from waysout.batch.sealed import read_sealed
from waysout.domain.result import Outcome, OutcomeKind, ResultData
from waysout.errors import InputError, IntegrityError, shown
from waysout.json_text import DEEPEST, read_json
from waysout.llm.openai.replies import error_details
from waysout.store.records import pack, unpack


def nested(levels: int, inner: object = 1, key: str | None = None) -> Any:
    for _ in range(levels):
        inner = [inner] if key is None else {key: inner}
    return inner


@pytest.mark.parametrize("key", [None, "a"])
def test_a_document_is_read_to_a_depth_and_no_further(key: str | None) -> None:
    deep = nested(DEEPEST, key=key)
    assert read_json(json.dumps([[1, "a"], 2])) == [[1, "a"], 2]
    assert read_json(json.dumps(deep)) == deep
    with pytest.raises(RecursionError, match="nested more than 100 levels deep"):
        read_json(json.dumps([3, {"b": deep}]))


@pytest.mark.parametrize(("text", "value"), [("1", 1), ('"[["', "[["), (b"[]", []), ("{}", {})])
def test_what_holds_no_other_value_is_read(text: str | bytes, value: object) -> None:
    assert read_json(text) == value


@pytest.mark.parametrize("key", [None, "error"])
def test_an_error_is_found_however_often_it_is_wrapped(key: str | None) -> None:
    error = {"message": "no", "param": "p", "code": "c", "type": "t"}
    assert error_details(nested(5000, error, key)) == ("no", "p", "c t")


@pytest.mark.parametrize("name", ["message", "detail", "param", "code"])
def test_an_error_may_say_anything(name: str) -> None:
    said = error_details({name: nested(100_000)})
    assert any("levels" in part for part in said)
    assert error_details({"message": {"a": None}, "param": 7}) == ('{"a": null}', "7", " ")


def test_a_result_that_is_nested_without_end_is_none() -> None:
    given = json.loads(ResultData({}, Outcome(OutcomeKind.FOUND)).to_json())
    given["settings"]["a"] = nested(600)
    with pytest.raises(InputError, match="nested too deeply"):
        ResultData.from_json(json.dumps(given))


def test_a_cell_that_is_nested_without_end_or_is_no_json_is_damaged() -> None:
    for cell in (pack(nested(600)), "{", "[" * 100_000):
        with pytest.raises(IntegrityError, match="cannot be read"):
            unpack(cell)


def test_a_sealed_file_that_is_nested_without_end_is_damaged(tmp_path: Path) -> None:
    file = tmp_path / "batch.json"
    file.write_text(json.dumps({"a": nested(600)}))
    with pytest.raises(IntegrityError, match="nested more than 100 levels"):
        read_sealed(file, "start anew")


def test_any_value_can_be_shown() -> None:
    assert shown(nested(100_000, key="a")) == "a dict of hundreds of levels"
