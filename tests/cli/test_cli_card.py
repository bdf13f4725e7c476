from __future__ import annotations

import json
from pathlib import Path

import numpy as np
import pytest

from conftest import CommandLine
from waysout.domain.card import Card

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


def test_check_names_a_rule_whose_sums_overflow(waysout: CommandLine, tmp_path: Path) -> None:
    table = write(tmp_path / "people.csv", TABLE)
    _, text, _ = waysout("card", "infer", table, "--target", "status", "--positive", "yes")
    rule = '[[rules.main]]\nkind = "linear"\nname = "sums"\nthat = "1e308*age <= 3"\n'
    card = write(tmp_path / "c.toml", text + rule)
    line = 1 + (text + rule)[: (text + rule).index("1e308")].count("\n")
    code, out, err = waysout("card", "check", card, "--data", table)
    assert (code, out) == (3, "")
    assert "the coefficient of 'age' is 1e+308" in err
    code, out, _ = waysout("card", "check", card, "--json")
    (problem,) = json.loads(out)["problems"]
    assert code == 3
    assert "the coefficient of 'age' is 1e+308" in problem["reason"]
    assert line - 3 <= problem["line"] <= line


def test_check_counts_each_included_set_once(waysout: CommandLine, tmp_path: Path) -> None:
    """Sets that each include the next one twice would be 2^40 rules, and no end."""
    table = write(tmp_path / "people.csv", TABLE)
    _, text, _ = waysout("card", "infer", table, "--target", "status", "--positive", "yes")
    include = '[[rules.s{0}]]\nkind = "include"\nset = "s{1}"\n'
    rule = '[[rules.s40]]\nkind = "range"\nname = "grown up"\nfeature = "age"\nmin = 21\n'
    sets = "".join(include.format(i, i + 1) * 2 for i in range(40)) + rule
    names = json.dumps([f"s{i}" for i in range(41)])
    chosen = f'rule_set = "s0"\nrule_sets = {names}'
    text = text.partition("[[rules")[0].replace('rule_sets = ["main"]', chosen)
    card = write(tmp_path / "c.toml", text + sets)
    code, out, err = waysout("card", "check", card, "--data", table, "--json")
    assert code == 0, err
    assert json.loads(out)["broken"]["s0"] == {"grown up": 1}
    circle = include.format(40, 0)
    code, _, err = waysout("card", "check", write(card, card.read_text("utf-8") + circle))
    assert code == 3
    assert "rule sets include each other in a circle: 's0'" in err


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


def test_a_table_without_labels_gets_a_card_of_chosen_columns(
    waysout: CommandLine, tmp_path: Path
) -> None:
    table = write(tmp_path / "people.csv", TABLE)
    code, out, _ = waysout("card", "infer", table, "--features", "job, age")
    assert code == 0
    card = Card.parse(out)
    assert (card.schema.names, card.outcome.target) == (("job", "age"), "outcome")
    code, _, err = waysout("card", "infer", table, "--features", "job,agee")
    assert code == 3
    assert "unknown column 'agee'; did you mean 'age'?" in err


def test_a_model_says_which_columns_it_wants(waysout: CommandLine, tmp_path: Path) -> None:
    lightgbm = pytest.importorskip("lightgbm")
    table = write(tmp_path / "people.csv", TABLE.replace("größe", "body height"))
    data = lightgbm.Dataset(
        np.array([[1.75, 34], [1.8, 51]] * 30), [0, 1] * 30, feature_name=["body_height", "age"],
        params={"verbosity": -1},
    )  # fmt: skip
    model = tmp_path / "model.txt"
    lightgbm.train({"objective": "binary", "verbosity": -1}, data, 1).save_model(model)
    command = ("card", "infer", table, "--target", "status", "--positive", "yes")
    code, out, _ = waysout(*command, "--model", model)
    assert code == 0
    assert Card.parse(out).schema.names == ("body height", "age")
    code, _, err = waysout(*command, "--model", model, "--features", "age")
    assert code == 3
    assert "--features and --model both choose the columns" in err


def test_a_table_too_wide_to_read_names_the_remedies(waysout: CommandLine, tmp_path: Path) -> None:
    wide = ",".join(f"c{i}" for i in range(500)) + "\n" + ",".join("1" * 500) + "\n"
    code, _, err = waysout("card", "infer", write(tmp_path / "wide.csv", wide))
    assert code == 3
    assert "has 500 columns" in err
    assert "--features a,b,c" in err
    assert "--model FILE" in err


def test_a_card_that_closes_nothing_is_told_so(waysout: CommandLine, tmp_path: Path) -> None:
    table = write(tmp_path / "t.csv", "distance_km,cars,hired\n1.5,2,1\n3,0,0\n4.5,1,0\n")
    _, text, _ = waysout("card", "infer", table, "--target", "hired")
    card = write(tmp_path / "c.toml", text)
    code, out, err = waysout("card", "check", card)
    assert code == 0
    assert "no rules: everything may change in any way, also distance_km up or down" in err
    assert "nothing says what may change" in out
    fixed = '[[rules.main]]\nkind = "immutable"\nfeatures = ["cars"]\n'
    _, out, err = waysout("card", "check", write(card, text + fixed))
    assert "distance_km: no rule says which way, so up or down" in err
    assert "nothing says what may change" not in out
    up = '[[rules.main]]\nkind = "direction"\nfeatures = ["distance_km"]\ndirection = "down"\n'
    assert "no rule says" not in waysout("card", "check", write(card, text + fixed + up))[2]


def test_a_table_without_labels_is_checked_all_the_same(
    waysout: CommandLine, tmp_path: Path
) -> None:
    table = write(tmp_path / "t.csv", "income,cars\n1.5,2\n3,0\n4.5,1\n")
    code, text, err = waysout("card", "infer", table)
    assert (code, "without --target every column counts as a feature" in err) == (0, True)
    code, out, err = waysout("card", "check", write(tmp_path / "c.toml", text), "--data", table)
    assert code == 0, err
    assert "no column 'outcome'" in err
    assert "3 rows read" in out


def test_an_address_does_not_tell_its_columns(waysout: CommandLine, tmp_path: Path) -> None:
    table = write(tmp_path / "t.csv", "income,cars\n1.5,2\n3,0\n")
    code, _, err = waysout("card", "infer", table, "--model", "http://localhost:1/score")
    assert (code, "name them with --features" in err) == (3, True)
