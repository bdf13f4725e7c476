from __future__ import annotations

import asyncio
from collections.abc import AsyncGenerator

from serve_world import run, until

from waysout.serve.events import EventLog, PageEvent


def numbered(*kinds: str) -> EventLog:
    log = EventLog()
    for i, kind in enumerate(kinds):
        log.add(kind, {"i": i})
    return log


async def gathered(stream: AsyncGenerator[list[PageEvent]]) -> list[PageEvent]:
    return [event async for events in stream for event in events]


def test_ids_count_from_one_and_a_late_comer_gets_what_was_missed() -> None:
    log = numbered("decided", "options", "decided")
    assert [(e.id, e.kind, e.data["i"]) for e in log.since(0)] == [
        (1, "decided", 0), (2, "options", 1), (3, "decided", 2),
    ]  # fmt: skip
    assert [e.id for e in log.since(2)] == [3]
    assert log.since(3) == log.since(99) == []


def test_what_a_later_event_makes_void_is_dropped() -> None:
    log = numbered("ledger", "shortlist", "learning", "decided", "ledger", "shortlist", "learning")
    assert [e.id for e in log.events] == [4, 5, 6, 7]
    log = numbered("part", "decided", "options", "shortlist", "ways", "ended", "part", "options")
    assert [e.kind for e in log.events] == ["decided", "ended", "part", "options"]
    assert [e.id for e in log.events] == [2, 6, 7, 8]


def test_many_follow_each_at_their_own_pace() -> None:
    async def story() -> None:
        log = numbered("decided", "decided")
        slow = log.follow()
        assert [e.id for e in await anext(slow)] == [1, 2]
        quick = asyncio.create_task(gathered(log.follow(after=1)))
        await until(lambda: log.subscribers == 2)
        for _ in range(500):  # the slow one reads nothing meanwhile
            log.add("decided", {})
        log.close("gone")
        assert [e.id for e in await quick] == list(range(2, 504))
        assert [e.id for e in await gathered(slow)] == list(range(3, 504))
        assert log.subscribers == 0

    run(story())


def test_silence_is_told_and_what_follows_still_comes() -> None:
    async def story() -> None:
        log = EventLog()
        stream = log.follow(patience=0.01)
        assert await anext(stream) == []
        log.add("decided", {})
        assert [e.id for e in await anext(stream)] == [1]
        await stream.aclose()
        assert log.subscribers == 0

    run(story())


def test_a_closed_log_ends_who_follows_and_takes_nothing_more() -> None:
    async def story() -> None:
        log = numbered("decided")
        log.close("gone")
        log.add("decided", {})
        log.close("gone")
        assert [e.kind for e in await gathered(log.follow())] == ["decided", "gone"]
        assert await gathered(log.follow(after=2)) == []

    run(story())
