"""Models that are no files: functions by their names and servers by their addresses."""

from __future__ import annotations

import json
import os
import shutil
import signal
import socket
import subprocess
import sys
import time
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
from cli_world import ROW, cut_off, row, world  # noqa: F401
from inline_executor import InlineExecutor, work_inline
from starlette.testclient import TestClient

from conftest import CommandLine
from oracle_server import Scripted, answer, serving
from waysout.batch.run import make_problem
from waysout.errors import InputError
from waysout.run.source import Source, Trust
from waysout.serve import http_server
from waysout.store import Store, list_runs, runs_dir

LOANS = ("--data", "loans.csv", "--card", "loans.toml")
QUICK = ("--oracle-rows", "60")
BATCH = ("batch", *LOANS, *QUICK, "--limit", "6", "--part-rows", "3", "--workers", "1")
SCORER = """
import math
IMPORTED = True

def score(frame):
    jobs = frame["job"].map(["none", "part-time", "full-time"].index)
    margin = frame["income"] - frame["debt"] + 10 * jobs - 35
    return 1 / (1 + (-margin / 5).map(math.exp))

class Model:
    classes_ = ["refused", "approved"]
    def predict_proba(self, frame):
        chance = score(frame)
        return [[1 - p, p] for p in chance]

model = Model()
number = 7
"""


# It ignores signals, and forks; it notes who handles them, and how what it forked ended.
UNRULY = """
import os, signal, time
for number in (signal.SIGINT, signal.SIGTERM):
    signal.signal(number, signal.SIG_IGN)
import scorer
HANDLERS, ENDS = [], []

def score(frame):
    HANDLERS.append(signal.getsignal(signal.SIGTERM))
    if not ENDS:
        forked = os.fork()
        if not forked:
            os.kill(os.getpid(), signal.SIGTERM)
            time.sleep(0.2)
            os._exit(0)
        ENDS.append(os.waitstatus_to_exitcode(os.waitpid(forked, 0)[1]))
    return scorer.score(frame)
"""

# It prints past Python, with C's buffer and without, and closes the streams of `sys`.
NOISY = """
import ctypes, os, sys
import scorer

def score(frame):
    os.write(1, b"written past Python\\n")
    ctypes.CDLL(None).puts(b"kept by C")
    if sys.stdout:
        sys.stdout.close()
        sys.stderr.close()
    sys.stdout = sys.stderr = None
    return scorer.score(frame)
"""
# It also prints when the process ends, as a thread of its own may at any time.
LASTING = f"""
import atexit
{NOISY}
atexit.register(lambda: os.write(1, b"the last word\\n"))
"""
# It goes to another folder, when it is imported and whenever it is asked.
WANDERING = """
import os
import scorer
ELSEWHERE = os.path.abspath("elsewhere")
os.chdir(ELSEWHERE)

def score(frame):
    os.chdir(ELSEWHERE)
    return scorer.score(frame)
"""
MODELS = {"scorer": SCORER, "unruly": UNRULY, "noisy": NOISY, "lasting": LASTING,
          "wandering": WANDERING}  # fmt: skip


def score(given: dict[str, Any]) -> float:
    jobs = ("none", "part-time", "full-time").index(given["job"])
    return 0.9 if given["income"] - given["debt"] + 10 * jobs > 35 else 0.1


def apart(*args: str) -> subprocess.CompletedProcess[str]:
    """Run a command in a process of its own."""
    folder = os.pathsep.join(filter(None, sys.path))
    environment = {**os.environ, "PYTHONPATH": folder, "OMP_NUM_THREADS": "1"}
    command = [sys.executable, "-m", "waysout", *args]
    return subprocess.run(command, env=environment, capture_output=True, text=True, timeout=120)


