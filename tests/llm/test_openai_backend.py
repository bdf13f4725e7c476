from __future__ import annotations

import asyncio
import json
import logging
import sys
import time
from dataclasses import replace
from datetime import UTC, datetime, timedelta
from email.utils import format_datetime
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st
from scripted_server import (
    USAGE,
    Answer,
    Exchange,
    cut,
    dead_url,
    delta,
    echo,
    endless,
    endless_head,
    event,
    events,
    hang,
    hang_within,
    ok,
    plain,
    raw,
    refusing,
    reset,
    run,
    serving,
    serving_apart,
    status,
    stream,
    unless,
)

from waysout.errors import InputError, LLMError, LLMFailure, LLMRefused, MissingExtra
from waysout.llm.base import Constraint, Limits, Message, Reply, Request, Usage
from waysout.llm.check import check_backend
from waysout.llm.openai.backend import OpenAIBackend
from waysout.llm.openai.pool import connect
from waysout.llm.openai.replies import ReplyReader

SECRET = "sk-very-secret-0123456789"
SCHEMA = {"type": "object", "properties": {"a": {"type": "integer"}}}
REQUEST = Request((Message("system", "be brief"), Message("user", "hi")), max_tokens=50)
HELD = replace(REQUEST, constraint=Constraint(grammar="root ::= x", json_schema=SCHEMA))
QUICK = Limits(connect=2.0, silence=0.8, seconds=1.5, bytes=1000)


@pytest.fixture(autouse=True)
def _bare_environment(monkeypatch: pytest.MonkeyPatch) -> None:
    for name in ("OPENAI_API_KEY", "WAYSOUT_API_KEY", "OPENAI_ORG_ID", "OPENAI_PROJECT_ID"):
        monkeypatch.delenv(name, raising=False)
    monkeypatch.setitem(sys.modules, "keyring", None)


def ask(answer: Answer, request: Request = REQUEST, limits: Limits = QUICK) -> Reply:
    async def once() -> Reply:
        async with serving(answer) as server, OpenAIBackend("m", server.url, limits=limits) as llm:
            return await llm.complete(request)

    return run(once())


# What is sent, and what comes back


def test_a_request_and_its_reply() -> None:
    async def once() -> tuple[Reply, Exchange]:
        async with serving(ok("one two three")) as server:
            backend = OpenAIBackend("m", server.url)
            assert backend.name == f"openai:m@{server.url}"
            reply = await backend.complete(HELD)
            await backend.aclose()
            return reply, server.seen[0]

    reply, seen = run(once())
    assert reply == Reply("one two three", Usage(11, 7), reply.latency, "stop", "scripted-1")
    assert 0 < reply.latency < 5
    assert seen.headers[""] == "POST /v1/chat/completions HTTP/1.1"
    form = {"name": "candidates", "strict": True, "schema": SCHEMA}
    assert seen.body == {
        "model": "m",
        "messages": [
            {"role": "system", "content": "be brief"},
            {"role": "user", "content": "hi"},
        ],
        "stream": True,
        "stream_options": {"include_usage": True},
        "seed": HELD.sampling_seed,
        "max_tokens": 50,
        "temperature": 0.7,
        "response_format": {"type": "json_schema", "json_schema": form},
    }


def test_without_a_schema_the_reply_is_free() -> None:
    async def once() -> dict[str, Any]:
        async with serving(ok("x")) as server:
            request = replace(REQUEST, constraint=Constraint(grammar="root ::= x"))
            await OpenAIBackend("m", server.url).complete(request)
            return server.seen[0].body

    assert "response_format" not in run(once())


