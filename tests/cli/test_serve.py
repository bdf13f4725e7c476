from __future__ import annotations

import csv
import json
import re
import signal
import socket
import subprocess
import sys
import time
import webbrowser
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from http.client import HTTPConnection
from pathlib import Path
from queue import Queue
from typing import Any

import pytest
from cli_world import FIND, ROW, cut_off, in_world, row, world  # noqa: F401
from fastapi.testclient import TestClient

from conftest import CommandLine
from waysout.serve import http_server
from waysout.serve.saved_run import SavedRun
from waysout.serve.service import Service
from waysout.store import Store, list_runs, runs_dir

pytestmark = pytest.mark.usefixtures("in_world")
LOANS = ("--model", "model.txt", "--data", "loans.csv", "--card", "loans.toml")
SIMULATED = ("--llm", "simulated:1")
SERVE = ("serve", *LOANS, *SIMULATED, "--port", "0")
TOKEN = "correct-horse-battery-staple"
# The simulated LLM, but from its third call on it does not come back: {hang} says how.
HANGING = """
import asyncio, sys, time
import waysout.serve.http_server
from waysout.cli.main import main
from waysout.llm.simulated import Simulated

async def complete(self, request, quick=Simulated.complete, calls=[]):
    calls.append(request)
    if len(calls) > 2:
        print("thinking", file=sys.stderr, flush=True)
        {hang}
    return await quick(self, request)

Simulated.complete = complete
waysout.serve.http_server.PATIENCE = {patience}
main()
"""
WAITING = HANGING.format(hang="await asyncio.sleep(60)", patience=20)
BUSY = HANGING.format(hang="await asyncio.to_thread(time.sleep, 60)", patience=20)
DEAF = HANGING.format(hang="time.sleep(60)", patience=0.1)


@dataclass
class Running:
    """A server in a process of its own."""

    process: subprocess.Popen[str]
    port: int

    def ask(self, method: str, path: str, body: object = None) -> tuple[int, Any]:
        connection = HTTPConnection("127.0.0.1", self.port, timeout=30)
        sent = None if body is None else json.dumps(body)
        kind = {"Content-Type": "application/json"} if sent else {}
        connection.request(method, path, sent, kind)
        answer = connection.getresponse()
        text = answer.read()
        connection.close()
        return answer.status, json.loads(text) if text else None

    def search(self, **more: object) -> str:
        status, begun = self.ask(
            "POST", "/api/searches", {"problem": "loans", "row": row(), **more}
        )
        assert status == 201, begun
        return str(begun["id"])

    def wait_until_it_thinks(self) -> None:
        assert self.process.stderr is not None
        assert any(line == "thinking\n" for line in self.process.stderr)

    def end(self, number: signal.Signals) -> tuple[int, str, float]:
        began = time.monotonic()
        self.process.send_signal(number)
        _, err = self.process.communicate(timeout=30)
        return self.process.returncode, err, time.monotonic() - began


@contextmanager
def running(code: str) -> Iterator[Running]:
    with subprocess.Popen(
        [sys.executable, "-c", code, *SERVE], stdout=subprocess.PIPE, stderr=subprocess.PIPE,
        text=True,
    ) as process:  # fmt: skip
        try:
            assert process.stdout is not None
            told = process.stdout.readline()
            found = re.fullmatch(
                r"open http://127\.0\.0\.1:(\d+)/ in a browser; Ctrl-C ends it\n", told
            )
            assert found, told
            yield Running(process, int(found[1]))
        finally:
            process.kill()


def test_a_server_searches_and_ends_when_told_to() -> None:
    """With a search under way and somebody who follows it, as on any evening."""
    with running(WAITING) as server:
        assert server.ask("GET", "/api/health")[1]["status"] == "ok"
        ended = server.search(method="random", oracle_rows=100)
        while (view := server.ask("GET", f"/api/searches/{ended}")[1])["status"] == "running":
            time.sleep(0.02)
        assert (view["outcome"], view["options"] > 0) == ("found", True)

        waiting = server.search(calls=5)
        server.wait_until_it_thinks()
        follower = socket.create_connection(("127.0.0.1", server.port), timeout=30)
        place = f"/api/searches/{waiting}/events"
        follower.sendall(f"GET {place} HTTP/1.1\r\nHost: localhost:{server.port}\r\n\r\n".encode())
        seen = follower.recv(1000)
        code, err, seconds = server.end(signal.SIGTERM)
    assert (code, seconds < 5) == (0, True)
    assert "stopped; `waysout runs list` shows what was kept" in err
    assert "Traceback" not in err
    with follower:
        while part := follower.recv(65536):
            seen += part
    assert b"event: gone" in seen
    assert sorted(_statuses()) == ["finished", "interrupted"]


