from __future__ import annotations

import io
import json
import shutil
import signal
import subprocess
import sys
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest
from cli_world import FIND, ROW, cut_off, in_world, world  # noqa: F401

from conftest import CommandLine
from waysout.cli.output import echo_table
from waysout.cli.sources import Sourced, open_source
from waysout.report.words import date_text
from waysout.run.source import Source, Trust
from waysout.store import Store, list_runs, new_run_path, runs_dir, tables
from waysout.store.lock import WriterLock

pytestmark = pytest.mark.usefixtures("in_world")
QUICK = (*ROW, "--llm", "simulated:1", "--calls", "8", "--oracle-rows", "40")
NOWHERE = "openai:m@http://127.0.0.1:9/v1"
# The simulated LLM, but from its fourth call on it does not come back: {hang} says how. A thread of
# a model goes on as well.
HANGING = """
import asyncio, sys, threading, time
import waysout.cli.main
import waysout.cli.search
from waysout.llm.simulated import Simulated

async def complete(self, request, quick=Simulated.complete, calls=[]):
    calls.append(request)
    if len(calls) > 3:
        print("thinking", file=sys.stderr, flush=True)
        {hang}
    return await quick(self, request)

Simulated.complete = complete
waysout.cli.search.PATIENCE = {patience}
waysout.cli.main._EXIT_SECONDS = 600
threading.Thread(target=threading.Event().wait).start()
waysout.cli.main.main()
"""
# A model that takes its time to load.
LOADING = """
import sys, time
import waysout.oracles.load
from waysout.cli.main import main

def load_model(*_, **__):
    print("thinking", file=sys.stderr, flush=True)
    time.sleep(60)

waysout.oracles.load.load_model = load_model
main()
"""
WAITING = HANGING.format(hang="await asyncio.sleep(60)", patience=20)
DEAF = HANGING.format(hang="time.sleep(60)", patience=0.1)


def stopped(code: str, number: signal.Signals, *args: str) -> tuple[int, str, str]:
    """Run a command until its LLM hangs, and send it a signal."""
    command = [sys.executable, "-c", code, *FIND, *QUICK, *args]
    with subprocess.Popen(
        command, stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True
    ) as process:
        assert process.stderr is not None
        for line in process.stderr:
            if line == "thinking\n":
                break
        process.send_signal(number)
        try:
            out, err = process.communicate(timeout=20)
        finally:
            process.kill()  # if it did not end
    return process.returncode, out, err


def timeless(text: str) -> dict[str, Any]:
    """Return a result without what may differ between equal runs."""
    found: dict[str, Any] = json.loads(text)
    # A call that was cut off is an attempt; who resumes tries the model again.
    for name in ("seconds", "attempts", "setup_rows"):
        del found["ledger"][name]
    return found


def asked(path: Path) -> int:
    with Store.read(path) as store:
        return sum(1 for _ in store.answers(0))


def test_a_signal_leaves_what_was_found_and_a_run_to_go_on_with(waysout: CommandLine) -> None:
    code, out, err = stopped(WAITING, signal.SIGINT, "--json")
    assert code == 130
    part = json.loads(out)
    assert (part["outcome"], part["reason"]) == ("interrupted", "stopped by SIGINT")
    assert part["error"]["code"] == 130
    assert part["ledger"]["llm_calls"] == 3
    [run] = list_runs(runs_dir())
    assert f" waysout runs resume {run.stem}" in err
    assert "interrupted" in waysout("runs", "list")[1]
    code, shown, err = waysout("runs", "show")
    assert (code, "The search was interrupted" in shown) == (0, True)
    assert f" waysout runs resume {run.stem}" in err

    code, resumed, err = waysout("runs", "resume", "--json")
    assert (code, "3 calls and " in err) == (0, True)
    assert timeless(resumed) == timeless(waysout(*FIND, *QUICK, "--no-run", "--json")[1])
    assert "finished" in waysout("runs", "list")[1]


