from __future__ import annotations

import io
import json
import sys
from dataclasses import replace
from pathlib import Path

import pytest
from cli_world import FIND, ROW, in_world, world  # noqa: F401

from conftest import CommandLine
from waysout.cli.main import main
from waysout.cli.output import print_json
from waysout.domain.result import ResultData
from waysout.store import Store

TEXT = "→ é \U0001f600 \\ \n"


def printed(monkeypatch: pytest.MonkeyPatch, encoding: str, *args: str) -> bytes:
    """Return what a command writes to a stdout of some encoding; without one, `print_json`."""
    raw = io.BytesIO()
    with monkeypatch.context() as patched:
        stdout = io.TextIOWrapper(raw, encoding, errors="backslashreplace")
        patched.setattr(sys, "stdout", stdout)
        patched.setattr(sys, "argv", ["waysout", *args])
        if args:
            with pytest.raises(SystemExit):
                main()
        else:
            print_json({"text": TEXT})
        stdout.flush()
        return raw.getvalue()


@pytest.mark.parametrize("encoding", ["cp1252", "latin-1", "ascii", "utf-16"])
def test_json_is_json_in_any_encoding(monkeypatch: pytest.MonkeyPatch, encoding: str) -> None:
    text = printed(monkeypatch, encoding).decode(encoding)
    assert json.loads(text) == {"text": TEXT}


def test_json_is_readable_where_it_can_be(monkeypatch: pytest.MonkeyPatch) -> None:
    assert "→ é \U0001f600" in printed(monkeypatch, "utf8").decode()


def test_an_error_is_json_in_any_encoding(monkeypatch: pytest.MonkeyPatch) -> None:
    found = json.loads(printed(monkeypatch, "cp1252", "data", "get", "→", "--json"))
    assert "'→'" in found["error"]["message"]


@pytest.mark.usefixtures("in_world")
def test_an_export_is_json_in_any_encoding(
    waysout: CommandLine, monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    found = ResultData.from_json(waysout(*FIND, *ROW, "--method", "random", "--json")[1])
    run, result = tmp_path / "a.db", replace(found, settings={"title": TEXT})
    with Store.create(run, {}) as store:
        store.add_query(0, result.query)
        store.finish(0, result)
    exported = printed(monkeypatch, "cp1252", "runs", "export", str(run))
    assert json.loads(exported) == result.as_dict()
