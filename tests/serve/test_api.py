from __future__ import annotations

import asyncio
import threading
from contextlib import AsyncExitStack
from typing import Any

import pytest
from pydantic import BaseModel
from serve_world import (
    ROW,
    Adder,
    Client,
    Gate,
    Stream,
    Watched,
    client,
    make_service,
    run,
    small,
    streaming,
    until,
)

from waysout import __version__
from waysout.domain.oracle import Answers
from waysout.serve import models, service
from waysout.serve.api import event_stream
from waysout.serve.service import Service

EVENTS = (
    "part", "decided", "learning", "options", "shortlist", "ways", "pins", "ledger", "ended",
    "gone",
)  # fmt: skip


def fits(document: Any, model: type[BaseModel]) -> Any:
    """Check a document against its model, both ways: nothing missing, nothing more."""
    assert model.model_validate(document).model_dump(mode="json", by_alias=True) == document
    return document


async def refused(answer: Any, status: int, *words: str) -> None:
    assert answer.status_code == status, answer.text
    error = answer.json()["error"]
    assert set(error) == {"type", "message", "code"}
    assert set(answer.json()) == {"error"}
    for word in words:
        assert word in error["message"], error


def test_the_documents_are_those_that_openapi_describes() -> None:
    async def story() -> None:
        async with client(make_service(small(known=True))) as c:
            health = fits((await c.get("/api/health")).json(), models.Health)
            counts = {"running": 0, "searches": 0, "hung": 0}
            assert health == {"status": "ok", "version": __version__, **counts}
            problems = fits((await c.get("/api/problems")).json(), models.ProblemList)
            assert (problems["llm"], problems["stand_in"]) == ("simulated:7", "simulated")
            shown = fits((await c.get("/api/problems/small")).json(), models.ProblemForm)
            most = {"calls": 30, "oracle_rows": 3000, "part_rows": 150, "settling_rows": 0,
                    "setup_rows": 60}  # fmt: skip
            assert shown["limits"] == most
            assert (shown["method"], shown["suggested_calls"]) == ("wayfinder", 6)
            examples = await c.get("/api/problems/small/examples")
            assert fits(examples.json(), models.ExampleList)["examples"]
            people = await c.get("/api/problems/small/people", q="z", limit=3)
            assert len(fits(people.json(), models.PeopleList)["people"]) == 3
            body = {"row": ROW, "query": ROW, "locks": {"fixed": ["c"]}}
            decided = await c.post("/api/problems/small/decide", body)
            assert fits(decided.json(), models.Decision)["approved"] is False
            strips = await c.post("/api/problems/small/strips", body)
            assert [s["open"] for s in fits(strips.json(), models.StripList)["strips"]] == [
                True, True, False,
            ]  # fmt: skip
            steps = await c.post("/api/problems/small/farther", {**body, "row": {**ROW, "a": 6}})
            assert fits(steps.json(), models.StepList)["steps"]
            search = fits(await c.started(calls=2), models.SearchForm)
            ended = fits(await c.waited(search["id"]), models.SearchForm)
            assert ended["outcome"] == "found"
            listed = fits((await c.get("/api/searches")).json(), models.SearchList)
            assert [line["id"] for line in listed["searches"]] == [search["id"]]
            options = (await c.get(f"/api/searches/{search['id']}/options")).json()
            assert fits(options, models.OptionList)["total"] == ended["options"]

    run(story())


def test_openapi_teaches_every_route() -> None:
    async def story() -> None:
        async with client(make_service()) as c:
            paths = (await c.get("/openapi.json")).json()["paths"]
            routes = [route for path in paths.values() for route in path.values()]
            assert len({route["operationId"] for route in routes}) == len(routes) == 23
            for route in routes:
                assert route["summary"][0].isupper()
                for status, said in route["responses"].items():
                    if int(status) >= 400:
                        assert said["content"]["application/json"]["schema"] == {
                            "$ref": "#/components/schemas/ErrorDocument"
                        }
            start = paths["/api/searches"]["post"]["responses"]
            assert set(start) == {"201", "400", "409", "422", "429", "503"}
            events = paths["/api/searches/{id}/events"]["get"]["responses"]["200"]
            assert list(events["content"]) == ["text/event-stream"]

    run(story())


