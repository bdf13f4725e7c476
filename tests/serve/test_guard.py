from __future__ import annotations

import asyncio
import json
import socket
from collections.abc import Iterator

import pytest
from guard_world import (
    HOST,
    PORT,
    TOKEN,
    Answered,
    Headers,
    ask,
    echo,
    exchange,
    read_all,
    scope_of,
    serving,
    status_of,
)

from waysout.serve.guard import KNOWN, Guard, Message, Receive, Scope, Send
from waysout.serve.hosts import Hosts
from waysout.serve.tokens import FREE_GUESSES, Gate

HOSTS = Hosts.of("127.0.0.1", PORT)
JSON = ("content-type", "application/json")
OPEN = Guard(echo, HOSTS, most_body=100)
METHODS = ("GET", "HEAD", "POST", "PUT", "PATCH", "DELETE", "OPTIONS", "TRACE", "FOO")


def sized(*parts: bytes) -> tuple[str, str]:
    return "content-length", str(sum(map(len, parts)))


def post(guard: Guard, *parts: bytes, headers: Headers | None = None) -> Answered:
    return ask(guard, "POST", headers=headers or [HOST, JSON, sized(*parts)], body=list(parts))


class TestHost:
    @pytest.mark.parametrize("method", METHODS)
    def test_a_foreign_host_gets_400_before_the_body_is_read(self, method: str) -> None:
        headers = [("host", "evil.example"), JSON, sized(b"{}")]
        answer = ask(OPEN, method, headers=headers, body=[b"{}"])
        assert (answer.status, answer.read) == (400, 0)
        assert answer.error["type"] == "ForeignHost"

    @pytest.mark.parametrize(
        "hosts",
        [[], [HOST, HOST], [HOST, ("host", "evil.example")], [("host", "evil.example"), HOST]],
        ids=["none", "twice", "ours first", "theirs first"],
    )
    def test_there_is_one_host_and_no_second(self, hosts: Headers) -> None:
        assert ask(OPEN, headers=hosts).status == 400

    def test_a_header_is_found_however_it_is_written(self) -> None:
        assert ask(OPEN, headers=[("Host", HOST[1])]).status == 200
        assert ask(OPEN, headers=[HOST, ("HOST", "evil.example")]).status == 400

    def test_a_forwarded_host_is_nobody_s_word(self) -> None:
        forwarded = [("x-forwarded-host", HOST[1]), ("forwarded", f"host={HOST[1]}")]
        assert ask(OPEN, headers=[("host", "evil.example"), *forwarded]).status == 400

    def test_the_host_is_looked_at_before_the_origin(self) -> None:
        both = [("host", "evil.example"), ("origin", "http://evil.example")]
        assert ask(OPEN, headers=both).status == 400


class TestOrigin:
    @pytest.mark.parametrize("method", METHODS)
    @pytest.mark.parametrize("origin", ["http://evil.example", "null", f"http://{HOST[1]}/"])
    def test_a_foreign_origin_gets_403_before_the_body_is_read(
        self, method: str, origin: str
    ) -> None:
        headers = [HOST, ("origin", origin), JSON, sized(b"{}")]
        answer = ask(OPEN, method, headers=headers, body=[b"{}"])
        assert (answer.status, answer.read) == (403, 0)
        assert answer.error["type"] == "ForeignOrigin"
        assert not answer.header("access-control-allow-origin")

    def test_our_own_pages_may_ask(self) -> None:
        assert ask(OPEN, headers=[HOST, ("origin", f"http://localhost:{PORT}")]).status == 200

    def test_there_is_one_origin_and_no_second(self) -> None:
        ours = ("origin", f"http://{HOST[1]}")
        assert ask(OPEN, headers=[HOST, ours, ours]).status == 403
        assert ask(OPEN, headers=[HOST, ours, ("origin", "null")]).status == 403

    @pytest.mark.parametrize("site", ["same-origin", "none"])
    def test_a_browser_that_says_it_is_ours(self, site: str) -> None:
        assert ask(OPEN, headers=[HOST, ("sec-fetch-site", site)]).status == 200

    @pytest.mark.parametrize("site", ["cross-site", "same-site", "", "SAME-ORIGIN", "new-word"])
    def test_a_browser_that_says_anything_else(self, site: str) -> None:
        answer = ask(OPEN, headers=[HOST, ("sec-fetch-site", site)])
        assert (answer.status, answer.read) == (403, 0)

    def test_one_good_word_does_not_cover_a_bad_one(self) -> None:
        sites = [("sec-fetch-site", "same-origin"), ("sec-fetch-site", "cross-site")]
        assert ask(OPEN, headers=[HOST, *sites]).status == 403


