from __future__ import annotations

import json
from pathlib import Path

import pytest

from conftest import CommandLine


@pytest.fixture(autouse=True)
def _no_tables(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    monkeypatch.delenv("WAYSOUT_DATA", raising=False)
    monkeypatch.setenv("WAYSOUT_CACHE", str(tmp_path / "cache"))


def test_list_says_what_is_here_and_how_to_get_the_rest(waysout: CommandLine) -> None:
    code, out, err = waysout("data", "list")
    assert code == 0
    assert "32,561" in out
    assert "loan: get loan_approval_dataset.csv from" in err
    assert "terms: FICO's own terms" in err
    code, out, err = waysout("data", "list", "--json")
    assert (code, err) == (0, "")
    listed = {d["name"]: d for d in json.loads(out)}
    assert set(listed) == {"synthetic", "loan", "adult", "credit", "heloc"}
    assert not listed["heloc"]["here"]
    assert listed["synthetic"]["here"]


def test_get_makes_the_synthetic_table(waysout: CommandLine) -> None:
    code, out, _ = waysout("data", "get", "synthetic", "--json")
    assert code == 0
    assert Path(json.loads(out)["path"]).read_text().count("\n") == 2001


def test_what_cannot_be_fetched_says_how_to_get_it(waysout: CommandLine) -> None:
    code, _, err = waysout("data", "get", "heloc")
    assert code == 5
    assert "waysout data add heloc FILE" in err


def test_a_wrong_copy_is_refused(waysout: CommandLine, tmp_path: Path) -> None:
    wrong = tmp_path / "loan.csv"
    wrong.write_text("a,b\n1,2\n")
    code, _, err = waysout("data", "add", "loan", wrong)
    assert code == 6
    assert "is not the original loan table" in err
    assert waysout("data", "add", "loan", tmp_path / "none.csv")[0] == 3


def test_doctor_says_what_is_missing(waysout: CommandLine, tmp_path: Path) -> None:
    code, out, _ = waysout("doctor")
    assert code == 0
    assert "waysout oracle train loan" in out
    assert str(tmp_path / "cache") in out
    code, out, _ = waysout("doctor", "--json")
    report = json.loads(out)
    told = {p["name"]: p["get"] for p in report["packages"]}
    assert told.keys() >= {"lightgbm", "onnxruntime"}
    assert {name: told[name] for name in ("scipy", "transformers", "gguf", "tokenizers")} == {
        "scipy": "pip install 'waysout[bench]'",
        "transformers": "pip install 'waysout[transformers]'",
        "gguf": "pip install 'waysout[transformers]'",
        "tokenizers": "pip install 'waysout[embed]'",
    }
    assert not (tmp_path / "cache").exists()