def test_a_search_is_started_found_stopped_continued_and_deleted() -> None:
    async def story() -> None:
        gate = Gate()
        service = make_service(llm=Watched(gate))
        async with client(service) as c:
            answer = await c.post("/api/searches", {"problem": "small", "row": ROW, "calls": 3})
            assert answer.status_code == 201
            at = answer.headers["location"]
            assert at == f"/api/searches/{answer.json()['id']}"
            await refused(await c.post(f"{at}/continue"), 409, "running")
            await refused(await c.get(f"{at}/result.json"), 409, "running")
            stopped = await c.post(f"{at}/stop")
            assert stopped.status_code == 202
            ended = await c.waited(answer.json()["id"])
            assert ended["outcome"] == "interrupted"
            gate.opened.set()
            body = {"locks": {"fixed": ["a"]}, "calls": 5, "oracle_rows": 90}
            gone_on = await c.post(f"{at}/continue", body)
            assert gone_on.status_code == 202
            assert gone_on.json()["part"] == 2
            assert gone_on.json()["locks"]["fixed"] == ["a"]
            ended = await c.waited(answer.json()["id"])
            assert ended["budget"]["calls"] == 5
            assert ended["ledger"]["oracle_rows"] <= 90
            assert (await c.post(f"{at}/stop")).status_code == 202  # nothing runs: nothing to do
            assert (await c.http.delete(at)).status_code == 204
            for path in ("", "/options", "/events", "/result.json"):
                await refused(await c.get(at + path), 404, "no such search")
            await refused(await c.http.delete(at), 404)

    run(story())


def test_too_many_searches_are_put_off() -> None:
    async def story() -> None:
        async with client(make_service(llm=Watched(Gate()), searches=1)) as c:
            await c.started()
            answer = await c.post("/api/searches", {"problem": "small", "row": ROW})
            await refused(answer, 429, "try again")
            assert int(answer.headers["retry-after"]) > 0

    run(story())


def test_options_are_sorted_as_wanted_a_page_at_a_time() -> None:
    async def story() -> None:
        service = make_service()
        async with client(service) as c:
            id = (await c.started(calls=3))["id"]
            view = await c.waited(id)

            async def keys(**query: Any) -> list[Any]:
                page = (await c.get(f"/api/searches/{id}/options", **query)).json()
                assert page["total"] == view["options"]
                return list(page["options"])

            everything = await keys(sort="found", limit=1000)
            assert [o["key"] for o in everything] == list(service.search(id).options)
            ease = [
                o["proximity"] / (1 + o["sparsity"]) for o in await keys(sort="ease", limit=1000)
            ]
            assert ease == sorted(ease, reverse=True)
            sure = [o["probability"] for o in await keys(sort="certainty", limit=1000)]
            assert sure == sorted(sure, reverse=True)
            different = await keys(sort="difference", limit=1000)
            rows = [o["row"] for o in everything]
            first = [way["row"] for way in view["shortlist"] if way["row"] in rows]
            assert first
            assert [o["row"] for o in different[: len(first)]] == first
            assert sorted(o["key"] for o in different) == sorted(o["key"] for o in everything)
            assert await keys(sort="found", offset=3, limit=4) == everything[3:7]
            assert await keys(offset=100_000) == await keys(limit=0) == []
            assert len(await keys()) == min(50, view["options"])

    run(story())


def test_unstable_options_come_last_however_likely() -> None:
    async def story() -> None:
        service = make_service()
        async with client(service) as c:
            id = (await c.started(calls=2))["id"]
            await c.waited(id)
            best = max(service.search(id).options.values(), key=lambda o: o.probability)
            object.__setattr__(best, "stable", False)
            page = await c.get(f"/api/searches/{id}/options", sort="certainty", limit=1000)
            assert page.json()["options"][-1]["key"] == best.key

    run(story())


class Wavering(Adder):
    """Takes back its yes of one row when it is asked a second time."""

    def __init__(self) -> None:
        super().__init__()
        self.once: set[Any] = set()

    def ask(self, rows: Any) -> Answers:
        answers = super().ask(rows)
        for i, row in enumerate(rows):
            if row[0] == 10 and row in self.once:
                answers.decision[i] = False
            self.once.add(row)
        return answers


def test_an_option_that_wavers_is_told_again() -> None:
    async def story() -> None:
        service = make_service(small(Wavering()))
        async with client(service) as c:
            id = (await c.started(calls=2))["id"]
            await c.waited(id)
            search = service.search(id)
            unstable = {o.key for o in search.options.values() if o.stable is False}
            assert unstable
            last = [e for e in search.log.events if e.kind == "options"][-1].data["options"]
            assert {option["key"] for option in last} == unstable
            assert all(option["stable"] is False for option in last)

    run(story())


