"""Which way a request takes, and that the client for certificates and proxies keeps our limits."""

from __future__ import annotations

import json
import logging
import sys
from dataclasses import replace

import pytest
from scripted_server import (
    Answer,
    Exchange,
    cut,
    dead_url,
    delta,
    echo,
    endless,
    hang,
    ok,
    plain,
    raw,
    reset,
    run,
    serving,
    serving_apart,
    status,
    unless,
)

from waysout.errors import LLMError, LLMFailure, LLMRefused
from waysout.llm.base import Limits, Message, Reply, Request
from waysout.llm.check import check_backend
from waysout.llm.openai import transport
from waysout.llm.openai.backend import OpenAIBackend
from waysout.llm.openai.http1 import Http1Transport
from waysout.llm.openai.transport import _headers, open_transport

SECRET = "sk-very-secret-0123456789"
REQUEST = Request((Message("user", "hi"),), max_tokens=50)
QUICK = Limits(connect=2.0, silence=0.8, seconds=2.5, bytes=1000)
PROXIES = ("HTTP_PROXY", "HTTPS_PROXY", "ALL_PROXY", "NO_PROXY")


@pytest.fixture(autouse=True)
def _bare_environment(monkeypatch: pytest.MonkeyPatch) -> None:
    for name in ("WAYSOUT_API_KEY", "OPENAI_ORG_ID", "OPENAI_PROJECT_ID", *PROXIES):
        monkeypatch.delenv(name, raising=False)
        monkeypatch.delenv(name.lower(), raising=False)
    monkeypatch.setitem(sys.modules, "keyring", None)


@pytest.fixture
def by_client(monkeypatch: pytest.MonkeyPatch) -> None:
    """Ask servers of this machine as if they were behind a proxy."""
    monkeypatch.setattr(transport, "_has_proxy", lambda url: True)


@pytest.mark.parametrize(
    ("url", "proxy", "spared", "direct"),
    [
        ("http://gpu.example/v1", "", "", True),
        ("http://gpu.example/v1", "http://proxy.example:3128", "", False),
        ("http://gpu.example/v1", "http://proxy.example:3128", "gpu.example", True),
        ("http://127.0.0.1:8000/v1", "http://proxy.example:3128", "", True),
        ("https://gpu.example/v1", "", "", False),
    ],
    ids=["plain", "proxy", "no-proxy", "this-machine", "tls"],
)
def test_a_proxy_and_certificates_need_the_client(
    monkeypatch: pytest.MonkeyPatch, url: str, proxy: str, spared: str, direct: bool
) -> None:
    if proxy:
        monkeypatch.setenv("http_proxy", proxy)
        monkeypatch.setenv("no_proxy", spared)
    assert isinstance(open_transport(url, "", QUICK), Http1Transport) == direct


def test_openai_alone_is_told_the_organization(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("OPENAI_ORG_ID", "org-1")
    monkeypatch.setenv("OPENAI_PROJECT_ID", "two\r\nX-Evil: 1")
    assert "OpenAI-Organization" not in _headers("http://gpu.example/v1", "")
    own = _headers("https://api.openai.com/v1", "")
    assert own["OpenAI-Organization"] == "org-1"
    assert "OpenAI-Project" not in own


def ask(answer: Answer, limits: Limits = QUICK) -> tuple[Reply, Exchange]:
    async def once() -> tuple[Reply, Exchange]:
        async with serving(answer) as server, OpenAIBackend("m", server.url, limits=limits) as llm:
            return await llm.complete(REQUEST), server.seen[0]

    return run(once())


@pytest.mark.usefixtures("by_client")
@pytest.mark.parametrize("answer", [ok("one two"), plain("one two")])
def test_the_client_brings_a_reply(answer: Answer) -> None:
    reply, seen = ask(answer)
    assert reply.text == "one two"
    assert set(seen.headers) == {
        *("", "host", "accept", "accept-encoding", "content-type", "content-length", "user-agent"),
    }


@pytest.mark.usefixtures("by_client")
@pytest.mark.parametrize(
    ("answer", "reason", "kind"),
    [
        (hang, "no sign of life for 0.8 s", LLMFailure),
        (reset, "failed", LLMFailure),
        (cut("a text of some length"), "failed", LLMFailure),
        (raw(b"x", content_encoding="gzip"), "compresses", LLMFailure),
        (status(429), "429: scripted", LLMFailure),
        (status(404), "no model", LLMError),
        (raw(b"x" * 5_000_000, "text/plain", code=400), "refuses", LLMRefused),
        (raw(b"", code=307, location="http://other.example/v1"), "redirects", LLMError),
    ],
    ids=["hang", "reset", "cut", "compressed", "429", "404", "long-400", "redirect"],
)
def test_what_the_client_meets_is_said_alike(
    answer: Answer, reason: str, kind: type[LLMError]
) -> None:
    with pytest.raises(kind, match=reason):
        ask(answer)


@pytest.mark.usefixtures("by_client")
def test_the_client_reads_no_more_than_it_may() -> None:
    reply, _ = ask(endless(delta("on and on ")))
    assert (reply.finish, len(reply.text)) == ("bytes", 1000)
    reply, _ = ask(endless(b"x" * 60_000), limits=replace(QUICK, seconds=5.0))
    assert reply.finish == "bytes"


@pytest.mark.usefixtures("by_client")
def test_the_client_shows_the_key_nowhere(caplog: pytest.LogCaptureFixture) -> None:
    async def go() -> list[BaseException | None]:
        shown: list[BaseException | None] = []
        async with serving(reset, status(401, SECRET), echo) as server:
            async with OpenAIBackend("m", server.url, key=SECRET) as llm:
                for _ in range(2):
                    with pytest.raises(LLMError) as caught:
                        await llm.complete(REQUEST)
                    error = caught.value
                    shown += [error, error.__cause__, error.__context__]
                await llm.complete(REQUEST)
            assert server.seen[-1].headers["authorization"] == f"Bearer {SECRET}"
        return shown

    caplog.set_level(logging.DEBUG)
    for error in run(go()):
        assert SECRET[:12] not in f"{error!r} {error} {vars(error) if error else ''}"
        assert not hasattr(error, "request")
    assert SECRET not in caplog.text
    assert not any(SECRET in repr(vars(record)) for record in caplog.records)


@pytest.mark.usefixtures("by_client")
def test_the_client_meets_nobody() -> None:
    with pytest.raises(LLMFailure, match="failed"):
        run(OpenAIBackend("m", dead_url(), key="").complete(REQUEST))


@pytest.mark.usefixtures("by_client")
def test_the_client_keeps_the_protocol() -> None:
    held = unless({"response_format": ok(json.dumps({"answer": "yes"}))}, echo)
    with serving_apart(held) as server:
        check_backend(OpenAIBackend("m", server.url))
