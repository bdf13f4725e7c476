from __future__ import annotations

import asyncio
import errno
import logging
import os
import signal
import socket
import threading
from collections.abc import Iterator
from contextlib import ExitStack
from dataclasses import dataclass
from typing import Any

import pytest
from guard_world import HOST, PORT, TOKEN, echo, exchange, serving, status_of

from waysout.errors import InputError, UnavailableError
from waysout.serve import http_server
from waysout.serve.guard import KNOWN, Guard, Receive, Scope, Send
from waysout.serve.hosts import Hosts
from waysout.serve.http_server import PatientProtocol, open_socket
from waysout.serve.tokens import FREE_GUESSES, Gate


def test_a_free_port_is_found() -> None:
    with open_socket("127.0.0.1", 0, token=False) as opened:
        assert opened.getsockname()[0] == "127.0.0.1"
        assert opened.getsockname()[1] > 0


@pytest.mark.skipif(not hasattr(os, "fork"), reason="needs fork")
def test_what_a_model_forks_is_ended_by_a_signal(monkeypatch: pytest.MonkeyPatch) -> None:
    ends: list[int] = []

    class Forking:
        """Handles signals as the server does, and forks."""

        def run(self, sockets: list[socket.socket]) -> None:
            before = signal.signal(signal.SIGTERM, lambda *_: os._exit(0))
            if not (forked := os.fork()):
                os.kill(os.getpid(), signal.SIGTERM)
            ends.append(os.waitstatus_to_exitcode(os.waitpid(forked, 0)[1]))
            signal.signal(signal.SIGTERM, before)

    monkeypatch.setattr(http_server, "make_server", lambda *_: Forking())
    with open_socket("127.0.0.1", 0, token=False) as opened:
        http_server.run_server(echo, opened, _nothing)
    assert ends == [-signal.SIGTERM]


def test_a_port_that_is_taken_says_what_to_do() -> None:
    with open_socket("127.0.0.1", 0, token=False) as first:
        port = first.getsockname()[1]
        with pytest.raises(
            UnavailableError, match=rf"port {port} of 127\.0\.0\.1 is taken.*0 for any free"
        ):
            open_socket("127.0.0.1", port, token=False)


@pytest.mark.parametrize("host", ["0.0.0.0", "::", "192.0.2.1", "no-such-host.invalid", ""])
def test_what_others_can_reach_needs_a_token(host: str) -> None:
    with pytest.raises(InputError, match="WAYSOUT_TOKEN or a token file"):
        open_socket(host, 0, token=False)


def test_with_a_token_others_may_come() -> None:
    with open_socket("0.0.0.0", 0, token=True) as opened:
        assert opened.getsockname()[0] == "0.0.0.0"