@pytest.mark.parametrize(
    ("answer", "text", "finish"),
    [
        pytest.param(ok("so long", finish="length"), "so long", "length", id="length"),
        pytest.param(ok("no", finish="content_filter"), "no", "filtered", id="filter"),
        pytest.param(ok("x", finish="eos"), "x", "stop", id="own-word"),
        pytest.param(plain("all at once", finish="length"), "all at once", "length", id="json"),
        pytest.param(
            raw(b"".join(events("hidden stream")), "text/plain"),
            "hidden stream",
            "stop",
            id="stream-by-another-name",
        ),
        pytest.param(
            stream(*events("no end", done=False)), "no end", "stop", id="finished-but-no-done"
        ),
        pytest.param(
            stream(delta("half"), event(b"[DONE]")), "half", "stop", id="done-but-not-finished"
        ),
        pytest.param(
            stream(b": ping\r\n\r\n", b"event: x\r\ndata:", *events("crlf")[:1], events("y")[-1]),
            "",
            "stop",
            id="torn-event",
        ),
        pytest.param(
            stream(*(bytes([b]) for b in b"".join(events("añ🙂")))), "añ🙂", "stop", id="bytewise"
        ),
        pytest.param(
            stream(delta("\ud83d"), delta("\ude42 \ud83d"), event(b"[DONE]")),
            "🙂 �",
            "stop",
            id="halves-of-a-character",
        ),
        pytest.param(
            stream(event({"choices": [{"delta": {"refusal": "I cannot"}}]}), event(b"[DONE]")),
            "I cannot",
            "stop",
            id="refusal",
        ),
        pytest.param(
            stream(b"data: {not json}\n\n", b"\xff\xfe\n", *events("still")),
            "still",
            "stop",
            id="garbage-between",
        ),
        pytest.param(
            stream(event({"choices": [{"delta": 3}, 4, {"index": "x"}]}), *events("typed")),
            "typed",
            "stop",
            id="wrong-types",
        ),
        pytest.param(stream(event(b"[DONE]")), "", "stop", id="empty-stream"),
        pytest.param(raw(b""), "", "stop", id="empty-body"),
        pytest.param(raw(b'{"hello": 1}'), '{"hello": 1}', "stop", id="other-json"),
        pytest.param(raw(b"[" * 20_000), "[" * 1000, "bytes", id="deep-json"),
        pytest.param(raw(b"\xff\xfenoise", "x/y"), "��noise", "stop", id="not-utf8"),
    ],
)
def test_whatever_comes_back_is_a_reply(answer: Answer, text: str, finish: str) -> None:
    reply = ask(answer)
    assert (reply.text, reply.finish) == (text, finish)
    reply.text.encode()


def test_a_model_name_from_the_server_is_only_text() -> None:
    told = stream(event({"model": "evil\x1b[2J" + "x" * 900}), *events("x", usage=None))
    assert ask(told).model == "evil[2J" + "x" * 192


# Usage


@pytest.mark.parametrize(
    ("told", "cached"),
    [
        ({}, 0),
        ({"prompt_tokens_details": {"cached_tokens": 8}}, 8),
        ({"prompt_tokens_details": {"cached_tokens": 80}}, 11),
        ({"prompt_tokens_details": None, "prompt_cache_hit_tokens": 5}, 5),
        ({"prompt_tokens_details": {"cached_tokens": "x"}}, 0),
    ],
    ids=["absent", "openai", "too-many", "deepseek", "nonsense"],
)
def test_cached_tokens(told: dict[str, Any], cached: int) -> None:
    assert ask(ok("x", usage={**USAGE, **told})).usage == Usage(11, 7, cached)
    assert ask(plain("x", usage={**USAGE, **told})).usage == Usage(11, 7, cached)


@pytest.mark.parametrize(
    "usage",
    [None, {}, {"prompt_tokens": -1, "completion_tokens": 2}, {"prompt_tokens": True}, "x"],
    ids=["none", "empty", "negative", "bool", "text"],
)
def test_without_usage_there_are_upper_bounds(usage: object) -> None:
    assert ask(ok("añ", usage=usage)).usage == Usage(10 + 2 * 16 + 64, 3, estimated=True)