def _statuses() -> Iterator[str]:
    for path in list_runs(runs_dir()):
        with Store.read(path) as store:
            yield store.summary().status


@pytest.mark.parametrize(("code", "left"), [(BUSY, 0), (DEAF, 130)], ids=["a thread", "all of it"])
def test_a_model_that_thinks_is_not_waited_for(code: str, left: int) -> None:
    """What was found is kept all the same; only where nothing answers, the code says so."""
    with running(code) as server:
        server.search(calls=5)
        server.wait_until_it_thinks()
        returned, err, seconds = server.end(signal.SIGINT)
    assert (returned, seconds < 5) == (left, True)
    assert "Traceback" not in err
    assert list(_statuses()) == ["interrupted"]


@dataclass
class Served:
    """What would be served, if somebody came."""

    app: Any = None
    port: int = 0
    adopted: SavedRun | None = None


@pytest.fixture
def nobody_comes(monkeypatch: pytest.MonkeyPatch) -> Served:
    """Have the server end as soon as it begins."""
    served = Served()

    def run_server(app: Any, opened: socket.socket, closing: Any) -> None:
        served.app, served.port = app, opened.getsockname()[1]

    def adopt(self: Service, name: str, run: SavedRun, adopt: Any = Service.adopt) -> Any:
        served.adopted = run
        return adopt(self, name, run)

    monkeypatch.setattr(http_server, "run_server", run_server)
    monkeypatch.setattr(Service, "adopt", adopt)
    return served


def test_it_says_who_decides_and_who_proposes(waysout: CommandLine, nobody_comes: Served) -> None:
    code, out, err = waysout(*SERVE)
    assert code == 0
    assert out == f"open http://127.0.0.1:{nobody_comes.port}/ in a browser; Ctrl-C ends it\n"
    assert "decides: the model model.txt" in err
    assert "proposes: simulated:1 (simulated: a stand-in, not a language model)" in err


def test_a_page_searches_by_itself_unless_told_to_wait(
    waysout: CommandLine, nobody_comes: Served
) -> None:
    for more, instant in (((), True), (("--wait",), False)):
        assert waysout(*SERVE, *more)[0] == 0
        with TestClient(nobody_comes.app, base_url=f"http://127.0.0.1:{nobody_comes.port}") as c:
            assert c.get("/api/problems/loans").json()["instant"] is instant


def test_people_of_a_table_without_labels_are_offered_too(
    waysout: CommandLine, nobody_comes: Served, tmp_path: Path
) -> None:
    table = tmp_path / "loans.csv"
    with Path("loans.csv").open(newline="") as source, table.open("w", newline="") as file:
        records = csv.DictReader(source)
        kept = [name for name in records.fieldnames or () if name != "status"]
        writer = csv.DictWriter(file, kept, extrasaction="ignore")
        writer.writeheader()
        writer.writerows(records)
    people = []
    for place in (Path("loans.csv"), table):
        assert waysout(*SERVE, "--data", place)[0] == 0
        with TestClient(nobody_comes.app, base_url=f"http://127.0.0.1:{nobody_comes.port}") as c:
            found = c.get("/api/problems/loans").json()["people"]
            named = c.get(f"/api/problems/loans/people?q={ROW}").json()
            examples = c.get("/api/problems/loans/examples").json()["examples"]
            people.append((found, named, examples))
    assert people[0] == people[1]
    assert people[0][0] > 0


def test_a_method_without_an_llm_needs_none(waysout: CommandLine, nobody_comes: Served) -> None:
    code, _, err = waysout("serve", *LOANS, "--port", "0", "--method", "random", "--no-run")
    assert code == 0
    assert "proposes: no LLM" in err
    assert err.endswith("stopped\n")


