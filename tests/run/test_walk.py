"""`docs/walk.md` names files and what is in them: all of it exists."""

from __future__ import annotations

import ast
import re
from pathlib import Path

import pytest

ROOT = Path(__file__).parents[2]
TEXT = (ROOT / "docs" / "walk.md").read_text("utf-8")
NAMED = sorted(set(re.findall(r"([\w/]+\.py):(\w+(?:\.\w+)?)", TEXT)))


@pytest.mark.parametrize(("file", "name"), NAMED, ids=":".join)
def test_what_the_walk_names_exists(file: str, name: str) -> None:
    body = ast.parse((ROOT / "src" / "waysout" / file).read_text("utf-8")).body
    for part in name.split("."):
        found = [node for node in body if getattr(node, "name", None) == part]
        assert found, f"{file} has no {name}"
        body = getattr(found[0], "body", [])


def test_it_fits_a_screen_or_two() -> None:
    assert len(NAMED) > 25
    assert len(re.findall(r"^\d+\. ", TEXT, re.MULTILINE)) <= 15
    assert max(map(len, TEXT.splitlines())) <= 120
