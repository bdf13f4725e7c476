from __future__ import annotations

import io
import json
import re
import signal
import socket
import subprocess
import sys
from collections.abc import Iterator, Sequence
from datetime import datetime
from pathlib import Path
from threading import Thread
from typing import Any

import pytest
from cli_world import APPROVED, FIND, REFUSED, ROW, in_world, row, world  # noqa: F401
from rich.console import Console

from conftest import CommandLine
from optional_methods import EACH_METHOD, ready
from waysout.cli import output, search
from waysout.cli.arguments import DEFAULT_METHOD
from waysout.cli.streams import our_stdout
from waysout.datasets.load import load_dataset
from waysout.datasets.manifest import oracle_dir
from waysout.datasets.train import train_oracle
from waysout.domain.oracle import Answers
from waysout.domain.result import Option, Outcome, OutcomeKind
from waysout.domain.schema import Row
from waysout.errors import LLMError
from waysout.llm import connect
from waysout.llm.base import Reply, Request
from waysout.llm.simulated import Simulated
from waysout.methods import DEFAULT
from waysout.oracles.adapt import ModelOracle
from waysout.report.result import Result
from waysout.run.find import only_result
from waysout.store import list_runs, runs_dir

pytestmark = pytest.mark.usefixtures("in_world")
USUAL_ROWS = ("--llm", "simulated:1", "--calls", "6")
QUICK = (*USUAL_ROWS, "--oracle-rows", "30")


PICKLED = ("find", "--model", "model.joblib", "--data", "loans.csv", "--card", "loans.toml")


def test_ways_out_are_shown(waysout: CommandLine) -> None:
    code, out, err = waysout(*FIND, *ROW, *USUAL_ROWS)
    assert code == 0, err
    assert re.match(r"\d+ ways out \(\d+ of \d+ rows approved\)\. The model says yes if ", out)
    assert "One change alone, as far as was asked" in out
    assert "proposed by a stand-in, not by a language model" in out
    assert "income: 42 → " in out
    assert "Spent: 6 LLM calls" in out
    assert err.startswith(
        "wayfinder may cost at most 6 LLM calls, 150 oracle rows for the search "
        "and 60 for set-up\nrun: "
    )


def test_json_keeps_the_contract(waysout: CommandLine) -> None:
    code, out, _ = waysout(*FIND, *ROW, *QUICK, "--json")
    found = json.loads(out)
    assert (code, found["outcome"], found["query"]) == (0, "found", row())
    assert set(found["ledger"]) >= {
        "llm_calls", "attempts", "tokens_in", "tokens_out", "oracle_rows", "setup_rows", "seconds",
    }  # fmt: skip
    assert set(found["metrics"]) >= {
        "unique_valid", "valid", "generated", "pruned", "prune_pct", "validity_pct", "proximity",
        "sparsity", "novelty", "lever_sets",
    }  # fmt: skip
    assert found["settings"]["method"] == "wayfinder"
    for option in found["options"]:
        assert set(option) >= {
            "row", "changes", "probability", "proximity", "sparsity", "key", "reasons",
        }  # fmt: skip
        assert option["row"] == row() | {name: new for name, (_, new) in option["changes"].items()}
        assert all(row()[name] == old for name, (old, _) in option["changes"].items())
        assert option["probability"] >= 0.5
        assert "age" not in option["changes"]


@pytest.mark.parametrize("method", EACH_METHOD)
def test_every_method_keeps_to_its_budget(waysout: CommandLine, method: str) -> None:
    needs_llm = ready(method).needs_llm
    little = {"cchvae": ["--set=steps=20"], "tabular-diffusion": ["--set=training_steps=20"]}
    code, out, err = waysout(
        *FIND,
        *ROW,
        *QUICK,
        *little.get(method, []),
        "--method",
        method,
        "--oracle-rows",
        "20",
        "-k",
        "4",
        "--json",
    )
    assert code == 0, err
    found = json.loads(out)
    assert found["settings"]["method"] == method
    assert found["ledger"]["oracle_rows"] <= 20
    calls = found["ledger"]["llm_calls"] + found["metrics"]["calls_saved"]
    assert calls == (6 if needs_llm else 0)
    assert ("LLM calls" in err.splitlines()[0]) == needs_llm


def test_options_can_be_polished(waysout: CommandLine) -> None:
    code, out, err = waysout(*FIND, *ROW, *QUICK, "--oracle-rows", "30", "--polish", "10", "--json")
    assert code == 0, err
    found = json.loads(out)
    assert found["settings"]["polish"] == 10
    assert found["ledger"]["oracle_rows"] <= 30
    assert re.search(r"; polish: \d+ rows?$", found["reason"])
    assert found["ways"]