def test_a_killed_run_goes_on_and_asks_nothing_twice(waysout: CommandLine) -> None:
    code, out, _ = stopped(WAITING, signal.SIGKILL)
    assert (code, out) == (-signal.SIGKILL, "")
    [run] = list_runs(runs_dir())
    before = asked(run)
    assert before >= 4
    code, out, err = waysout("runs", "show", run.stem)
    assert (code, "Query 0: running or interrupted" in out) == (0, True)
    assert f" waysout runs resume {run.stem}" in err
    code, out, err = waysout("runs", "export", run.stem)
    assert (code, out, "holds no result yet" in err) == (0, "", True)
    log = bytearray(run.with_name(f"{run.name}-wal").read_bytes())
    log[5000] ^= 1
    for name in ("damaged", "mended"):
        shutil.copy(run, runs_dir() / f"{name}.db")
        (runs_dir() / f"{name}.db-wal").write_bytes(log)

    code, resumed, err = waysout("runs", "resume", run.stem, "--json")
    assert (code, "is damaged" in err) == (0, False)
    assert timeless(resumed) == timeless(waysout(*FIND, *QUICK, "--no-run", "--json")[1])
    with Store.read(run) as store:
        works = [recorded.work_id for recorded in store.answers(0)]
    assert len(works) == len(set(works)) > before

    # Where the log is damaged, what is after that is lost, unless the run is repaired first.
    for command in ("show", "resume"):
        code, _, err = waysout("runs", command, "damaged", "--json")
        assert (code, "entries in it are left out" in err) == (0, True)
        assert " waysout runs repair damaged" in err
    assert waysout("runs", "repair", "mended")[0] == 0
    assert asked(runs_dir() / "mended.db") >= before - 1
    code, _, err = waysout("runs", "resume", "mended", "--json")
    assert (code, "are left out" in err) == (0, False)


def test_a_process_that_cannot_stop_ends_all_the_same(waysout: CommandLine) -> None:
    code, out, err = stopped(DEAF, signal.SIGTERM, "--json")
    error = {"type": "Interrupted", "message": "stopped by SIGTERM", "code": 143}
    assert (code, json.loads(out)) == (143, {"error": error})
    [run] = list_runs(runs_dir())
    assert f"stopped by SIGTERM\nrun: {run.stem}\nresume it with: " in err
    assert err.endswith(f" waysout runs resume {run.stem}\n")
    assert waysout("runs", "resume", "--json")[0] == 0


def test_a_signal_before_the_search_ends_at_once_with_a_word() -> None:
    code, out, err = stopped(LOADING, signal.SIGTERM)
    assert (code, out, err.strip()) == (143, "", "stopped by SIGTERM")
    assert list_runs(runs_dir()) == []


def test_a_run_killed_before_its_first_answer_goes_on(
    waysout: CommandLine, monkeypatch: pytest.MonkeyPatch
) -> None:
    def die(*_: object) -> None:
        raise RuntimeError("died")

    with monkeypatch.context() as early:
        early.setattr("waysout.store.Store.add_query", die)
        assert waysout(*FIND, *QUICK)[0] == 1
    code, resumed, err = waysout("runs", "resume", "--json")
    assert code == 0, err
    assert timeless(resumed) == timeless(waysout(*FIND, *QUICK, "--no-run", "--json")[1])


@pytest.mark.parametrize(
    "args",
    [
        ("--method", "lats-diversity", "--set", "bonus=0.1", "-k", "3"),
        ("--method", "random", "--oracle-rows", "30"),
        ("--method", "nearest"),
        ("--set", "finish=0.2", "--set", "edits=4", "--seed", "3"),
        ("--method", "recombine", "--set", "ask_about=both", "--set", "edits=4", "--seed", "3"),
        ("--calls", "0", "--oracle-rows", "40"),
        ("--paper", "--free", "--method", "comp-mcts", "--set", "reward=diversity", "--seed", "3"),
        ("--price", "1/2", "--money", "9", "--tokens", "99999", "--seconds", "99"),
        ("--at-least", "0.7", "--rules", "main", "--inputs", "category"),
        ("--polish", "9"),
    ],
    ids=[
        "lats",
        "random",
        "nearest",
        "wayfinder",
        "recombine",
        "no-calls",
        "paper",
        "limits",
        "goal",
        "polish",
    ],
)
def test_resuming_restores_every_setting(waysout: CommandLine, args: tuple[str, ...]) -> None:
    whole = waysout(*FIND, *QUICK, *args, "--no-run", "--json")[1]
    # Methods that ask no LLM have but one question.
    with cut_off(0 if args[1] in ("random", "nearest") else 1):
        assert waysout(*FIND, *QUICK, *args)[0] == 9
    code, resumed, err = waysout("runs", "resume", "--json")
    assert code == 0, err
    assert timeless(resumed) == timeless(whole)
    if "--price" in args:
        assert "9 in money" in err