VISIT = [
    ("sec-fetch-site", "cross-site"),
    ("sec-fetch-mode", "navigate"),
    ("sec-fetch-dest", "document"),
]


class TestVisit:
    def test_a_link_from_elsewhere_leads_to_the_page(self) -> None:
        assert ask(OPEN, "GET", "/", [HOST, *VISIT]).status == 200

    @pytest.mark.parametrize(
        ("method", "path"), [("POST", "/"), ("GET", "/api/searches"), ("GET", "//"), ("HEAD", "/")]
    )
    def test_and_to_nothing_else(self, method: str, path: str) -> None:
        assert ask(OPEN, method, path, [HOST, *VISIT]).status == 403

    @pytest.mark.parametrize("missing", VISIT[1:])
    def test_a_frame_or_a_script_is_no_visit(self, missing: tuple[str, str]) -> None:
        without = [pair for pair in VISIT if pair != missing]
        assert ask(OPEN, "GET", "/", [HOST, *without]).status == 403
        other = (missing[0], "iframe")
        assert ask(OPEN, "GET", "/", [HOST, *without, other]).status == 403
        assert ask(OPEN, "GET", "/", [HOST, *VISIT, other]).status == 403

    def test_a_visit_with_a_foreign_origin_is_foreign(self) -> None:
        assert ask(OPEN, "GET", "/", [HOST, *VISIT, ("origin", "null")]).status == 403


