from __future__ import annotations

import json
import socket
import time
from collections.abc import Iterator

import pytest
from guard_world import HOST, PORT, TOKEN, Answered, Headers, ask, exchange, serving, status_of
from serve_world import LLM, ROW, make_service, small
from starlette.testclient import TestClient

from waysout.serve import tokens
from waysout.serve.app import create_app
from waysout.serve.guard import App, Receive, Scope, Send
from waysout.serve.hosts import Hosts
from waysout.serve.metrics import Metrics
from waysout.serve.service import Service
from waysout.serve.tokens import Gate

HOSTS = Hosts.of("127.0.0.1", PORT)
URL = f"http://127.0.0.1:{PORT}"
SEARCH = {"problem": "small", "row": ROW, "calls": 2, "oracle_rows": 40}


@pytest.fixture
def client() -> Iterator[TestClient]:
    metrics = Metrics()
    service = Service({"small": small()}, LLM, listener=metrics)
    with TestClient(create_app(service, HOSTS, metrics=metrics), base_url=URL) as client:
        yield client


@pytest.fixture(scope="module")
def app() -> App:
    return create_app(make_service(), HOSTS)


@pytest.fixture
def locked() -> Iterator[TestClient]:
    """The same behind a token."""
    app = create_app(make_service(), HOSTS, gate=Gate(TOKEN, PORT))
    with TestClient(app, base_url=URL) as client:
        yield client


def wait_for_end(client: TestClient, id: str) -> None:
    deadline = time.monotonic() + 20
    while client.get(f"/api/searches/{id}").json()["status"] == "running":
        assert time.monotonic() < deadline
        time.sleep(0.01)


class TestWhole:
    def test_a_search_runs_behind_the_guard_and_is_counted(self, client: TestClient) -> None:
        begun = client.post("/api/searches", json=SEARCH)
        assert begun.status_code == 201
        id = begun.json()["id"]
        assert begun.headers["location"] == f"/api/searches/{id}"
        wait_for_end(client, id)
        found = client.get(f"/api/searches/{id}").json()
        counts = client.get("/metrics").text
        assert "waysout_searches_started_total 1.0" in counts
        assert 'waysout_searches_ended_total{outcome="found"} 1.0' in counts
        assert f"waysout_options_found_total {found['options']}.0" in counts
        assert f"waysout_llm_calls_total {found['ledger']['llm_calls']}.0" in counts
        assert f"waysout_oracle_rows_total {found['ledger']['oracle_rows']}.0" in counts
        assert "waysout_searches_running 0.0" in counts
        assert "waysout_searches_kept 1.0" in counts
        assert 'route="/api/searches/{id}"' in counts
        assert id not in counts

    def test_the_api_describes_itself(self, client: TestClient) -> None:
        paths = client.get("/api/openapi.json").json()["paths"]
        assert {"/api/searches", "/api/login", "/metrics"} <= set(paths)
        assert "/" not in paths
        for path in ("/redoc", "/openapi.json"):
            assert client.get(path).status_code == 404

    @pytest.mark.parametrize("path", ["/api/health/", "/api/searches/", "/static", "//api/health"])
    def test_nobody_is_sent_elsewhere(self, client: TestClient, path: str) -> None:
        answer = client.get(URL + path, follow_redirects=False)
        assert answer.status_code == 404
        assert answer.json()["error"]["type"] == "NotFound"

    @pytest.mark.parametrize("method", ["HEAD", "OPTIONS", "PUT", "TRACE", "BREW"])
    def test_a_method_that_is_not_meant(self, client: TestClient, method: str) -> None:
        answer = client.request(method, "/api/health")
        assert answer.status_code == 405
        assert answer.headers["allow"] == "GET"
        assert not any(name.startswith("access-control") for name in answer.headers)

    @pytest.mark.parametrize("path", ["/api/login", "/api/logout", "/api/searches/x/stop"])
    def test_getting_changes_nothing(self, client: TestClient, path: str) -> None:
        assert client.get(path).status_code == 405

    def test_a_body_is_json_and_has_an_end(self, client: TestClient) -> None:
        form = client.post("/api/searches", data={"problem": "small"})
        assert form.status_code == 415
        large = client.post("/api/searches", json={"problem": "x" * 300_000})
        assert large.status_code == 413

    def test_the_report_may_run_nothing(self, client: TestClient) -> None:
        id = client.post("/api/searches", json=SEARCH).json()["id"]
        wait_for_end(client, id)
        for name in ("report", "letter"):
            answer = client.get(f"/api/searches/{id}/{name}.html")
            assert answer.status_code == 200
            assert "sandbox" in answer.headers["content-security-policy"]
            assert answer.headers["cache-control"] == "no-store"