def test_a_finished_run_is_shown_though_all_it_was_made_of_is_gone(
    waysout: CommandLine, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    mine = shutil.copytree(Path(), tmp_path / "mine")
    monkeypatch.chdir(mine)
    pickled = ("find", "--model", "model.joblib", "--trust-pickle", *FIND[3:])
    result = json.loads(waysout(*pickled, *QUICK, "--json")[1])
    monkeypatch.chdir(tmp_path)
    shutil.rmtree(mine)
    code, again, err = waysout("runs", "resume", "--json")
    assert (code, json.loads(again)) == (0, result)
    assert "note: this run is finished" in err


def test_resuming_works_from_anywhere(
    waysout: CommandLine, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    with cut_off():
        waysout(*FIND, *QUICK)
    monkeypatch.chdir(tmp_path)
    code, _, err = waysout("runs", "resume")
    assert code == 0, err


def test_how_long_a_row_may_take_is_said_again(
    waysout: CommandLine, monkeypatch: pytest.MonkeyPatch
) -> None:
    limits: list[float] = []

    def watched(call: Any, rows: int, row_seconds: float) -> Any:
        limits.append(row_seconds)
        return call()

    monkeypatch.setattr("waysout.oracles.adapt.watched", watched)
    with cut_off():
        assert "--row-seconds 300" in waysout(*FIND, *QUICK, "--row-seconds", "300")[2]
    assert {*limits} == {300.0}
    with cut_off():
        assert "--row-seconds 7" in waysout("runs", "resume", "--row-seconds", "7")[2]
    assert limits[-1] == 7.0


def test_a_pickle_is_not_read_again_without_our_word(waysout: CommandLine) -> None:
    pickled = ("find", "--model", "model.joblib", "--trust-pickle", *FIND[3:])
    with cut_off():
        assert waysout(*pickled, *QUICK)[0] == 9
    code, out, err = waysout("runs", "resume", "--json")
    assert (code, "pass --trust-pickle" in err) == (4, True)
    assert json.loads(out)["error"]["type"] == "OracleError"
    code, _, err = waysout("runs", "resume", "--trust-pickle")
    assert code == 0
    model = Path("model.joblib").resolve()
    assert f"note: --trust-pickle runs the code in {model}, which this run names" in err


def test_what_a_run_names_is_told_before_it_is_opened(
    waysout: CommandLine, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    mine = shutil.copytree(Path(), tmp_path / "mine")
    monkeypatch.chdir(mine)
    with cut_off():
        waysout(*FIND, *QUICK)
    Path("loans.toml").unlink()
    code, _, err = waysout("runs", "resume")
    assert code == 3
    files = f"model: {mine}/model.txt\ndata: {mine}/loans.csv\ncard: {mine}/loans.toml\n"
    assert err.startswith(f"LLM: simulated:1\n{files}error: ")


def test_a_run_from_elsewhere_sends_nothing_to_an_address_that_only_it_names(
    waysout: CommandLine, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("waysout.llm.call.Retry.wait", lambda *_, **__: 0.0)
    monkeypatch.setattr("waysout.cli.sources.open_source", refuse_to_open := OpenOnce())
    run = tmp_path / "a.db"
    code, _, err = waysout(*FIND, *ROW, "--llm", NOWHERE, "--run", run)
    assert code == 9
    assert f" waysout runs resume {run} --llm {NOWHERE}\n" in err
    refuse_to_open.allowed = False
    code, _, err = waysout("runs", "resume", run)
    assert (code, f"to confirm that, add --llm {NOWHERE}" in err) == (3, True)
    code, _, err = waysout("runs", "resume", run, "--llm", "openai:m@http://127.0.0.1:8/v1")
    assert (code, "a run is resumed with its own LLM" in err) == (3, True)
    refuse_to_open.allowed = True
    assert waysout("runs", "resume", run, "--llm", NOWHERE)[0] == 9
    new_run_path("ours").parent.mkdir(exist_ok=True)
    shutil.copy(run, new_run_path("ours"))
    assert waysout("runs", "resume", "last")[0] == 9


def test_a_run_without_calls_goes_on_without_its_llm(waysout: CommandLine, tmp_path: Path) -> None:
    run, given = tmp_path / "a.db", (*FIND, *ROW, "--llm", NOWHERE, "--calls", "0")
    with cut_off():
        code, _, err = waysout(*given, "--run", run)
    assert (code, err.endswith(f" waysout runs resume {run}\n")) == (9, True)
    code, resumed, err = waysout("runs", "resume", run, "--json")
    assert (code, "LLM: " in err) == (0, False)
    assert timeless(resumed) == timeless(waysout(*given, "--no-run", "--json")[1])


class OpenOnce:
    """Opens sources as long as it is allowed."""

    def __init__(self) -> None:
        self.allowed = True

    def __call__(self, source: Source, trust: Trust) -> Sourced:
        assert self.allowed
        return open_source(source, trust)


def doctor(manifest: dict[str, Any], name: str, value: Any) -> None:
    """Change a field of a manifest by its dotted name; ... takes it out."""
    *way, last = name.split(".")
    part = manifest
    for step in way:
        part = part[step]
    part[last] = value
    if value is ...:
        del part[last]


@pytest.mark.parametrize(
    ("name", "value"),
    [
        ("about.price", ...), ("about.llm", 3), ("about.data", None), ("about.at_least", "high"),
        ("about.row", [1, 2]), ("plan", ...), ("plan.k", True), ("plan.seed", "0"),
        ("plan.polish", "9"),
        ("plan.budget", []), ("plan.budget.tokens", ...), ("plan.style", {"temper": 1}),
        ("plan.style.template", "none"), ("plan.method_settings", "depth=3"),
    ],
    ids=str,
)  # fmt: skip
def test_an_odd_manifest_is_told_by_its_field(
    waysout: CommandLine, tmp_path: Path, name: str, value: Any
) -> None:
    with cut_off():
        waysout(*FIND, *QUICK)
    with Store.read(list_runs(runs_dir())[0]) as store:
        manifest = dict(store.manifest)
    doctor(manifest, name, value)
    del manifest["waysout_run"]
    with Store.create(tmp_path / "odd.db", manifest):
        pass
    code, _, err = waysout("runs", "resume", tmp_path / "odd.db")
    assert code == 6
    said = "is missing" if value is ... else "is "
    assert f"odd.db cannot be resumed: {name.removesuffix('.template')} {said}" in err
    assert waysout("runs", "show", tmp_path / "odd.db")[0] == 0


@pytest.mark.parametrize("file", ["model.txt", "loans.csv"])
def test_a_file_that_has_changed_is_refused(
    waysout: CommandLine, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, file: str
) -> None:
    monkeypatch.chdir(shutil.copytree(Path(), tmp_path / "mine"))
    run = tmp_path / "a.db"
    with cut_off():
        waysout(*FIND, *QUICK, "--run", run)
    changed = Path(file)
    changed.write_text(changed.read_text() + "\n")
    for command in (("runs", "resume", run), (*FIND, *QUICK, "--run", run)):
        code, _, err = waysout(*command)
        assert code == 6
        assert f"{changed} is not the one {run} began with" in err


def test_another_llm_is_refused(waysout: CommandLine) -> None:
    with cut_off():
        waysout(*FIND, *QUICK)
    code, _, err = waysout("runs", "resume", "--llm", "simulated:2")
    assert code == 3
    assert "was started with 'simulated:1', not 'simulated:2'" in err


def test_a_run_without_an_llm_is_resumed_without_one(waysout: CommandLine) -> None:
    with cut_off():
        waysout(*FIND, *ROW, "--oracle-rows", "30")
    code, _, err = waysout("runs", "resume", "--llm", "simulated:2")
    assert code == 3
    assert "was started with no LLM, not 'simulated:2'" in err
    code, out, err = waysout("runs", "resume", "--json")
    assert code == 0, err
    assert "LLM:" not in err
    found = json.loads(out)
    assert (found["settings"]["llm"], found["ledger"]["llm_calls"]) == (None, 0)


def test_a_run_of_another_maker_is_refused_with_what_to_do(
    waysout: CommandLine, tmp_path: Path
) -> None:
    with Store.create(tmp_path / "mine.db", {"method": "random", "plan": {}}):
        pass
    code, _, err = waysout("runs", "resume", tmp_path / "mine.db")
    assert code == 3
    assert "resume it where it was made" in err


def test_runs_are_listed_newest_first_and_shown(waysout: CommandLine) -> None:
    code, out, _ = waysout("runs", "list")
    assert (code, "no runs in" in out) == (0, True)
    waysout(*FIND, *QUICK)
    waysout(*FIND, *QUICK, "--method", "random")
    found = json.loads(waysout("runs", "list", "--json")[1])
    assert [run["method"] for run in found] == ["random", "wayfinder"]
    assert [run["llm"] for run in found] == [None, "simulated:1"]
    assert {run["status"] for run in found} == {"finished"}
    code, out, err = waysout("runs", "show", found[1]["run"])
    assert (code, err) == (0, "")
    assert "model.txt" in out
    assert " of 40 rows approved). The model says yes if " in " ".join(out.split())
    document = json.loads(waysout("runs", "show", found[1]["run"], "--json")[1])
    assert document["run"]["llm_calls"] == 8
    assert document["manifest"]["plan"]["seed"] == 0
    assert document["results"][0]["outcome"] == "found"


def test_results_are_exported(waysout: CommandLine, tmp_path: Path) -> None:
    result = json.loads(waysout(*FIND, *QUICK, "--json")[1])
    code, out, _ = waysout("runs", "export")
    assert (code, json.loads(out)) == (0, result)
    table = tmp_path / "all.csv"
    assert waysout("runs", "export", "--format", "csv", "--out", table)[0] == 0
    assert len(table.read_text().splitlines()) == 1 + len(result["ways"])
    every = ("runs", "export", "--all-options", "--format")
    assert waysout(*every, "csv", "--out", table)[0] == 0
    assert len(table.read_text().splitlines()) == 1 + len(result["options"])
    assert waysout(*every, "json")[0] == 3
    assert waysout("runs", "export", "--format", "html", "--out", tmp_path / "pages")[0] == 0
    assert "<!DOCTYPE html>" in (tmp_path / "pages" / "query-0.html").read_text()


def test_letters_are_exported_with_the_day_of_the_search(
    waysout: CommandLine, tmp_path: Path
) -> None:
    waysout(*FIND, *QUICK)
    [run] = list_runs(runs_dir())
    with Store.read(run) as store:
        day = date_text(store.summary().created.astimezone().date())
    letters = tmp_path / "letters"
    code, _, err = waysout("runs", "export", "--format", "letter", "--out", letters)
    assert (code, err.count("letter: ")) == (0, 2)
    assert (letters / "query-0-letter.txt").read_text().startswith(f"  {day}\n")
    assert (letters / "query-0-letter.html").read_text().startswith("<!DOCTYPE html>")
    code, _, err = waysout("runs", "export", "--format", "letter")
    assert (code, "--out FOLDER" in err) == (3, True)


def test_export_says_what_is_wrong(waysout: CommandLine, tmp_path: Path) -> None:
    waysout(*FIND, *QUICK)
    code, _, err = waysout("runs", "export", "--format", "html")
    assert (code, "--out FOLDER" in err) == (3, True)
    code, _, err = waysout("runs", "export", "--out", tmp_path / "none" / "such.json")
    assert (code, "there is no folder" in err) == (5, True)
    [run] = list_runs(runs_dir())
    code, _, err = waysout("runs", "export", "--out", run)
    assert (code, "the file of the run" in err) == (3, True)
    assert waysout("runs", "export", "--format", "xml")[0] == 2
    code, _, err = waysout("runs", "export", "lst")
    assert (code, "unknown run 'lst'" in err) == (3, True)


def test_pages_are_named_by_the_query_not_by_what_is_in_a_result(
    waysout: CommandLine, tmp_path: Path
) -> None:
    waysout(*FIND, *QUICK)
    with Store.read(list_runs(runs_dir())[0]) as store:
        result = store.finished(0)
    assert result is not None
    with Store.create(tmp_path / "odd.db", {}) as store:
        store.add_query(0, result.query)
        store.finish(0, replace(result, index=7))
    pages = tmp_path / "pages"
    code, _, _ = waysout("runs", "export", tmp_path / "odd.db", "--format", "html", "--out", pages)
    assert (code, [page.name for page in pages.iterdir()]) == (0, ["query-0.html"])


def damage(path: Path) -> None:
    """Overwrite the last pages of a run, where its answers and results lie."""
    data = bytearray(path.read_bytes())
    data[-3 * tables.PAGE_SIZE :] = b"\xa5" * (3 * tables.PAGE_SIZE)
    path.write_bytes(data)


def test_a_damaged_run_is_told_of_and_repaired(waysout: CommandLine) -> None:
    waysout(*FIND, *QUICK)
    [run] = list_runs(runs_dir())
    code, out, _ = waysout("runs", "repair", run.stem)
    assert (code, "is whole; nothing was changed" in out) == (0, True)
    damage(run)
    code, _, err = waysout("runs", "show")
    assert (code, "waysout runs repair" in err) == (6, True)
    assert waysout("runs", "list")[0] == 0

    code, out, err = waysout("runs", "repair", run.stem)
    assert (code, "the damaged file: " in out) == (0, True)
    assert f" waysout runs resume {run.stem}" in err
    code, resumed, err = waysout("runs", "resume", run.stem, "--json")
    assert code == 0, err
    again = waysout(*FIND, *QUICK, "--no-run", "--json")[1]
    assert timeless(resumed)["options"] == timeless(again)["options"]


def test_one_damaged_run_does_not_hide_the_others(waysout: CommandLine) -> None:
    waysout(*FIND, *QUICK)
    [run] = list_runs(runs_dir())
    data = run.read_bytes()
    at = data.index(b"queries", 100)
    bad = new_run_path("bad")
    bad.write_bytes(data[: at + 4] + b"\xd7" + data[at + 5 :])  # no text: SQLite's error quotes it
    code, out, err = waysout("runs", "list")
    assert (code, "finished" in out, "damaged" in out) == (0, True, True)
    assert f"waysout runs repair {bad}" in " ".join(err.split())
    listed = {run["run"]: run["status"] for run in json.loads(waysout("runs", "list", "--json")[1])}
    assert listed == {run.stem: "finished", bad.stem: "damaged"}
    for command in ("show", "export", "resume"):
        code, _, err = waysout("runs", command, bad.stem)
        assert (code, "is damaged (" in err) == (6, True)
    assert waysout("runs", "repair", bad.stem)[0] == 0
    assert waysout("runs", "export", bad.stem)[1] == waysout("runs", "export", run.stem)[1]


def test_repair_tells_scripts(waysout: CommandLine, tmp_path: Path) -> None:
    waysout(*FIND, *QUICK)
    [run] = list_runs(runs_dir())
    damage(run)
    out = tmp_path / "saved.db"
    report = json.loads(waysout("runs", "repair", run, "--out", out, "--json")[1])
    assert (report["fine"], report["path"], report["original"]) == (False, str(out), str(run))
    assert report["tables"]["queries"]["kept"] == 1


def test_what_is_no_run_is_listed_as_unreadable(waysout: CommandLine) -> None:
    waysout(*FIND, *QUICK)
    new_run_path("junk").write_text("not a run")
    code, out, err = waysout("runs", "list")
    assert (code, "unreadable" in out, "is not a Waysout run" in err) == (0, True, True)
    listed = json.loads(waysout("runs", "list", "--json")[1])
    assert sorted(run["status"] for run in listed) == ["finished", "unreadable"]


def test_a_run_that_is_deleted_while_they_are_listed_is_left_out(
    waysout: CommandLine, monkeypatch: pytest.MonkeyPatch
) -> None:
    gone = new_run_path("gone")
    monkeypatch.setattr("waysout.store.list_runs", lambda _: [gone])
    code, out, err = waysout("runs", "list")
    assert (code, "unreadable" in out, gone.stem in err) == (0, False, False)


@pytest.mark.parametrize("command", ["show", "resume", "export"])
def test_without_runs_there_is_no_last_one(waysout: CommandLine, command: str) -> None:
    code, _, err = waysout("runs", command)
    assert (code, "there are no runs in" in err) == (3, True)


def test_delete_removes_a_run_with_all_that_was_made_of_it_and_nothing_else(
    waysout: CommandLine,
) -> None:
    for _ in range(2):
        assert waysout(*FIND, *QUICK)[0] == 0
    kept, gone = (run.stem for run in list_runs(runs_dir()))
    beside = [f"{gone}.db-wal", f"{gone}.db-shm", f"{gone}.db.damaged", f"{gone}.db.damaged-2",
              f".{gone}.db.repaired", f".{gone}.db.new-journal", f"{gone}.db.lock",
              f"..{gone}.db.repaired.new", f"..{gone}.db.repaired.new-journal"]  # fmt: skip
    others = [f"{gone}.dbx", f"x{gone}.db.damaged", "letter.txt"]
    for name in (*beside, *others):
        (runs_dir() / name).write_text("")
    code, out, _ = waysout("runs", "delete", gone, "--json")
    assert (code, len(json.loads(out)["deleted"][gone])) == (0, 1 + len(beside))
    left = {file.name for file in runs_dir().iterdir()}
    assert left == {f"{kept}.db", *others}
    code, _, err = waysout("runs", "delete", kept, gone)
    assert (code, f"unknown run '{gone}'" in err) == (3, True)
    with WriterLock.take(runs_dir() / f"{kept}.db"):
        assert waysout("runs", "delete", kept)[0] != 0
    assert (runs_dir() / f"{kept}.db").exists()
    assert waysout("runs", "delete", "last")[0] == 0
    assert not list_runs(runs_dir())


def test_delete_leaves_what_is_no_run(waysout: CommandLine, tmp_path: Path) -> None:
    run, table = tmp_path / "mine.db", tmp_path / "people.csv"
    assert waysout(*FIND, *QUICK, "--run", str(run))[0] == 0
    for file in (table, tmp_path / "other.db"):
        file.write_text("a,b\n1,2\n")
        code, _, err = waysout("runs", "delete", str(file))
        assert (code, "is not a Waysout run, and was not deleted" in err) == (3, True)
        assert sorted(f.name for f in tmp_path.glob(f"{file.name}*")) == [file.name]
    damaged = bytearray(run.read_bytes())
    damaged[2000:] = b"x" * 300
    run.write_bytes(damaged)
    assert waysout("runs", "delete", str(run))[0] == 0
    assert not run.exists()
    kept = runs_dir() / "beyond-recognition.db"
    kept.parent.mkdir(parents=True, exist_ok=True)
    kept.write_bytes(b"")
    assert waysout("runs", "delete", kept.stem)[0] == 0
    assert not kept.exists()


def test_an_exported_table_is_the_same_in_a_file_and_in_a_pipe(
    waysout: CommandLine, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    said = "a,\x1b[31mred\x1b]0;title\x07\r\n"
    monkeypatch.setattr("waysout.report.result.to_csv", lambda *_, **__: said)
    assert waysout(*FIND, *QUICK)[0] == 0
    table = tmp_path / "ways.csv"
    assert waysout("runs", "export", "--format", "csv", "--out", table)[0] == 0
    assert table.read_bytes() == said.encode()
    code, out, _ = waysout("runs", "export", "--format", "csv")
    assert (code, out) == (0, said)
    monkeypatch.setattr("sys.stdout", on_terminal := Terminal())
    echo_table(said)
    assert on_terminal.getvalue() == "a,�[31mred�]0;title�\n"


class Terminal(io.StringIO):
    """What a person looks at."""

    def isatty(self) -> bool:
        return True
