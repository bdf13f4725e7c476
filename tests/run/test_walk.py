"""The walks in the docs name files and what is in them: all of it exists."""

from __future__ import annotations

import ast
import re
from pathlib import Path

import pytest

ROOT = Path(__file__).parents[2]
SOURCE = ROOT / "src" / "waysout"
WALKS = ("walk.md", "scale.md", "serve.md")
TEXTS = {name: (ROOT / "docs" / name).read_text("utf-8") for name in WALKS}
NAMED = {
    doc: sorted(set(re.findall(r"([\w/]+\.(?:py|js)):([A-Za-z_]\w*(?:\.\w+)*)", text)))
    for doc, text in TEXTS.items()
}
PAIRS = sorted({pair for pairs in NAMED.values() for pair in pairs})


def has_python_name(text: str, name: str) -> bool:
    """Whether a module defines a function or class, or a class a method."""
    body = ast.parse(text).body
    for part in name.split("."):
        found = [node for node in body if getattr(node, "name", None) == part]
        if not found:
            return False
        body = getattr(found[0], "body", [])
    return True


def has_script_name(text: str, name: str) -> bool:
    """Whether a script defines a function or constant, or a constant has a property."""
    first, _, rest = name.partition(".")
    defined = re.search(rf"^(?:export )?(?:async )?(?:function|const|class) {first}\b", text, re.M)
    return bool(defined) and (not rest or bool(re.search(rf"^  {rest}[:(]", text, re.M)))


@pytest.mark.parametrize(("file", "name"), PAIRS, ids=":".join)
def test_what_the_walks_name_exists(file: str, name: str) -> None:
    text = (SOURCE / file).read_text("utf-8")
    has_name = has_script_name if file.endswith(".js") else has_python_name
    assert has_name(text, name), f"{file} has no {name}"


def test_a_name_that_does_not_exist_is_noticed() -> None:
    assert not has_python_name("class A:\n    def b(self): ...", "A.c")
    assert not has_script_name("export const api = {\n  start: 1,\n};", "api.stop")


def test_each_walk_names_enough() -> None:
    assert len(NAMED["walk.md"]) > 40
    assert len(NAMED["scale.md"]) > 15
    assert len(NAMED["serve.md"]) > 12


def test_the_walk_fits_a_screen_or_two() -> None:
    steps = TEXTS["walk.md"].partition("\n## ")[0]
    assert len(re.findall(r"^\d+\. ", steps, re.MULTILINE)) <= 15
    assert max(map(len, TEXTS["walk.md"].splitlines())) <= 120
