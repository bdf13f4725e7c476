"""The page writes chances and numbers as the report does."""

from __future__ import annotations

import json
import shutil
import subprocess
from importlib import resources
from pathlib import Path
from typing import Any

import pytest

from waysout.report.words import Wording, chance

STATIC = resources.files("waysout.serve") / "static"
NODE = shutil.which("node")


def run(folder: Path, code: str) -> Any:
    """Run a line of JavaScript with the page's words, and return what it made."""
    if NODE is None:
        pytest.skip("there is no node to run the page's modules")
    (folder / "words.mjs").write_text((STATIC / "words.js").read_text("utf-8"), "utf-8")
    script = f"import * as words from './words.mjs'; console.log(JSON.stringify({code}))"
    (folder / "run.mjs").write_text(script, "utf-8")
    done = subprocess.run([NODE, "run.mjs"], cwd=folder, capture_output=True, text=True, check=True)
    return json.loads(done.stdout)


def test_chances_near_a_limit_are_those_of_the_report(tmp_path: Path) -> None:
    limits = [0.5, 0.805, 0.995]
    chances = [i / 2000 + 0.0001 * (i % 3) for i in range(2000)] + [1.0, *limits, 0.49999, 0.500001]
    told = run(tmp_path, f"{chances}.map((p) => words.chance(p, {limits}))")
    both = zip(chances, told, [chance(p, limits) for p in chances], strict=True)
    assert [found for found in both if found[1] != found[2]] == []
    assert run(tmp_path, "[0.505, 0.4996, 0.5].map((p) => words.chance(p))") == [
        "50.5\u00a0%", "49.9\u00a0%", "50\u00a0%",
    ]  # fmt: skip


def test_names_and_numbers_are_those_of_the_report(tmp_path: Path) -> None:
    card = {
        "features": [
            {"name": "rate", "label": "interest rate"},
            {"name": "other_debts", "label": ""},
        ],
        "limits_of_chance": [0.8],
    }
    code = (
        f"(words.speakOf({json.dumps(card)}), [words.label('rate'), words.heading('other_debts'), "
    )
    code += "words.chance(0.7996), words.number(1234.567, {name: 'rate', decimals: 2}), "
    code += "words.number(1987, {name: 'birth_year', decimals: null}), words.number(7500)])"
    told = Wording({"rate": {"decimals": 2}})
    assert run(tmp_path, code) == [
        "interest rate", "Other debts", "79.9\u00a0%", told.value("rate", 1234.567),
        told.value("birth_year", 1987), told.value("any", 7500),
    ]  # fmt: skip