def test_a_server_that_counts_nothing_is_not_believed() -> None:
    told = {"prompt_tokens": 0, "completion_tokens": 0}
    assert ask(ok("words", usage=told)).usage == Usage(106, 5, estimated=True)
    told = {"prompt_tokens": 9, "completion_tokens": 0}
    assert ask(ok("words", usage=told)).usage == Usage(106, 5, estimated=True)
    assert ask(ok("", usage=told)).usage == Usage(9, 0)


def test_a_key_that_the_server_repeats_does_not_reach_the_reply() -> None:
    async def go() -> Reply:
        async with serving(ok("your key is sk-secret")) as server:
            return await OpenAIBackend("m", server.url, key="sk-secret").complete(REQUEST)

    assert run(go()).text == "your key is ***"


def test_nor_does_one_whose_end_is_cut_off() -> None:
    limits = Limits(bytes=100)

    async def go(*answers: Answer) -> Reply:
        async with serving(*answers) as server:
            backend = OpenAIBackend("m", server.url, key="sk-secret-key", limits=limits)
            return await backend.complete(REQUEST)

    reply = run(go(ok("x" * (100 - len("sk-secret-ke")) + "sk-secret-key")))
    assert (reply.text[-9:], reply.finish) == ("xxxxxx***", "bytes")
    with pytest.raises(LLMError) as caught:
        run(go(raw(b" " * (2**16 - len("sk-secret-ke")) + b"sk-secret-key", code=403)))
    assert "(403: ***)" in str(caught.value)


def test_reasoning_counts_towards_the_bound_but_is_no_part_of_the_reply() -> None:
    thought = delta("", reasoning_content="hm, well")
    reply = ask(stream(thought, *events("yes", usage=None)))
    assert reply.text == "yes"
    assert reply.usage == Usage(106, 3 + 8, estimated=True)


# Caps


def test_a_reply_without_end_is_cut_at_its_bytes() -> None:
    reply = ask(endless(delta("añ" * 20)))
    assert reply.finish == "bytes"
    assert reply.text == ("añ" * 400)[: len(reply.text)]
    assert len(reply.text.encode()) in (999, 1000)
    assert reply.usage.estimated


def test_a_reply_without_end_is_cut_at_its_time() -> None:
    started = time.monotonic()
    reply = ask(endless(delta("a"), pause=0.05))
    assert reply.finish == "time"
    assert set(reply.text) == {"a"}
    assert time.monotonic() - started < 15


@pytest.mark.parametrize("kind", ["text/event-stream", "application/json"])
def test_one_line_without_end_is_cut(kind: str) -> None:
    started = time.monotonic()
    reply = ask(endless(b"x" * 60_000, kind=kind), limits=replace(QUICK, seconds=5.0))
    assert (reply.finish, len(reply.text)) == ("bytes", 0 if "event" in kind else 1000)
    assert time.monotonic() - started < 15


def test_signs_of_life_that_say_nothing_are_cut_at_their_time() -> None:
    assert ask(endless(b": wait\n\n", pause=0.02)).finish == "time"


async def _drip(exchange: Exchange) -> None:
    while True:
        await exchange.send(b"H")
        await asyncio.sleep(0.05)


@pytest.mark.parametrize(
    ("answer", "reason"),
    [
        pytest.param(hang, "no sign of life for 0.8 s", id="hangs"),
        pytest.param(hang_within, "no sign of life for 0.8 s", id="falls-silent"),
        pytest.param(reset, "failed", id="reset"),
        pytest.param(cut("a text of some length"), "failed", id="cut"),
        pytest.param(cut("a text of some length", rudely=False), "cut in the middle", id="ended"),
        pytest.param(stream(), "cut in the middle", id="no-events"),
        pytest.param(endless_head, "failed", id="endless-head"),
        pytest.param(_drip, "failed|no answer in 1.5 s", id="dripping-head"),
        pytest.param(raw(b"x", content_encoding="gzip"), "compresses", id="compressed"),
        pytest.param(
            stream(delta("some"), event({"error": {"message": "out of\nmemory"}})),
            "broke off: out of memory",
            id="error-within",
        ),
        pytest.param(raw(b'{"error": "overloaded"}'), "broke off: overloaded", id="error-as-200"),
    ],
)
def test_no_reply_is_a_failure(answer: Answer, reason: str) -> None:
    with pytest.raises(LLMFailure, match=reason):
        ask(answer)


