"""``waysout bench`` as a researcher types it."""

from __future__ import annotations

import json
from collections import Counter
from dataclasses import asdict, replace
from functools import cache
from pathlib import Path

import pytest

# The small plan lies with the tests of the experiments.
from bench_world import (
    HEAD,
    RANDOM,
    TREE,
    in_bench,  # noqa: F401
    plan_file,
    trained_cache,  # noqa: F401
)
from test_cells import CELL

from conftest import CommandLine
from waysout.bench.arms import ID_LENGTH, digest
from waysout.bench.cell import Cells
from waysout.bench.plan import load_plan
from waysout.bench.results import Failure, Results

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
    assert f"see: waysout bench status {small}\n" in out

    code, out, err = waysout("bench", "run", small, "--queries", "2", "--json")
    told = json.loads(out)
    assert (code, told["to_do"], told["on_file"], told["failures"]) == (0, 0, 4, [])

    code, out, _ = waysout("bench", "status")
    assert "small, with simulated:1" in out
    assert "small: 4 of 4 searches are done\n" in out
    code, out, _ = waysout("bench", "status", small, "--json")
    arms = {arm["arm"]: arm for arm in json.loads(out)}
    assert {name: (a["done"], a["wanted"]) for name, a in arms.items()} == {
        "tree": (2, 3), "random": (2, 3),
    }  # fmt: skip
    assert (arms["tree"]["calls"], arms["tree"]["from_file"], arms["random"]["llm"]) == (8, 0, "")

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
    assert " waysout bench run" in err
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


def test_a_reason_is_told_once_for_all_arms(waysout: CommandLine, small: Path) -> None:
    head = HEAD.replace("synthetic", "loan").replace("realistic", "paper")
    path = plan_file(small.parent, TREE, RANDOM, head=head, name="my plan")
    code, out, err = waysout("bench", "run", path, "--results", "my results", "--queries", "1")
    assert code == 1
    told = [line for line in err.splitlines() if line.startswith("failed: ")]
    assert len(told) == 1
    assert "loan/random" in told[0] or "loan/tree with simulated:1" in told[0]
    assert " and 1 more arm, 2 x: there is no trained oracle" in told[0]
    # The command is ready to be pasted.
    assert f"see: waysout bench status '{path}' --results 'my results'\n" in out
    code, out, _ = waysout("bench", "status", path, "--results", "my results")
    assert out.count("failed: ") == 1
    assert "and 1 more arm, 2 x" in out


def test_only_need_be_in_one_of_the_plans(waysout: CommandLine, small: Path) -> None:
    plan_file(small.parent, RANDOM, name="wood")
    args = ("bench", "status", "small.toml", "wood.toml", "--json", "--only")
    code, out, err = waysout(*args, "tree")
    assert code == 0, err
    assert [(arm["plan"], arm["arm"]) for arm in json.loads(out)] == [("small", "tree")]
    code, _, err = waysout(*args, "tee")
    assert (code, "small, wood: unknown data set or arm 'tee'" in err) == (3, True)


def test_a_kept_plan_with_a_method_that_is_gone_is_named_and_left_out(
    waysout: CommandLine, small: Path
) -> None:
    good = load_plan(str(small))
    gone = replace(good, name="old", arms=(replace(good.arms[0], method="annealing"),))
    with Results.open("r") as results:
        results.note_plan(good)
        results._put("plans", ("0", "old", "1", json.dumps(asdict(gone))))
    code, out, err = waysout("bench", "status", "--results", "r")
    assert code == 0, err
    assert "small: 0 of 6 searches are done" in out
    assert "old: skipped" in err
    assert "unknown method 'annealing'" in err


def test_a_plan_is_printed_to_be_copied(waysout: CommandLine, small: Path) -> None:
    code, out, err = waysout("bench", "plans", "reward-weights")
    assert code == 0, err
    Path("copy.toml").write_text(out)
    assert load_plan("copy.toml").hash == load_plan("reward-weights").hash
    assert "reward-weights: 6 arms on loan, adult, credit, heloc: 720 searches and at most" in err
    told = json.loads(waysout("bench", "plans", small, "--json")[1])
    assert (told["arms"], told["toml"]) == (["tree", "random"], small.read_text())


