"""What REQUIREMENTS promise when an LLM misbehaves: through the retry layer, with exact ledgers."""

from __future__ import annotations

import asyncio
import itertools
import random
import sys
import time
from typing import Any

import pytest
from scripted_server import (
    Answer,
    Exchange,
    ScriptedServer,
    cut,
    dead_url,
    delta,
    echo,
    endless,
    event,
    events,
    hang,
    hang_within,
    ok,
    plain,
    raw,
    refuse,
    reset,
    run,
    serving,
    status,
    stream,
)

from waysout.domain.budget import Budget, Ledger, Spent
from waysout.errors import LLMError, LLMFailure, LLMRefused, LLMUnreachable
from waysout.llm.base import Limits, Message, Reply, Request
from waysout.llm.call import Breaker, Caller, Retry
from waysout.llm.openai.backend import OpenAIBackend

QUICK = Limits(connect=2.0, silence=0.8, seconds=1.5, bytes=1000)
CALLS = 30
FAULTS: dict[str, Answer] = {
    "429": status(429),
    "500": status(500),
    "503": status(503),
    "refused": refuse,
    "reset": reset,
    "time-out": hang,
    "silence": hang_within,
    "cut": cut("a reply that is never finished"),
    "ended": cut("a reply that is never finished", rudely=False),
}