class TestToken:
    gate = Gate(TOKEN, PORT)
    guard = Guard(echo, HOSTS, gate)

    @pytest.mark.parametrize("path", ["/", "/static/page.js", "/api/login", "/api/health"])
    def test_some_doors_are_open(self, path: str) -> None:
        assert ask(self.guard, path=path).status == 200

    @pytest.mark.parametrize(
        "path",
        ["/api/problems", "/api/searches", "/metrics", "/api/openapi.json", "/api/login/", "/x",
         "/api/healthy", "/static", "//", "//static/x", "/API/health", "/api/health/../problems"],
    )  # fmt: skip
    def test_all_others_are_closed(self, path: str) -> None:
        answer = ask(self.guard, path=path)
        assert answer.status == 401
        assert answer.error["type"] == "TokenNeeded"
        assert answer.header("www-authenticate") == "Bearer"

    @pytest.mark.parametrize("scheme", ["Bearer ", "bearer ", "BEARER  "])
    def test_the_token_opens(self, scheme: str) -> None:
        assert ask(self.guard, headers=[HOST, ("authorization", scheme + TOKEN)]).status == 200

    @pytest.mark.parametrize(
        "given", ["", "Bearer", "Bearer ", f"Bearer {TOKEN[:-1]}", f"Bearer {TOKEN}x", TOKEN,
                  f"Basic {TOKEN}", f"Bearer{TOKEN}", "Bearer \xff"],
    )  # fmt: skip
    def test_nothing_like_it_does(self, given: str) -> None:
        assert ask(self.guard, headers=[HOST, ("authorization", given)]).status == 401

    def test_two_tokens_are_none(self) -> None:
        shown = ("authorization", f"Bearer {TOKEN}")
        assert ask(self.guard, headers=[HOST, shown, shown]).status == 401

    def test_a_cookie_opens(self) -> None:
        cookie = f"{self.gate.cookie}={self.gate.login()}"
        for line in (cookie, f"a=b; {cookie}", f"{cookie};c", f"{self.gate.cookie}=old; {cookie}"):
            assert ask(self.guard, headers=[HOST, ("cookie", line)]).status == 200
        assert ask(self.guard, headers=[HOST, ("cookie", f"x{cookie}")]).status == 401

    def test_a_token_in_the_address_opens_nothing(self) -> None:
        scope = scope_of("GET", "/api/problems", [HOST])
        scope["query_string"] = f"token={TOKEN}".encode()
        assert status_in(self.guard, scope) == 401

    def test_a_token_does_not_make_a_foreign_page_ours(self) -> None:
        headers = [HOST, ("authorization", f"Bearer {TOKEN}"), ("origin", "http://evil.example")]
        assert ask(self.guard, headers=headers).status == 403

    def test_without_it_the_body_is_not_read(self) -> None:
        answer = post(self.guard, b"{}")
        assert (answer.status, answer.read) == (401, 0)

    def test_who_guesses_is_told_to_wait_and_the_holder_is_served(self) -> None:
        held: list[float] = []

        async def pause(seconds: float) -> None:
            held.append(seconds)

        guard = Guard(echo, HOSTS, Gate(TOKEN, PORT, pause=pause))
        guess = [HOST, ("authorization", "Bearer guessed-horse-battery")]
        answers = [ask(guard, headers=guess) for _ in range(2 * FREE_GUESSES)]
        assert {answer.status for answer in answers[:FREE_GUESSES]} == {401}
        for answer in answers[FREE_GUESSES:]:
            assert (answer.status, answer.error["type"]) == (429, "TooManyGuesses")
            assert int(answer.header("retry-after")) > 0
        shown = ("authorization", f"Bearer {TOKEN}")
        assert ask(guard, headers=[HOST, shown]).status == 200
        assert ask(guard, headers=[HOST]).status == 401
        assert len(held) == FREE_GUESSES  # all from the eleventh, and not the holder

    @pytest.mark.parametrize("path", ["/", "/static/page.js", "/api/login", "/api/health"])
    def test_an_open_door_does_not_tell_whether_a_token_is_right(self, path: str) -> None:
        scope = scope_of("GET", path, [HOST, ("authorization", f"Bearer {TOKEN}")])
        assert status_in(self.guard, scope) == 200
        assert KNOWN not in scope

    def test_the_server_is_told_whom_the_guard_knows(self) -> None:
        cookie = ("cookie", f"{self.gate.cookie}={self.gate.login()}")
        bearer = ("authorization", f"Bearer {TOKEN}")
        foreign = ("origin", "http://evil.example")
        for guard, path, headers, known in [
            (self.guard, "/x", [cookie], True), (self.guard, "/", [cookie], True),
            (self.guard, "/x", [bearer], True), (self.guard, "/x", [], False),
            (self.guard, "/", [], False), (self.guard, "/x", [bearer, foreign], False),
            (OPEN, "/x", [], True), (OPEN, "/x", [foreign], False),
        ]:  # fmt: skip
            scope = scope_of("GET", path, [HOST, *headers])
            status_in(guard, scope)
            assert (KNOWN in scope) is known


def status_in(guard: Guard, scope: Scope) -> int:
    sent: list[Message] = []

    async def receive() -> Message:
        return {"type": "http.request", "body": b""}

    async def send(message: Message) -> None:
        sent.append(message)

    asyncio.run(guard(scope, receive, send))
    return int(sent[0]["status"])