def test_a_web_page_is_a_wrong_address_and_not_tried_again() -> None:
    with pytest.raises(LLMError, match=r"web page.*v1") as raised:
        ask(raw(b"<html>", "text/html; charset=x"))
    assert not isinstance(raised.value, LLMFailure)


def test_nobody_listens() -> None:
    with pytest.raises(LLMFailure, match="failed"):
        run(OpenAIBackend("m", dead_url(), key="").complete(REQUEST))


@given(body=st.binary(max_size=300), pieces=st.integers(1, 40), streamed=st.booleans())
def test_any_bytes_can_be_read(body: bytes, pieces: int, streamed: bool) -> None:
    reader = ReplyReader(REQUEST, 100)
    reader.begin(streamed=streamed)
    for start in range(0, len(body), pieces):
        reader.feed(body[start : start + pieces])
    reader.end()
    assert len(reader.reply(0.0, "m").text.encode()) <= 100


@given(st.recursive(st.none() | st.integers() | st.text(max_size=5), lambda inner: st.lists(
    inner, max_size=3) | st.dictionaries(st.sampled_from(
        ["choices", "delta", "message", "content", "index", "usage", "prompt_tokens", "model",
         "completion_tokens", "prompt_tokens_details", "finish_reason", "error", "refusal"]),
    inner, max_size=4)))  # fmt: skip
def test_any_event_can_be_read(told: object) -> None:
    reader = ReplyReader(REQUEST, 100)
    reader.begin(streamed=True)
    reader.feed(event(told) + event({"choices": [told]}) + event({"usage": told}))
    reader.end()
    assert len(reader.reply(0.0, "m").text.encode()) <= 100


# Status codes


@pytest.mark.parametrize("code", [408, 409, 425, 429, 500, 502, 503, 504, 529])
def test_a_passing_trouble_is_a_failure(code: int) -> None:
    with pytest.raises(LLMFailure, match=f"{code}: scripted") as caught:
        ask(status(code))
    assert caught.value.retry_after is None


@pytest.mark.parametrize(
    ("headers", "least", "most"),
    [
        ({"retry_after": "7"}, 7, 7),
        ({"retry_after": "0.5", "retry_after_ms": "250"}, 0.25, 0.25),
        ({"retry_after": format_datetime(datetime.now(UTC) + timedelta(hours=1))}, 1800, 3600),
        ({"retry_after": "Wed, 21 Oct 2015 07:28:00 GMT"}, 0, 0),
    ],
    ids=["seconds", "milliseconds", "date", "past"],
)
def test_a_server_may_ask_to_wait(headers: dict[str, str], least: float, most: float) -> None:
    with pytest.raises(LLMFailure) as caught:
        ask(status(429, **headers))
    assert caught.value.retry_after is not None
    assert least <= caught.value.retry_after <= most


_FAR = f"1 Jan 2026 {'9' * 30}:00:00 GMT"


@pytest.mark.parametrize(
    "value", ["soon", "-3", "nan", "inf", "1_0", "9" * 400, "32 Foo 2026", _FAR]
)
def test_a_wait_that_is_none_is_ignored(value: str) -> None:
    with pytest.raises(LLMFailure) as caught:
        ask(status(503, retry_after=value))
    assert caught.value.retry_after is None


@pytest.mark.parametrize(
    "answer",
    [
        status(400),
        status(413),
        raw(b"{}", code=422),
        status(501),
        status(400, "maximum context length is 10 tokens"),
    ],
    ids=["400", "413", "422", "501", "too-long"],
)
def test_a_request_that_is_refused_says_nothing_of_others(answer: Answer) -> None:
    with pytest.raises(LLMRefused, match="refuses the request") as caught:
        ask(answer)
    assert caught.value.exit_code == LLMError.exit_code


