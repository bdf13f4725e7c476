from __future__ import annotations

import asyncio
import os
import signal
import socket
import threading

import pytest
from guard_world import HOST, echo, exchange, serving, status_of

from waysout.errors import InputError, UnavailableError
from waysout.serve import http_server
from waysout.serve.guard import Receive, Scope, Send
from waysout.serve.http_server import open_socket


def test_a_free_port_is_found() -> None:
    with open_socket("127.0.0.1", 0, token=False) as opened:
        assert opened.getsockname()[0] == "127.0.0.1"
        assert opened.getsockname()[1] > 0


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


async def _is_there(receive: Receive) -> bool:
    try:
        async with asyncio.timeout(0.001):
            while (await receive())["type"] != "http.disconnect":
                pass
    except TimeoutError:
        return True
    return False