def test_the_searches_of_an_arm_fit_a_small_terminal(
    waysout: CommandLine,
    in_bench: Path,  # noqa: F811
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setenv("COLUMNS", "80")
    figures = {"unique_valid": 12, "proximity": 0.123, "sparsity": 2.345, "novelty": 0.456}
    spent = {"calls": 30, "from_file": 0, "rows": 150, "seconds": 123.4567}
    with Results.open("r") as results:
        for query, from_file in ((12345, 0), (23456, 12)):
            told = {**spent, "from_file": from_file}
            llm = f"simulated:{from_file}"
            results.add(replace(CELL, llm=llm, query=query, outcome="budget-spent",
                                metrics=figures, spent=told))  # fmt: skip
    out = waysout("bench", "show", CELL.arm, "--results", "r")[1]
    heads = [line.split() for line in out.splitlines() if "outcome" in line]
    assert heads == [
        ["query", "outcome", "unique", "prox.", "spar.", "nov.", "calls", "rows", "secs"],
        ["query", "outcome", "unique", "prox.", "spar.", "nov.", "calls", "file", "rows", "secs"],
    ]
    assert "12345   budget-spent   12       0.123   2.345   0.456   30      150    123.5" in out


def test_status_says_what_llm_it_shows(waysout: CommandLine) -> None:
    assert "Use this LLM" not in waysout("bench", "status", "--help")[1]
    assert "Use this LLM" in waysout("bench", "run", "--help")[1]


def test_what_there_is_to_run(waysout: CommandLine, monkeypatch: pytest.MonkeyPatch) -> None:
    # All plans take a second to load, and are the same for both ways to tell of them.
    monkeypatch.setattr("waysout.bench.plan.load_plan", cache(load_plan))
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
        (["run", "small.toml", "--results", "small.toml"], 3, "is a file, not a folder"),
        (["status", "--results", "small.toml"], 3, "is a file, not a folder"),
        (["plans", "reward-weight"], 3, "did you mean 'reward-weights'?"),
        (["status"], 3, "there are no results in"),
        (["show", "abc"], 3, "there are no results in"),
        (["export", "x.csv"], 3, "an export must be named FILE.jsonl or FILE.jsonl.gz, not x.csv"),
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
    specs = {digest(spec)[:ID_LENGTH]: spec for seed in range(20)
             if (spec := {**CELL.spec, "seed": seed})}  # fmt: skip
    shared = Counter(arm[0] for arm in specs).most_common(1)[0][0]  # more arms than digits
    one, other = sorted(arm for arm in specs if arm[0] == shared)[:2]
    with Results.open(in_bench / "r") as results:
        for arm in (one, other):
            results.add(replace(CELL, arm=arm, spec=specs[arm]))
        results.add_failure(Failure(one, "", 3, "loan", "why"))
    code, _, err = waysout("bench", "show", shared, "--results", "r")
    assert (code, f"matches the ids of 2 arms: {one}, {other}" in err) == (3, True)
    code, _, err = waysout("bench", "show", "xyz", "--results", "r")
    assert (code, "unknown arm 'xyz'" in err) == (3, True)
    code, out, _ = waysout("bench", "show", other, "--results", "r")
    assert (code, f"Arm {other}" in out, "0.300" in out) == (0, True, True)


def test_status_is_of_the_llm_that_was_used(waysout: CommandLine, small: Path) -> None:
    """What the plan would ask by default was not wanted, and is not left to do."""
    plan, llm = load_plan(str(small)), "openai:m@http://127.0.0.1:1/v1"
    tree = next(arm for arm in plan.arms if arm.name == "tree")
    with Results.open("r") as results:
        results.add_failure(Failure(tree.id, llm, tree.query_rows[0], tree.data, "why"))
    code, out, err = waysout("bench", "status", small, "--results", "r", "--json")
    assert code == 0, err
    assert [arm["llm"] for arm in json.loads(out)] == [llm, ""]
    told = json.loads(waysout("bench", "status", small, "--llm", "simulated:1", "--json")[1])
    assert [arm["llm"] for arm in told] == ["simulated:1", ""]


def test_status_of_a_plan_nobody_ran_is_all_to_be_done(waysout: CommandLine, small: Path) -> None:
    code, out, _ = waysout("bench", "status", small)
    assert (code, "0 of 6 searches are done" in out) == (0, True)
