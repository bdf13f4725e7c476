"""What a search brought, to take away: JSON, CSV, the report, the letter."""

from __future__ import annotations

import asyncio
from collections.abc import Callable
from datetime import date
from typing import Annotated, Any

from fastapi import APIRouter, Path, Query, Response

from waysout.report.result import Result
from waysout.serve.errors import Conflict, answer
from waysout.serve.live import LiveSearch
from waysout.serve.models import ResultDocument
from waysout.serve.service import Service

Id = Annotated[str, Path(max_length=100)]
Download = Annotated[bool, Query(description="Save it as a file instead of showing it")]
Documented = Callable[..., dict[int | str, dict[str, Any]]]
Make = Callable[[Result, date], str]


def add_downloads(router: APIRouter, service: Service, errors: Documented) -> None:
    """Add the routes of what can be taken away."""

    def finished(id: str) -> LiveSearch:
        search = service.search(id)
        if search.running or search.result is None:
            raise Conflict("the search is still running: stop it, or wait for its end")
        return search

    @router.get("/searches/{id}/result.json", response_model=ResultDocument,
                operation_id="download_result", responses=errors(404, 409, 422),
                summary="All that the search has to tell: the document of waysout find --json",
                )  # fmt: skip
    async def download_result(id: Id, download: Download = False) -> Response:
        return _named(answer(finished(id).so_far().as_dict()), "result.json", download)

    @router.get("/searches/{id}/options.csv", operation_id="download_options",
                response_class=Response,
                responses={200: _content("text/csv"), **errors(404, 422)},
                summary="The options found so far as a table")  # fmt: skip
    async def download_options(id: Id, download: Download = False) -> Response:
        made = await _made(_csv, service.search(id), "text/csv")
        return _named(made, "options.csv", download)

    def add_page(name: str, kind: str, make: Make, summary: str) -> None:
        @router.get(f"/searches/{{id}}/{name}", response_class=Response,
                    operation_id=f"download_{name.replace('.', '_')}", summary=summary,
                    responses={200: _content(kind), **errors(404, 409, 422)})  # fmt: skip
        async def download_page(id: Id, download: Download = False) -> Response:
            return _named(await _made(make, finished(id), kind), name, download)

    add_page("report.html", "text/html", _report, "One page to read and print, all in one file")
    add_page("letter.html", "text/html", _letter_page, "A plain letter to the person concerned")
    add_page("letter.txt", "text/plain", _letter_text, "The same letter as text")


def _content(kind: str) -> dict[str, Any]:
    return {"description": "A file", "content": {kind: {"schema": {"type": "string"}}}}


async def _made(make: Make, search: LiveSearch, kind: str) -> Response:
    """Make it in a thread: thousands of options take a while, in which others go on."""
    text = await asyncio.to_thread(make, search.so_far(), search.day)
    # Half a character (a lone surrogate) has no UTF-8, and is no reason to send nothing.
    return Response(text.encode("utf-8", "replace"), media_type=f"{kind}; charset=utf-8")


def _named(response: Response, name: str, download: bool) -> Response:
    if download:
        response.headers["Content-Disposition"] = f'attachment; filename="waysout-{name}"'
    return response


def _csv(result: Result, day: date) -> str:
    return result.to_csv() or ""


def _report(result: Result, day: date) -> str:
    return result.to_html(when=day) or ""


def _letter_page(result: Result, day: date) -> str:
    return result.to_letter(html=True, when=day) or ""


def _letter_text(result: Result, day: date) -> str:
    return result.to_letter(html=False, when=day) or ""
