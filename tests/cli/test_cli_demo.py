from __future__ import annotations

import json

from conftest import CommandLine


def test_the_demo_shows_what_may_change(waysout: CommandLine) -> None:
    code, out, err = waysout("demo")
    assert code == 0, err
    assert "synthetic" in out
    assert "What may change" in out
    code, out, _ = waysout("demo", "--json")
    report = json.loads(out)
    assert code == 0
    assert report["probability"] < 0.5
    assert "synthetic" in report["table"]
    assert any(option["approved"] for option in report["options"])
    assert all(len(option["changes"]) >= 1 for option in report["options"])


def test_an_applicant_who_is_not_there(waysout: CommandLine) -> None:
    code, _, err = waysout("demo", "--applicant", "30")
    assert code == 3
    assert "0 to 29; not 30" in err