class TestBody:
    def test_a_body_of_json_is_handed_on_whole(self) -> None:
        assert post(OPEN, b'{"a":', b"1}").body == b'{"a":1}'

    def test_as_large_as_it_may_be(self) -> None:
        assert post(OPEN, b"x" * 100).status == 200

    def test_one_that_says_it_is_too_large_is_not_read(self) -> None:
        answer = post(OPEN, b"x" * 101)
        assert (answer.status, answer.read) == (413, 0)
        assert answer.error["type"] == "TooLarge"
        assert "100 bytes" in answer.error["message"]

    def test_one_that_says_nothing_is_counted(self) -> None:
        chunked = [HOST, JSON, ("transfer-encoding", "chunked")]
        answer = post(OPEN, b"x" * 60, b"x" * 60, b"x" * 60, headers=chunked)
        assert (answer.status, answer.read) == (413, 2)
        assert post(OPEN, b"x" * 60, b"x" * 40, headers=chunked).status == 200

    def test_one_that_says_too_little_is_counted(self) -> None:
        assert post(OPEN, b"x" * 101, headers=[HOST, JSON, ("content-length", "1")]).status == 413

    @pytest.mark.parametrize("length", ["-1", "+1", "1e9", "", "1, 1", "٣", "0x10", "9" * 19])
    def test_a_length_that_is_no_number(self, length: str) -> None:
        headers = [HOST, JSON, ("content-length", length.encode().decode("latin-1"))]
        answer = post(OPEN, b"{}", headers=headers)
        assert (answer.status, answer.read) == (400, 0)
        assert post(OPEN, headers=[HOST, JSON, sized(), sized()]).status == 400

    def test_two_ways_to_tell_its_end_are_one_too_many(self) -> None:
        both = [HOST, JSON, sized(b"{}"), ("transfer-encoding", "chunked")]
        assert post(OPEN, b"{}", headers=both).status == 400

    @pytest.mark.parametrize("kind", ["application/json", "Application/JSON; charset=utf-8"])
    def test_json_may_be_written_in_many_ways(self, kind: str) -> None:
        headers = [HOST, ("content-type", kind), sized(b"{}")]
        assert post(OPEN, b"{}", headers=headers).status == 200

    @pytest.mark.parametrize(
        "kinds",
        [[], ["text/plain"], ["application/x-www-form-urlencoded"], ["multipart/form-data; a=b"],
         ["application/jsonx"], ["text/plain; application/json"], [""],
         ["application/json", "text/plain"], ["application/x-python-pickle"]],
    )  # fmt: skip
    def test_anything_else_is_refused_unread(self, kinds: list[str]) -> None:
        said = [("content-type", kind) for kind in kinds]
        answer = post(OPEN, b"{}", headers=[HOST, *said, sized(b"{}")])
        assert (answer.status, answer.read) == (415, 0)
        assert answer.error["type"] == "NotJson"

    def test_without_a_body_no_type_is_needed(self) -> None:
        assert post(OPEN, headers=[HOST]).status == 200
        assert post(OPEN, headers=[HOST, ("content-length", "0")]).status == 200

    def test_a_body_that_does_not_come_is_not_waited_for(self) -> None:
        async def never() -> Message:
            await asyncio.sleep(60)
            raise AssertionError

        sent: list[Message] = []

        async def send(message: Message) -> None:
            sent.append(message)

        guard = Guard(echo, HOSTS, body_seconds=0.01, linger_seconds=0.01)
        scope = scope_of("POST", "/", [HOST, JSON, sized(b"{}")])
        asyncio.run(guard(scope, never, send))
        assert sent[0]["status"] == 408

    def test_a_body_that_is_cut_off_is_not_handed_on(self) -> None:
        handed: list[Scope] = []

        async def app(scope: Scope, receive: Receive, send: Send) -> None:
            handed.append(scope)

        async def gone() -> Message:
            return {"type": "http.disconnect"}

        async def send(message: Message) -> None:
            pass

        scope = scope_of("POST", "/", [HOST, JSON, sized(b"{}")])
        asyncio.run(Guard(app, HOSTS)(scope, gone, send))
        assert handed == []

    def test_after_the_body_the_app_hears_when_the_client_leaves(self) -> None:
        heard: list[str] = []

        async def app(scope: Scope, receive: Receive, send: Send) -> None:
            heard.extend([(await receive())["type"] for _ in range(3)])
            await echo(scope, receive_nothing, send)

        async def receive_nothing() -> Message:
            return {"type": "http.request", "body": b""}

        post(Guard(app, HOSTS), b"{}")
        assert heard == ["http.request", "http.disconnect", "http.disconnect"]