@pytest.mark.parametrize("code", [401, 404, 307])
def test_what_would_meet_every_request_is_no_refusal(code: int) -> None:
    with pytest.raises(LLMError) as caught:
        ask(status(code))
    assert not isinstance(caught.value, LLMRefused)


@pytest.mark.parametrize(
    ("answer", "reason"),
    [
        pytest.param(status(401), "does not let us in.*set WAYSOUT_API_KEY", id="401"),
        pytest.param(status(403), "does not let us in.*set WAYSOUT_API_KEY", id="403"),
        pytest.param(status(404), r"no model 'm' at http://127.*/v1 ", id="404"),
        pytest.param(
            status(400, "bad \x1b[1m thing"), r"refuses .*400: bad  ?\[1m thing", id="400"
        ),
        pytest.param(status(413), "refuses the request .413", id="413"),
        pytest.param(status(429, kind="insufficient_quota"), "no quota left", id="quota"),
        pytest.param(
            raw(b"", code=307, location="http://other.example/v1"),
            "redirects to http://other.example/v1",
            id="307",
        ),
        pytest.param(raw(b"<b>no</b>", "text/html", code=400), "400: <b>no</b>", id="html-400"),
        pytest.param(raw(b'{"detail": [{"msg": "x"}]}', code=422), "422: .*msg", id="422"),
        pytest.param(raw(b"[]", code=400), r"refuses the request .400", id="list-400"),
    ],
)
def test_a_lasting_trouble_is_an_error(answer: Answer, reason: str) -> None:
    with pytest.raises(LLMError, match=reason) as caught:
        ask(answer)
    assert not isinstance(caught.value, LLMFailure)


def test_a_servers_message_is_cut_short() -> None:
    with pytest.raises(LLMError) as caught:
        ask(raw(b"x" * 5_000_000, "text/plain", code=400))
    assert len(str(caught.value)) < 400


# Negotiation


def asked(answer: Answer, *requests: Request) -> tuple[list[Exchange], OpenAIBackend]:
    """Put requests one after the other; return what the server saw."""

    async def go() -> tuple[list[Exchange], OpenAIBackend]:
        async with serving(answer) as server:
            backend = OpenAIBackend("m", server.url)
            for request in requests:
                await backend.complete(request)
            await backend.aclose()
            return server.seen, backend

    return run(go())


@pytest.mark.parametrize("code", [400, 404, 422, 501])
@pytest.mark.parametrize(
    ("parameter", "capability"),
    [("seed", "seed"), ("temperature", "temperature"), ("stream_options", None), ("stream", None)],
)
def test_a_refused_parameter_is_left_out_for_good(
    parameter: str, capability: str | None, code: int
) -> None:
    seen, backend = asked(refusing(parameter, code=code), HELD, HELD)
    assert [parameter in e.body for e in seen] == [True, False, False]
    assert all("response_format" in e.body for e in seen)
    if capability:
        assert getattr(backend.capabilities, capability) is False
    assert backend.capabilities.json_schema is True


@pytest.mark.parametrize("named", [True, False])
def test_everything_may_be_refused(named: bool) -> None:
    parameters = ("response_format", "stream_options", "seed", "max_tokens", "temperature")
    seen, backend = asked(refusing(*parameters, named=named), HELD, HELD)
    left = {"model", "messages", "stream", "max_completion_tokens"}
    assert set(seen[-1].body) == set(seen[-2].body) == left
    assert len(seen) == (8 if named else 9)  # a length within the schema goes first
    known = backend.capabilities
    assert (known.json_schema, known.json_object, known.seed) == (False, False, False)
    assert known.max_tokens_name == "max_completion_tokens"
    assert backend.form == "none"


def test_a_server_that_takes_no_limit_on_a_reply_is_not_asked() -> None:
    with pytest.raises(LLMError, match="max_tokens"):
        asked(refusing("max_tokens", "max_completion_tokens"), REQUEST)


