from __future__ import annotations

import json

from conftest import CommandLine
from waysout.methods import about, all_methods, make_method


def test_methods_are_listed_with_what_can_be_set(waysout: CommandLine) -> None:
    code, out, _ = waysout("methods")
    assert code == 0
    for name in all_methods():
        assert name in out
        assert about(name) in out
    assert "threshold=0.01" in out


def test_json_tells_which_methods_need_an_llm(waysout: CommandLine) -> None:
    code, out, _ = waysout("methods", "--json")
    found = json.loads(out)
    assert code == 0
    assert list(found) == list(all_methods())
    for name, told in found.items():
        assert told["llm"] == make_method(name).needs_llm
        assert told["settings"] == make_method(name).settings()