class TestHeaders:
    @pytest.mark.parametrize(
        ("path", "headers"),
        [("/api/echo", [HOST]), ("/", [HOST]), ("/", []), ("/static/x", [HOST])],
    )
    def test_every_answer_has_them(self, path: str, headers: Headers) -> None:
        answer = ask(OPEN, path=path, headers=headers)
        assert answer.header("x-content-type-options") == "nosniff"
        assert answer.header("referrer-policy") == "no-referrer"
        assert answer.header("cross-origin-opener-policy") == "same-origin"
        assert answer.header("cross-origin-resource-policy") == "same-origin"
        assert "default-src 'none'" in answer.header("content-security-policy")
        assert "frame-ancestors 'none'" in answer.header("content-security-policy")

    def test_nothing_is_stored_and_files_are_asked_for_again(self) -> None:
        assert ask(OPEN, path="/api/echo").header("cache-control") == "no-store"
        assert ask(OPEN, path="/").header("cache-control") == "no-store"
        assert ask(OPEN, path="/static/page.js").header("cache-control") == "no-cache"

    def test_the_page_runs_only_its_own_scripts(self) -> None:
        policy = ask(OPEN, path="/").header("content-security-policy")
        assert "script-src 'self';" in policy
        assert "unsafe" not in policy
        assert policy.endswith("require-trusted-types-for 'script'")

    @pytest.mark.parametrize("name", ["report", "letter"])
    def test_papers_run_nothing(self, name: str) -> None:
        policy = ask(OPEN, path=f"/api/searches/x1/{name}.html").header("content-security-policy")
        assert "script-src" not in policy
        assert "sandbox allow-modals" in policy
        assert "style-src 'unsafe-inline'" in policy

    @pytest.mark.parametrize(
        "path", ["/api/searches/x/y/report.html", "/report.html", "/api/searches/x/report.htmlx"]
    )
    def test_what_only_looks_like_a_paper_is_data(self, path: str) -> None:
        assert "unsafe" not in ask(OPEN, path=path).header("content-security-policy")


def test_a_websocket_is_closed_at_once() -> None:
    sent: list[Message] = []

    async def receive() -> Message:
        return {"type": "websocket.connect"}

    async def send(message: Message) -> None:
        sent.append(message)

    scope = {**scope_of("GET", "/", [HOST]), "type": "websocket"}
    asyncio.run(OPEN(scope, receive, send))
    assert sent == [{"type": "websocket.close", "code": 1008}]


def test_a_stream_passes_piece_by_piece() -> None:
    seen: list[object] = []

    async def stream(scope: Scope, receive: Receive, send: Send) -> None:
        await send({"type": "http.response.start", "status": 200, "headers": []})
        for part in (b"1", b"2"):
            await send({"type": "http.response.body", "body": part, "more_body": True})
            seen.append(part)
        await send({"type": "http.response.body", "body": b""})

    async def send(message: Message) -> None:
        seen.append(message.get("body", "start"))

    async def receive() -> Message:
        return {"type": "http.disconnect"}

    asyncio.run(Guard(stream, HOSTS)(scope_of("GET", "/", [HOST]), receive, send))
    assert seen == ["start", b"1", b"1", b"2", b"2", b""]


@pytest.fixture(scope="module")
def port() -> Iterator[int]:
    """A guarded server behind a real socket."""
    opened = socket.create_server(("127.0.0.1", 0))
    hosts = Hosts.of("127.0.0.1", opened.getsockname()[1])
    with serving(Guard(echo, hosts, most_body=100_000, linger_seconds=0.2), opened) as number:
        yield number


def head(first: str, host: str, *lines: str) -> bytes:
    return "\r\n".join([first, f"Host: {host}", *lines, "", ""]).encode("latin-1")