def test_the_token_is_needed_on_this_machine_too_and_never_shown(
    waysout: CommandLine, nobody_comes: Served, monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    monkeypatch.setenv("WAYSOUT_TOKEN", TOKEN)
    code, out, err = waysout(*SERVE)
    assert (code, TOKEN in out + err) == (0, False)
    assert "a token is needed" in err
    assert nobody_comes.app.app.gate.is_token(TOKEN)
    monkeypatch.delenv("WAYSOUT_TOKEN")
    (tmp_path / "token").write_text(f"{TOKEN}\n")
    code, out, err = waysout(*SERVE, "--host", "0.0.0.0", "--token-file", tmp_path / "token",
                             "--allow-host", "loans.example:443")  # fmt: skip
    assert (code, TOKEN in out + err) == (0, False)
    assert out.startswith("open http://127.0.0.1:")
    assert "loans.example:443" in err
    assert nobody_comes.app.app.hosts.is_origin("https://loans.example")


def test_the_page_opens_by_itself_where_that_is_wished(
    waysout: CommandLine, nobody_comes: Served, monkeypatch: pytest.MonkeyPatch
) -> None:
    opened: Queue[str] = Queue()
    monkeypatch.setattr(webbrowser, "open", opened.put)
    assert waysout(*SERVE)[0] == waysout(*SERVE, "--open")[0] == 0
    assert opened.get(timeout=10) == f"http://127.0.0.1:{nobody_comes.port}/"
    assert opened.empty()


@pytest.mark.parametrize("host", ["0.0.0.0", "::", "192.0.2.1"])
def test_others_are_not_let_in_without_a_token(waysout: CommandLine, host: str) -> None:
    code, out, err = waysout(*SERVE, "--host", host)
    assert (code, out) == (3, "")
    assert f"others can reach {host}, so it needs a token, in WAYSOUT_TOKEN" in err


def test_a_token_file_that_will_not_do(waysout: CommandLine, tmp_path: Path) -> None:
    file = tmp_path / "token"
    file.write_text("too-short-secret"[:15])
    code, out, err = waysout(*SERVE, "--token-file", file)
    assert (code, out) == (3, "")
    assert "holds a token of 15 characters" in err
    assert "too-short" not in err
    assert waysout(*SERVE, "--token-file", tmp_path / "none")[0] == 5


def test_a_taken_port_is_said_before_anything_is_loaded(waysout: CommandLine) -> None:
    with socket.create_server(("127.0.0.1", 0)) as taken:
        port = str(taken.getsockname()[1])
        code, out, err = waysout("serve", "--data", "no-such-file", "--port", port)
    assert (code, out) == (5, "")
    assert f"port {port} of 127.0.0.1 is taken" in err
    assert "0 for any free one" in err


@pytest.mark.parametrize(
    ("given", "said"),
    [
        (("--allow-host", "http://loans.example"), "a host is NAME or NAME:PORT"),
        (("--method", "recombin"), "did you mean 'recombine'?"),
        (("--llm", "chatty:1"), "unknown LLM backend 'chatty'"),
        (("--rules", "none"), "unknown rule set"),
        (("--data", ""), "name the table: --data FILE"),
        (("--searches", "0"), ""),
        (("--port", "65536"), ""),
    ],
)
def test_what_does_not_hold_together(
    waysout: CommandLine, given: tuple[str, ...], said: str
) -> None:
    code, out, err = waysout(*SERVE, *given)
    assert (code, out) == (3 if said else 2, "")
    assert said in err


def test_a_missing_package_says_what_to_install(
    waysout: CommandLine, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setitem(sys.modules, "prometheus_client", None)
    code, _, err = waysout("serve")
    assert code == 5
    assert "'prometheus_client'" in err
    assert "install 'waysout[serve]'" in err


def test_help_loads_no_server() -> None:
    code = "import sys, waysout.cli.main; print(*sys.modules)"
    loaded = subprocess.run(
        [sys.executable, "-c", code], capture_output=True, text=True, check=True
    )
    heavy = {"fastapi", "starlette", "uvicorn", "jinja2", "prometheus_client", "numpy", "pydantic"}
    assert heavy & set(loaded.stdout.split()) == set()


def test_without_arguments_it_is_the_demo(
    waysout: CommandLine, nobody_comes: Served, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setitem(sys.modules, "xllamacpp", None)
    code, _, err = waysout("serve", "--port", "0")
    assert code == 0, err
    assert "decides: the model synthetic" in err
    assert "proposes: no LLM" in err
    code, _, err = waysout("serve", "--port", "0", "--llm", "simulated:0")
    assert "proposes: simulated:0 (simulated: a stand-in, not a language model)" in err


@pytest.mark.parametrize(
    ("given", "reason"),
    [
        (
            ("--method", "lats"),
            "the method 'lats' cannot search without an LLM: give",
        ),
        (("--calls", "3"), "3 LLM calls are allowed, but there is no LLM"),
    ],
    ids=["method", "calls"],
)
def test_what_needs_an_llm_is_refused_without_one(
    waysout: CommandLine, nobody_comes: Served, given: tuple[str, str], reason: str
) -> None:
    code, _, err = waysout("serve", "--port", "0", *given)
    assert code == 3
    assert reason in err


def test_the_demo_leads_to_it(waysout: CommandLine, tmp_path: Path) -> None:
    place = ("--html", str(tmp_path / "page.html"))
    code, out, _ = waysout("demo", "--llm", "simulated:0", *place)
    assert (code, out.endswith("for any of the applicants: waysout serve\n")) == (0, True)
    document = waysout("demo", "--llm", "simulated:0", *place, "--json")[1]
    assert json.loads(document)["outcome"] == "found"


class TestRun:
    def find(self, waysout: CommandLine, *more: str) -> dict[str, Any]:
        small = ("--calls", "8", "--oracle-rows", "40", "--json")
        found = waysout(*FIND, *ROW, *SIMULATED, *small, *more)
        document: dict[str, Any] = json.loads(found[1])
        return document

    def test_a_finished_run_is_opened_with_all_it_knows(
        self, waysout: CommandLine, nobody_comes: Served
    ) -> None:
        found = self.find(waysout)
        code, out, err = waysout("serve", "last", "--port", "0")
        assert code == 0, err
        assert re.search(r"open http://127\.0\.0\.1:\d+/#search=[\w-]+ in a browser", out)
        assert "the run's llm: simulated:1" in err
        assert nobody_comes.adopted is not None
        run = nobody_comes.adopted
        assert run.locks == {}
        assert [option.as_dict() for option in run.result.options] == found["options"]
        assert len(run.memory) > 0

    def test_so_is_one_that_was_cut_off(self, waysout: CommandLine, nobody_comes: Served) -> None:
        with cut_off(after=2):
            self.find(waysout)
        code, _, err = waysout("serve", "last", "--port", "0", "--llm", "simulated:2")
        assert (code, "proposes: simulated:2" in err) == (0, True)
        assert nobody_comes.adopted is not None
        assert nobody_comes.adopted.result.outcome.kind == "interrupted"

    def test_what_a_server_kept_before_it_was_killed_is_opened_with_its_locks(
        self, waysout: CommandLine, nobody_comes: Served
    ) -> None:
        with running(WAITING) as server:
            id = server.search(calls=5, locks={"fixed": ["income"]})
            server.wait_until_it_thinks()
            found = server.ask("GET", f"/api/searches/{id}/options?limit=100")[1]["options"]
            server.process.kill()
            server.process.wait()
        assert found
        code, _, err = waysout("runs", "resume", "last")
        assert (code, "open it there, with" in err) == (3, True)
        code, _, err = waysout("serve", "last", "--port", "0")
        assert code == 0, err
        assert nobody_comes.adopted is not None
        run = nobody_comes.adopted
        assert {o.key for o in run.result.options} >= {option["key"] for option in found}
        assert run.locks["fixed"] == ["income"]
        assert len(run.memory) > 0

    def test_a_run_names_its_own_table(self, waysout: CommandLine) -> None:
        self.find(waysout)
        code, _, err = waysout("serve", "last", *LOANS, "--port", "0")
        assert (code, "a run names its own table, model and card" in err) == (3, True)

    def test_a_run_of_other_code_says_what_to_do(
        self, waysout: CommandLine, tmp_path: Path
    ) -> None:
        path = tmp_path / "foreign.db"
        Store.create(path, {"method": "recombine"}).close()
        code, _, err = waysout("serve", str(path), "--port", "0")
        assert code == 3
        assert "was not made by `waysout find`" in err
        assert "--data, --model and --card" in err

    def test_a_stranger_s_run_sends_nothing_to_an_address(
        self, waysout: CommandLine, tmp_path: Path, nobody_comes: Served
    ) -> None:
        path = tmp_path / "theirs.db"
        nowhere = "openai:m@http://127.0.0.1:9/v1"
        with cut_off(after=0):
            waysout(*FIND, *ROW, "--llm", nowhere, "--run", path)
        code, _, err = waysout("serve", str(path), "--port", "0")
        assert code == 3
        assert f"to confirm that, add --llm {nowhere}" in err
        assert nobody_comes.adopted is None
        assert waysout("serve", str(path), "--port", "0", "--llm", "simulated:1")[0] == 0

    def test_there_is_no_such_run(self, waysout: CommandLine) -> None:
        code, _, err = waysout("serve", "yesterday", "--port", "0")
        assert (code, "unknown run 'yesterday'" in err) == (3, True)
