"""The API against its own description: whatever is sent, no answer is a 5xx or unannounced."""

from __future__ import annotations

from collections.abc import Iterator
from itertools import count
from typing import Any, cast

import pytest
import requests
import schemathesis
from guard_world import serving
from hypothesis import HealthCheck, given, settings
from schemathesis.checks import not_a_server_error
from schemathesis.specs.openapi.checks import (
    content_type_conformance,
    response_schema_conformance,
    status_code_conformance,
)
from serve_world import BRIEF, ROW, make_service

from waysout.serve.app import create_app
from waysout.serve.hosts import Hosts
from waysout.serve.http_server import open_socket

CHECKS = [
    not_a_server_error,
    status_code_conformance,
    content_type_conformance,
    response_schema_conformance,
]


class Served:
    """The real server, its description, and a search that is there whenever one is needed."""

    def __init__(self, port: int) -> None:
        self.url = f"http://127.0.0.1:{port}"
        self.schema = schemathesis.openapi.from_url(f"{self.url}/api/openapi.json")
        self._id = ""

    def search(self) -> str:
        """Return the id of a search, begun if there is none any more."""
        place = f"{self.url}/api/searches"
        if not self._id or requests.get(f"{place}/{self._id}", timeout=10).status_code == 404:
            begun = requests.post(place, json=cast(Any, {**BRIEF, "calls": 2}), timeout=10)
            self._id = begun.json()["id"]
        return self._id


@pytest.fixture(scope="module")
def served() -> Iterator[Served]:
    opened = open_socket("127.0.0.1", 0, token=False)
    service = make_service(searches=200)
    app = create_app(service, Hosts.of("127.0.0.1", opened.getsockname()[1]))
    with serving(app, opened, service.close) as port:
        yield Served(port)


def test_no_request_is_answered_by_a_fault(served: Served) -> None:
    operations = [cast(Any, found).ok() for found in served.schema.get_all_operations()]
    ending = [o for o in operations if not o.path.endswith("/events")]  # a stream does not end
    assert len(ending) >= 15
    for operation in ending:
        _try_out(served, operation)


def _try_out(served: Served, operation: Any) -> None:
    number = count()

    @settings(max_examples=15, deadline=None, suppress_health_check=list(HealthCheck))
    @given(case=operation.as_strategy())
    def ask(case: Any) -> None:
        if next(number) % 3:
            _make_likely(case, served)
        case.call_and_validate(checks=CHECKS)

    ask()


def _make_likely(case: Any, served: Served) -> None:
    """Have a request be about something that is there: a drawn id or row is nobody's."""
    if "id" in case.path_parameters:
        case.path_parameters["id"] = served.search()
    if "name" in case.path_parameters:
        case.path_parameters["name"] = "small"
    if isinstance(case.body, dict) and "row" in case.body:
        case.body |= {"row": ROW, **({"problem": "small"} if "problem" in case.body else {})}


def test_every_route_is_described(served: Served) -> None:
    paths = requests.get(f"{served.url}/api/openapi.json", timeout=10).json()["paths"]
    for methods in paths.values():
        for described in methods.values():
            assert described["summary"]
            assert described["operationId"]