class TestWire:
    def test_an_answer_tells_nothing_of_the_server(self, port: int) -> None:
        answer = exchange(port, head("GET / HTTP/1.1", f"localhost:{port}", "Connection: close"))
        assert status_of(answer) == 200
        assert b"server:" not in answer.lower()

    @pytest.mark.parametrize(
        ("host", "origin", "status"),
        [("evil.example", "http://evil.example", 400), ("", "http://evil.example", 403)],
        ids=["host", "origin"],
    )
    def test_the_answer_comes_while_the_body_is_still_to_come(
        self, port: int, host: str, origin: str, status: int
    ) -> None:
        lines = [f"Origin: {origin}", "Content-Type: application/json", "Content-Length: 90000"]
        sent = head("POST /api/searches HTTP/1.1", host or f"localhost:{port}", *lines)
        answer = exchange(port, sent, b'{"half": "a body')
        assert status_of(answer) == status
        assert json.loads(answer.partition(b"\r\n\r\n")[2])["error"]["type"].startswith("Foreign")

    @pytest.mark.parametrize(("host", "status"), [("evil.example", 400), ("", 200)])
    def test_who_asks_before_sending_is_told(self, port: int, host: str, status: int) -> None:
        lines = ["Content-Type: application/json", "Content-Length: 2", "Expect: 100-continue"]
        sent = head("POST / HTTP/1.1", host or f"localhost:{port}", *lines, "Connection: close")
        with socket.create_connection(("127.0.0.1", port), timeout=10) as connection:
            connection.sendall(sent)
            first = connection.recv(12)
            if status == 200:
                assert first == b"HTTP/1.1 100"
                connection.sendall(b"{}")
                assert b"\r\n2\r\n{}\r\n" in read_all(connection)
            else:
                assert first == b"HTTP/1.1 400"

    def test_a_foreign_stream_of_chunks_is_not_taken_in(self, port: int) -> None:
        lines = ["Content-Type: application/json", "Transfer-Encoding: chunked"]
        sent = head("POST / HTTP/1.1", "evil.example", *lines)
        assert status_of(exchange(port, sent, b"5\r\n12345\r\n")) == 400

    def test_a_stream_of_chunks_ends_where_the_limit_is(self, port: int) -> None:
        lines = ["Content-Type: application/json", "Transfer-Encoding: chunked"]
        sent = head("POST / HTTP/1.1", f"localhost:{port}", *lines)
        chunk = b"c350\r\n" + b"x" * 50_000 + b"\r\n"
        assert status_of(exchange(port, sent, chunk, chunk, chunk)) == 413

    def test_who_sends_far_too_much_still_reads_why_not(self, port: int) -> None:
        lines = ["Content-Type: application/json", "Content-Length: 3000000"]
        sent = head("POST / HTTP/1.1", f"localhost:{port}", *lines)
        answer = exchange(port, sent, *[b"x" * 100_000] * 30)
        assert status_of(answer) == 413

    def test_what_follows_a_refusal_is_not_a_request(self, port: int) -> None:
        """Else a body could smuggle one in."""
        hidden = head("GET /hidden HTTP/1.1", f"localhost:{port}")
        lines = ["Content-Type: text/plain", f"Content-Length: {len(hidden)}"]
        answer = exchange(port, head("POST / HTTP/1.1", f"localhost:{port}", *lines) + hidden)
        assert status_of(answer) == 415
        assert answer.count(b"HTTP/1.1 ") == 1

    def test_http_1_0_without_a_host_gets_400(self, port: int) -> None:
        assert status_of(exchange(port, b"GET / HTTP/1.0\r\n\r\n")) == 400

    def test_an_address_within_the_request_line_is_not_ours_either(self, port: int) -> None:
        sent = head("GET http://evil.example/ HTTP/1.1", "evil.example")
        assert status_of(exchange(port, sent)) == 400

    def test_a_websocket_is_not_opened(self, port: int) -> None:
        lines = ["Upgrade: websocket", "Connection: Upgrade, close", "Sec-WebSocket-Version: 13",
                 "Sec-WebSocket-Key: dGhlIHNhbXBsZSBub25jZQ=="]  # fmt: skip
        answer = exchange(port, head("GET / HTTP/1.1", "evil.example", *lines))
        assert status_of(answer) == 400
        answer = exchange(port, head("GET / HTTP/1.1", f"localhost:{port}", *lines))
        assert status_of(answer) != 101

    def test_a_head_may_not_grow_without_end(self, port: int) -> None:
        endless = head("GET / HTTP/1.1", f"localhost:{port}", "X-Long: ")[:-4] + b"x" * 70_000
        assert status_of(exchange(port, endless)) == 400
