"""``waysout bench`` as a researcher types it."""

from __future__ import annotations

import json
import sys
from dataclasses import replace
from pathlib import Path

import pytest

from conftest import CommandLine
from waysout.experiments.cell import Cells
from waysout.experiments.results import Failure, Results

# The small plan lies with the tests of the experiments.
sys.path.append(str(Path(__file__).parents[1] / "experiments"))
from bench_world import (
    HEAD,
    RANDOM,
    TREE,
    in_bench,  # noqa: F401
    plan_file,
    trained_cache,  # noqa: F401
)
from test_cells import CELL

EXPORTED = "run.jsonl.gz"


@pytest.fixture
def small(in_bench: Path) -> Path:  # noqa: F811
    return plan_file(in_bench, TREE, RANDOM)


def test_a_plan_is_run_looked_at_and_exported(waysout: CommandLine, small: Path) -> None:
    """One story, since its processes take seconds to begin."""
    code, out, err = waysout("bench", "run", small, "--queries", "2", "--jobs", "1")
    assert code == 0, err
    assert "small: 4 searches to do, 0 on file" in err
    assert "2 searches without an LLM\n" in err
    assert "2 searches with simulated:1, a simulated LLM\n" in err
    assert "4 of 4 searches" in err
    assert "4 searches done" in out
    folder = small.parent / "state" / "bench"
    assert str(folder) in out

    code, out, err = waysout("bench", "run", small, "--queries", "2", "--json")
    told = json.loads(out)
    assert (code, told["to_do"], told["on_file"], told["failures"]) == (0, 0, 4, [])

    code, out, _ = waysout("bench", "status")
    assert "small, with simulated:1" in out
    assert "small: 4 of 4 searches are done, for 0 paid LLM calls" in out
    code, out, _ = waysout("bench", "status", small, "--json")
    arms = {arm["arm"]: arm for arm in json.loads(out)}
    assert {name: (a["done"], a["wanted"]) for name, a in arms.items()} == {
        "tree": (2, 3), "random": (2, 3),
    }  # fmt: skip
    assert (arms["tree"]["calls"], arms["tree"]["paid"], arms["random"]["llm"]) == (8, 0, "")

    tree = arms["tree"]["id"]
    code, out, _ = waysout("bench", "show", tree[:5])
    assert (code, f"Arm {tree}" in out, "comp-mcts" in out) == (0, True, True)
    assert out.count("found") + out.count("budget-spent") >= 2
    shown = json.loads(waysout("bench", "show", tree, "--json")[1])
    assert (shown["spec"]["k"], len(shown["cells"])) == (2, 2)

    assert waysout("bench", "export", EXPORTED)[0] == 0
    assert list(Cells.read([EXPORTED])) == list(Cells.read([folder]))
    first = Path(EXPORTED).read_bytes()
    waysout("bench", "export", "again.jsonl.gz", "--results", EXPORTED)
    assert Path("again.jsonl.gz").read_bytes() == first
    wood = plan_file(small.parent, RANDOM, name="wood")
    told = json.loads(waysout("bench", "export", "b.jsonl", "--plan", wood, "--json")[1])
    assert told["cells"] == 2
    told = json.loads(waysout("bench", "export", "c.jsonl", "--llm", "simulated:9", "--json")[1])
    assert told["cells"] == 2  # those without an LLM


@pytest.mark.usefixtures("in_bench")
def test_failures_are_listed_with_their_reasons_and_a_code(
    waysout: CommandLine, tmp_path: Path
) -> None:
    head = HEAD.replace("synthetic", "loan").replace("realistic", "paper")
    path = plan_file(tmp_path, RANDOM, head=head)
    code, _, err = waysout("bench", "run", path)
    assert code == 1
    assert "failed: loan/random, 3 x: there is no trained oracle" in err
    assert "error: 3 of 3 searches failed" in err
    assert "go on with: waysout bench run" in err
    code, out, _ = waysout("bench", "run", path, "--json")
    told = json.loads(out)
    assert (told["error"]["code"], told["error"]["type"], told["left"]) == (1, "SearchesFailed", 0)
    assert [failure["name"] for failure in told["failures"]] == ["loan/random"] * 3
    code, out, _ = waysout("bench", "status", path)
    assert "failed: loan/random, 3 x: there is no trained oracle" in out
    assert "0 of 3 searches are done" in out


def test_an_llm_that_is_not_there_ends_with_its_own_code(
    waysout: CommandLine, small: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    from waysout.llm.call import Retry

    monkeypatch.setattr(Retry, "wait", lambda *_: 0.0)
    asked = ("--llm", "openai:m@http://127.0.0.1:9/v1", "--only", "tree")
    code, _, err = waysout("bench", "run", small, *asked)
    assert code == 9, err
    assert "3 searches with openai:m@http://127.0.0.1:9/v1: at most 12 LLM calls" in err
    assert "does not answer" in err


def test_what_there_is_to_run(waysout: CommandLine) -> None:
    code, out, _ = waysout("bench", "plans")
    assert (code, "llm-budget" in out, "bench run PLAN" in out) == (0, True, True)
    listed = {plan["name"]: plan for plan in json.loads(waysout("bench", "plans", "--json")[1])}
    assert listed["pruning-sweep"]["searches"] == 25 * 4 * 30
    assert listed["oracle-budget"]["llm_calls"] == 0


@pytest.mark.parametrize(
    ("words", "code", "said"),
    [
        (["run", "llm-budgets"], 3, "did you mean 'llm-budget'?"),
        (["run", "small.toml", "--only", "tee"], 3, "did you mean 'tree'?"),
        (["run", "small.toml", "--llm", "simulated"], 3, "is incomplete"),
        (["run", "small.toml", "--queries", "0"], 2, "--queries"),
        (["run"], 2, "Missing argument"),
        (["status"], 3, "there are no results in"),
        (["show", "abc"], 3, "there are no results in"),
        (["export", "x.csv"], 3, "an export is FILE.jsonl or FILE.jsonl.gz, not x.csv"),
    ],
)
def test_what_is_wrong_is_said(
    words: list[str], code: int, said: str, waysout: CommandLine, small: Path
) -> None:
    left, _, err = waysout("bench", *words)
    assert (left, said in err) == (code, True), err


def test_an_arm_is_named_by_how_its_id_begins(
    waysout: CommandLine,
    small: Path,
    in_bench: Path,  # noqa: F811
) -> None:
    with Results.open(in_bench / "r") as results:
        for arm in ("abc1", "abc2"):
            results.add(replace(CELL, arm=arm))
        results.add_failure(Failure("abc1", "", 3, "loan", "why"))
    code, _, err = waysout("bench", "show", "abc", "--results", "r")
    assert (code, "begins the ids of 2 arms: abc1, abc2" in err) == (3, True)
    code, _, err = waysout("bench", "show", "xyz", "--results", "r")
    assert (code, "unknown arm 'xyz'" in err) == (3, True)
    code, out, _ = waysout("bench", "show", "abc2", "--results", "r")
    assert (code, "Arm abc2" in out, "0.300" in out) == (0, True, True)


def test_status_of_a_plan_nobody_ran_is_all_to_be_done(waysout: CommandLine, small: Path) -> None:
    code, out, _ = waysout("bench", "status", small)
    assert (code, "0 of 6 searches are done" in out) == (0, True)