def test_a_name_that_only_says_it_is_local_needs_a_token(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(http_server, "is_loopback", lambda host: host == "0.0.0.0.local")
    monkeypatch.setattr(socket, "create_server", lambda *_, **__: _bound_everywhere())
    with pytest.raises(InputError, match="it needs a token"):
        open_socket("0.0.0.0.local", 0, token=False)


def _bound_everywhere() -> socket.socket:
    opened = socket.socket()
    opened.bind(("0.0.0.0", 0))
    return opened


def test_an_address_of_another_machine_cannot_be_taken() -> None:
    with pytest.raises(UnavailableError, match=r"cannot listen on 192\.0\.2\.1, port 0"):
        open_socket("192.0.2.1", 0, token=True)


@pytest.mark.parametrize("sent", [b"", b"GET / HTTP/1.1\r\nHost: x\r\n"], ids=["nothing", "half"])
def test_a_head_that_does_not_come_is_not_waited_for(
    monkeypatch: pytest.MonkeyPatch, sent: bytes
) -> None:
    monkeypatch.setattr(http_server, "HEAD_SECONDS", 0.2)
    with serving(echo, socket.create_server(("127.0.0.1", 0))) as port:
        assert exchange(port, sent) == b""


def test_a_slow_answer_is_waited_for(monkeypatch: pytest.MonkeyPatch) -> None:
    async def slow(scope: Scope, receive: Receive, send: Send) -> None:
        await asyncio.sleep(0.3)
        await echo(scope, receive, send)

    monkeypatch.setattr(http_server, "HEAD_SECONDS", 0.1)
    head = f"GET / HTTP/1.1\r\nHost: {HOST[1]}\r\nConnection: close\r\n\r\n"
    with serving(slow, socket.create_server(("127.0.0.1", 0))) as port:
        assert status_of(exchange(port, head.encode())) == 200


def test_a_second_signal_ends_it_at_once(monkeypatch: pytest.MonkeyPatch) -> None:
    left, waited = list[int](), list[float]()

    class NoTimer:
        def __init__(self, seconds: float, _: object) -> None:
            waited.append(seconds)

        def start(self) -> None:
            pass

    monkeypatch.setattr(http_server, "Timer", NoTimer)
    monkeypatch.setattr(os, "_exit", left.append)
    made = http_server.make_server(echo, _nothing)
    made.handle_exit(signal.SIGINT, None)
    assert (made.should_exit, left, waited) == (True, [], [http_server.PATIENCE])
    made.handle_exit(signal.SIGINT, None)
    assert left[0] == 130


async def _nothing() -> None:
    pass


def test_who_does_not_read_what_they_asked_for_is_dropped(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(http_server, "READ_SECONDS", 0.2)
    dropped = threading.Event()

    async def much(scope: Scope, receive: Receive, send: Send) -> None:
        scope[KNOWN] = True
        await send({"type": "http.response.start", "status": 200, "headers": []})
        while not dropped.is_set():  # waits once the buffers are full, until somebody reads
            await send({"type": "http.response.body", "body": bytes(65_536), "more_body": True})
            if not await _is_there(receive):
                dropped.set()

    with (
        serving(much, socket.create_server(("127.0.0.1", 0))) as port,
        socket.create_connection(("127.0.0.1", port)) as idle,
    ):
        idle.sendall(b"GET / HTTP/1.1\r\nHost: x\r\n\r\n")
        assert dropped.wait(20)


def test_the_last_bytes_of_an_answer_are_not_waited_for_either(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setattr(http_server, "READ_SECONDS", 0.2)
    lost, forget = threading.Event(), PatientProtocol.connection_lost

    def leave(self: PatientProtocol, error: Exception | None) -> None:
        forget(self, error)
        lost.set()

    async def some(scope: Scope, receive: Receive, send: Send) -> None:
        await send({"type": "http.response.start", "status": 200, "headers": []})
        await send({"type": "http.response.body", "body": bytes(60_000)})

    monkeypatch.setattr(PatientProtocol, "connection_lost", leave)
    opened = socket.create_server(("127.0.0.1", 0))
    opened.setsockopt(socket.SOL_SOCKET, socket.SO_SNDBUF, 4096)  # its connections have that too
    with serving(some, opened) as port, socket.socket() as idle:
        idle.setsockopt(socket.SOL_SOCKET, socket.SO_RCVBUF, 4096)
        idle.connect(("127.0.0.1", port))
        idle.sendall(b"GET / HTTP/1.1\r\nHost: x\r\nConnection: close\r\n\r\n")
        assert lost.wait(20)


async def _is_there(receive: Receive) -> bool:
    try:
        async with asyncio.timeout(0.001):
            while (await receive())["type"] != "http.disconnect":
                pass
    except TimeoutError:
        return True
    return False


def _get(path: str, *lines: str) -> bytes:
    head = [f"GET {path} HTTP/1.1", f"Host: {HOST[1]}", *lines]
    return "\r\n".join([*head, "", ""]).encode()


AUTHORIZED = f"Authorization: Bearer {TOKEN}"
LOGIN = _get("/api/login", "Content-Type: application/json", "Content-Length: 99")
GUESS = _get("/api/problems", "Authorization: Bearer something-else-entirely")


class TestStrangers:
    """At most 40 connections, 10 of them without the token."""

    most = 40

    @pytest.fixture
    def port(self, monkeypatch: pytest.MonkeyPatch) -> Iterator[int]:
        monkeypatch.setattr(http_server, "MOST_CONNECTIONS", self.most)
        monkeypatch.setattr("waysout.serve.tokens.HOLD_SECONDS", 0.01)
        guard = Guard(echo, Hosts.of("127.0.0.1", PORT), Gate(TOKEN, PORT))
        with serving(guard, socket.create_server(("127.0.0.1", 0))) as port:
            yield port

    @pytest.mark.parametrize(
        "sent",
        [b"", b"G", _get("/")[:-4], LOGIN, LOGIN + b"{", _get("/"), GUESS],
        ids=["nothing", "a letter", "half a head", "no body", "half a body", "page", "guess"],
    )
    def test_strangers_who_wait_lock_nobody_out(self, port: int, sent: bytes) -> None:
        with ExitStack() as held:
            crowd = [held.enter_context(_connected(port, sent)) for _ in range(2 * self.most)]
            answer = exchange(port, _get("/x", AUTHORIZED, "Connection: close"))
            assert status_of(answer) == 200
            _until_left(crowd[0])

    def test_the_holder_is_answered_at_once_while_guesses_wait(
        self, port: int, monkeypatch: pytest.MonkeyPatch
    ) -> None:
        for _ in range(FREE_GUESSES):
            assert status_of(exchange(port, GUESS)) == 401
        monkeypatch.setattr("waysout.serve.tokens.HOLD_SECONDS", 60.0)
        with ExitStack() as held:
            crowd = [held.enter_context(_connected(port, GUESS)) for _ in range(2 * self.most)]
            asked = _get("/x", AUTHORIZED, "Connection: close")
            assert status_of(exchange(port, asked, seconds=3)) == 200
            _until_left(crowd[0])

    def test_who_has_shown_the_token_is_not_dropped_for_strangers(self, port: int) -> None:
        with _connected(port) as holder, ExitStack() as held:
            assert _asked(holder) == 200
            crowd = [held.enter_context(_connected(port)) for _ in range(2 * self.most)]
            _until_left(crowd[0])
            assert _asked(holder) == 200

    def test_who_has_shown_the_token_and_waits_makes_room_for_who_comes(self, port: int) -> None:
        with ExitStack() as held:
            crowd = []
            for _ in range(2 * self.most):
                crowd.append(held.enter_context(_connected(port)))
                assert _asked(crowd[-1]) == 200
            _until_left(crowd[0])


@pytest.mark.parametrize("known", [False, True])
def test_a_stranger_who_leaves_leaves_no_request_behind(
    caplog: pytest.LogCaptureFixture, known: bool
) -> None:
    came, ended = threading.Event(), list[str]()

    async def slow(scope: Scope, receive: Receive, send: Send) -> None:
        assert scope["type"] == "http"
        if known:
            scope[KNOWN] = True
        came.set()
        try:
            while (await receive())["type"] != "http.disconnect":
                pass
            await asyncio.sleep(0)
            ended.append("by itself")
        except asyncio.CancelledError:
            ended.append("cancelled")
            raise

    with (
        caplog.at_level(logging.ERROR),
        serving(slow, socket.create_server(("127.0.0.1", 0))) as port,
        _connected(port, _get("/x")),
    ):
        assert came.wait(10)
    assert ended == ["by itself" if known else "cancelled"]
    assert not caplog.records


@pytest.mark.parametrize("known", [False, True])
def test_an_end_while_a_body_comes_or_a_model_hangs_is_no_error(
    caplog: pytest.LogCaptureFixture, monkeypatch: pytest.MonkeyPatch, known: bool
) -> None:
    monkeypatch.setattr(http_server, "STREAM_SECONDS", 0.1)
    came, waiting = threading.Semaphore(0), threading.Event()

    async def slow(scope: Scope, receive: Receive, send: Send) -> None:
        if known:
            scope[KNOWN] = True
        came.release()
        if scope["path"] == "/hangs":
            await asyncio.get_running_loop().run_in_executor(None, waiting.wait)
        elif not await receive():
            return
        await receive()

    with caplog.at_level(logging.ERROR), ExitStack() as held:
        # The connections are closed last, the server before them.
        opened = socket.create_server(("127.0.0.1", 0))
        port = opened.getsockname()[1]
        half = _get("/x", "Content-Length: 9")[:-2].replace(b"GET", b"POST") + b"\r\n{"
        sockets = [held.enter_context(_connected(port, sent)) for sent in (half, _get("/hangs"))]
        with serving(slow, opened):
            assert all(came.acquire(timeout=10) for _ in sockets)
            threading.Timer(0.5, waiting.set).start()  # the loop waits for its threads
    assert not caplog.records


def _connected(port: int, sent: bytes = b"") -> socket.socket:
    connection = socket.create_connection(("127.0.0.1", port), timeout=10)
    connection.sendall(sent)
    return connection


def _asked(connection: socket.socket) -> int:
    """Ask with the token, read the answer, and stay connected."""
    connection.sendall(_get("/x", AUTHORIZED))
    found = b""
    while not found.endswith(b"\r\n0\r\n\r\n"):  # the last chunk
        found += connection.recv(65_536)
    return status_of(found)


def _until_left(connection: socket.socket) -> None:
    """Wait until the server has hung up."""
    try:
        while connection.recv(65_536):
            pass
    except ConnectionResetError:
        pass


@dataclass(eq=False)
class Waiting:
    """What is asked of a connection to see who goes."""

    network: str
    since: float
    is_wrong: bool = False
    dropped: bool = False

    def drop(self) -> None:
        self.dropped = True


def test_the_oldest_of_the_network_with_most_connections_goes() -> None:
    crowd = [Waiting("one", 0), *(Waiting("many", 9 - i) for i in range(9)), Waiting("two", 9)]
    waiting: Any = crowd
    http_server.drop_one(waiting)
    assert [each.since for each in crowd if each.dropped] == [1]
    assert [each.network for each in crowd if each.dropped] == ["many"]
    http_server.drop_one([])


def test_one_that_showed_a_wrong_token_goes_before_all_others() -> None:
    crowd = [Waiting("many", 0), Waiting("many", 1), Waiting("one", 2, is_wrong=True)]
    waiting: Any = crowd
    http_server.drop_one(waiting)
    assert [each.dropped for each in crowd] == [False, False, True]


def test_whoever_has_just_come_stays_though_all_others_come_from_addresses_of_their_own() -> None:
    crowd: list[Any] = []
    for came in range(500):
        crowd.append(Waiting("a page" if 200 <= came < 206 else f"stranger {came}", came))
        while len(crowd) > 128:
            http_server.drop_one(crowd)
            crowd = [each for each in crowd if not each.dropped]
        page = sum(each.network == "a page" for each in crowd)
        assert page == 6 or not 206 <= came < 290


def test_where_files_run_out_a_stranger_goes_and_the_log_says_so_once(
    monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    crowd: Any = [Waiting("one", 0), Waiting("one", 1)]
    monkeypatch.setattr(http_server, "_strangers", lambda _: [c for c in crowd if not c.dropped])
    server, loop = http_server.make_server(echo, _nothing), asyncio.new_event_loop()
    context = {"message": "", "exception": OSError(errno.EMFILE, "Too many open files")}
    with caplog.at_level(logging.ERROR):
        for left in (1, 0, 0):
            server._on_loop_error(loop, context)
            assert sum(not each.dropped for each in crowd) == left
        assert len(caplog.records) == 1
        server._on_loop_error(loop, {"message": "another fault", "exception": OSError("x")})
        assert "another fault" in caplog.text
    loop.close()


@pytest.mark.parametrize(("files", "most"), [(256, 192), (20_000, 768)])
def test_connections_leave_files_for_the_searches(
    monkeypatch: pytest.MonkeyPatch, files: int, most: int
) -> None:
    monkeypatch.setattr(http_server, "file_limit", lambda: files)
    assert http_server.make_server(echo, _nothing).config.limit_concurrency == most


def test_the_limit_of_files_is_raised_as_far_as_it_may(monkeypatch: pytest.MonkeyPatch) -> None:
    resource = pytest.importorskip("resource")
    limits = [(256, 4096)]
    monkeypatch.setattr(resource, "getrlimit", lambda _: limits[-1])
    monkeypatch.setattr(resource, "setrlimit", lambda _, found: limits.append(found))
    http_server.raise_file_limit()
    assert (limits[-1], http_server.file_limit()) == ((4096, 4096), 4096)
    limits[:] = [(1024, resource.RLIM_INFINITY)]
    http_server.raise_file_limit()
    assert http_server.file_limit() == http_server.MOST_FILES


def test_a_server_raises_the_limit_of_files_before_it_shares_them_out(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    resource = pytest.importorskip("resource")
    limits, made = [(256, 4096)], []
    monkeypatch.setattr(resource, "getrlimit", lambda _: limits[-1])
    monkeypatch.setattr(resource, "setrlimit", lambda _, found: limits.append(found))
    monkeypatch.setattr(http_server.Server, "run", lambda self, **_: made.append(self))
    with socket.socket() as opened:
        http_server.run_server(echo, opened, _nothing)
    assert made[0].config.limit_concurrency == min(http_server.MOST_CONNECTIONS, 4096 * 3 // 4)