# Events ------------------------------------------------------------------------------------------


async def followed(c: Client, id: str, after: int | None = None) -> Stream:
    """Return what a stream tells until it has told all there is."""
    async with streaming(c.app, f"/api/searches/{id}/events", after) as stream:
        await until(lambda: stream.text and not stream.text.endswith("search\n\n"))
        return stream


def test_a_stream_replays_the_log_from_any_event_on() -> None:
    async def story() -> None:
        service = make_service()
        async with client(service) as c:
            id = (await c.started(calls=2))["id"]
            await c.waited(id)
            log = [(e.id, e.kind, dict(e.data)) for e in service.search(id).log.events]
            assert {kind for _, kind, _ in log} <= set(EVENTS)
            whole = await followed(c, id)
            assert whole.status == 200
            assert whole.events == log
            for after in (0, log[0][0], log[len(log) // 2][0], log[-2][0]):
                assert (await followed(c, id, after)).events == [e for e in log if e[0] > after]
            await until(lambda: service.subscribers == 0)

    run(story())


def test_a_stream_goes_on_over_stop_and_continue_and_ends_when_the_search_is_gone() -> None:
    async def story() -> None:
        service = make_service(llm=Watched(Gate()))
        async with client(service) as c:
            id = (await c.started())["id"]
            async with streaming(c.app, f"/api/searches/{id}/events") as stream:
                await until(lambda: stream.events)
                await c.post(f"/api/searches/{id}/stop")
                await c.waited(id)
                await c.post(f"/api/searches/{id}/continue", {"calls": 0})
                await c.waited(id)
                await until(lambda: [k for _, k, _ in stream.events].count("ended") == 2)
                await c.http.delete(f"/api/searches/{id}")
                await until(lambda: stream.events[-1][1] == "gone")
            ids = [number for number, _, _ in stream.events]
            assert ids == sorted(ids)
            assert [k for _, k, _ in stream.events].count("part") == 2
            assert service.subscribers == 0

    run(story())


def test_a_late_comer_sees_the_same_options_as_who_was_there_all_along() -> None:
    def shown(stream: Stream) -> dict[str, Any]:
        found: dict[str, Any] = {}
        for _, kind, data in stream.events:
            found = {} if kind == "part" else found
            if kind == "options":
                found |= {option["key"]: option for option in data["options"]}
        return found

    async def story() -> None:
        service = make_service()
        async with client(service) as c:
            id = (await c.started(calls=2, oracle_rows=300))["id"]
            async with streaming(c.app, f"/api/searches/{id}/events") as early:
                await c.waited(id)
                await c.post(f"/api/searches/{id}/continue", {"locks": {"fixed": ["c"]}})
                view = await c.waited(id)
                await until(lambda: [k for _, k, _ in early.events].count("ended") == 2)
            late = await followed(c, id)
            assert shown(early) == shown(late)
            assert len(shown(late)) == view["options"]

    run(story())


def test_streams_have_a_limit() -> None:
    async def story() -> None:
        service = make_service(subscribers=1)
        async with client(service) as c:
            id = (await c.started(calls=1))["id"]
            async with streaming(c.app, f"/api/searches/{id}/events"):
                await until(lambda: service.subscribers == 1)
                await refused(await c.get(f"/api/searches/{id}/events"), 503, "1 streams")
            await until(lambda: service.subscribers == 0)
            assert (await followed(c, id)).status == 200

    run(story())


def test_many_streams_that_come_at_once_do_not_pass_the_limit() -> None:
    async def story() -> None:
        service = make_service(subscribers=2)
        async with client(service) as c, AsyncExitStack() as stack:
            id = (await c.started(calls=1))["id"]
            path = f"/api/searches/{id}/events"
            streams = [await stack.enter_async_context(streaming(c.app, path)) for _ in range(6)]
            await until(lambda: all(stream.status for stream in streams))
            assert sorted(stream.status for stream in streams) == [200] * 2 + [503] * 4
            assert service.subscribers == 2

    run(story())


def test_silence_is_filled_with_comments_and_a_strange_last_id_is_none() -> None:
    async def story() -> None:
        service = make_service()
        async with client(service) as c:
            id = (await c.started(calls=1))["id"]
            await c.waited(id)
            search = service.search(id)
            last = search.log.events[-1].id
            stream = event_stream(search, last, silence=0.01)
            assert [await anext(stream) for _ in range(2)][1] == b": still here\n\n"
            await stream.aclose()
            answer = await followed(c, id, "½ or so")  # type: ignore[arg-type]
            assert answer.events[0][1] == "part"

    run(story())


# What is wrong with requests ---------------------------------------------------------------------

DECIDE, SEARCHES = "/api/problems/small/decide", "/api/searches"


WRONG: list[tuple[str, Any, list[str]]] = [
    (DECIDE, {"row": ROW, "what": 1}, ["what", "Extra inputs"]),
    (DECIDE, {}, ["row", "required"]),
    (DECIDE, [1], ["the body"]),
    (DECIDE, {"row": {"a": 1}}, ["column 'b'", "no such column"]),
    (DECIDE, {"row": {**ROW, "a": "many"}}, ["column 'a'", "'many' is not a number"]),
    (DECIDE, {"row": {**ROW, "a": 10**400}}, ["column 'a'", "finite"]),
    (DECIDE, {"row": {**ROW, "a": [1]}}, ["row.a: a value is", "not [1]"]),
    (DECIDE, {"row": {**ROW, "c": "x" * 2000}}, ["row.c: a value is", "1000", "not 'xxx"]),
    (DECIDE, {"row": {**ROW, "c": None}}, ["column 'c'", "missing"]),
    (DECIDE, {"row": ROW, "locks": {"fixed": ["d"]}}, ["unknown feature 'd'"]),
    (DECIDE, {"row": ROW, "locks": {"excluded": [{"a": [1]}]}}, ["locks.excluded.0.a"]),
    (SEARCHES, {"problem": "large", "row": ROW}, ["unknown problem 'large'"]),
    (SEARCHES, {"problem": "small", "row": ROW, "calls": 1.5}, ["calls"]),
    (SEARCHES, {"problem": "small", "row": ROW, "calls": "3"}, ["calls"]),
    (SEARCHES, {"problem": "small", "row": ROW, "calls": True}, ["calls"]),
    (SEARCHES, {"problem": "small", "row": ROW, "calls": -1}, ["calls"]),
    (SEARCHES, {"problem": "small", "row": ROW, "calls": 31}, ["at most 30 here"]),
    (SEARCHES, {"problem": "small", "row": ROW, "method": "magic"}, ["unknown method"]),
    (SEARCHES, {"problem": "small", "row": ROW, "seed": 2**31}, ["seed"]),
]


def test_a_wrong_body_is_refused_by_name() -> None:
    async def story() -> None:
        async with client(make_service()) as c:
            for path, body, words in WRONG:
                answer = await c.post(path, body)
                await refused(answer, 422, *words)
                assert answer.json()["error"]["code"] == 3

    run(story())


NO_JSON: list[tuple[bytes, int]] = [
    (b'{"row": {"a": NaN, "b": 0, "c": "x"}}', 422),
    (b'{"row": {"a": -Infinity, "b": 0, "c": "x"}}', 422),
    (b'{"row": {"a": 1e999, "b": 0, "c": "x"}}', 422),
    (b'{"row": {"a": "\\ud800", "b": 0, "c": "x"}}', 422),
    (b'{"row": {"\\ud800": 1, "a": [1]}}', 422),
    (b'{"row"', 422),
    (b"", 422),
    (b"null", 422),
    (b'{"row": "\xff"}', 400),
    (b'{"row": {"a": ' + b"9" * 5000 + b"}}", 400),
    (b"[" * 100_000, 400),
]


def test_what_is_no_proper_json_is_refused() -> None:
    async def story() -> None:
        async with client(make_service()) as c:
            told = {"content-type": "application/json"}
            for body, status in NO_JSON:
                await refused(await c.http.post(DECIDE, content=body, headers=told), status)

    run(story())


def test_unknown_places_are_told_in_the_same_form() -> None:
    async def story() -> None:
        async with client(make_service()) as c:
            await refused(await c.get("/api/problems/large"), 404, "unknown problem 'large'")
            await refused(await c.post("/api/problems/large/decide", {"row": ROW}), 404)
            await refused(await c.get("/api/searches/none"), 404, "no such search")
            await refused(await c.get("/api/nowhere"), 404, "openapi.json")
            await refused(await c.http.delete("/api/health"), 405, "DELETE")
            options = f"/api/searches/{(await c.started(calls=0))['id']}/options"
            await refused(await c.get(options, sort="best"), 422, "sort")
            await refused(await c.get(options, limit=-1), 422, "limit")

    run(story())


def test_a_failing_model_is_a_bad_gateway_and_a_surprise_tells_no_secrets(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    class Failing(Adder):
        def ask(self, rows: Any) -> Answers:
            raise ValueError("the model fell over")

    async def story() -> None:
        async with client(make_service(small(Failing()))) as c:
            await refused(await c.post(DECIDE, {"row": ROW}), 502, "fell over")

        def surprise(*_: object) -> None:
            raise ZeroDivisionError("the key is hunter2")

        monkeypatch.setattr("waysout.serve.problems.lever_forms", surprise)
        async with client(make_service()) as c:
            answer = await c.post(DECIDE, {"row": ROW})
            await refused(answer, 500, "unexpected ZeroDivisionError")
            assert "hunter2" not in answer.text

    run(story())


def test_deciding_holds_nobody_up() -> None:
    class Slow(Adder):
        held = True

        def ask(self, rows: Any) -> Answers:
            while self.held:
                pass
            return super().ask(rows)

    async def story() -> None:
        oracle = Slow()
        async with client(make_service(small(oracle))) as c:
            waiting = asyncio.create_task(c.post(DECIDE, {"row": ROW}))
            assert (await c.get("/api/health")).status_code == 200
            assert not waiting.done()
            oracle.held = False
            assert (await waiting).status_code == 200

    run(story())


class Panic(BaseException):
    """As Rust libraries raise through pyo3."""


class Troubled(Adder):
    """Goes wrong on rows of the category z: it hangs until a test ends, or raises anything."""

    row_seconds = 0.3

    def __init__(self, trouble: BaseException | threading.Event) -> None:
        super().__init__()
        self.trouble = trouble

    def ask(self, rows: Any) -> Answers:
        if any(row[2] == "z" for row in rows):
            if isinstance(self.trouble, BaseException):
                raise self.trouble
            self.trouble.wait()
        return super().ask(rows)


@pytest.mark.parametrize("error", [Panic("at src/lib.rs:7"), SystemExit(3), KeyboardInterrupt()])
def test_a_model_that_panics_or_exits_fails_its_rows_and_the_service_goes_on(
    error: BaseException,
) -> None:
    async def story() -> None:
        async with client(make_service(small(Troubled(error)), llm=None)) as c:
            said = f"adder raised {type(error).__name__}"
            await refused(await c.post(DECIDE, {"row": {**ROW, "c": "z"}}), 502, said)
            view = await c.waited((await c.started(row={**ROW, "c": "z"}))["id"])
            assert (view["outcome"], said in view["reason"]) == ("failed", True)
            assert (await c.post(DECIDE, {"row": ROW})).status_code == 200

    run(story())


def test_a_row_that_hangs_is_given_up_and_the_next_is_decided(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    trouble = threading.Event()

    async def story() -> None:
        async with client(make_service(small(Troubled(trouble)), llm=None)) as c:
            hanging = c.post(DECIDE, {"row": {**ROW, "c": "z"}})
            answers = await asyncio.gather(hanging, c.post(DECIDE, {"row": ROW}))
            await refused(answers[0], 502, "did not answer")
            assert answers[1].status_code == 200
            health = await c.get("/api/health")
            assert (health.status_code, health.json()["hung"]) == (200, 1)
            monkeypatch.setattr(service, "MOST_HUNG", 1)
            await refused(await c.get("/api/health"), 503, "1 calls of the model hang", "restart")

    try:
        run(story())
    finally:
        trouble.set()


def test_a_search_names_its_problem_as_the_service_does() -> None:
    async def story() -> None:
        service = Service({"here": small()}, "simulated:7")
        async with client(service) as c:
            search = await c.started(problem="here", calls=1)
            assert search["problem"] == "here"
            assert [p["name"] for p in (await c.get("/api/problems")).json()["problems"]] == [
                "here"
            ]
            assert (await c.get("/api/problems/here")).json()["name"] == "here"

    run(story())


def test_ids_cannot_be_guessed() -> None:
    async def story() -> None:
        async with client(make_service()) as c:
            ids = [(await c.started(calls=0, oracle_rows=1))["id"] for _ in range(5)]
            assert len(set(ids)) == 5
            assert all(len(id) >= 22 for id in ids)

    run(story())