class TestLogin:
    def login(self, client: TestClient, token: object = TOKEN, **headers: str) -> Answered:
        found = client.post("/api/login", json={"token": token}, headers=headers)
        return Answered(found.status_code, list(found.headers.items()), found.content, 0)

    def test_a_browser_logs_in_and_out(self, locked: TestClient) -> None:
        assert locked.get("/api/problems").status_code == 401
        answer = self.login(locked)
        assert answer.status == 204
        cookie = answer.header("set-cookie")
        assert "HttpOnly" in cookie
        assert "SameSite=strict" in cookie
        assert "Secure" not in cookie
        assert TOKEN not in cookie
        assert locked.get("/api/problems").status_code == 200
        kept = dict(locked.cookies)
        assert locked.post("/api/logout").status_code == 204
        assert not locked.cookies
        locked.cookies.update(kept)
        assert locked.get("/api/problems").status_code == 401

    def test_behind_a_proxy_with_https_the_cookie_stays_there(self) -> None:
        hosts = Hosts.of("127.0.0.1", PORT, ["loans.example:443"])
        app = create_app(Service({}), hosts, gate=Gate(TOKEN, PORT))
        with TestClient(app, base_url="https://loans.example") as client:
            assert "Secure" in self.login(client, origin="https://loans.example").header(
                "set-cookie"
            )

    @pytest.mark.parametrize(
        "token", ["", "wrong", TOKEN[:-1], "\ud800", "x" * 513, 7, None, [TOKEN]]
    )
    def test_any_other_token_opens_nothing(self, locked: TestClient, token: object) -> None:
        content = json.dumps({"token": token})
        answer = locked.post(
            "/api/login", content=content, headers={"content-type": "application/json"}
        )
        assert answer.status_code in (401, 422)
        assert "set-cookie" not in answer.headers
        assert set(answer.json()["error"]) == {"type", "message", "code"}

    def test_who_guesses_waits_and_who_knows_the_token_comes_in(
        self, locked: TestClient, monkeypatch: pytest.MonkeyPatch
    ) -> None:
        monkeypatch.setattr(tokens, "HOLD_SECONDS", 0.0)
        answers = [self.login(locked, f"guess {i}") for i in range(tokens.FREE_GUESSES + 5)]
        assert [answer.status for answer in answers] == [401] * tokens.FREE_GUESSES + [429] * 5
        assert int(answers[-1].header("retry-after")) > 0
        assert "try again in" in answers[-1].error["message"]
        assert self.login(locked).status == 204

    @pytest.mark.parametrize(("token", "is_wrong"), [("something-else", True), (TOKEN, False)])
    def test_the_server_is_told_who_showed_a_wrong_token(self, token: str, is_wrong: bool) -> None:
        app, seen = create_app(Service({}), HOSTS, gate=Gate(TOKEN, PORT)), list[Scope]()

        async def watched(scope: Scope, receive: Receive, send: Send) -> None:
            seen.append(scope)
            await app(scope, receive, send)

        with TestClient(watched, base_url=f"http://{HOST[1]}") as client:
            self.login(client, token)
        assert (tokens.WRONG in seen[-1]) is is_wrong

    @pytest.mark.parametrize(
        "body", [b"[" * 100_000, b'{"token":' + b"9" * 10_000 + b"}", b'{"token":"\xff"}']
    )
    def test_a_body_that_cannot_be_read_says_what_can(
        self, locked: TestClient, body: bytes
    ) -> None:
        answer = locked.post(
            "/api/login", content=body, headers={"content-type": "application/json"}
        )
        assert answer.status_code == 400
        assert "send JSON in UTF-8" in answer.json()["error"]["message"]

    def test_another_page_cannot_log_anybody_in(self, locked: TestClient) -> None:
        assert self.login(locked, origin="http://evil.example").status == 403

    def test_without_a_token_all_are_in(self, client: TestClient) -> None:
        assert self.login(client, "anything").status == 204
        assert "set-cookie" not in client.post("/api/logout").headers

    def test_the_page_shows_who_may_log_out(self, client: TestClient, locked: TestClient) -> None:
        assert "Sign out" in locked.get("/").text
        assert "Sign out" not in client.get("/").text

    @pytest.mark.parametrize("path", ["/", "/api/health", "/static/main.js"])
    def test_what_is_open_needs_no_token(self, locked: TestClient, path: str) -> None:
        assert locked.get(path).status_code == 200


def test_no_answer_and_no_count_holds_the_token(locked: TestClient) -> None:
    locked.post("/api/login", json={"token": TOKEN})
    shown = {"authorization": f"Bearer {TOKEN}"}
    for path in ("/", "/metrics", "/api/problems", "/api/openapi.json", "/api/none"):
        answer = locked.get(path, headers=shown)
        assert TOKEN not in answer.text + str(answer.headers)


def test_streams_do_not_hold_up_the_end() -> None:
    """Who follows a search is told that it is gone, and the server ends without waiting."""
    service = make_service()
    opened = socket.create_server(("127.0.0.1", 0))
    port = opened.getsockname()[1]
    host = f"127.0.0.1:{port}"
    app = create_app(service, Hosts.of("127.0.0.1", port))
    with socket.create_connection(("127.0.0.1", port), timeout=20) as follower:
        with serving(app, opened, service.close):
            body = json.dumps(SEARCH)
            lines = ["Connection: close", "Content-Type: application/json"]
            sent = _head("POST /api/searches", host, *lines, f"Content-Length: {len(body)}")
            begun = exchange(port, sent, body.encode())
            id = json.loads(begun.partition(b"\r\n\r\n")[2])["id"]
            follower.sendall(_head(f"GET /api/searches/{id}/events", host))
            seen = follower.recv(65536)
            assert status_of(seen) == 200
            began = time.monotonic()
        assert time.monotonic() - began < 4
        while part := follower.recv(65536):
            seen += part
    assert b"event: gone\n" in seen
    assert seen.endswith(b"0\r\n\r\n")


def _head(first: str, host: str, *lines: str) -> bytes:
    return "\r\n".join([f"{first} HTTP/1.1", f"Host: {host}", *lines, "", ""]).encode()


@pytest.mark.parametrize(
    ("headers", "status"),
    [
        ([("host", "evil.example")], 400),
        ([HOST, ("origin", "http://evil.example")], 403),
        ([HOST, ("sec-fetch-site", "cross-site")], 403),
    ],
)
@pytest.mark.parametrize("path", ["/", "/api/searches", "/metrics", "/static/main.js", "/none"])
def test_strangers_get_nowhere(app: App, headers: Headers, status: int, path: str) -> None:
    for method in ("GET", "POST", "DELETE"):
        answer = ask(app, method, path, headers)
        assert answer.status == status
        assert answer.error["type"].startswith("Foreign")