@pytest.fixture(autouse=True)
def place(
    world: Path,  # noqa: F811
    tmp_path: Path,
    monkeypatch: pytest.MonkeyPatch,
) -> Path:
    """A folder of one's own with a table, its card and code."""
    for name in ("loans.csv", "loans.toml"):
        shutil.copy(world / name, tmp_path)
    for name, code in MODELS.items():
        (tmp_path / f"{name}.py").write_text(code)
    monkeypatch.chdir(tmp_path)
    monkeypatch.setenv("WAYSOUT_RUNS", str(tmp_path / "runs"))
    monkeypatch.setattr(sys, "path", [*sys.path])
    for name in MODELS:
        monkeypatch.delitem(sys.modules, name, raising=False)
    return tmp_path


@pytest.fixture
def forget() -> Iterator[None]:
    yield
    for name in MODELS:
        sys.modules.pop(name, None)


pytestmark = pytest.mark.usefixtures("forget")


@pytest.fixture
def server() -> Iterator[Scripted]:
    with serving(answer(score)) as made:
        yield made


@pytest.fixture
def inline(monkeypatch: pytest.MonkeyPatch) -> None:
    work_inline(monkeypatch)


@pytest.fixture
def served(monkeypatch: pytest.MonkeyPatch) -> list[Any]:
    """What would be served, if anybody came."""
    found: list[Any] = []

    def run_server(app: Any, opened: socket.socket, closing: Any) -> None:
        found.append((app, f"http://127.0.0.1:{opened.getsockname()[1]}"))

    monkeypatch.setattr(http_server, "run_server", run_server)
    return found


def test_find_with_a_function(waysout: CommandLine) -> None:
    code, out, err = waysout("find", "--model", "scorer:score", *LOANS, *ROW, *QUICK, "--json")
    assert code == 0, err
    assert json.loads(out)["outcome"] == "found"
    code, out, err = waysout("find", "--model", "scorer:model", *LOANS, *ROW, *QUICK, "--json")
    assert code == 0, err


@pytest.mark.skipif(not hasattr(os, "fork"), reason="needs fork")
@pytest.mark.usefixtures("inline")
@pytest.mark.parametrize("command", [("find", *ROW), ("batch", "--limit", "2", "--out", "ways")])
def test_signals_stay_ours_and_are_not_handled_in_what_a_model_forks(
    waysout: CommandLine, command: tuple[str, ...]
) -> None:
    usual = signal.getsignal(signal.SIGTERM)
    code, _, err = waysout(*command, "--model", "unruly:score", *LOANS, *QUICK)
    assert code == 0, err
    unruly = sys.modules["unruly"]
    assert {getattr(handler, "__name__", handler) for handler in unruly.HANDLERS} == {"_handle"}
    assert unruly.ENDS == [-signal.SIGTERM]
    assert signal.getsignal(signal.SIGTERM) is usual


@pytest.mark.skipif(os.name != "posix", reason="knows where C is on POSIX alone")
def test_stdout_is_one_document_whatever_a_model_prints_and_takes_away() -> None:
    find = ("find", "--model", "lasting:score", *LOANS, *ROW, *QUICK, "--html", "page.html")
    done = apart(*find, "--json")
    assert done.returncode == 0, done.stderr
    assert json.loads(done.stdout)["outcome"] == "found"
    for line in ("written past Python", "kept by C", "page: page.html", "the last word"):
        assert line in done.stderr.splitlines()


@pytest.mark.usefixtures("inline")
def test_a_batch_says_what_it_has_to_though_a_model_takes_the_streams_away(
    waysout: CommandLine,
) -> None:
    ours = sys.stdout, sys.stderr
    code, out, err = waysout(*BATCH, "--model", "noisy:score", "--out", "ways")
    assert (code, sys.stdout, sys.stderr) == (0, *ours)
    assert "results: ways" in out
    assert "6 rows, wayfinder: at most" in err