def test_only_what_stood_in_the_way_is_dropped_when_it_is_not_named() -> None:
    async def no_schema(exchange: Exchange) -> None:
        form = exchange.body.get("response_format", {}).get("type")
        await (status(400, "cannot") if form == "json_schema" else echo)(exchange)

    seen, backend = asked(no_schema, HELD, HELD)
    forms = [e.body["response_format"]["type"] for e in seen]
    assert forms == ["json_schema", "json_schema", "json_object", "json_object"]
    assert all("seed" in e.body for e in seen)
    assert backend.capabilities.json_object is True


def test_a_length_within_the_schema_goes_before_the_schema_does() -> None:
    schema = {"type": "object", "properties": {"why": {"type": "string", "maxLength": 9}}}
    held = replace(REQUEST, constraint=Constraint(json_schema=schema))

    async def no_lengths(exchange: Exchange) -> None:
        there = "maxLength" in json.dumps(exchange.body)
        await (status(400, "'maxLength' is not permitted") if there else echo)(exchange)

    seen, backend = asked(no_lengths, held, held)
    sent = [e.body["response_format"]["json_schema"]["schema"] for e in seen]
    assert sent[0] == schema
    assert sent[1] == sent[2] == {"type": "object", "properties": {"why": {"type": "string"}}}
    assert backend.capabilities.json_schema is True


def test_the_limit_on_tokens_has_two_names() -> None:
    hint = "Unsupported parameter: 'max_tokens'. Use 'max_completion_tokens' instead."
    seen, backend = asked(unless({"max_tokens": status(400, hint, "max_tokens")}, echo), REQUEST)
    assert seen[1].body["max_completion_tokens"] == 50
    assert "max_tokens" not in seen[1].body
    assert backend.capabilities.max_tokens_name == "max_completion_tokens"


def test_nothing_is_remembered_when_leaving_out_did_not_help() -> None:
    async def go() -> tuple[int, set[str]]:
        answers = [status(400, "a mystery")] * 8 + [status(400, "the last word"), echo]
        async with serving(*answers) as server, OpenAIBackend("m", server.url) as backend:
            with pytest.raises(LLMError, match="a mystery"):
                await backend.complete(HELD)
            tries = server.requests
            await backend.complete(HELD)
            return tries, set(server.seen[-1].body)

    tries, sent = run(go())
    assert tries == 9
    assert {"seed", "temperature", "response_format", "stream_options", "max_tokens"} <= sent


def test_a_prompt_that_is_too_long_is_no_matter_of_parameters() -> None:
    async def go() -> int:
        long = status(400, "maximum context length is 10 tokens, reduce max_tokens")
        async with serving(long) as server, OpenAIBackend("m", server.url) as backend:
            with pytest.raises(LLMError, match="maximum context length"):
                await backend.complete(HELD)
            return server.requests

    assert run(go()) == 1


def test_what_a_server_took_before_is_not_to_blame() -> None:
    async def go() -> int:
        async with serving(echo, status(400, "a mystery")) as server:
            backend = OpenAIBackend("m", server.url)
            await backend.complete(HELD)
            with pytest.raises(LLMError, match="a mystery"):
                await backend.complete(HELD)
            return server.requests

    assert run(go()) == 2


def test_requests_at_the_start_wait_for_the_first_to_be_heard() -> None:
    async def go() -> list[Exchange]:
        requests = [replace(HELD, messages=(Message("user", f"{i}"),)) for i in range(6)]
        async with serving(refusing("seed")) as server, OpenAIBackend("m", server.url) as backend:
            replies = await asyncio.gather(*map(backend.complete, requests))
            assert [r.text for r in replies] == [f"reply 0 to {i}" for i in range(6)]
            return server.seen

    assert ["seed" in e.body for e in run(go())] == [True] + [False] * 6


