from __future__ import annotations

import json
import os
import re
import sys
from collections.abc import Callable, Sequence
from pathlib import Path
from types import ModuleType

import pytest

from conftest import CommandLine
from waysout.domain.oracle import Answers
from waysout.domain.schema import Row
from waysout.errors import IntegrityError, UnavailableError
from waysout.llm import models
from waysout.oracles.adapt import ModelOracle

OFFLINE = ("demo", "--llm", "simulated:0")


@pytest.fixture(autouse=True)
def _there(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(tmp_path)


def pulling(monkeypatch: pytest.MonkeyPatch, result: Callable[[], object]) -> None:
    """Stand in for the download, on a machine that could run what it brings."""
    monkeypatch.setitem(sys.modules, "xllamacpp", ModuleType("xllamacpp"))
    monkeypatch.setattr(models, "pull", lambda *_, **__: result())


def failing(error: Exception) -> Callable[[], object]:
    def fail() -> object:
        raise error

    return fail


def test_the_demo_shows_a_person_ways_out(waysout: CommandLine, tmp_path: Path) -> None:
    code, out, err = waysout(*OFFLINE)
    assert code == 0, err
    assert "synthetic: made by Waysout, no real people" in out
    assert "What may change" in out
    assert " of 60 rows approved). The model says yes if " in " ".join(out.split())
    assert "One change alone, as far as was asked" in out
    assert "proposed by a stand-in, not by a language model" in out
    assert "credit_score: 647 → " in out
    assert "may cost at most 6 LLM calls, 60 oracle rows" in err
    assert err.endswith("page: waysout-demo.html\n")
    assert (tmp_path / "waysout-demo.html").exists()


def test_the_page_needs_nothing_else(waysout: CommandLine, tmp_path: Path) -> None:
    assert waysout(*OFFLINE, "--html", tmp_path / "page.html")[0] == 0
    page = (tmp_path / "page.html").read_text()
    assert "Simulated" in page
    assert re.findall(r"<(?:link|script|img|iframe)\b|@import|url\(", page) == []


def test_json_is_one_document(waysout: CommandLine) -> None:
    code, out, _ = waysout(*OFFLINE, "--json")
    found = json.loads(out)
    assert (code, found["outcome"]) == (0, "found")
    assert found["settings"]["llm"] == "simulated:0"
    assert found["ledger"]["llm_calls"] <= 12
    assert found["settings"]["query_probability"] < 0.5
    assert all(option["probability"] >= 0.5 for option in found["options"])


def test_telling_of_the_person_asks_the_model_nothing(
    waysout: CommandLine, monkeypatch: pytest.MonkeyPatch
) -> None:
    asked, ask = list[int](), ModelOracle.ask

    def counting(self: ModelOracle, rows: Sequence[Row]) -> Answers:
        asked.append(len(rows))
        return ask(self, rows)

    monkeypatch.setattr(ModelOracle, "ask", counting)
    _, out, _ = waysout(*OFFLINE)
    shown, asked = sum(asked), []
    found = json.loads(waysout(*OFFLINE, "--json")[1])
    assert shown == sum(asked) > 0
    assert f"a chance of {found['settings']['query_probability']:.0%}." in out


@pytest.mark.parametrize(
    "error",
    [UnavailableError("no registry can be reached"), IntegrityError("not the published file")],
    ids=["unreachable", "damaged"],
)
def test_where_no_llm_can_be_had_a_simulated_one_stands_in(
    waysout: CommandLine, monkeypatch: pytest.MonkeyPatch, error: Exception
) -> None:
    pulling(monkeypatch, failing(error))
    code, out, err = waysout("demo")
    assert code == 0
    assert f"note: no LLM is available here ({error}); using a simulated one" in err
    assert "proposed by a stand-in, not by a language model" in out
    code, out, _ = waysout("demo", "--json")
    assert (code, json.loads(out)["settings"]["llm"]) == (0, "simulated:0")


def test_without_the_package_a_simulated_llm_stands_in(
    waysout: CommandLine, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setitem(sys.modules, "xllamacpp", None)
    code, _, err = waysout("demo")
    assert code == 0
    assert "install 'waysout[llamacpp]'" in err


def test_a_mistake_of_ours_is_not_taken_for_a_missing_llm(
    waysout: CommandLine, monkeypatch: pytest.MonkeyPatch
) -> None:
    pulling(monkeypatch, failing(TypeError("a mistake")))
    code, _, err = waysout("demo")
    assert code == 1
    assert "unexpected TypeError: a mistake" in err


def test_an_applicant_who_is_not_there(waysout: CommandLine) -> None:
    code, out, err = waysout(*OFFLINE, "--applicant", "30", "--json")
    assert code == 3
    assert "0 to 29; not 30" in err
    assert json.loads(out)["error"]["code"] == 3


def test_a_page_that_cannot_be_written_is_said_first(waysout: CommandLine) -> None:
    code, out, err = waysout(*OFFLINE, "--html", "none/such.html")
    assert (code, out) == (5, "")
    assert "there is no folder none" in err


@pytest.mark.llm
def test_a_real_llm_finds_ways_out(waysout: CommandLine) -> None:
    """Four calls are enough for some reasons: the model is held to what may change."""
    file = os.environ.get("WAYSOUT_GGUF")
    if not file:
        pytest.skip("WAYSOUT_GGUF is not set: there is no model to ask")
    code, out, err = waysout(
        "demo", "--llm", f"llamacpp:{file}?threads=1", "--calls", "4", "--json"
    )
    assert code == 0, err
    result = json.loads(out)
    assert result["ledger"]["llm_calls"] + result["metrics"]["calls_saved"] == 4
    assert set(result["rejections"]) <= {"in the query's own bin"}
    assert result["metrics"]["evaluated"] == 60
    assert any(option["reasons"] for option in result["options"])
