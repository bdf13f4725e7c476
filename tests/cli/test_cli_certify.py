from __future__ import annotations

import json

import pytest
import typer
from cli_world import APPROVED, REFUSED
from cli_world import in_world as in_world
from cli_world import world as world
from typer.testing import CliRunner, Result

from waysout.cli import certify as command
from waysout.errors import InputError
from waysout.oracles.certify import Certificate

pytest.importorskip("treecf", reason="needs treecf (waysout[treecf])")
pytestmark = pytest.mark.usefixtures("in_world")


def certify(*words: str, row: int = REFUSED, model: str = "model.txt") -> Result:
    app = typer.Typer(pretty_exceptions_enable=False)
    app.command()(command.certify)
    place = ("--model", model, "--data", "loans.csv", "--card", "loans.toml", "--row", str(row))
    return CliRunner().invoke(app, [*place, *words])


def test_the_cheapest_way_out_is_told() -> None:
    told = certify()
    assert told.exit_code == 0, told.exception
    assert "Proved in" in told.stdout
    assert "no way out costs less than 0." in told.stdout
    assert "The cheapest way out known" in told.stdout


def test_json_holds_the_certificate() -> None:
    found = json.loads(certify("--json").stdout)
    assert found["kind"] == "optimal"
    assert found["cost"] == found["bound"]
    assert found["option"]["probability"] >= 0.5
    assert "age" not in found["option"]["changes"]


def test_no_way_out_is_told() -> None:
    told = certify("--rules", "stuck")
    assert told.exit_code == 0, told.exception
    assert "no change that the rules allow gets a yes" in told.stdout


def test_what_cannot_be_proved_is_refused() -> None:
    approved = certify(row=APPROVED).exception
    assert isinstance(approved, InputError)
    assert "needs no way out" in str(approved)
    pipeline = certify("--trust-pickle", model="model.joblib").exception
    assert isinstance(pipeline, InputError)
    assert "needs a model of trees" in str(pipeline)


@pytest.mark.parametrize(
    ("found", "words"),
    [
        (Certificate("best found", 0.5, 0.25), "cost of 0.5000. 0.0 s gave no proof; none costs"),
        (Certificate("best found", 0.5, 0.0), "0.0 s gave no proof."),
        (Certificate("unknown"), "there may be one."),
    ],
)
def test_what_is_not_proved_is_said(found: Certificate, words: str) -> None:
    assert words in command.sentence(found)
