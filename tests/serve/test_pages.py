from __future__ import annotations

import re

import pytest
from guard_world import HOST, PORT, Answered, ask

from waysout import __version__
from waysout.serve.app import create_app
from waysout.serve.guard import App
from waysout.serve.hosts import Hosts
from waysout.serve.pages import shell, static_files
from waysout.serve.service import Service


@pytest.fixture(scope="module")
def app() -> App:
    return create_app(Service({}), Hosts.of("127.0.0.1", PORT))


def get(app: App, path: str, method: str = "GET") -> Answered:
    return ask(app, method, path)


def test_the_page_is_html_that_holds_no_data(app: App) -> None:
    answer = get(app, "/")
    assert answer.status == 200
    assert answer.header("content-type") == "text/html; charset=utf-8"
    assert __version__ in answer.body.decode()


def test_all_that_the_page_names_is_here(app: App) -> None:
    """It works with no network, and under a policy that lets it load from here only."""
    page = shell(needs_token=True)
    named = re.findall(r'(?:src|href)="([^"#]+)"', page)
    assert named
    for path in named:
        assert path.startswith("/static/") or path == "/docs"
        assert get(app, path).status == 200, path
    assert not re.search(r"<style|<script(?![^>]* src=)|\son\w+=|\sstyle=|javascript:", page)


def test_scripts_name_only_what_is_here() -> None:
    files = static_files()
    for name, file in files.items():
        if name.endswith(".js"):
            imported = re.findall(
                r"""(?m)^import\b[^;"']*["']([^"']+)["']""", file.content.decode()
            )
            assert {path.removeprefix("./") for path in imported} <= set(files), name


@pytest.mark.parametrize(
    ("name", "kind"),
    [("main.js", "text/javascript"), ("page.css", "text/css"), ("icon.svg", "image/svg+xml")],
)
def test_a_file_says_what_it_is(app: App, name: str, kind: str) -> None:
    answer = get(app, f"/static/{name}")
    assert answer.header("content-type").partition(";")[0] == kind
    assert answer.body == static_files()[name].content


def test_a_file_that_is_known_is_not_sent_again(app: App) -> None:
    tag = get(app, "/static/main.js").header("etag")
    again = ask(app, "GET", "/static/main.js", [HOST, ("if-none-match", tag)])
    assert (again.status, again.body) == (304, b"")
    assert again.header("etag") == tag
    other = ask(app, "GET", "/static/main.js", [HOST, ("if-none-match", '"other"')])
    assert other.status == 200


def test_head_is_answered_like_get(app: App) -> None:
    for path in ("/", "/static/main.js", "/favicon.ico"):
        assert get(app, path, "HEAD").status == get(app, path).status == 200


@pytest.mark.parametrize("method", ["POST", "PUT", "DELETE", "OPTIONS", "PATCH", "TRACE"])
def test_a_page_is_read_and_nothing_else(app: App, method: str) -> None:
    for path in ("/", "/static/main.js"):
        answer = get(app, path, method)
        assert answer.status == 405
        assert set(answer.header("allow").split(", ")) == {"GET", "HEAD"}
        assert answer.error["type"] == "MethodNotAllowed"


@pytest.mark.parametrize(
    "path",
    [
        "/static/", "/static/none.js", "/static/../pages.py", "/static/../../errors.py",
        "/static/./main.js", "/static//main.js", "/static//etc/passwd", "/static/../static/main.js",
        "/static/..\\pages.py", "/static/..%2fpages.py", "/static/main.js\0", "/static/\0main.js",
        "/static/main.js/", "/static/MAIN.JS", "/static/C:/x", "/../etc/passwd", "//", "/static",
        "/templates/page.html", "/page.html", "/static/\ud800",
    ],
)  # fmt: skip
def test_no_path_leads_elsewhere(app: App, path: str) -> None:
    scope_path = path.encode("utf-8", "replace").decode()
    answer = get(app, scope_path)
    assert answer.status == 404
    assert answer.error["type"] == "NotFound"
