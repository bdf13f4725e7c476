"""docs/serve.md against the service: its routes, its limits and its code."""

from __future__ import annotations

import re
from pathlib import Path

from fastapi import FastAPI
from serve_world import problem

from waysout.serve import api, http_server, tokens
from waysout.serve.limits import SETTLING_ROWS, ServiceLimits

DOCS = (Path(__file__).parents[2] / "docs" / "serve.md").read_text(encoding="utf-8")


def test_every_route_of_the_api_is_told() -> None:
    app = FastAPI()
    app.include_router(api.router)
    paths = {re.sub(r"\{.*?\}", "", path).rstrip("/") for path in app.openapi()["paths"]}
    ends = {path.rsplit("/", 1)[1] for path in paths}
    assert len(ends) > 10
    assert not [end for end in ends if not re.search(rf"[/`…]{re.escape(end)}\b", DOCS)]


def test_the_limits_are_those_of_the_service() -> None:
    limits = ServiceLimits()
    flat = " ".join(DOCS.split())
    assert f"`--searches` at once ({limits.searches};" in flat
    assert f"`--calls` ({limits.calls}) and `--oracle-rows` ({limits.oracle_rows:,})" in flat
    assert f"{limits.part_rows} rows and ten minutes for a part" in flat
    assert f"and {SETTLING_ROWS} rows to settle what it shows" in flat
    assert limits.seconds == 600
    assert f"{limits.body // 1024} KiB for a body, {limits.kept} searches kept" in flat


def test_the_places_and_the_guesses_are_those_of_the_server() -> None:
    flat = " ".join(DOCS.split())
    most = http_server.MOST_CONNECTIONS
    assert f"have {most // http_server.STRANGERS_SHARE} of {most} places" in flat
    assert (tokens.FREE_GUESSES, tokens.HOLD_SECONDS) == (10, 0.5)
    assert f"ten wrong tokens from an address ({tokens.FREE_OVERALL} from all" in flat


def test_the_python_makes_an_application() -> None:
    (code,) = re.findall(r"```python\n(.*?)```", DOCS, re.DOTALL)
    names: dict[str, object] = {"problem": problem(), "data": None}
    exec(compile(code, "docs/serve.md", "exec"), names)
    assert callable(names["app"])