def test_when_the_first_fails_the_others_do_not_queue_up() -> None:
    async def go() -> list[object]:
        requests = [replace(REQUEST, messages=(Message("user", f"{i}"),)) for i in range(8)]
        async with serving(hang) as server:
            backend = OpenAIBackend("m", server.url, limits=QUICK)
            answers = map(backend.complete, requests)
            return list(await asyncio.gather(*answers, return_exceptions=True))

    started = time.monotonic()
    assert all(isinstance(outcome, LLMFailure) for outcome in run(go()))
    assert time.monotonic() - started < 15


def test_capabilities_are_unknown_at_first_and_filled_in() -> None:
    assert OpenAIBackend("m").capabilities.json_schema is None
    told = {**USAGE, "prompt_tokens_details": {"cached_tokens": 3}}
    _, backend = asked(ok("x", usage=told), HELD)
    known = backend.capabilities
    assert known.json_schema is known.seed is known.stream is known.stream_usage is True
    assert known.cached_tokens is True
    _, backend = asked(plain("x"), REQUEST)
    assert backend.capabilities.stream is False
    assert backend.capabilities.cached_tokens is False


# Requests side by side


def test_draws_of_one_prompt_are_separate_requests() -> None:
    async def go() -> tuple[list[Reply], list[Exchange]]:
        async with serving(echo) as server, OpenAIBackend("m", server.url) as backend:
            replies = await asyncio.gather(*map(backend.complete, draws))
            return replies, server.seen

    draws = [replace(REQUEST, draw=draw) for draw in range(3)]
    replies, seen = run(go())
    assert [r.usage for r in replies] == [Usage(11, 7)] * 3
    assert {e.body["seed"] for e in seen} == {r.sampling_seed for r in draws}
    assert not any("n" in e.body for e in seen)


def test_only_the_first_choice_is_read() -> None:
    told = stream(delta("other", 1), delta("mine", 0, "stop"), event(b"[DONE]"))
    assert ask(told).text == "mine"


def test_a_cancelled_request_is_not_sent_and_can_be_asked_again() -> None:
    async def go() -> tuple[str, int]:
        async with serving(echo) as server, OpenAIBackend("m", server.url) as backend:
            task = asyncio.create_task(backend.complete(REQUEST))
            await asyncio.sleep(0)
            task.cancel()
            await asyncio.gather(task, return_exceptions=True)
            return (await backend.complete(REQUEST)).text, server.requests

    assert run(go()) == ("reply 0 to hi", 1)


# Keys, hosts and the environment


def test_a_key_is_sent_as_a_bearer_and_shown_nowhere(caplog: pytest.LogCaptureFixture) -> None:
    async def go() -> tuple[list[Exchange], list[object]]:
        told = status(401, f"Incorrect key {SECRET}{'x' * 190}{SECRET}")
        answers = (ok("x"), told, status(503, SECRET), reset, status(400, SECRET))
        async with serving(*answers) as server:
            backend = OpenAIBackend("m", server.url, key=SECRET)
            shown: list[object] = [backend, vars(backend)["_dialect"], backend.capabilities]
            shown.append(await backend.complete(REQUEST))
            for _ in answers[1:]:
                with pytest.raises(LLMError) as caught:
                    await backend.complete(REQUEST)
                shown += [caught.value, caught.value.__cause__, caught.value.__context__]
            return server.seen, shown

    caplog.set_level(logging.DEBUG)
    seen, shown = run(go())
    assert seen[0].headers["authorization"] == f"Bearer {SECRET}"
    assert "check the key in WAYSOUT_API_KEY" in str(shown[4])
    for thing in shown:
        assert SECRET[:12] not in f"{thing!r} {thing}"
    assert caplog.records
    assert SECRET not in caplog.text
    assert not any(SECRET in repr(vars(record)) for record in caplog.records)