@pytest.fixture(autouse=True)
def _no_keys(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.delenv("WAYSOUT_API_KEY", raising=False)
    monkeypatch.setitem(sys.modules, "keyring", None)


class Waits:
    """Sleeps for nobody, and remembers for how long it should have."""

    def __init__(self) -> None:
        self.asked: list[float] = []

    async def __call__(self, seconds: float) -> None:
        self.asked.append(seconds)
        await asyncio.sleep(0)


def question(number: int) -> Request:
    return Request((Message("user", f"question {number}"),), max_tokens=40)


def caller(url: str, waits: Waits | None = None, patience: float = 55.0) -> Caller:
    backend = OpenAIBackend("m", url, limits=QUICK)
    return Caller(backend, breaker=Breaker(patience=patience), sleep=waits or Waits())


def faulty(seed: int, share: float = 0.3) -> list[Answer]:
    """Return a script in which so many requests fail, in every way, but never four in a row."""
    draw = random.Random(seed)
    kinds = list(FAULTS.values())
    draw.shuffle(kinds)
    faults = itertools.cycle(kinds)
    script: list[Answer] = []
    for _ in range(CALLS):
        for _ in range(3):
            if draw.random() >= share:
                break
            script.append(next(faults))
        script.append(echo)
    return script


async def one_after_the_other(server: ScriptedServer) -> tuple[list[str], Ledger]:
    asker, ledger = caller(server.url), Ledger(Budget(llm_calls=CALLS))
    replies = [await asker.call(question(i), ledger) for i in range(CALLS)]
    await asker.backend.aclose()
    return [reply.text for reply in replies], ledger


@pytest.mark.parametrize("seed", [1, 2])
def test_failing_requests_change_nothing_but_the_attempts(seed: int) -> None:
    script = faulty(seed)
    failing = sum(answer is not echo for answer in script)
    assert {answer for answer in script if answer is not echo} == set(FAULTS.values())
    assert 0.2 < failing / len(script) < 0.4

    async def go(script: list[Answer]) -> tuple[list[str], Ledger, int]:
        async with ScriptedServer(script) as server:
            texts, ledger = await one_after_the_other(server)
            return texts, ledger, server.requests

    sound, flawless, _ = run(go([echo]))
    texts, ledger, requests = run(go(script))
    assert texts == sound == [f"reply 0 to question {i}" for i in range(CALLS)]
    assert requests == len(script)
    assert _timeless(flawless) == Spent(CALLS, CALLS, 11 * CALLS, 7 * CALLS)
    assert _timeless(ledger) == Spent(CALLS, len(script), 11 * CALLS, 7 * CALLS)


def _timeless(ledger: Ledger) -> Spent:
    return Spent.from_dict({**ledger.spent.as_dict(), "seconds": 0.0})


def test_failing_requests_in_flight_together() -> None:
    """Which request fails is drawn for each question, so that the order of arrival is no matter."""
    draws = {f"question {i}": random.Random(i) for i in range(CALLS)}
    failed = dict.fromkeys(draws, 0)
    kinds = [answer for answer in FAULTS.values() if answer is not refuse]

    def script(_: int, body: dict[str, Any]) -> Answer:
        prompt = body["messages"][-1]["content"]
        if failed[prompt] < 3 and draws[prompt].random() < 0.3:
            failed[prompt] += 1
            return draws[prompt].choice(kinds)
        return echo

    async def go() -> tuple[list[Reply], Ledger, int]:
        async with ScriptedServer(script) as server:
            asker, ledger = caller(server.url), Ledger(Budget(llm_calls=CALLS))
            calls = (asker.call(question(i), ledger) for i in range(CALLS))
            return await asyncio.gather(*calls), ledger, server.requests

    replies, ledger, requests = run(go())
    assert [reply.text for reply in replies] == [f"reply 0 to question {i}" for i in range(CALLS)]
    assert sum(failed.values()) > 5
    assert requests == CALLS + sum(failed.values())
    assert _timeless(ledger) == Spent(CALLS, requests, 11 * CALLS, 7 * CALLS)


def test_a_call_is_tried_four_times_at_most() -> None:
    async def go() -> tuple[Ledger, int]:
        async with serving(status(500)) as server:
            ledger = Ledger()
            with pytest.raises(LLMUnreachable, match="500"):
                await caller(server.url).call(question(0), ledger)
            return ledger, server.requests

    ledger, requests = run(go())
    assert requests == 4
    assert _timeless(ledger) == Spent(attempts=4)
    assert ledger.calls_left == 30


def test_one_call_may_fail_for_good_while_the_server_lives() -> None:
    async def go() -> tuple[Any, ...]:
        def script(_: int, body: dict[str, Any]) -> Answer:
            return status(500) if body["messages"][-1]["content"] == "question 0" else echo

        async with ScriptedServer(script) as server:
            asker, ledger = caller(server.url), Ledger()
            calls = (asker.call(question(i), ledger) for i in range(3))
            return (*await asyncio.gather(*calls, return_exceptions=True), ledger)

    bad, *good, ledger = run(go())
    assert type(bad) is LLMFailure
    assert [reply.text for reply in good] == ["reply 0 to question 1", "reply 0 to question 2"]
    assert (ledger.spent.llm_calls, ledger.spent.attempts) == (2, 6)


def test_nothing_listens() -> None:
    async def go() -> Ledger:
        asker, ledger = caller(dead_url()), Ledger()
        with pytest.raises(LLMUnreachable):
            await asker.call(question(0), ledger)
        with pytest.raises(LLMUnreachable):  # the circuit is open: nothing is tried any more
            await asker.call(question(1), ledger)
        return ledger

    started = time.monotonic()
    assert _timeless(run(go())) == Spent()  # nothing could be sent
    assert time.monotonic() - started < 15


@pytest.mark.parametrize("together", [pytest.param(1, marks=pytest.mark.slow), 8])
def test_a_server_that_hangs_is_given_up_in_time(together: int) -> None:
    async def go() -> tuple[list[Any], Ledger, int]:
        async with serving(echo, hang) as server:
            asker, ledger = caller(server.url, patience=2.0), Ledger()
            await asker.call(question(together), Ledger())

            async def call(i: int) -> Reply:
                await asyncio.sleep(0.1 * i)  # so that others are waiting whenever one fails
                return await asker.call(question(i), ledger)

            calls = (call(i) for i in range(together))
            outcomes = await asyncio.gather(*calls, return_exceptions=True)
            return outcomes, ledger, server.requests

    started = time.monotonic()
    outcomes, ledger, requests = run(go())
    assert time.monotonic() - started < 15
    assert {type(outcome) for outcome in outcomes} == {LLMUnreachable}
    assert requests <= 1 + 4 * together
    spent = ledger.spent
    assert (spent.llm_calls, spent.tokens_in, spent.tokens_out) == (0, 0, 0)
    assert ledger.calls_left == 30


_BAD = {
    "garbage": ok("x" * 5 + "\0\x1b{{{"),
    "garbage-bytes": raw(b"\xff\xfe\x00garbage", "application/octet-stream"),
    "partial": ok("CANDIDATE 1\nFEATURE: inc", finish="length"),
    "empty": ok(""),
    "empty-body": raw(b""),
    "empty-stream": stream(event(b"[DONE]")),
    "no-choices": raw(b'{"choices": []}'),
    "wrong-json": raw(b'{"choices": {"a": 1}, "usage": 3}'),
    "wrong-format": ok("Sure! You could earn more."),
    "wrong-content-type": raw(b"".join(events("x")), "text/plain"),
    "not-streamed": plain("x"),
    "no-usage": ok("x", usage=None),
    "invalid-utf8": stream(b'data: {"choices": [{"delta": {"content": "\xff\xfe"}}]}\n\n',
                           *events("x")),
    "refusal": stream(event({"choices": [{"delta": {"refusal": "I cannot help with that."}}]}),
                      event(b"[DONE]")),
    "filtered": ok("", finish="content_filter"),
}  # fmt: skip


@pytest.mark.parametrize("name", _BAD)
def test_a_bad_reply_costs_one_call_and_raises_nothing(name: str) -> None:
    async def go() -> Ledger:
        async with serving(_BAD[name]) as server:
            ledger = Ledger(Budget(llm_calls=2))
            asker = caller(server.url)
            replies = [await asker.call(question(i), ledger) for i in range(2)]
            assert replies[0].text == replies[1].text
            assert server.requests == 2
            return ledger

    ledger = run(go())
    assert (ledger.spent.llm_calls, ledger.spent.attempts) == (2, 2)
    assert ledger.calls_left == 0


_ENDLESS = {
    "bytes": (endless(delta("on and on ")), "bytes"),
    "time": (endless(delta("on"), pause=0.05), "time"),
    "one-line": (endless(b"x" * 50_000), "bytes"),
    "one-object": (endless(b"[" * 50_000, kind="application/json"), "bytes"),
    "signs-of-life": (endless(b": still here\n\n", pause=0.05), "time"),
    "tokens": (ok("so far", finish="length"), "length"),
}


@pytest.mark.parametrize("name", _ENDLESS)
def test_a_reply_without_end_is_capped_and_costs_one_call(name: str) -> None:
    answer, finish = _ENDLESS[name]

    async def go() -> tuple[Reply, Ledger]:
        async with serving(answer) as server:
            ledger = Ledger()
            return await caller(server.url).call(question(0), ledger), ledger

    started = time.monotonic()
    reply, ledger = run(go())
    assert time.monotonic() - started < 15
    assert reply.finish == finish
    assert len(reply.text.encode()) <= QUICK.bytes
    assert (ledger.spent.llm_calls, ledger.spent.attempts) == (1, 1)


def test_a_server_that_asks_to_wait_is_obeyed() -> None:
    async def go() -> list[float]:
        answers = (status(429, retry_after="7"), status(503, retry_after_ms="12500"), echo)
        async with serving(*answers) as server:
            waits = Waits()
            await caller(server.url, waits).call(question(0), Ledger())
            return waits.asked

    first, second = run(go())
    assert 7.0 <= first <= 7.7
    assert 12.5 <= second <= 13.75


def test_without_being_asked_the_waits_grow() -> None:
    async def go() -> list[float]:
        async with serving(status(500), status(500), status(500), echo) as server:
            waits = Waits()
            await caller(server.url, waits).call(question(0), Ledger())
            return waits.asked

    waits = run(go())
    longest = [Retry().wait(failures, 1.0) for failures in (1, 2, 3)]
    assert all(most / 2 <= wait <= most for wait, most in zip(waits, longest, strict=True))


@pytest.mark.parametrize("code", [400, 401, 403, 404])
def test_what_no_retry_can_help_is_tried_once(code: int) -> None:
    async def go() -> tuple[Ledger, list[Exchange]]:
        async with serving(echo, status(code)) as server:
            asker, ledger = caller(server.url), Ledger()
            await asker.call(question(0), ledger)
            with pytest.raises(LLMError) as caught:
                await asker.call(question(1), ledger)
            assert type(caught.value) is (LLMRefused if code == 400 else LLMError)
            return ledger, server.seen

    ledger, seen = run(go())
    assert len(seen) == 2
    assert (ledger.spent.llm_calls, ledger.spent.attempts) == (1, 2)
