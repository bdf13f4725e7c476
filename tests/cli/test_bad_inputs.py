"""Bad tables, cards, models and arguments, as a person would meet them: on the command line.

Each must end in a message that names the value, with the exit code of its kind, and none in a
traceback.
"""

from __future__ import annotations

import gzip
import json
import pickle
from collections.abc import Callable
from pathlib import Path

import pytest

from conftest import CommandLine

TABLE = "age,job,score,status\n" + "".join(
    f"{20 + i},{'cook' if i % 3 else 'clerk'},{i / 7:.2f},{'yes' if i % 2 else 'no'}\n"
    for i in range(40)
)
CARD = """\
card = 1
name = "people"
[outcome]
target = "status"
positive = "yes"
[features.age]
kind = "integer"
range = [18, 99]
[features.job]
kind = "category"
levels = ["clerk", "cook"]
codes = { clerk = 0, cook = 1 }
[features.score]
kind = "number"
"""


@pytest.fixture
def here(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """Return a folder with a sound table and a sound card in it, the current one."""
    monkeypatch.chdir(tmp_path)
    (tmp_path / "t.csv").write_text(TABLE)
    (tmp_path / "c.toml").write_text(CARD)
    return tmp_path


def settle(answer: tuple[int, str, str], code: int, fragment: str) -> None:
    left, out, err = answer
    assert "Traceback" not in out + err
    assert "error: unexpected" not in err
    assert fragment in err
    assert left == code


# ---------------------------------------------------------------- tables

TABLES: list[tuple[bytes, str]] = [
    (b"", "is empty"),
    (b"\n\n", "is empty"),
    (b"age,job,score,status\n", "has no rows"),
    (b"age,age,job,score,status\n1,1,cook,2,yes\n", "age"),
    (b"age,job,score,status\n1,cook,2\n", "line 2 has 3 cells"),
    (b"age,job,score,status\n1,cook,2,yes,no\n", "line 2 has 5 cells"),
    (b'age,job,score,status\n1,"cook,2,yes\n', "not proper CSV"),
    (b"age,job,score,status\n1,caf\xe9,2,yes\n", "not UTF-8"),
    (b"age,job,score,status\n1,co\0ok,2,yes\n", "NUL byte"),
    (b"PK\x03\x04 a spreadsheet", "save it as CSV"),
    (b"PAR1 not really", "arquet"),
    (gzip.compress(TABLE.encode(), mtime=0)[:60], "damaged gzip"),
    (b"age,job,score,status\nx,cook,2,yes\n1,cook,2,no\n", "row 0, column 'age': 'x'"),
    (b"age,job,score,status\n1.5,cook,2,yes\n1,cook,2,no\n", "not a whole number"),
    (b"age,job,score,status\n,cook,2,yes\n1,cook,2,no\n", "missing = 'refuse'"),
    (b"age,job,score,status\nNaN,cook,2,yes\n1,cook,2,no\n", "missing = 'refuse'"),
    (b"age,job,score,status\n1,pilot,2,yes\n1,cook,2,no\n", "unknown value 'pilot'"),
    (b"age,job,score,status\n1,Cook,2,yes\n1,cook,2,no\n", "did you mean 'cook'"),
    (b"age,job,score,status\n1,cook,inf,yes\n1,cook,2,no\n", "'inf' is not a number"),
    (b"age,job,score,status\n1,cook,1e308,yes\n1,cook,2,no\n", "at most"),
    (b"age,job,score,status\n1,cook,1e999,yes\n1,cook,2,no\n", "at most"),
    (b"age,job,score,status\n1,cook,0x10,yes\n1,cook,2,no\n", "'0x10' is not a number"),
    (b"age,job,score,status\n1,cook,'1,000',yes,\n", "cells"),
    (b"age,job,score,status\n1,cook,2,\n1,cook,2,no\n", "column 'status': the label is missing"),
    (b"age,job,score,status\n1,cook,2,no\n", "positive value 'yes'"),
    (b"age,job,score,status\n1,cook,2,yes\n", "in every row"),
    (b"age,job,score,status\n1,cook\x1b[31m,2,yes\n1,cook,2,no\n", "unknown value"),
]


@pytest.mark.parametrize(("content", "fragment"), TABLES)
def test_bad_tables(waysout: CommandLine, here: Path, content: bytes, fragment: str) -> None:
    (here / "bad.csv").write_bytes(content)
    settle(waysout("card", "check", "c.toml", "--data", "bad.csv"), 3, fragment)


@pytest.mark.parametrize(
    ("args", "fragment"),
    [
        (["none.csv", "--target", "status", "--positive", "yes"], "no such file"),
        ([".", "--target", "status", "--positive", "yes"], "is a folder"),
        (["t.csv", "--target", "statsu", "--positive", "yes"], "did you mean 'status'"),
        (["t.csv", "--target", "status", "--positive", "maybe"], "'maybe'"),
        (["t.csv", "--target", "status", "--positive", ""], "unknown value ''"),
        (["empty.csv", "--target", "status", "--positive", "yes"], "is empty"),
        (["header.csv", "--target", "status", "--positive", "yes"], "no rows"),
        (["control.csv", "--target", "status", "--positive", "yes"], "control character"),
        (["one.csv", "--target", "status", "--positive", "yes"], "status"),
    ],
)
def test_bad_calls_of_infer(
    waysout: CommandLine, here: Path, args: list[str], fragment: str
) -> None:
    (here / "empty.csv").write_text("")
    (here / "header.csv").write_text("age,status\n")
    (here / "control.csv").write_text("a\x07ge,status\n1,yes\n2,no\n")
    (here / "one.csv").write_text("age,status\n1,yes\n2,yes\n")
    settle(waysout("card", "infer", *args), 3, fragment)


# ---------------------------------------------------------------- cards


@pytest.mark.parametrize(
    ("old", "new", "fragment"),
    [
        ("card = 1\n", "", "card = 1"),
        ("card = 1", "card = 9", "line 1"),
        ('name = "people"', "name = 3", "line 2"),
        ("[outcome]", "[outcme]", "did you mean 'outcome'"),
        ('kind = "integer"', 'kind = "int"', "line 7: "),
        ("range = [18, 99]", "range = [99, 18]", "line 8: "),
        ("range = [18, 99]", "range = [nan, 18]", "line 8: "),
        ('levels = ["clerk", "cook"]', "levels = []", "needs its levels"),
        ('levels = ["clerk", "cook"]', 'levels = ["cook", "cook"]', "listed twice"),
        ("clerk = 0, cook = 1", "clerk = 0", "'cook' has no code"),
        ("[features.score]", '[features."sc\\u0007ore"]', "control character"),
        ("[features.score]", "[features.age]", "not valid TOML"),
        ("[features.score]", "[features.status]", "cannot be a feature"),
        ("[features.score]", "[[features.score]]", "is a table"),
        ("", "\x00", "not valid TOML"),
        ("", "a = " + "[" * 3000, "c.toml"),
    ],
)
def test_bad_cards(waysout: CommandLine, here: Path, old: str, new: str, fragment: str) -> None:
    assert old in CARD
    (here / "c.toml").write_text(CARD.replace(old, new, 1))
    settle(waysout("card", "check", "c.toml"), 3, fragment)


@pytest.mark.parametrize(
    ("rule", "fragment"),
    [
        ('kind = "immutabel"\nfeatures = ["age"]', "did you mean 'immutable'"),
        ('kind = "immutable"\nfeatures = ["agee"]', "did you mean 'age'"),
        ('kind = "range"\nfeature = "job"\nmin = 3', "need a number"),
        ('kind = "range"\nfeature = "age"\nmin = 5\nmax = 4', "is empty"),
        ('kind = "range"\nfeature = "age"\nmin = "5"', "finite number"),
        ('kind = "linear"\nthat = "age + job <= 3"', "is a category"),
        ('kind = "custom"\ncall = "os:getcwd"', "--trust-code"),
        ("", "unknown rule kind"),
    ],
)
def test_bad_rules(waysout: CommandLine, here: Path, rule: str, fragment: str) -> None:
    (here / "c.toml").write_text(f"{CARD}[[rules.main]]\n{rule}\n")
    answer = waysout("card", "check", "c.toml")
    settle(answer, 3, fragment)
    assert "line 15" in answer[2]


# ---------------------------------------------------------------- models


def lightgbm_text() -> bytes:
    """Return a sound little model of the table, as LightGBM writes it."""
    lightgbm = pytest.importorskip("lightgbm", reason="needs lightgbm (waysout[train])")
    rows = [line.split(",") for line in TABLE.splitlines()[1:]]
    x = [[float(a), float(j == "cook"), float(s)] for a, j, s, _ in rows]
    y = [status == "yes" for *_, status in rows]
    import numpy as np

    data = lightgbm.Dataset(
        np.array(x), np.array(y, float), feature_name=["age", "job", "score"],
        params={"verbosity": -1, "min_data_in_leaf": 1, "min_data_in_bin": 1},
    )  # fmt: skip
    params = {"objective": "binary", "verbosity": -1, "min_data_in_leaf": 1, "num_threads": 1}
    return lightgbm.train(params, data, 20).model_to_string().encode()  # type: ignore[no-any-return]


MODELS: list[tuple[str, Callable[[], bytes], str]] = [
    ("m.txt", lambda: b"", "m.txt"),
    ("m.txt", lambda: b"\x00\x01garbage", "m.txt"),
    ("m.txt", lambda: b"tree\nversion=v4\nnot a model", "m.txt"),
    ("m.txt", lambda: lightgbm_text()[:500], "m.txt"),
    ("m.txt", lambda: lightgbm_text().replace(b"score", b"scare"), "scare"),
    ("m.txt", lambda: pickle.dumps({"a": 1}), "m.txt"),
    ("m.pkl", lambda: pickle.dumps({"a": 1}), "--trust-pickle"),
    ("m.joblib", lambda: pickle.dumps({"a": 1}), "--trust-pickle"),
    ("m.json", lambda: b"{}", "m.json"),
    ("m.json", lambda: b"not json", "m.json"),
    ("m.ubj", lambda: b"\xff\xff", "m.ubj"),
    ("m.cbm", lambda: b"CBM1\x00", "m.cbm"),
    ("m.onnx", lambda: b"\x08\x01", "m.onnx"),
    ("m.skops", lambda: b"PK\x03\x04", "m.skops"),
    ("m.exe", lambda: b"MZ", ".txt"),
    ("m", lambda: b"tree", "m"),
]


@pytest.mark.parametrize(("name", "content", "fragment"), MODELS)
def test_bad_models(
    waysout: CommandLine, here: Path, name: str, content: Callable[[], bytes], fragment: str
) -> None:
    (here / name).write_bytes(content())
    args = ("oracle", "check", "--data", "t.csv", "--card", "c.toml", "--model")
    settle(waysout(*args, name), 4, fragment)


def test_a_model_that_is_not_there_or_not_a_file(waysout: CommandLine, here: Path) -> None:
    args = ("oracle", "check", "--data", "t.csv", "--card", "c.toml", "--model")
    settle(waysout(*args, "none.txt"), 4, "none.txt")
    (here / "folder.txt").mkdir()
    settle(waysout(*args, "folder.txt"), 4, "folder.txt")


@pytest.mark.parametrize(
    ("extra", "code", "fragment"),
    [
        (["--positive-class", "7"], 4, "'7'"),
        (["--positive-class", "0"], 4, "--positive-class"),
        (["--inputs", "magic"], 2, "magic"),
        (["--card", "none.toml"], 3, "no such file"),
        (["--data", "none.csv"], 3, "no such file"),
        (["--expect", "p"], 3, "column 'p'"),
        (["--expect", "job"], 3, "is not a number"),
        (["--expect", "score"], 4, "differently than expected"),
    ],
)
def test_bad_options_with_a_sound_model(
    waysout: CommandLine, here: Path, extra: list[str], code: int, fragment: str
) -> None:
    (here / "m.txt").write_bytes(lightgbm_text())
    args = ["oracle", "check", "--model", "m.txt", "--data", "t.csv", "--card", "c.toml"]
    assert waysout(*args)[0] == 0
    settle(waysout(*args, *extra), code, fragment)


def test_a_sound_model_is_reported(waysout: CommandLine, here: Path) -> None:
    (here / "m.txt").write_bytes(lightgbm_text())
    args = ["oracle", "check", "--model", "m.txt", "--data", "t.csv", "--card", "c.toml", "--json"]
    code, out, _ = waysout(*args)
    assert code == 0
    report = json.loads(out)
    assert report["ok"]
    assert report["stable"]


def test_a_model_is_compared_with_its_own_probabilities(waysout: CommandLine, here: Path) -> None:
    lightgbm = pytest.importorskip("lightgbm", reason="needs lightgbm (waysout[train])")
    (here / "m.txt").write_bytes(lightgbm_text())
    lines = [line.split(",") for line in TABLE.splitlines()]
    x = [[float(a), float(j == "cook"), float(s)] for a, j, s, _ in lines[1:]]
    own = lightgbm.Booster(model_file=here / "m.txt").predict(x)
    column = ["own", *map(str, own)]
    bare = [",".join([*line[:3], p]) for line, p in zip(lines, column, strict=True)]
    (here / "bare.csv").write_text("\n".join(bare))
    args = ["oracle", "check", "--model", "m.txt", "--data", "bare.csv", "--card", "c.toml"]
    code, out, err = waysout(*args, "--expect", "own")
    assert code == 0, err
    assert "agrees with column 'own' on all 40 rows" in out
    assert "no labels" in err


INFER = ["card", "infer", "t.csv", "--target", "status", "--positive", "yes"]


@pytest.mark.parametrize(
    ("args", "code", "fragment"),
    [
        (["oracle", "train", "t.csv", "--card", "c.toml", "--trials", "0"], 2, "--trials"),
        (["oracle", "train", "nope"], 3, "--card CARD"),
        (["oracle", "train", "t.csv", "--card", "loan.toml"], 3, "another name"),
        ([*INFER, "--out", "c.toml"], 3, "--force"),
        ([*INFER, "--out", ".", "--force"], 5, "is a folder"),
        (["oracle", "train", "few.csv", "--card", "c.toml"], 3, "at least"),
        (["oracle", "train", "t.csv", "--card", "nocodes.toml"], 4, "codes"),
        (["card", "show", "c.toml", "--rules", "x"], 3, "unknown rule set 'x'"),
        (["data", "add", "loan", "t.csv"], 6, "not the original loan"),
        (["data", "get", ""], 3, "unknown data set ''"),
        (["crad"], 2, "crad"),
    ],
)
def test_bad_arguments(
    waysout: CommandLine, here: Path, args: list[str], code: int, fragment: str
) -> None:
    (here / "few.csv").write_text("\n".join(TABLE.splitlines()[:8]))
    (here / "loan.toml").write_text(CARD.replace('name = "people"', 'name = "loan"'))
    (here / "nocodes.toml").write_text(CARD.replace("codes = { clerk = 0, cook = 1 }\n", ""))
    settle(waysout(*args), code, fragment)
