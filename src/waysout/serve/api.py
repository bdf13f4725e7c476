"""The JSON API: the routes of a service, found as ``app.state.service``."""

from __future__ import annotations

from collections.abc import AsyncGenerator, Callable, Sequence
from functools import partial
from typing import Annotated, Any, Literal

from fastapi import APIRouter, Depends, Header, Path, Query, Request, Response
from starlette.responses import StreamingResponse
from starlette.types import Receive, Scope, Send

from waysout.domain.pick import easiest_first
from waysout.domain.result import Option
from waysout.report.result import Result
from waysout.serve import models
from waysout.serve.concurrency import LEFT, in_thread_apart
from waysout.serve.errors import Conflict, answer, document
from waysout.serve.people import LONGEST_QUERY
from waysout.serve.problems import Left, ServedProblem
from waysout.serve.search_session import SearchSession
from waysout.serve.service import Service

SILENCE = 15.0  # seconds, after which a stream shows that it is alive
_WHY = {
    400: "The body cannot be read",
    401: "This is not the token",
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
    return {s: {"model": models.ErrorDocument, "description": _WHY[s]} for s in statuses}


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
    """Return the search a path names, as somebody looks at it: the model may be asked."""
    return await service.find(id)


async def the_opened_search(id: Id, service: Running) -> SearchSession:
    """Return the search a path names, without asking the model."""
    return await service.open(id)


async def the_client(request: Request) -> Left:
    """Return what says whether the client has left; servers that do not tell keep all of them."""
    left: Left = request.scope.get(LEFT, bool)
    return left


ClientDep = Annotated[Left, Depends(the_client)]
ProblemDep = Annotated[ServedProblem, Depends(the_problem)]
SearchDep = Annotated[SearchSession, Depends(the_search)]
OpenedDep = Annotated[SearchSession, Depends(the_opened_search)]


@router.get("/health", response_model=models.Health, responses=errors(503))
async def health(service: Running) -> Response:
    """Whether the service is up, and how busy it is; it is not when a model hangs too often."""
    return answer(service.health())


# Problems --------------------------------------------------------------------------------------


@router.get("/problems", response_model=models.ProblemList)
async def list_problems(service: Running) -> Response:
    """The decisions that searches can be made for."""
    return answer(service.problem_list())


@router.get("/problems/{name}", response_model=models.ProblemForm, responses=errors(404, 422))
async def show_problem(name: Id, service: Running) -> Response:
    """The features, rules and limits of a problem, for a form."""
    return answer(await in_thread_apart(service.problem_view, name))


@router.get("/problems/{name}/examples", response_model=models.ExampleList,
            responses=errors(404, 422, 502))  # fmt: skip
async def list_examples(problem: ProblemDep) -> Response:
    """Rejected rows of the table, to start from."""
    return answer({"examples": await problem.examples()})


@router.get("/problems/{name}/people", response_model=models.PeopleList,
            responses=errors(404, 422, 502))  # fmt: skip
async def look_up_people(
    problem: ProblemDep,
    client: ClientDep,
    q: Annotated[str, Query(max_length=LONGEST_QUERY, description="What is looked for")] = "",
    offset: Annotated[int, Query(ge=0, le=10_000_000)] = 0,
    limit: Annotated[int, Query(ge=0, le=50)] = 20,
) -> Response:
    """Look rows of the table up, a page at a time.

    Each word of `q` must fit a row: it is the row's number, or a value begins with it, as the table
    spells the value or as the card says it. `column=word` looks at one column. Without `q` these
    are the examples. The model is asked about the page that is returned.
    """
    return answer(await problem.look_up(q, offset, limit, client))


@router.post("/problems/{name}/decide", response_model=models.Decision,
             responses=errors(400, 404, 422, 502))  # fmt: skip
async def decide(problem: ProblemDep, client: ClientDep, request: models.DecideRequest) -> Response:
    """Ask the model about one row, and what of it may change."""
    return answer(await problem.decide(request, client))


@router.post("/problems/{name}/strips", response_model=models.StripList,
             responses=errors(400, 404, 422, 502))  # fmt: skip
async def show_strips(
    problem: ProblemDep, client: ClientDep, request: models.StripsRequest
) -> Response:
    """What each feature does alone, from a row on.

    The model is asked for at most 600 rows, in at most five batches, outside any search's budget;
    what it answered before is remembered. Features beyond that come without answers.
    """
    return answer(await problem.strips(request, client))


@router.post("/problems/{name}/farther", response_model=models.StepList,
             responses=errors(400, 404, 422, 502))  # fmt: skip
async def carry_farther(
    problem: ProblemDep, client: ClientDep, request: models.FartherRequest
) -> Response:
    """Carry a way on: its numbers farther and farther.

    The model is asked for at most 11 rows, in one batch, outside any search's budget.
    """
    return answer(await problem.farther(request, client))


# Searches --------------------------------------------------------------------------------------


@router.post("/searches", response_model=models.SearchForm, status_code=201,
             responses=errors(400, 409, 422, 429, 503))  # fmt: skip
async def start_search(request: models.SearchRequest, service: Running) -> Response:
    """Begin to look for ways out of one row."""
    served = await in_thread_apart(service.check, request)
    search = service.start(request, served)
    return answer(search.view(), 201, {"Location": f"/api/searches/{search.id}"})


@router.get("/searches", response_model=models.SearchList)
async def list_searches(service: Running) -> Response:
    """The searches that are kept, the oldest first."""
    return answer({"searches": [search.line() for search in service.searches.values()]})


@router.get("/searches/{id}", response_model=models.SearchForm, responses=errors(404, 422))
async def show_search(search: SearchDep) -> Response:
    """A search as it stands."""
    return answer(search.view())


_LATER = {
    "description": "Forgotten; what is on file goes as soon as the model's last call has ended"
}


@router.delete("/searches/{id}", status_code=204,
               responses={202: _LATER, **errors(404, 422, 503)})  # fmt: skip
async def delete_search(id: Id, service: Running) -> Response:
    """Forget a search, and what is on file of it; if it runs, it is stopped.

    The model is not asked. 503 says why something stays on file; the search stays with it.
    """
    return Response(status_code=204 if await service.delete(id) else 202)


@router.post("/searches/{id}/stop", response_model=models.SearchForm, status_code=202,
             responses=errors(404, 422))  # fmt: skip
async def stop_search(search: OpenedDep) -> Response:
    """End the part that runs; what it has found stays. The model is not asked."""
    search.stop()
    return answer(search.view(), 202)


@router.post("/searches/{id}/continue", response_model=models.SearchForm, status_code=202,
             responses=errors(400, 404, 409, 422, 429))  # fmt: skip
async def continue_search(
    search: SearchDep, request: models.ContinueRequest, service: Running
) -> Response:
    """Continue with what is left, within other locks, from what is known."""
    return answer(service.go_on(search.id, request).view(), 202)


@router.put("/searches/{id}/pins", response_model=models.SearchForm,
            responses=errors(400, 404, 422, 502, 503))  # fmt: skip
async def pin_rows(search: SearchDep, request: models.PinsRequest) -> Response:
    """Keep up to four rows at hand, instead of those that were.

    A row that the search shows is kept as that option. Any other is the person's own: the model is
    asked about it, outside the search's budget, and it is refused unless it is approved and keeps
    the rules and the present locks. 503 says why they could not be filed; then nothing has changed.
    """
    await search.pin(request.rows)
    return answer(search.view())


# Options and downloads -------------------------------------------------------------------------

Sort = Literal["ease", "difference", "certainty", "found"]
Download = Annotated[bool, Query(description="Save it as a file instead of showing it")]


@router.get("/searches/{id}/options", response_model=models.OptionList, responses=errors(404, 422))
async def list_options(
    search: SearchDep,
    sort: Sort = "ease",
    offset: Annotated[int, Query(ge=0, le=1_000_000)] = 0,
    limit: Annotated[int, Query(ge=0, le=1000)] = 50,
) -> Response:
    """The ways out found so far, sorted, a page at a time."""
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
    picked = await search.shortlist.most_different(50)
    ranks = {tuple(option.row.values()): i for i, option in enumerate(picked)}
    last = len(ranks)  # sorting keeps the order of equals
    return sorted(easiest_first(options), key=lambda o: ranks.get(tuple(o.row.values()), last))


async def finished(search: SearchDep) -> SearchSession:
    """Return a search that has ended."""
    if search.running or search.result is None:
        raise Conflict("the search is still running: stop it, or wait for its end")
    return search


Finished = Annotated[SearchSession, Depends(finished)]


def _as_download(response: Response, name: str, download: bool) -> Response:
    if download:
        response.headers["Content-Disposition"] = f'attachment; filename="waysout-{name}"'
    return response


@router.get("/searches/{id}/result.json", response_model=models.ResultDocument,
            responses=errors(404, 409, 422))  # fmt: skip
async def download_result(search: Finished, download: Download = False) -> Response:
    """The whole result: the document of waysout find --json."""
    return _as_download(answer(search.so_far().as_dict()), "result.json", download)


def file_docs(kind: str, *statuses: int) -> dict[int | str, dict[str, Any]]:
    """Return the documentation of a route that answers with a file."""
    schema = {kind: {"schema": {"type": "string"}}}
    return {200: {"description": "A file", "content": schema}, **errors(*statuses)}


async def write_file(
    search: SearchSession, name: str, kind: str, write: Callable[..., str | None], save: bool
) -> Response:
    """Answer with a file, of what is pinned if anything is.

    In a thread, as thousands of options take a while.
    """
    pinned = [pin.option for pin in search.pinned] or None
    text = await in_thread_apart(write, search.so_far(), when=search.day, ways=pinned) or ""
    # A lone surrogate has no UTF-8, and is no reason to send nothing.
    data = text.encode("utf-8", "replace")
    return _as_download(Response(data, media_type=f"{kind}; charset=utf-8"), name, save)


@router.get("/searches/{id}/options.csv", response_class=Response,
            responses=file_docs("text/csv", 404, 422))  # fmt: skip
async def download_options(search: SearchDep, download: Download = False) -> Response:
    """The options found so far as a table."""
    return await write_file(
        search, "options.csv", "text/csv",
        lambda result, **_: result.to_csv(all_options=True), download,
    )  # fmt: skip


def _add_page(name: str, kind: str, about: str, write: Callable[..., str | None]) -> None:
    @router.get(f"/searches/{{id}}/{name}", name=f"download_{name.replace('.', '_')}",
                description=about, response_class=Response,
                responses=file_docs(kind, 404, 409, 422))  # fmt: skip
    async def download_page(search: Finished, download: Download = False) -> Response:
        return await write_file(search, name, kind, write, download)


_add_page("ways.csv", "text/csv", "The ways as a table, the present values beside the new ones.",
          lambda result, **_: result.to_csv(present=True))  # fmt: skip
_add_page("report.html", "text/html", "Two pages to read and print, in one file.", Result.to_html)
_add_page("letter.html", "text/html", "A plain letter to the person concerned.",
          partial(Result.to_letter, html=True))  # fmt: skip
_add_page("letter.txt", "text/plain", "The same letter as text.",
          partial(Result.to_letter, html=False))  # fmt: skip


# Events ----------------------------------------------------------------------------------------

_EVENT = b"id: %d\nevent: %s\ndata: %s\n\n"
_STREAM = {"description": "Server-sent events", "content": {"text/event-stream": {}}}


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


@router.get("/searches/{id}/events", response_class=StreamingResponse,
            responses={200: _STREAM, **errors(404, 422, 503)})  # fmt: skip
async def follow_search(
    search: SearchDep,
    service: Running,
    last_event_id: Annotated[str, Header(max_length=100, description="Resume after this one")] = "",
) -> Response:
    """Every event has an id; `Last-Event-ID` resumes after one.

    Kinds: part, decided, learning, options, shortlist, ways, pins, ledger, ended, gone. The stream
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
        lines = [_EVENT % (e.id, e.kind.encode(), document(e.data)) for e in events]
        yield b"".join(lines) or b": still here\n\n"
