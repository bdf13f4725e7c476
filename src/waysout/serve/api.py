"""The JSON API: what can be asked of the service, and how it answers."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncGenerator, Sequence
from typing import Annotated, Any, Literal

from fastapi import APIRouter, Header, Path, Query, Response
from starlette.responses import StreamingResponse
from starlette.types import Receive, Scope, Send

from waysout.domain.result import Option
from waysout.report.html import easiest_first
from waysout.serve.downloads import add_downloads
from waysout.serve.errors import answer, document
from waysout.serve.events import PageEvent
from waysout.serve.live import LiveSearch
from waysout.serve.models import (
    ContinueRequest,
    DecideRequest,
    Decision,
    ErrorDocument,
    ExampleList,
    Health,
    OptionList,
    ProblemForm,
    ProblemList,
    SearchForm,
    SearchList,
    SearchRequest,
)
from waysout.serve.served import example_forms
from waysout.serve.service import Service

SILENCE = 15.0  # seconds, after which a stream shows that it is alive
_MOST_DIFFERENT = 50
_WHY = {
    400: "The body cannot be read",
    404: "There is no such thing",
    409: "Not while things stand as they do",
    422: "Something in the request is wrong; the message says what",
    429: "Too many searches run already; Retry-After says when to come back",
    502: "The model failed",
    503: "Something that is needed is missing or taken",
}

Sort = Literal["ease", "difference", "certainty", "found"]
Id = Annotated[str, Path(max_length=100)]
Name = Annotated[str, Path(max_length=100)]


def errors(*statuses: int) -> dict[int | str, dict[str, Any]]:
    """Return how a route documents the errors it may answer with."""
    return {s: {"model": ErrorDocument, "description": _WHY[s]} for s in statuses}


def create_api(service: Service) -> APIRouter:
    """Return the routes of a service."""
    router = APIRouter(prefix="/api")
    _add_problems(router, service)
    _add_searches(router, service)
    _add_parts(router, service)
    _add_events(router, service)
    add_downloads(router, service, errors)
    return router


def _add_problems(router: APIRouter, service: Service) -> None:
    @router.get("/health", response_model=Health, operation_id="health",
                summary="Whether the service is there, and how busy it is")  # fmt: skip
    async def health() -> Response:
        return answer(service.health())

    @router.get("/problems", response_model=ProblemList, operation_id="list_problems",
                summary="What decisions there are ways out of")  # fmt: skip
    async def list_problems() -> Response:
        return answer(service.problem_list())

    @router.get("/problems/{name}", response_model=ProblemForm, operation_id="show_problem",
                responses=errors(404, 422),
                summary="The features, rules and limits of a problem, for a form")  # fmt: skip
    async def show_problem(name: Name) -> Response:
        return answer(await asyncio.to_thread(service.problem_view, name))

    @router.get("/problems/{name}/examples", response_model=ExampleList,
                operation_id="list_examples", responses=errors(404, 422, 502),
                summary="Rejected rows of the table, to start from")  # fmt: skip
    async def list_examples(name: Name) -> Response:
        served = service.problem(name)
        return answer({"examples": example_forms(served, await served.examples())})

    @router.post("/problems/{name}/decide", response_model=Decision, operation_id="decide",
                 responses=errors(400, 404, 422, 502),
                 summary="Ask the model about one row, and what of it may change")  # fmt: skip
    async def decide(name: Name, request: DecideRequest) -> Response:
        return answer(await service.problem(name).decide(request))


def _add_searches(router: APIRouter, service: Service) -> None:
    @router.post("/searches", response_model=SearchForm, status_code=201,
                 operation_id="start_search", responses=errors(400, 409, 422, 429, 503),
                 summary="Begin to look for ways out of one row")  # fmt: skip
    async def start_search(request: SearchRequest) -> Response:
        await asyncio.to_thread(service.check, request)
        search = service.start(request)
        return answer(search.view(), 201, {"Location": f"/api/searches/{search.id}"})

    @router.get("/searches", response_model=SearchList, operation_id="list_searches",
                summary="The searches that are kept, the oldest first")  # fmt: skip
    async def list_searches() -> Response:
        return answer({"searches": [search.line() for search in service.searches.values()]})

    @router.get("/searches/{id}", response_model=SearchForm, operation_id="show_search",
                responses=errors(404, 422), summary="A search as it stands")  # fmt: skip
    async def show_search(id: Id) -> Response:
        return answer(service.search(id).view())

    @router.delete("/searches/{id}", status_code=204, operation_id="delete_search",
                   responses=errors(404, 422),
                   summary="Forget a search; if it runs, it is stopped")  # fmt: skip
    async def delete_search(id: Id) -> Response:
        service.delete(id)
        return Response(status_code=204)

    @router.get("/searches/{id}/options", response_model=OptionList, operation_id="list_options",
                responses=errors(404, 422),
                summary="The ways out found so far, sorted, a page at a time")  # fmt: skip
    async def list_options(
        id: Id,
        sort: Sort = "ease",
        offset: Annotated[int, Query(ge=0, le=1_000_000)] = 0,
        limit: Annotated[int, Query(ge=0, le=1000)] = 50,
    ) -> Response:
        options = await sorted_options(service.search(id), sort)
        page = [option.as_dict() for option in options[offset : offset + limit]]
        return answer({"total": len(options), "options": page})


def _add_parts(router: APIRouter, service: Service) -> None:
    @router.post("/searches/{id}/stop", response_model=SearchForm, status_code=202,
                 operation_id="stop_search", responses=errors(404, 422),
                 summary="End the part that runs; what it has found stays")  # fmt: skip
    async def stop_search(id: Id) -> Response:
        search = service.search(id)
        search.stop()
        return answer(search.view(), 202)

    @router.post("/searches/{id}/continue", response_model=SearchForm, status_code=202,
                 operation_id="continue_search", responses=errors(400, 404, 409, 422, 429),
                 summary="Go on with what is left, within other locks, from what is known",
                 )  # fmt: skip
    async def continue_search(id: Id, request: ContinueRequest) -> Response:
        return answer(service.go_on(id, request).view(), 202)


def _add_events(router: APIRouter, service: Service) -> None:
    stream = {"description": "Server-sent events", "content": {"text/event-stream": {}}}

    @router.get("/searches/{id}/events", operation_id="follow_search",
                response_class=StreamingResponse, responses={200: stream, **errors(404, 422, 503)},
                summary="What happens in a search, as it happens")  # fmt: skip
    async def follow_search(
        id: Id,
        last_event_id: Annotated[
            str, Header(max_length=100, description="Go on after this event")
        ] = "",
    ) -> Response:
        """Every event has an id; `Last-PageEvent-ID` goes on after one.

        Kinds: part, decided, learning, tried, options, shortlist, ledger, ended, gone. The stream
        stays open over stop and continue, and ends with `gone` when the search is deleted.
        """
        search = service.search(id)
        told = last_event_id.strip()
        after = int(told) if told.isascii() and told.isdigit() else 0
        return EventStream(service, search, after)


class EventStream(StreamingResponse):
    """A stream of events. It counts from when it is granted, not from when it is first read.

    Else many that come at once would all find room, and one that nobody reads would count for
    nothing once its search is gone.
    """

    def __init__(self, service: Service, search: LiveSearch, after: int) -> None:
        super().__init__(event_stream(search, after), media_type="text/event-stream")
        self._leave = service.leave
        service.join()

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        """Send what happens until it is over or nobody listens."""
        try:
            await super().__call__(scope, receive, send)
        finally:
            self._leave()


async def event_stream(
    search: LiveSearch, after: int = 0, silence: float = SILENCE
) -> AsyncGenerator[bytes]:
    """Yield the events of a search as they go over the wire."""
    yield b": the events of a search\n\n"  # so that whoever waits knows that it has begun
    async for events in search.log.follow(after, silence):
        yield b"".join(map(_written, events)) or b": still here\n\n"


def _written(event: PageEvent) -> bytes:
    return b"id: %d\nevent: %s\ndata: %s\n\n" % (
        event.id, event.kind.encode(), document(event.data),
    )  # fmt: skip


async def sorted_options(search: LiveSearch, sort: Sort) -> Sequence[Option]:
    """Return the options of a search, the first to read first."""
    options = list(search.options.values())
    if sort == "ease":
        return easiest_first(options)
    if sort == "certainty":
        return sorted(options, key=lambda o: (o.stable is False, -o.probability))
    if sort == "found":
        return options
    first = await search.shortlist.most_different(_MOST_DIFFERENT)
    picked = {option.key for option in first}
    return [*first, *easiest_first(o for o in options if o.key not in picked)]