def test_only_our_own_headers_are_sent(monkeypatch: pytest.MonkeyPatch) -> None:
    for name in ("API_KEY", "ADMIN_KEY", "ORG_ID", "PROJECT_ID", "WEBHOOK_SECRET"):
        monkeypatch.setenv(f"OPENAI_{name}", SECRET)
    custom = f"X-Secret: {SECRET}\nAuthorization: Bearer {SECRET}\nHost: evil.example"
    monkeypatch.setenv("OPENAI_CUSTOM_HEADERS", custom)
    monkeypatch.setenv("OPENAI_BASE_URL", dead_url())
    monkeypatch.setenv("HTTP_PROXY", dead_url())
    seen, _ = asked(echo, REQUEST)
    assert SECRET not in json.dumps(seen[0].headers)
    assert seen[0].headers["host"].startswith("127.0.0.1:")
    assert set(seen[0].headers) == {
        *("", "host", "accept", "accept-encoding", "content-type", "content-length", "user-agent"),
    }


def test_a_key_from_the_environment_is_found_on_use(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("WAYSOUT_API_KEY", SECRET)
    seen, _ = asked(echo, REQUEST)
    assert seen[0].headers["authorization"] == f"Bearer {SECRET}"


def test_a_redirect_is_not_followed() -> None:
    async def go() -> int:
        async with serving(echo) as other:
            away = raw(b"", code=307, location=f"{other.url}/chat/completions")
            async with serving(away) as server:
                with pytest.raises(LLMError, match="redirects"):
                    await OpenAIBackend("m", server.url, key=SECRET).complete(REQUEST)
            return other.connections

    assert run(go()) == 0


@pytest.mark.parametrize(
    ("url", "key", "error"),
    [
        ("http://user:pw@127.0.0.1/v1", None, InputError),
        ("ftp://host/v1", None, InputError),
        ("http://host.example/v1", SECRET, LLMError),
        ("https://host.example/v1", f"{SECRET}\n", LLMError),
    ],
)
def test_what_cannot_work_is_said_before_anything_is_sent(
    url: str, key: str | None, error: type[Exception]
) -> None:
    with pytest.raises(error) as caught:
        run(OpenAIBackend("m", url, key=key).complete(REQUEST))
    assert SECRET not in str(caught.value)


def test_openai_is_asked_in_its_own_words() -> None:
    dialect = OpenAIBackend("m")._dialect
    body = dialect.body("m", REQUEST, dialect.parts(REQUEST))
    assert body["max_completion_tokens"] == 50
    assert "max_tokens" not in body


# The rest


def test_a_backend_outlives_an_event_loop() -> None:
    backend = OpenAIBackend("m", dead_url(), key="")

    async def once() -> str:
        async with serving(echo) as server:
            backend.url = server.url
            return (await backend.complete(REQUEST)).text

    assert [run(once()), run(once())] == ["reply 0 to hi"] * 2


def test_it_keeps_the_protocol() -> None:
    with serving_apart(unless({"response_format": ok('{"answer": "yes"}')}, echo)) as server:
        check_backend(OpenAIBackend("m", server.url))


def test_a_connection_string_makes_a_backend() -> None:
    backend = connect("m:7b@http://localhost:8000", parallel=3, seconds=9)
    assert isinstance(backend, OpenAIBackend)
    assert backend.name == "openai:m:7b@http://localhost:8000/v1"
    assert (backend.parallel, backend.limits) == (3, Limits(seconds=9.0))
    assert backend.form == "json_schema"


def test_without_the_client_the_extra_is_named(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setitem(sys.modules, "httpx2", None)
    with pytest.raises(MissingExtra, match=r"waysout\[openai\]"):
        run(OpenAIBackend("m", "https://127.0.0.1:1/v1").complete(REQUEST))


def test_making_a_backend_loads_nothing() -> None:
    code = (
        "import sys; from waysout.llm.openai.pool import connect; connect('m@http://localhost:1');"
        "assert not {'openai', 'httpx2', 'keyring'} & set(sys.modules)"
    )

    async def go() -> int:
        child = await asyncio.create_subprocess_exec(sys.executable, "-c", code)
        return await child.wait()

    assert run(go()) == 0