@pytest.mark.usefixtures("inline")
def test_files_are_where_they_were_named_though_a_model_changes_the_folder(
    waysout: CommandLine, place: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    (place / "elsewhere").mkdir()
    (place / "row.json").write_text(json.dumps(row()))
    model = ("--model", "wandering:score", *LOANS, *QUICK)
    find = ("find", *model, "--json-row", "row.json", "--html", "page.html", "--run", "a.db")
    code, _, err = waysout(*find)
    assert code == 0, err
    assert "page: page.html\n" in err
    assert {"page.html", "a.db"} <= {path.name for path in place.iterdir()}
    with Store.read(place / "a.db") as store:
        about = store.manifest["about"]
    assert about["data"] == str(place / "loans.csv")
    assert set(about["digests"]) == {"data"}

    monkeypatch.chdir(place)
    del sys.modules["wandering"]
    code, out, err = waysout(*BATCH, *model, "--out", "ways")
    assert (code, "results: ways\n" in out) == (0, True), err
    assert list((place / "ways").glob("part-*.parquet"))
    assert not list((place / "elsewhere").iterdir())


def test_find_with_an_address(waysout: CommandLine, server: Scripted) -> None:
    code, out, err = waysout("find", "--model", server.url, *LOANS, *ROW, *QUICK, "--json")
    assert code == 0, err
    found = json.loads(out)
    assert found["outcome"] == "found"
    sent = [given for body in server.asked for given in body["rows"]]
    assert row() in sent
    for option in found["options"]:
        assert score(option["row"]) == 0.9


@pytest.mark.parametrize(
    ("model", "message"),
    [
        ("nowhere:score", "there is no module 'nowhere' in"),
        ("scorer.py:score", "leave out .py: scorer:score"),
        ("scorer:scores", "unknown name in scorer 'scores'; did you mean 'score'?"),
        ("scorer:number", "int is not a model"),
        ("broken:score", "importing it raised ZeroDivisionError"),
        ("needy:score", "needs the package 'no_such_package'"),
        ("ending:score", "importing it raised SystemExit"),
        ("http://127.0.0.1:1/score", "gives no answer after"),
        ("model", "or a function (module:function)"),
    ],
)
def test_what_cannot_be_opened_is_told(
    waysout: CommandLine,
    place: Path,
    model: str,
    message: str,
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setattr("waysout.oracles.http._FIRST_WAIT", 0.001)
    (place / "broken.py").write_text("1 / 0")
    (place / "needy.py").write_text("import no_such_package")
    (place / "ending.py").write_text("raise SystemExit(3)")
    code, _, err = waysout("find", "--model", model, *LOANS, *ROW, *QUICK)
    assert code == 4
    assert message in " ".join(err.split())


def test_code_that_a_run_names_is_not_imported_unasked(
    waysout: CommandLine, place: Path, served: list[Any], monkeypatch: pytest.MonkeyPatch
) -> None:
    with cut_off():
        waysout("find", "--model", "scorer:score", *LOANS, *ROW, *QUICK)
    del sys.modules["scorer"]
    monkeypatch.setattr(sys, "path", [entry for entry in sys.path if entry != str(place)])
    elsewhere = place / "elsewhere"
    elsewhere.mkdir()
    monkeypatch.chdir(elsewhere)
    for command in (("runs", "resume", "last"), ("serve", "last", "--port", "0")):
        code, _, err = waysout(*command)
        assert code == 3
        assert "scorer:score is code in" in err
        assert "pass --trust-code" in " ".join(err.split())
        assert "scorer" not in sys.modules
    assert not served
    code, out, err = waysout("runs", "resume", "last", "--trust-code", "--json")
    assert code == 0, err
    assert json.loads(out)["outcome"] == "found"
    assert f"--trust-code runs scorer:score in {place}" in " ".join(err.split())


def test_a_strangers_run_sends_nothing_to_its_address(
    waysout: CommandLine, place: Path, server: Scripted, served: list[Any]
) -> None:
    url = f"{server.url}/score"
    with cut_off():
        waysout("find", "--model", url, *LOANS, *ROW, *QUICK, "--run", "theirs.db")
    asked = len(server.asked)
    for command in (("runs", "resume", "theirs.db"), ("serve", "theirs.db", "--port", "0")):
        code, _, err = waysout(*command)
        assert code == 3
        assert f"to confirm that, add --model {url}" in " ".join(err.split())
        assert waysout(*command, "--model", "http://other/score")[0] == 3
    assert len(server.asked) == asked
    assert waysout("serve", "theirs.db", "--port", "0", "--model", url)[0] == 0
    assert len(served) == 1
    code, out, err = waysout("runs", "resume", "theirs.db", "--model", url, "--json")
    assert code == 0, err
    assert json.loads(out)["outcome"] == "found"
    with cut_off():
        waysout("find", "--model", url, *LOANS, *ROW, *QUICK)
    assert waysout("runs", "resume", "last")[0] == 0  # Our own runs need no word.


def test_a_dead_server_leaves_a_run_to_resume(
    waysout: CommandLine, server: Scripted, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("waysout.oracles.http._FIRST_WAIT", 0.001)
    call = ("find", "--model", server.url, *LOANS, *ROW, *QUICK, "--json")
    server.script += [server.usual] * 4 + [lambda handler, _: handler.hang_up()] * 50
    code, out, _ = waysout(*call)
    failed = json.loads(out)
    assert (code, failed["outcome"]) == (4, "failed")
    assert "gives no answer after 4 attempts" in failed["reason"]
    del server.script[:]
    code, out, err = waysout("runs", "resume", "last", "--json")
    assert code == 0, err
    assert len(list_runs(runs_dir())) == 1
    kept = [option["row"] for option in failed["options"]]
    now = [option["row"] for option in json.loads(out)["options"]]
    assert all(given in now for given in kept)


@pytest.mark.usefixtures("inline")
def test_batches(waysout: CommandLine, server: Scripted, tmp_path: Path) -> None:
    for name, model in (("a", "scorer:score"), ("b", f"{server.url}/score")):
        call = (*BATCH, "--model", model, "--out", str(tmp_path / name), "--json")
        code, out, err = waysout(*call)
        assert code == 0, err
        assert json.loads(out)["failed"] == 0
        begun = len(InlineExecutor.made)
        assert waysout(*call)[0] == 0  # The same command resumes it, with nothing left to do.
        assert len(InlineExecutor.made) == begun
    assert server.asked


def test_workers_may_be_in_another_folder(place: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    source = Source("loans.csv", "loans.toml", "scorer:score")
    sent = Source(**source.as_dict())
    (place / "elsewhere").mkdir()
    monkeypatch.chdir(place / "elsewhere")
    problem = make_problem(sent, Trust(named=True), [(40, 42, 20, "part-time")], {})
    assert problem.oracle.ask([(40, 85, 2, "part-time")]).decision.tolist() == [True]
    with pytest.raises(InputError, match="scorer:score is code in"):
        make_problem(sent, Trust(), [(40, 42, 20, "part-time")], {})


@pytest.mark.slow
def test_workers_import_from_the_folder_of_the_command(place: Path) -> None:
    """In processes of their own."""
    done = apart(*BATCH, "--model", "scorer:score", "--out", "ways", "--json")
    assert done.returncode == 0, done.stderr
    assert json.loads(done.stdout)["failed"] == 0


def test_serve(waysout: CommandLine, server: Scripted, served: list[Any]) -> None:
    for model in ("scorer:score", f"{server.url}/score"):
        code, _, err = waysout("serve", "--model", model, *LOANS, "--port", "0")
        assert code == 0, err
        assert f"decides: the model {model}" in err
    for app, url in served:
        with TestClient(app, base_url=url) as client:
            begun = client.post("/api/searches", json={"problem": "loans", "row": row()}).json()
            path = f"/api/searches/{begun['id']}"
            while (seen := client.get(path).json())["status"] == "running":
                time.sleep(0.01)
            assert seen["options"] > 0


def test_check_and_certify(waysout: CommandLine, server: Scripted) -> None:
    for model in ("scorer:score", f"{server.url}/score"):
        code, out, err = waysout("oracle", "check", "--model", model, *LOANS)
        assert code == 0, err
        assert f"{model} answers, and nothing odd was seen" in out
    pytest.importorskip("treecf", reason="needs treecf")
    code, _, err = waysout("certify", "--model", "scorer:score", *LOANS, *ROW)
    assert (code, "a proof needs a model of trees" in err) == (3, True)
