"""The page itself: its shell, its styles and its scripts, all from this package.

The browser builds the page from texts, and with trusted types a slip is an error, not a hole. There
is no framework: twenty small modules need no build, and can be read.
"""

from __future__ import annotations

import hashlib
from dataclasses import dataclass
from importlib import resources
from pathlib import PurePath
from string import Template

from fastapi import APIRouter, Request
from starlette.exceptions import HTTPException
from starlette.responses import HTMLResponse, Response

from waysout import __version__

_FILES = resources.files(__package__)
_LOGOUT = '<button id="logout" type="button" class="quiet" hidden>Sign out</button>'
# The machine's own table of types may differ, and browsers refuse scripts of another type.
_TYPES = {".js": "text/javascript", ".css": "text/css", ".svg": "image/svg+xml"}


@dataclass(frozen=True)
class StaticFile:
    """A file of this package, as it is sent."""

    content: bytes
    media_type: str
    tag: str


def static_files() -> dict[str, StaticFile]:
    """Return every file of the page, by its name.

    Only what is in this table is sent, so a path that leads elsewhere leads nowhere.
    """
    found = {}
    for entry in (_FILES / "static").iterdir():
        content = entry.read_bytes()
        tag = f'"{hashlib.sha256(content).hexdigest()[:32]}"'
        found[entry.name] = StaticFile(content, _TYPES[PurePath(entry.name).suffix], tag)
    return found


def shell(*, needs_token: bool) -> str:
    """Return the page before anything is in it. It holds no data, so everybody may see it."""
    text = (_FILES / "page.html").read_text("utf-8")
    return Template(text).substitute(version=__version__, logout=_LOGOUT if needs_token else "")


def make_pages(*, needs_token: bool) -> APIRouter:
    """Return the routes of the page."""
    router = APIRouter(include_in_schema=False)
    page, files = shell(needs_token=needs_token), static_files()

    @router.api_route("/", methods=["GET", "HEAD"])
    async def show_page() -> Response:
        return HTMLResponse(page)

    @router.api_route("/favicon.ico", methods=["GET", "HEAD"])
    async def show_icon(request: Request) -> Response:
        return await show_file(request, "icon.svg")

    @router.api_route("/static/{name:path}", methods=["GET", "HEAD"])
    async def show_file(request: Request, name: str) -> Response:
        if name not in files:
            raise HTTPException(404, "there is no such file")
        file = files[name]
        headers = {"ETag": file.tag}
        if request.headers.get("if-none-match") == file.tag:
            return Response(status_code=304, headers=headers)
        return Response(file.content, media_type=file.media_type, headers=headers)

    return router
