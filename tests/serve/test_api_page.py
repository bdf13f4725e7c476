from __future__ import annotations

import re
from collections.abc import Iterator
from html.parser import HTMLParser
from itertools import pairwise

import pytest
from fastapi.testclient import TestClient
from guard_world import PORT
from serve_world import make_service

from waysout.serve.api_page import api_page
from waysout.serve.app import create_app
from waysout.serve.hosts import Hosts
from waysout.serve.tokens import Gate

TOKEN = "correct-horse-battery-staple"
VOID = {"meta", "link", "hr"}


@pytest.fixture(scope="module")
def client() -> Iterator[TestClient]:
    app = create_app(make_service(), Hosts.of("127.0.0.1", PORT), gate=Gate(TOKEN, PORT))
    with TestClient(app, base_url=f"http://127.0.0.1:{PORT}") as client:
        yield client


@pytest.fixture(scope="module")
def page(client: TestClient) -> str:
    answer = client.get("/docs", headers={"Authorization": f"Bearer {TOKEN}"})
    assert answer.status_code == 200
    assert answer.headers["content-type"] == "text/html; charset=utf-8"
    assert "script-src 'self'; style-src 'self'" in answer.headers["content-security-policy"]
    return answer.text


def test_it_needs_the_token_as_the_api_does(client: TestClient) -> None:
    assert client.get("/docs").status_code == client.get("/api/openapi.json").status_code == 401


def test_every_route_is_there_and_every_link_leads_somewhere(client: TestClient, page: str) -> None:
    document = client.get("/api/openapi.json", headers={"Authorization": f"Bearer {TOKEN}"}).json()
    for path, methods in document["paths"].items():
        for method, route in methods.items():
            assert f'<h2 id="{route["operationId"]}"><code>{method.upper()} {path}</code>' in page
    ids = set(re.findall(r'id="([^"]+)"', page))
    links = re.findall(r'href="([^"]+)"', page)
    assert {link[1:] for link in links if link.startswith("#")} <= ids
    elsewhere = {link for link in links if not link.startswith("#")}
    assert elsewhere == {"/", "/static/icon.svg", "/static/base.css", "/api/openapi.json"}
    assert "The model is asked for at most 600 rows" in page


def test_it_is_plain_and_well_formed(page: str) -> None:
    assert not re.search(r"<script|<style|\sstyle=|\son\w+=|javascript:", page)
    opened: list[str] = []
    levels: list[int] = []

    class Reader(HTMLParser):
        def handle_starttag(self, tag: str, attrs: object) -> None:
            opened.extend([tag] if tag not in VOID else [])
            if re.fullmatch("h[1-6]", tag):
                levels.append(int(tag[1]))

        def handle_endtag(self, tag: str) -> None:
            assert opened.pop() == tag

    Reader().feed(page)
    assert not opened
    assert levels[0] == 1
    assert levels.count(1) == page.count("<main ") == 1
    assert all(after <= before + 1 for before, after in pairwise(levels))


def test_what_a_document_says_is_text() -> None:
    route = {
        "operationId": "a", "description": "<b>`x<y`</b>",
        "parameters": [{"name": "<i>", "in": "query", "schema": {"enum": ["<u>"]}}],
        "responses": {"200": {"description": "<s>"}},
    }  # fmt: skip
    shown = api_page({"info": {"title": "<t>", "version": "1"}, "paths": {"/<p>": {"get": route}}})
    assert not [tag for tag in ("<b>", "<y", "<i>", "<u>", "<s>", "<t>", "/<p>") if tag in shown]
    assert "&lt;b&gt;<code>x&lt;y</code>" in shown
