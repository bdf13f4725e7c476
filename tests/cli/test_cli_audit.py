from __future__ import annotations

import json
from pathlib import Path

import pytest
import typer
from audit_world import NOTES, ended, found, write_batch
from typer.testing import CliRunner, Result

from waysout.cli import audit as command
from waysout.errors import InputError, UnavailableError

pytest.importorskip("pyarrow", reason="needs pyarrow (waysout[parquet])")


@pytest.fixture
def batch(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    monkeypatch.setenv("COLUMNS", "80")
    monkeypatch.chdir(tmp_path)
    people = [
        found(1.0 + i / 100, "income", sex="F", town=f"a town \x1b[31m{i}") for i in range(40)
    ]
    people += [ended("budget-spent", sex="M", town="\nb") for _ in range(40)]
    return write_batch(tmp_path / "results", people, 50, **{**NOTES, "rows": 100})


def audit(*words: str) -> Result:
    app = typer.Typer(pretty_exceptions_enable=False)
    app.command()(command.audit)
    return CliRunner().invoke(app, ["results", *words])


@pytest.mark.usefixtures("batch")
def test_it_tells_who_has_no_way_out() -> None:
    told = audit("--by", "sex", "--by", "town")
    assert told.exit_code == 0, told.exception
    words = " ".join(told.stdout.split())
    assert "Of 80 people whom the model rejected, 40 have a way out" in words
    assert "For 40 people none was found within the budget" in words
    assert "No way out found, by sex" in words
    assert "+100.0 [+87.6, +100.0]*" in words
    assert "simulated: no language model" in words
    assert "80 of the 100 rows" in words
    assert "\x1b" not in told.stdout
    assert max(map(len, told.stdout.splitlines())) <= 80


@pytest.mark.usefixtures("batch")
def test_json_is_one_document() -> None:
    for words in (["--json"], ["--format", "json"]):
        told = json.loads(audit("--by", "sex", *words).stdout)
        assert told["sections"][0]["groups"][0]["people"] == 40


@pytest.mark.usefixtures("batch")
@pytest.mark.parametrize(
    ("name", "begins"),
    [("a.md", "# Audit"), ("a.csv", "by,group"), ("a.html", "<!DOCTYPE"), ("a.json", "{"),
     ("a.txt", "Audit: Loans")],
)  # fmt: skip
def test_a_file_is_written_as_its_name_ends(name: str, begins: str) -> None:
    told = audit("--out", name)
    assert (told.exit_code, told.stdout) == (0, "")
    assert Path(name).read_text("utf-8").startswith(begins)


@pytest.mark.usefixtures("batch")
def test_pictures_go_to_a_folder() -> None:
    pytest.importorskip("matplotlib", reason="needs matplotlib (waysout[bench])")
    assert audit("--by", "sex", "--plots", "deep/plots").exit_code == 0
    assert sorted(path.name for path in Path("deep/plots").iterdir()) == [
        "cost-by-sex.svg",
        "levers-by-sex.svg",
        "without-by-sex.svg",
    ]


def test_the_folder_of_a_batch_holds_parts_alone(batch: Path) -> None:
    before = sorted(batch.iterdir())
    for words in (["--out", "results/a.html"], ["--plots", "./results"]):
        error = audit(*words).exception
        assert isinstance(error, InputError)
        assert "may hold only parts" in str(error)
    assert sorted(batch.iterdir()) == before


@pytest.mark.usefixtures("batch")
def test_what_cannot_be_done_is_said() -> None:
    assert isinstance(audit("--by", "sxe").exception, InputError)
    assert isinstance(audit("--json", "--format", "csv").exception, InputError)
    assert isinstance(audit("--out", "nowhere/a.md").exception, UnavailableError)
    Path("taken").write_text("")
    assert isinstance(audit("--plots", "taken").exception, UnavailableError)
