"""The page itself: its shell, its styles and its scripts, all from this package."""

from __future__ import annotations

import hashlib
import mimetypes
from dataclasses import dataclass
from importlib import resources
from importlib.resources.abc import Traversable

from fastapi import APIRouter, Request
from jinja2 import Environment, PackageLoader, StrictUndefined
from starlette.exceptions import HTTPException
from starlette.responses import HTMLResponse, Response

from waysout import __version__

_PACKAGE = "waysout.serve"
_SHELL = "page.html"
_ICON = "icon.svg"
# What the machine's own table of types says of these differs, and scripts are held to theirs.
_TYPES = {
    ".js": "text/javascript", ".css": "text/css", ".svg": "image/svg+xml", ".html": "text/html",
}  # fmt: skip


@dataclass(frozen=True)
class StaticFile:
    """A file of this package, as it is sent."""

    content: bytes
    media_type: str
    tag: str


def static_files() -> dict[str, StaticFile]:
    """Return every file that may be had, by its name.

    Only what is in this table is sent, so a path that leads elsewhere leads nowhere.
    """
    return _files_in(resources.files(_PACKAGE) / "static", "")


def _files_in(folder: Traversable, above: str) -> dict[str, StaticFile]:
    found: dict[str, StaticFile] = {}
    if not folder.is_dir():
        return found
    for entry in folder.iterdir():
        if entry.is_dir():
            found |= _files_in(entry, f"{above}{entry.name}/")
        else:
            found[above + entry.name] = _read(entry)
    return found


def _read(entry: Traversable) -> StaticFile:
    content = entry.read_bytes()
    suffix = entry.name[entry.name.rfind(".") :]
    media_type = _TYPES.get(suffix) or mimetypes.guess_type(entry.name)[0]
    tag = f'"{hashlib.sha256(content).hexdigest()[:32]}"'
    return StaticFile(content, media_type or "application/octet-stream", tag)


def shell(*, needs_token: bool) -> str:
    """Return the page before anything is in it. It holds no data: whoever comes may see it."""
    environment = Environment(
        loader=PackageLoader(_PACKAGE), autoescape=True, undefined=StrictUndefined
    )
    return environment.get_template(_SHELL).render(version=__version__, needs_token=needs_token)


def make_pages(*, needs_token: bool) -> APIRouter:
    """Return the routes of the page."""
    router = APIRouter(include_in_schema=False)
    page, files = shell(needs_token=needs_token), static_files()

    @router.api_route("/", methods=["GET", "HEAD"])
    async def show_page() -> Response:
        return HTMLResponse(page)

    @router.api_route("/static/{name:path}", methods=["GET", "HEAD"])
    async def show_file(request: Request, name: str) -> Response:
        return _answer(request, files.get(name))

    @router.api_route("/favicon.ico", methods=["GET", "HEAD"])
    async def show_icon(request: Request) -> Response:
        return _answer(request, files.get(_ICON))

    return router


def _answer(request: Request, file: StaticFile | None) -> Response:
    if file is None:
        raise HTTPException(404, "there is no such file")
    headers = {"ETag": file.tag}
    if request.headers.get("if-none-match") == file.tag:
        return Response(status_code=304, headers=headers)
    return Response(file.content, media_type=file.media_type, headers=headers)