def test_no_backend_is_built_for_a_method_that_needs_none(
    waysout: CommandLine, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(connect, "PROVIDERS", {})
    assert waysout(*FIND, *ROW, "--method", "random", "--llm", "none:such")[0] == 0


@pytest.fixture
def offline(monkeypatch: pytest.MonkeyPatch) -> None:
    """Let no LLM be made and no host be found."""

    def nowhere(*_: object, **__: object) -> None:
        raise AssertionError("a host was looked for")

    monkeypatch.setattr(connect, "PROVIDERS", {})
    monkeypatch.setattr(socket, "getaddrinfo", nowhere)


@pytest.fixture
def trained(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Train a quick oracle of the synthetic data, in a cache of its own."""
    pytest.importorskip("optuna")
    monkeypatch.setenv("WAYSOUT_CACHE", str(tmp_path / "cache"))
    dataset = load_dataset("synthetic", fetch=False)
    train_oracle(dataset, out=oracle_dir("synthetic"), trials=2, threads=1)


@pytest.mark.usefixtures("offline", "trained")
def test_without_an_llm_nothing_is_downloaded_or_connected(waysout: CommandLine) -> None:
    applicant = ("find", "--data", "synthetic", "--row", "828")
    code, _, err = waysout(*applicant, "--llm", "llamacpp:smollm2-135m")
    assert (code, "unknown LLM backend 'llamacpp'" in err) == (3, True)
    for more in ([], ["--calls", "0"]):
        code, out, err = waysout(*applicant, *more)
        assert code == 0, err
        assert re.search(r"\d ways out \(\d+ of ", out)
        assert "Spent: 150 oracle rows and 49 for set-up, " in out
        promised = "wayfinder may cost at most 150 oracle rows for the search and 60 for set-up"
        assert err.startswith(f"{promised}\nrun: ")


@pytest.mark.parametrize(
    ("given", "reason"),
    [
        (
            ("--method", "comp-mcts"),
            "the method 'comp-mcts' cannot search without an LLM: give one with --llm, such as "
            "'llamacpp:smollm2-135m' or 'openai:MODEL@URL'",
        ),
        (("--calls", "6"), "there is no LLM to call: give one with --llm"),
        (("--record", "replies.jsonl"), "give one with --llm"),
    ],
    ids=["method", "calls", "record"],
)
def test_what_needs_an_llm_is_refused_before_the_model_is_loaded(
    waysout: CommandLine, given: tuple[str, str], reason: str
) -> None:
    code, _, err = waysout("find", "--data", "nothing.csv", *ROW, *given)
    assert code == 3
    assert reason in err


def test_a_model_that_writes_no_reasons_is_said(waysout: CommandLine) -> None:
    small = ("--llm", "llamacpp:smollm2-135m")
    err = waysout("find", "--data", "nothing.csv", *ROW, *small)[2]
    assert "note: llamacpp:smollm2-135m names values, but writes nonsense as reasons" in err


@pytest.mark.usefixtures("offline")
def test_without_calls_the_llm_that_is_named_is_not_the_one_that_is_told(
    waysout: CommandLine,
) -> None:
    code, out, err = waysout(*FIND, *ROW, *QUICK, "--calls", "0", "--oracle-rows", "20", "--json")
    assert code == 0, err
    found = json.loads(out)
    assert (found["settings"]["llm"], found["settings"]["style"]) == (None, None)
    assert (found["ledger"]["llm_calls"], found["ledger"]["oracle_rows"]) == (0, 20)
    assert (found["outcome"], found["metrics"]["calls_saved"]) == ("found", 0)


def test_a_row_is_named_in_four_ways(waysout: CommandLine, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("sys.stdin", io.StringIO(json.dumps(row())))
    named = (ROW, ("--where", "loan_id == 0"), ("--json-row", "row.json"), ("--json-row", "-"))
    found = [json.loads(waysout(*FIND, *way, *QUICK, "--json")[1]) for way in named]
    assert [f["query"] for f in found] == [row()] * 4
    assert [f["options"] for f in found] == [found[0]["options"]] * 4


@pytest.mark.parametrize(
    "where",
    [
        "loan_id<1",
        "loan_id == 0 and job == 'part-time'",
        "`loan_id` <= 0",
        "loan_id == 0.0",
        "job != 'full and part-time' and loan_id == 0",
        "loan_id == 0 & (job == 'part-time' | job in ['none'])",
    ],
)
def test_a_condition_may_be_written_in_many_ways(waysout: CommandLine, where: str) -> None:
    code, out, err = waysout(*FIND, "--where", where, *QUICK, "--json")
    assert code == 0, err
    assert json.loads(out)["query"] == row()


def test_a_joint_within_quotes_is_a_part_of_the_value(waysout: CommandLine) -> None:
    _, _, err = waysout(*FIND, "--where", "job == 'Bosnia and Herzegovina'", *QUICK)
    assert "0 rows of loans.csv meet" in err
    _, _, err = waysout(*FIND, "--where", "job == Bosnia and Herzegovina", *QUICK)
    assert "unknown column 'Bosnia'" in err


def test_a_json_file_may_begin_with_a_mark_and_is_utf_8(
    waysout: CommandLine, tmp_path: Path
) -> None:
    marked, latin = tmp_path / "marked.json", tmp_path / "latin.json"
    marked.write_text(json.dumps(row()), "utf-8-sig")
    code, _, err = waysout(*FIND, "--json-row", marked, *QUICK)
    assert code == 0, err
    latin.write_bytes(b'{"job": "\xe9"}')
    code, _, err = waysout(*FIND, "--json-row", latin, *QUICK)
    assert (code, f"{latin} is not UTF-8 text" in err) == (3, True)


def test_a_row_without_an_end_is_not_read_to_it(
    waysout: CommandLine, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("waysout.cli.sources._LONGEST_ROW", 10_000)
    (tmp_path / "long.json").write_text(json.dumps({**row(), "more": "x" * 10_000}), "utf-8")
    code, _, err = waysout(*FIND, "--json-row", tmp_path / "long.json", *QUICK)
    assert (code, "is too long for a row" in err) == (3, True)
    monkeypatch.setattr("sys.stdin", io.StringIO("y\n" * 10_000))
    code, _, err = waysout(*FIND, "--json-row", "-", *QUICK)
    assert (code, "stdin is too long for a row" in err) == (3, True)


def test_a_file_may_be_called_stdin(
    waysout: CommandLine, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    files = [arg if arg.startswith("-") else str(Path(arg).resolve()) for arg in FIND[1:]]
    monkeypatch.chdir(tmp_path)
    Path("stdin").write_text(json.dumps(row(income=43)))
    monkeypatch.setattr("sys.stdin", io.StringIO("{}"))
    code, out, err = waysout("find", *files, "--json-row", "stdin", *QUICK, "--json")
    assert code == 0, err
    assert json.loads(out)["query"] == row(income=43)
    code, _, err = waysout("find", *files, "--json-row", "stdin", *QUICK, "--csv", "./stdin")
    assert (code, "the file of --json-row" in err) == (3, True)


def test_the_default_method_is_that_of_the_library() -> None:
    assert DEFAULT_METHOD == DEFAULT


def test_a_pickled_pipeline_needs_our_word(waysout: CommandLine) -> None:
    code, _, err = waysout(*PICKLED, *ROW, *QUICK)
    assert (code, "pass --trust-pickle" in err) == (4, True)
    code, out, _ = waysout(*PICKLED, *ROW, *QUICK, "--trust-pickle", "--json")
    assert (code, json.loads(out)["outcome"]) == (0, "found")


@pytest.mark.parametrize(
    ("args", "outcome"),
    [
        (("--row", str(APPROVED)), "already-approved"),
        (("--row", str(REFUSED), "--rules", "stuck"), "infeasible"),
        (("--row", str(REFUSED), "--method", "comp-mcts", "--calls", "0"), "budget-spent"),
        (("--row", str(REFUSED), "--oracle-rows", "0"), "budget-spent"),
        (("--row", str(REFUSED), "--method", "comp-mcts", "--tokens", "5"), "budget-spent"),
    ],
)
def test_every_outcome_is_a_success_and_asks_no_more_than_it_must(
    waysout: CommandLine, args: tuple[str, ...], outcome: str
) -> None:
    code, out, err = waysout(*FIND, "--llm", "simulated:1", *args, "--json")
    assert code == 0, err
    found = json.loads(out)
    assert (found["outcome"], found["options"]) == (outcome, [])
    assert (found["ledger"]["llm_calls"], found["ledger"]["oracle_rows"]) == (0, 0)
    code, out, _ = waysout(*FIND, "--llm", "simulated:1", *args)
    assert (code, "stand-in" in out) == (0, False)  # it proposed nothing


def test_tokens_for_no_call_leave_the_rows(waysout: CommandLine, tmp_path: Path) -> None:
    page = tmp_path / "out.html"
    code, out, err = waysout(*FIND, *ROW, *QUICK, "--tokens", "5", "--html", page)
    assert code == 0, err
    assert re.search(r"\d ways out \(\d+ of ", out)
    assert re.search(r"Spent: \d+ oracle rows? ", out)
    assert "stand-in" not in out + page.read_text()
    assert "proposed by" not in page.read_text()


def test_a_goal_of_ones_own(waysout: CommandLine) -> None:
    def found(*goal: str) -> dict[str, Any]:
        _, out, _ = waysout(*FIND, *ROW, "--method", "random", *goal, "--json")
        document: dict[str, Any] = json.loads(out)
        return document

    def least(*goal: str) -> float:
        return min(float(option["probability"]) for option in found(*goal)["options"])

    assert 0.45 <= least("--at-least", "0.45") < 0.5
    assert least("--rise", "0.05") < 0.5
    safer = found("--at-least", "0.9", "--at-least", "0.7")
    assert safer["settings"]["goal"] == {
        "at_least": None, "at_most": None, "rise": None, "safer": [0.7, 0.9],
    }  # fmt: skip
    variants = [variant for way in safer["ways"] for variant in way["safer"]]
    assert {variant["at_least"] for variant in variants} == {0.7, 0.9}
    assert all(variant["probability"] >= variant["at_least"] for variant in variants)


def test_a_chance_and_a_rise_contradict_each_other(waysout: CommandLine) -> None:
    code, _, err = waysout(*FIND, *ROW, "--at-least", "0.9", "--rise", "0.1")
    assert code == 3
    assert "--at-least and --rise contradict each other" in err


def test_what_is_set_is_what_is_done(waysout: CommandLine) -> None:
    code, out, _ = waysout(
        *FIND, *ROW, *QUICK, "--method", "comp-mcts", "--set", "threshold=0.02",
        "--set", "scope = global", "--seed", "7", "--paper", "--free", "--price", "1/2", "--json",
    )  # fmt: skip
    found = json.loads(out)
    settings = found["settings"]
    assert code == 0
    assert settings["method_settings"]["threshold"] == 0.02
    assert settings["method_settings"]["scope"] == "global"
    assert settings["style"] == {**settings["style"], "template": "paper", "constrain": False}
    assert settings["seed"] == 7
    assert found["ledger"]["money"] > 0


def test_what_it_may_cost_is_said_before_anything_is_spent(waysout: CommandLine) -> None:
    def said(*args: str) -> str:
        _, _, err = waysout(*FIND, *ROW, *QUICK, "--price", "1000/1000", *args)
        return str(err.splitlines()[0])

    assert "about " in said()

    def price(*args: str) -> float:
        return float(said(*args).rpartition("about ")[2].partition(" ")[0])

    # Recombine asks for so many edits a call, whatever k is; the others ask for k.
    assert price("--set", "edits=20") > 1.5 * price("--set", "edits=2")
    assert price("-k", "9") == price("-k", "2")
    mcts = ("--method", "comp-mcts")
    assert price(*mcts, "-k", "9") > price(*mcts, "-k", "2")
    assert said("--calls", "1", "--oracle-rows", "1", "--tokens", "1").startswith(
        "wayfinder may cost at most 1 LLM call, 1 oracle row for the search "
        "and 60 for set-up, 1 token, "
    )
    assert said("--money", "0.5", "--seconds", "9").endswith("0.5 in money, 9 seconds")


def test_files_are_written(waysout: CommandLine, tmp_path: Path) -> None:
    page, table = tmp_path / "out.html", tmp_path / "out.csv"
    code, out, err = waysout(*FIND, *ROW, *QUICK, "--html", page, "--csv", table, "--json")
    assert code == 0
    assert page.read_text().startswith("<!DOCTYPE html>")
    head, *rows = table.read_text().splitlines()
    assert head.endswith("sparsity,cost,irreducible,tight,holds,reasons,stable")
    assert len(rows) == len(json.loads(out)["ways"])
    assert f"page: {page}\ntable: {table}\n" in err


def test_the_table_has_all_options_where_they_are_asked_for(
    waysout: CommandLine, tmp_path: Path
) -> None:
    table = tmp_path / "out.csv"
    code, out, _ = waysout(*FIND, *ROW, *QUICK, "--csv", table, "--all-options", "--json")
    head, *rows = table.read_text().splitlines()
    assert (code, len(rows)) == (0, len(json.loads(out)["options"]))
    assert head.endswith("probability,proximity,sparsity,reasons,stable")
    code, _, err = waysout(*FIND, *ROW, *QUICK, "--all-options")
    assert (code, "name its file with --csv" in err) == (3, True)


def test_safer_variants_and_single_changes_fit_a_terminal(
    waysout: CommandLine, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    rows = ("--oracle-rows", "80", "--at-least", "0.8")
    code, out, err = waysout(*FIND, *ROW, *QUICK, *rows, "--json")
    assert code == 0, err
    monkeypatch.setenv("COLUMNS", "80")
    search.show(Result.from_json(out))
    shown = capsys.readouterr().out
    assert re.search(r"at least 80\s%: .* \(8\d\s%\)", shown)
    assert re.search(r"income +42 +a yes (from|at) \d+", shown)
    assert max(map(len, shown.splitlines())) <= 80


def test_a_terminal_shows_notes_words_and_near_misses_as_they_are(
    capsys: pytest.CaptureFixture[str],
) -> None:
    missed = Option({"paid": "Y"}, {"paid": ("N", "Y")}, 0.4996, 0.5, 1, "key")
    told = {"paid": {"label": "has paid", "words": {"N": "no", "Y": "yes"}, "true": "Y"}}
    spent = Outcome(OutcomeKind.BUDGET_SPENT, best_probability=0.4996)
    result = Result({"paid": "N"}, spent, near_misses=(missed,), notes=("1 was taken for a yes",),
                    settings={"wording": told})  # fmt: skip
    search.show(result)
    shown = capsys.readouterr().out
    assert "Note: 1 was taken for a yes" in shown
    assert re.search(r"has paid: no → yes +49.9\u00a0%", shown)
    assert "The best chance reached is 49.9\u00a0%" in shown


def test_what_a_model_prints_does_not_spoil_the_result(
    waysout: CommandLine, monkeypatch: pytest.MonkeyPatch
) -> None:
    ask = ModelOracle.ask

    def chatty(self: ModelOracle, rows: Sequence[Row]) -> Answers:
        print("thinking aloud")  # noqa: T201 - as other people's models do
        return ask(self, rows)

    monkeypatch.setattr(ModelOracle, "ask", chatty)
    code, out, err = waysout(*FIND, *ROW, *QUICK, "--json")
    assert (code, json.loads(out)["outcome"]) == (0, "found")
    assert "thinking aloud" in err


def test_what_a_model_s_thread_prints_beside_the_result_does_not_spoil_it(
    waysout: CommandLine, monkeypatch: pytest.MonkeyPatch
) -> None:
    def print_beside(document: Any) -> None:
        thread = Thread(target=print, args=("thinking on",))
        thread.start()
        thread.join()
        output.print_json(document)

    monkeypatch.setattr(search, "print_json", print_beside)
    code, out, err = waysout(*FIND, *ROW, *QUICK, "--json")
    assert (code, json.loads(out)["outcome"]) == (0, "found")
    assert "thinking on\n" in err


RULE = """
print("imported")
def ok(before, after):
    print("called")
    return True
"""


def test_what_a_custom_rule_prints_does_not_spoil_the_result(
    waysout: CommandLine, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    (tmp_path / "chatty_rule.py").write_text(RULE)
    card = tmp_path / "chatty.toml"
    added = '[[rules.main]]\nkind = "custom"\ncall = "chatty_rule:ok"\n'
    card.write_text(Path("loans.toml").read_text() + added)
    monkeypatch.syspath_prepend(tmp_path)
    price = ("--price", "1/2")  # the first prompt is made to tell the cost
    trusted = (*FIND[:-1], str(card), *ROW, *QUICK, *price, "--trust-code", "--json")
    code, out, err = waysout(*trusted)
    assert code == 0, err
    assert json.loads(out)["outcome"] == "found"
    assert "imported\n" in err
    assert "called\n" in err


@pytest.mark.parametrize("name", ["letter.txt", "letter.html"])
def test_a_letter_is_written_as_its_name_ends(
    waysout: CommandLine, tmp_path: Path, name: str
) -> None:
    letter = tmp_path / name
    code, _, err = waysout(*FIND, *ROW, *QUICK, "--letter", letter)
    assert (code, f"letter: {letter}\n" in err) == (0, True)
    text = letter.read_text()
    assert text.startswith("<!DOCTYPE html>") is name.endswith(".html")
    assert "What this letter promises" in text
    assert f"{datetime.now().astimezone().year}" in text
    code, _, err = waysout(*FIND, *ROW, *QUICK, "--html", letter, "--letter", letter)
    assert (code, "--letter would overwrite" in err) == (3, True)


def test_a_file_that_turns_out_unwritable_leaves_the_result(
    waysout: CommandLine, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    def full(*_: object, **__: object) -> None:
        raise OSError(28, "No space left on device")  # a file that is open names itself no more

    monkeypatch.setattr("waysout.report.result.Result.to_html", full)
    page = tmp_path / "out.html"
    code, out, err = waysout(*FIND, *ROW, *QUICK, "--html", page, "--json")
    assert (code, json.loads(out)["outcome"]) == (5, "found")
    assert f"error: cannot write {page}: No space left on device" in err


def test_replies_are_recorded_and_replayed(waysout: CommandLine, tmp_path: Path) -> None:
    replies = tmp_path / "replies.jsonl"
    first = waysout(*FIND, *ROW, *QUICK, "--record", replies, "--json")[1]
    again = waysout(
        *FIND, *ROW, "--llm", f"replay:{replies}", "--calls", "6", "--oracle-rows", "30", "--json"
    )[1]
    assert json.loads(again)["options"] == json.loads(first)["options"]


def test_a_run_is_kept_unless_told_otherwise(waysout: CommandLine) -> None:
    waysout(*FIND, *ROW, *QUICK, "--no-run")
    assert list_runs(runs_dir()) == []
    _, _, err = waysout(*FIND, *ROW, *QUICK)
    [kept] = list_runs(runs_dir())
    assert err.endswith(f"run: {kept.stem}\n")


def test_the_same_run_again_asks_nothing(
    waysout: CommandLine, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    first = waysout(*FIND, *ROW, *QUICK, "--run", tmp_path / "a.db", "--json")[1]

    async def nobody(*_: object) -> None:
        raise AssertionError("asked again")

    monkeypatch.setattr("waysout.llm.simulated.Simulated.complete", nobody)
    code, again, _ = waysout(*FIND, *ROW, *QUICK, "--run", tmp_path / "a.db", "--json")
    assert code == 0
    assert json.loads(again) == json.loads(first)


@pytest.mark.parametrize(
    "other", [("--seed", "1"), ("--row", "2"), ("-k", "4"), ("--set", "edits=3")], ids=" ".join
)
def test_a_run_of_other_settings_is_refused(
    waysout: CommandLine, tmp_path: Path, other: tuple[str, ...]
) -> None:
    run = tmp_path / "a.db"
    waysout(*FIND, *ROW, *QUICK, "--run", run)
    code, out, err = waysout(*FIND, *ROW, *QUICK, "--run", run, *other, "--json")
    assert code in (3, 6)
    assert str(run) in err
    assert json.loads(out)["error"]["code"] == code


def test_everything_fits_eighty_columns(
    waysout: CommandLine, monkeypatch: pytest.MonkeyPatch
) -> None:
    def narrow() -> Console:
        return Console(file=our_stdout(), width=80, markup=False, highlight=False, emoji=False)

    monkeypatch.setattr(output, "console", narrow)
    nearest = (*FIND, *ROW, "--method", "nearest")
    commands = (FIND + ROW + QUICK, nearest, (*FIND, *ROW, *QUICK, "--calls", "0"),
                ("runs", "list"), ("methods",))  # fmt: skip
    for command in commands:
        code, out, _ = waysout(*command)
        assert code == 0
        assert max(map(len, out.splitlines())) <= 80
    assert "Reason given: like row" in waysout(*nearest)[1]


WRONG: list[tuple[tuple[str, ...], int, str]] = [
    (("--method", "comp-mcst"), 3, "did you mean 'comp-mcts'?"),
    (("--set", "qualty=1"), 3, "did you mean 'quality'?"),
    (("--set", "quality=low"), 3, "quality must be a number, not 'low'"),
    (("--set", "quality"), 3, "--set takes NAME=VALUE, not 'quality'"),
    (("--where", "loan_id == 0"), 3, "name one row"),
    (("--row", "300"), 3, "loans.csv has 300 rows, counted from 0; there is no row 300"),
    (("--row", "-1"), 2, "--row"),
    (("--model", "none.txt"), 4, "there is no model file none.txt"),
    (("--model", ""), 3, "--model FILE"),
    (("--card", ""), 3, "waysout card infer"),
    (("--data", "lons.csv", "--card", ""), 3, "there is no file lons.csv"),
    (("--rules", "man"), 3, "did you mean 'main'?"),
    (("--at-least", "0.9", "--rise", "0.1"), 3, "--at-least and --rise contradict each other"),
    (("--at-least", "1.5"), 2, "--at-least"),
    (("--run", "a.db", "--no-run"), 3, "contradict each other"),
    (("--html", "none/such.html"), 5, "there is no folder none"),
    (("--csv", "."), 5, "cannot write ."),
    (("--run", "loans.csv"), 3, "loans.csv is not a Waysout run"),
    (("--llm", "gpt"), 3, "unknown LLM backend 'gpt'"),
    (("--llm", "replay:nowhere"), 3, "cannot read the recording nowhere"),
    (("--llm", "llamacpp:smollm2-135m"), 5, "waysout models pull"),
    (("--price", "free"), 3, "per million tokens"),
    (("--price", "free", "--model", "none.txt"), 3, "per million tokens"),
    (("--llm", "gpt", "--model", "none.txt"), 3, "unknown LLM backend 'gpt'"),
    (("--csv", "loans.csv"), 3, "--csv would overwrite loans.csv, the file of --data"),
    (("--html", "./loans.toml"), 3, "--html would overwrite loans.toml, the file of --card"),
    (("--record", "model.txt"), 3, "--record would overwrite model.txt, the file of --model"),
    (("--html", "new", "--csv", "./new"), 3, "--csv would overwrite new, the file of --html"),
    (("--html", "new.db", "--run", "new.db"), 3, "the file of --run"),
    (("--llm", "replay:row.json", "--record", "row.json"), 3, "the file of --llm"),
    (("--money", "1"), 3, "a limit in money needs --price"),
    (("--seed", "99999999999"), 3, "seed is a whole number"),
    (("--polish", "-1"), 2, "--polish"),
    (
        ("--polish", "30"),
        3,
        "polish reserves 30 of 30 oracle rows, which leaves none for wayfinder",
    ),
    (("--inputs", "guess"), 4, "unknown kind of inputs 'guess'"),
]


@pytest.mark.parametrize(("args", "code", "reason"), WRONG, ids=[" ".join(w[0]) for w in WRONG])
def test_what_is_wrong_is_said(
    waysout: CommandLine, args: tuple[str, ...], code: int, reason: str
) -> None:
    left, out, err = waysout(*FIND, *ROW, *QUICK, *args, "--json")
    assert left == code
    assert reason in err
    assert json.loads(out)["error"]["code"] == code


@pytest.mark.parametrize(
    ("where", "reason"),
    [
        ("loan_id == 999", "0 rows of loans.csv meet 'loan_id == 999'"),
        ("loan_id < 3", "3 rows of loans.csv meet 'loan_id < 3' (0, 1, 2): add a condition"),
        ("lona_id == 0", "did you mean 'loan_id'?"),
        ("loan_id", "it is no yes or no for each row"),
        ("job == full", "(text stands in quotes: 'full')"),
    ],
)
def test_a_condition_that_names_no_row(waysout: CommandLine, where: str, reason: str) -> None:
    code, _, err = waysout(*FIND, "--where", where, *QUICK)
    assert code == 3
    assert reason in err


@pytest.mark.parametrize(
    ("text", "reason"),
    [
        ('{"age": 30', "stdin is not JSON"),
        ("[1, 2]", "stdin holds no object"),
        ("[" * 100_000, "stdin is not JSON"),
        (json.dumps(row(job="pilot")), "column 'job': unknown value 'pilot'"),
        (json.dumps(row(income="much")), "column 'income'"),
        ('{"age": 30}', "column 'income': the row has no such column"),
        (json.dumps(row()).replace("income", "INCOME"), "no such column (is it 'INCOME'?)"),
        (json.dumps(row(income=float("nan"))), "column 'income': the value is missing"),
        (json.dumps(row(income=42.5)), "column 'income': 42.5 is not a whole number"),
        (json.dumps(row(income=float("inf"))), "column 'income': inf is not a finite number"),
        ("", "stdin is not JSON"),
    ],
    ids=[
        "cut",
        "list",
        "deep",
        "category",
        "number",
        "absent",
        "case",
        "missing",
        "half",
        "endless",
        "empty",
    ],
)
def test_a_json_row_that_cannot_be_read(
    waysout: CommandLine, monkeypatch: pytest.MonkeyPatch, text: str, reason: str
) -> None:
    monkeypatch.setattr("sys.stdin", io.StringIO(text))
    code, out, err = waysout(*FIND, "--json-row", "-", *QUICK, "--json")
    assert code == 3
    assert reason in err
    assert json.loads(out)["error"]["code"] == 3


def test_an_llm_that_does_not_answer_leaves_a_run_to_go_on_with(
    waysout: CommandLine, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("waysout.llm.call.Retry.wait", lambda *_, **__: 0.0)
    code, out, err = waysout(*FIND, *ROW, "--llm", "openai:m@http://127.0.0.1:9/v1", "--json")
    assert (code, json.loads(out)["error"]["code"]) == (9, 9)
    assert "openai:m@http://127.0.0.1:9/v1 does not answer" in err
    assert f" waysout runs resume {list_runs(runs_dir())[0].stem}" in err


def test_an_error_of_the_llm_in_the_middle_leaves_what_was_found(
    waysout: CommandLine, monkeypatch: pytest.MonkeyPatch
) -> None:
    complete, calls = Simulated.complete, list[Request]()

    async def refuse(self: Simulated, request: Request) -> Reply:
        calls.append(request)
        if len(calls) > 3:
            raise LLMError("the key has run out")
        return await complete(self, request)

    monkeypatch.setattr(Simulated, "complete", refuse)
    code, out, err = waysout(*FIND, *ROW, *QUICK, "--json")
    found = json.loads(out)
    assert (code, found["outcome"], found["ledger"]["llm_calls"]) == (8, "interrupted", 3)
    assert found["error"] == {"type": "LLMError", "message": "the key has run out", "code": 8}
    assert found["options"]
    assert f" waysout runs resume {list_runs(runs_dir())[0].stem}" in err
    code, out, err = waysout("runs", "resume")
    assert code == 8
    assert "interrupted: the key has run out" in " ".join(out.split())


def test_an_error_before_any_answer_is_raised() -> None:
    def failing() -> Iterator[Result]:
        yield from ()
        raise LLMError("no such model")

    with pytest.raises(LLMError, match="no such model"):
        only_result(failing())


def test_a_table_without_labels_will_do(waysout: CommandLine, tmp_path: Path) -> None:
    lines = [line.rpartition(",")[0] for line in Path("loans.csv").read_text().splitlines()]
    table = tmp_path / "unlabelled.csv"
    table.write_text("\n".join(lines))
    unlabelled = ("find", "--model", "model.txt", "--data", table, "--card", "loans.toml", *ROW)
    code, out, err = waysout(*unlabelled, *QUICK, "--json")
    assert (code, json.loads(out)["outcome"]) == (0, "found")
    assert "note: the table has no labels" in err
    code, _, err = waysout(*unlabelled, "--method", "nearest")
    assert code == 3
    assert "needs rows whose outcome is known" in err


def test_a_thread_that_a_model_leaves_busy_keeps_no_command_from_its_end(
    world: Path,  # noqa: F811
    tmp_path: Path,
) -> None:
    (tmp_path / "busy.py").write_text(
        "import threading\n"
        "threading.Thread(target=threading.Event().wait).start()\n"
        "def score(frame):\n    return frame['income'] / 100\n"
    )
    source = ["--data", str(world / "loans.csv"), "--card", str(world / "loans.toml")]
    soon = "import waysout.cli.main as cli; cli._EXIT_SECONDS = 0.5; cli.main()"
    ran = subprocess.run(
        [sys.executable, "-c", soon, "find", *source, "--model", "busy:score", "--row", "0",
         "--json", "--no-run"],
        cwd=tmp_path, capture_output=True, text=True, timeout=50,
    )  # fmt: skip
    assert (ran.returncode, json.loads(ran.stdout)["outcome"]) == (0, "found"), ran.stderr


def test_a_deadline_ends_the_command_although_the_model_hangs(
    world: Path,  # noqa: F811
    tmp_path: Path,
) -> None:
    (tmp_path / "asleep.py").write_text(
        "import threading\ndef score(frame):\n    threading.Event().wait()\n"
    )
    source = ["--data", str(world / "loans.csv"), "--card", str(world / "loans.toml")]
    ran = subprocess.run(
        [sys.executable, "-m", "waysout", "find", *source, "--model", "asleep:score", "--row", "0",
         "--seconds", "0.5", "--no-run"],
        cwd=tmp_path, capture_output=True, text=True, timeout=50,
    )  # fmt: skip
    # Less than the 60 s that the row itself may take.
    assert ran.returncode == 4
    assert "give a search more time" in ran.stderr


TIRES = """
import ctypes, os, sys, threading
threading.Thread(target=threading.Event().wait).start()
asked = 0
def score(frame):
    global asked
    asked += len(frame)
    if asked > 100:
        if os.name == "posix":
            c, stdout = ctypes.CDLL(None), "__stdoutp" if sys.platform == "darwin" else "stdout"
            c.flockfile(ctypes.c_void_p.in_dll(c, stdout))
        threading.Event().wait()
    return frame["income"] / 100
"""


def test_a_model_that_hangs_in_the_search_keeps_neither_the_result_nor_the_end(
    world: Path,  # noqa: F811
    tmp_path: Path,
) -> None:
    """Long after its trial, and for good, with C's lock of stdout, as in a `printf` that blocks."""
    (tmp_path / "tires.py").write_text(TIRES)
    never = "import waysout.cli.main as cli; cli._EXIT_SECONDS = 600; cli.main()"
    source = ["--data", str(world / "loans.csv"), "--card", str(world / "loans.toml")]
    ran = subprocess.run(
        [sys.executable, "-c", never, "find", *source, "--model", "tires:score", "--row", "0",
         "--seconds", "3", "--row-seconds", "600", "--no-run"],
        cwd=tmp_path, capture_output=True, text=True, timeout=40,
    )  # fmt: skip
    assert ran.returncode == 0, ran.stderr
    assert "if income goes from 42 to 50" in " ".join(ran.stdout.split())
    assert "deadline of 3 seconds" in " ".join((ran.stdout + ran.stderr).split())


def test_a_signal_while_a_signal_ends_the_process_prints_nothing_more(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    signals, written, codes = search.Signals(json=True), list[str](), list[int]()

    def write(_: int, text: str) -> None:
        written.append(text)
        signals._handle(signal.SIGTERM, None)

    monkeypatch.setattr(search, "_write", write)
    monkeypatch.setattr("os._exit", codes.append)
    signals._handle(signal.SIGINT, None)
    document, words = written
    assert json.loads(document)["error"]["code"] == 130
    assert "stopped by SIGINT" in words
    assert codes == [130]
