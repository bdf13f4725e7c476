"""The JSON API: the routes of a service, found as ``app.state.service``."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncGenerator, Callable, Sequence
from functools import partial
from typing import Annotated, Any, Literal

from fastapi import APIRouter, Depends, Header, Path, Query, Request, Response
from starlette.responses import StreamingResponse
from starlette.types import Receive, Scope, Send

from waysout.domain.result import Option
from waysout.report.html import easiest_first
from waysout.report.result import Result
from waysout.serve.errors import Conflict, answer, document
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
    ResultDocument,
    SearchForm,
    SearchList,
    SearchRequest,
)
from waysout.serve.problems import ServedProblem
from waysout.serve.search_session import SearchSession
from waysout.serve.service import Service

SILENCE = 15.0  # seconds, after which a stream shows that it is alive
_MOST_DIFFERENT = 50
_WHY = {
    400: "The body cannot be read",
    404: "Not found",
    409: "Not possible in the search's present state",
    422: "Something in the request is wrong; the message says what",
    429: "Too many searches are running; Retry-After says when to try again",
    502: "The model failed",
    503: "Something that is needed is missing or busy",
}

router = APIRouter(prefix="/api")
Id = Annotated[str, Path(max_length=100)]


def errors(*statuses: int) -> dict[int | str, dict[str, Any]]:
    """Return the documentation of the errors a route may answer with."""
    return {s: {"model": ErrorDocument, "description": _WHY[s]} for s in statuses}


# Dependencies are asynchronous functions, because FastAPI runs others in threads.


async def the_service(request: Request) -> Service:
    """Return the service of the application."""
    service: Service = request.app.state.service
    return service


Running = Annotated[Service, Depends(the_service)]


async def the_problem(name: Id, service: Running) -> ServedProblem:
    """Return the problem a path names."""
    return service.problem(name)


async def the_search(id: Id, service: Running) -> SearchSession:
    """Return the search a path names."""
    return service.search(id)


Problem = Annotated[ServedProblem, Depends(the_problem)]
Search = Annotated[SearchSession, Depends(the_search)]


@router.get("/health", response_model=Health, operation_id="health",
            summary="Whether the service is up, and how busy it is")  # fmt: skip
async def health(service: Running) -> Response:
    """Answer a load balancer."""
    return answer(service.health())


# Problems --------------------------------------------------------------------------------------


@router.get("/problems", response_model=ProblemList, operation_id="list_problems",
            summary="The decisions that searches can be made for")  # fmt: skip
async def list_problems(service: Running) -> Response:
    """List what is served."""
    return answer(service.problem_list())


@router.get("/problems/{name}", response_model=ProblemForm, operation_id="show_problem",
            responses=errors(404, 422),
            summary="The features, rules and limits of a problem, for a form")  # fmt: skip
async def show_problem(name: Id, service: Running) -> Response:
    """Describe a problem; in a thread, as methods are loaded."""
    return answer(await asyncio.to_thread(service.problem_view, name))


@router.get("/problems/{name}/examples", response_model=ExampleList, operation_id="list_examples",
            responses=errors(404, 422, 502),
            summary="Rejected rows of the table, to start from")  # fmt: skip
async def list_examples(problem: Problem) -> Response:
    """List rejected rows."""
    return answer({"examples": await problem.examples()})


@router.post("/problems/{name}/decide", response_model=Decision, operation_id="decide",
             responses=errors(400, 404, 422, 502),
             summary="Ask the model about one row, and what of it may change")  # fmt: skip
async def decide(problem: Problem, request: DecideRequest) -> Response:
    """Ask the model about one row."""
    return answer(await problem.decide(request))


# Searches --------------------------------------------------------------------------------------


@router.post("/searches", response_model=SearchForm, status_code=201, operation_id="start_search",
             responses=errors(400, 409, 422, 429, 503),
             summary="Begin to look for ways out of one row")  # fmt: skip
async def start_search(request: SearchRequest, service: Running) -> Response:
    """Start a search."""
    await asyncio.to_thread(service.check, request)
    search = service.start(request)
    return answer(search.view(), 201, {"Location": f"/api/searches/{search.id}"})


@router.get("/searches", response_model=SearchList, operation_id="list_searches",
            summary="The searches that are kept, the oldest first")  # fmt: skip
async def list_searches(service: Running) -> Response:
    """List searches."""
    return answer({"searches": [search.line() for search in service.searches.values()]})


@router.get("/searches/{id}", response_model=SearchForm, operation_id="show_search",
            responses=errors(404, 422), summary="A search as it stands")  # fmt: skip
async def show_search(search: Search) -> Response:
    """Show a search."""
    return answer(search.view())


@router.delete("/searches/{id}", status_code=204, operation_id="delete_search",
               responses=errors(404, 422),
               summary="Forget a search; if it runs, it is stopped")  # fmt: skip
async def delete_search(id: Id, service: Running) -> Response:
    """Forget a search."""
    service.delete(id)
    return Response(status_code=204)


@router.post("/searches/{id}/stop", response_model=SearchForm, status_code=202,
             operation_id="stop_search", responses=errors(404, 422),
             summary="End the part that runs; what it has found stays")  # fmt: skip
async def stop_search(search: Search) -> Response:
    """Stop a search."""
    search.stop()
    return answer(search.view(), 202)


@router.post("/searches/{id}/continue", response_model=SearchForm, status_code=202,
             operation_id="continue_search", responses=errors(400, 404, 409, 422, 429),
             summary="Continue with what is left, within other locks, from what is known",
             )  # fmt: skip
async def continue_search(id: Id, request: ContinueRequest, service: Running) -> Response:
    """Continue a search."""
    return answer(service.go_on(id, request).view(), 202)


# Options and downloads -------------------------------------------------------------------------

Sort = Literal["ease", "difference", "certainty", "found"]
Download = Annotated[bool, Query(description="Save it as a file instead of showing it")]


@router.get("/searches/{id}/options", response_model=OptionList, operation_id="list_options",
            responses=errors(404, 422),
            summary="The ways out found so far, sorted, a page at a time")  # fmt: skip
async def list_options(
    search: Search,
    sort: Sort = "ease",
    offset: Annotated[int, Query(ge=0, le=1_000_000)] = 0,
    limit: Annotated[int, Query(ge=0, le=1000)] = 50,
) -> Response:
    """List options."""
    options = await sorted_options(search, sort)
    page = [option.as_dict() for option in options[offset : offset + limit]]
    return answer({"total": len(options), "options": page})


async def sorted_options(search: SearchSession, sort: Sort) -> Sequence[Option]:
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


async def finished(search: Search) -> SearchSession:
    """Return a search that has ended."""
    if search.running or search.result is None:
        raise Conflict("the search is still running: stop it, or wait for its end")
    return search


Finished = Annotated[SearchSession, Depends(finished)]


def _as_download(response: Response, name: str, download: bool) -> Response:
    if download:
        response.headers["Content-Disposition"] = f'attachment; filename="waysout-{name}"'
    return response


@router.get("/searches/{id}/result.json", response_model=ResultDocument,
            operation_id="download_result", responses=errors(404, 409, 422),
            summary="The whole result: the document of waysout find --json")  # fmt: skip
async def download_result(search: Finished, download: Download = False) -> Response:
    """Return the result."""
    return _as_download(answer(search.so_far().as_dict()), "result.json", download)


def file_docs(kind: str, *statuses: int) -> dict[int | str, dict[str, Any]]:
    """Return the documentation of a route that answers with a file."""
    content = {"description": "A file", "content": {kind: {"schema": {"type": "string"}}}}
    return {200: content, **errors(*statuses)}


async def _file(
    search: SearchSession, name: str, kind: str, write: Callable[[Result], str | None], save: bool
) -> Response:
    # In a thread: thousands of options take a while, and others must not wait.
    text = await asyncio.to_thread(write, search.so_far()) or ""
    # A lone surrogate has no UTF-8, and is no reason to send nothing.
    data = text.encode("utf-8", "replace")
    return _as_download(Response(data, media_type=f"{kind}; charset=utf-8"), name, save)


@router.get("/searches/{id}/options.csv", operation_id="download_options", response_class=Response,
            responses=file_docs("text/csv", 404, 422),
            summary="The options found so far as a table")  # fmt: skip
async def download_options(search: Search, download: Download = False) -> Response:
    """Return the options as CSV."""
    return await _file(search, "options.csv", "text/csv", Result.to_csv, download)


@router.get("/searches/{id}/report.html", operation_id="download_report_html",
            response_class=Response, responses=file_docs("text/html", 404, 409, 422),
            summary="One page to read and print, all in one file")  # fmt: skip
async def download_report(search: Finished, download: Download = False) -> Response:
    """Return the report."""
    write = partial(Result.to_html, when=search.day)
    return await _file(search, "report.html", "text/html", write, download)


@router.get("/searches/{id}/letter.html", operation_id="download_letter_html",
            response_class=Response, responses=file_docs("text/html", 404, 409, 422),
            summary="A plain letter to the person concerned")  # fmt: skip
async def download_letter_page(search: Finished, download: Download = False) -> Response:
    """Return the letter as a page."""
    write = partial(Result.to_letter, html=True, when=search.day)
    return await _file(search, "letter.html", "text/html", write, download)


@router.get("/searches/{id}/letter.txt", operation_id="download_letter_txt",
            response_class=Response, responses=file_docs("text/plain", 404, 409, 422),
            summary="The same letter as text")  # fmt: skip
async def download_letter_text(search: Finished, download: Download = False) -> Response:
    """Return the letter as text."""
    write = partial(Result.to_letter, html=False, when=search.day)
    return await _file(search, "letter.txt", "text/plain", write, download)


# Events ----------------------------------------------------------------------------------------


class EventStream(StreamingResponse):
    """A stream of events. It counts from when it is granted, not from when it is first read.

    Otherwise many that come at once would all find room, and one that is never read would stop
    counting when its search is deleted.
    """

    def __init__(self, service: Service, search: SearchSession, after: int) -> None:
        super().__init__(event_stream(search, after), media_type="text/event-stream")
        self._leave = service.leave
        service.join()

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        """Send events until the search is deleted or the client disconnects."""
        try:
            await super().__call__(scope, receive, send)
        finally:
            self._leave()


@router.get("/searches/{id}/events", operation_id="follow_search",
            response_class=StreamingResponse, summary="What happens in a search, as it happens",
            responses={200: {"description": "Server-sent events",
                             "content": {"text/event-stream": {}}}, **errors(404, 422, 503)},
            )  # fmt: skip
async def follow_search(
    search: Search,
    service: Running,
    last_event_id: Annotated[str, Header(max_length=100, description="Resume after this one")] = "",
) -> Response:
    """Every event has an id; `Last-Event-ID` resumes after one.

    Kinds: part, decided, learning, tried, options, shortlist, ledger, ended, gone. The stream
    stays open over stop and continue, and ends with `gone` when the search is deleted.
    """
    last = last_event_id.strip()
    return EventStream(service, search, int(last) if last.isascii() and last.isdigit() else 0)


async def event_stream(
    search: SearchSession, after: int = 0, silence: float = SILENCE
) -> AsyncGenerator[bytes]:
    """Yield the events of a search as they go over the wire."""
    yield b": the events of a search\n\n"  # at once, so that the client knows it is connected
    async for events in search.log.follow(after, silence):
        lines = (
            b"id: %d\nevent: %s\ndata: %s\n\n"
            % (event.id, event.kind.encode(), document(event.data))
            for event in events
        )
        yield b"".join(lines) or b": still here\n\n"
