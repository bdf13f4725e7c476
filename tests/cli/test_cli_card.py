from __future__ import annotations

import json
from pathlib import Path

from conftest import CommandLine

TABLE = """\
id,age,größe,job,gender,status
1,34,1.75,cook,f,yes
2,51,1.80,clerk,m,no
3,19,1.62,cook,f,no
4,44,1.71,pilot,m,yes
"""


def write(path: Path, text: str) -> Path:
    path.write_text(text, encoding="utf-8")
    return path


def test_a_newcomer_describes_a_table(waysout: CommandLine, tmp_path: Path) -> None:
    table = write(tmp_path / "people.csv", TABLE)
    card = tmp_path / "people.toml"
    code, out, err = waysout(
        "card", "infer", table, "--target", "status", "--positive", "yes", "--out", card
    )
    assert (code, out) == (0, "")
    assert f"waysout card check {card}" in err
    code, out, _ = waysout("card", "check", card, "--data", table)
    assert code == 0
    assert "4 rows read, 2 are a yes" in out
    code, out, _ = waysout("card", "show", card)
    assert code == 0
    assert "größe" in out
    assert "gender" in out


def test_infer_prints_a_card_that_checks(waysout: CommandLine, tmp_path: Path) -> None:
    table = write(tmp_path / "my people.2024.csv", TABLE)
    code, out, _ = waysout("card", "infer", table, "--target", "status", "--positive", "yes")
    assert code == 0
    assert 'name = "my-people"' in out
    assert waysout("card", "check", write(tmp_path / "c.toml", out))[0] == 0


def test_check_lists_every_problem_with_its_line(waysout: CommandLine, tmp_path: Path) -> None:
    text = (
        'card = 1\nname = "x"\n[outcome]\ntarget = "y"\npositive = 1\n[features.a]\nkind = "no"\n'
    )
    card = write(tmp_path / "c.toml", text + "[features.b]\nkind = 3\n")
    code, out, err = waysout("card", "check", card)
    assert (code, out) == (3, "")
    assert f"{card}, line 7" in err
    assert f"{card}, line 9" in err
    code, out, _ = waysout("card", "check", card, "--json")
    assert code == 3
    assert [p["line"] for p in json.loads(out)["problems"]] == [7, 9]


def test_check_counts_the_rows_that_break_rules(waysout: CommandLine, tmp_path: Path) -> None:
    table = write(tmp_path / "people.csv", TABLE)
    _, card, _ = waysout("card", "infer", table, "--target", "status", "--positive", "yes")
    rule = '[[rules.main]]\nkind = "range"\nname = "grown up"\nfeature = "age"\nmin = 21\n'
    path = write(tmp_path / "c.toml", card + rule)
    code, out, _ = waysout("card", "check", path, "--data", table, "--json")
    assert code == 0
    assert json.loads(out)["broken"]["main"] == {"grown up": 1}


def test_the_cards_we_ship_are_sound(waysout: CommandLine) -> None:
    for name in ("synthetic", "loan", "adult", "credit", "heloc"):
        code, out, err = waysout("card", "check", name)
        assert code == 0, err
        assert "sound card" in out
        assert err == ""


def test_a_card_does_not_take_the_place_of_its_table(waysout: CommandLine, tmp_path: Path) -> None:
    table = tmp_path / "t.csv"
    table.write_text("a,y\n1,0\n2,1\n")
    args = ("card", "infer", table, "--target", "y", "--positive", "1", "--out", table, "--force")
    code, _, err = waysout(*args)
    assert (code, "the file of the table" in err) == (3, True)
    assert table.read_text().startswith("a,y")
