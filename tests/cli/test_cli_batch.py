from __future__ import annotations

import csv
import json
import os
import shutil
import signal
from collections.abc import Iterator, Sequence
from pathlib import Path
from typing import Any

import pandas as pd
import pytest
from cli_world import APPROVED, REFUSED, in_world, world  # noqa: F401
from inline_executor import InlineExecutor, work_inline

from conftest import CommandLine
from waysout.batch.job import BatchJob
from waysout.batch.marks import files_of, unmark
from waysout.batch.sealed import sealed
from waysout.batch.tables import people
from waysout.cli.batch import BatchSignals
from waysout.domain.oracle import Answers, Oracle
from waysout.domain.schema import Row
from waysout.errors import LLMUnreachable, OracleError
from waysout.llm.base import Reply, Request
from waysout.llm.simulated import Simulated
from waysout.oracles.answers import ask_checked
from waysout.oracles.cache import CachedOracle

pytestmark = pytest.mark.usefixtures("in_world", "inline")

FILES = ("--model", "model.txt", "--data", "loans.csv", "--card", "loans.toml")
QUICK = ("--llm", "simulated:1", "--calls", "2", "--oracle-rows", "10")
LONGEST = 2.0  # less than a stopped search is given
BATCH = ("batch", *FILES, *QUICK, "--limit", "20", "--part-rows", "8", "--workers", "1")


@pytest.fixture
def inline(monkeypatch: pytest.MonkeyPatch) -> Iterator[None]:
    work_inline(monkeypatch)
    yield
    InlineExecutor.made.clear()


def given() -> list[int]:
    """Return the parts that the last executor was given."""
    return [task.part for task in InlineExecutor.made[-1].given]


def told(out: Path) -> list[dict[str, Any]]:
    return [person for table in people(out) for person in table.to_pylist()]


def test_a_folder_of_parts_comes_out_that_reads_as_one_table(
    waysout: CommandLine, tmp_path: Path
) -> None:
    out = tmp_path / "ways"
    code, said, err = waysout(*BATCH, "--out", str(out))
    assert code == 0, err
    said = " ".join(said.split())
    assert "rejected people have a way out" in said
    assert "of simulated:1, a simulated LLM" in said
    assert "20 rows, wayfinder: at most 40 LLM calls, 200 oracle rows for the search" in err
    assert " and 288 for set-up (12 a person, 48 once)" in err
    frame = pd.read_parquet(out)
    assert {"row_id", "key", "changes", "probability", "proximity", "sparsity"} <= set(frame)
    assert set(frame["row_id"]) <= set(range(20))
    assert REFUSED in set(frame["row_id"])
    assert APPROVED not in set(frame["row_id"])
    assert not frame.duplicated(["row_id", "way"]).any()
    assert f"have a way out, {len(frame)} ways in all (" in said
    approved = sum(person["approved_rows"] for person in told(out))
    asked = sum(person["oracle_rows"] for person in told(out))
    assert f"each; {approved} of {asked} rows approved)" in said
    ours = [path.name for path in out.iterdir() if not path.name.startswith("_")]
    assert sorted(ours) == [f"part-{i:06d}.parquet" for i in range(3)]
    # An audit takes the card's words from here: it reads no card.
    notes = json.loads((out / "_manifest.json").read_text("utf-8"))
    assert notes["wording"] == {}
    assert notes["rules_in_words"] == {"immutable age": "Age stays as it is"}


@pytest.mark.parametrize(
    ("given", "most"),
    [
        ((), "750 oracle rows"),
        (("--llm", "simulated:1"), "30 LLM calls, 750 oracle rows"),
        (("--method", "random"), "150 oracle rows"),
    ],
    ids=["plain", "with an LLM", "a method without one"],
)
def test_no_llm_is_asked_unless_one_is_given(
    waysout: CommandLine, tmp_path: Path, given: tuple[str, ...], most: str
) -> None:
    small = ("batch", *FILES, "--limit", "5", "--workers", "1", "--json")
    code, said, err = waysout(*small, *given, "--out", str(tmp_path / "ways"))
    assert code == 0, err
    assert f": at most {most} for the search and 108 for set-up (12 a person, 48 once)\n" in err
    assert json.loads(said)["llm"] == ("simulated:1" if "--llm" in given else None)


def test_nothing_is_shared_without_an_llm(waysout: CommandLine, tmp_path: Path) -> None:
    code, _, err = waysout("batch", *FILES, "--share", "4", "--out", str(tmp_path / "ways"))
    assert code == 3
    assert "--share 4 shares what an LLM names: give one with --llm" in err


def test_the_document_says_all_that_the_screen_says(waysout: CommandLine, tmp_path: Path) -> None:
    out = tmp_path / "ways"
    code, said, _ = waysout(*BATCH, "--out", str(out), "--json")
    found = json.loads(said)
    rows = told(out)
    assert (code, found["rows"], found["done"], found["stand_in"]) == (0, 20, 20, "simulated")
    kinds = [person["outcome"] for person in rows]
    assert found["already_approved"] == kinds.count("already-approved") > 0
    assert found["found"] == kinds.count("found") > 0
    assert found["searched"] == found["found"] + found["empty"]
    assert found["llm_calls"] == sum(person["llm_calls"] for person in rows) > 0
    assert found["options"] == sum(person["options"] for person in rows)
    assert found["ways"] == len(pd.read_parquet(out)) < found["options"]
    assert found["this_sitting"]["rows"] == 20
    summary = json.loads((out / "_summary.json").read_text("utf-8"))
    assert summary["found"] == found["found"]


def test_all_options_are_written_where_they_are_asked_for(
    waysout: CommandLine, tmp_path: Path
) -> None:
    ways, whole = tmp_path / "ways", tmp_path / "all"
    assert waysout(*BATCH, "--out", str(ways))[0] == 0
    code, said, _ = waysout(*BATCH, "--all-options", "--out", str(whole), "--json")
    frame, found = pd.read_parquet(whole), json.loads(said)
    assert code == 0
    assert len(frame.drop_duplicates(["row_id", "key"])) == found["options"]
    marked = frame[frame["way"].notna()].sort_values(["row_id", "way"])
    columns = ["row_id", "way", "option", "changes", "cost"]
    assert marked[columns].to_numpy().tolist() == (
        pd.read_parquet(ways)[columns].to_numpy().tolist()
    )
    asked = [[p | {"seconds": 0} for p in told(out)] for out in (ways, whole)]
    assert asked[0] == asked[1]


@pytest.mark.parametrize("asked", [(), ("--all-options",)])
def test_a_folder_of_an_earlier_release_goes_on_as_it_was_begun(
    waysout: CommandLine, tmp_path: Path, asked: tuple[str, ...]
) -> None:
    out = tmp_path / "old"
    assert waysout(*BATCH, "--limit", "8", "--out", str(out))[0] == 0
    notes = json.loads((out / "_manifest.json").read_text("utf-8"))
    for name in ("all_options", "code", "wording", "rules_in_words", "id", "sha256"):
        del notes[name]
    del notes["plan"]["method_settings"]["tips"]  # as a release without tipping points wrote it
    (out / "_manifest.json").write_text(json.dumps(notes), "utf-8")
    shutil.rmtree(out / "_done")
    for file in out.rglob("part-*.parquet"):  # as if the earlier release had written it
        file.unlink()
    code, said, err = waysout(*BATCH, *asked, "--out", str(out))
    assert code == 0, err
    frame = pd.read_parquet(out)
    assert not {"way", "levers", "cost"} & set(frame)
    assert not frame.duplicated(["row_id", "key"]).any()
    assert "ways" not in told(out)[0]
    said = " ".join(said.split())
    assert f"{len(frame)} options in all" in said
    assert "An earlier release began this folder" in said
    summary = json.loads((out / "_summary.json").read_text("utf-8"))
    assert (summary["options"], summary["ways"]) == (len(frame), None)
    now = json.loads((out / "_manifest.json").read_text("utf-8"))
    assert "all_options" not in now
    assert now["rules_in_words"]


def test_the_same_command_goes_on_and_a_greater_limit_goes_further(
    waysout: CommandLine, tmp_path: Path
) -> None:
    out = str(tmp_path / "ways")
    waysout(*BATCH, "--out", out)
    before = told(tmp_path / "ways")
    torn = tmp_path / "ways" / "_part-000007.parquet.0a1b2c3d"
    torn.touch()
    moved = tmp_path / "moved.csv"
    moved.write_bytes(Path("loans.csv").read_bytes())
    elsewhere = ("--data", str(moved), "--part-rows", "5")
    code, _, err = waysout(*BATCH, *elsewhere, "--out", out, "--json")
    assert (code, told(tmp_path / "ways")) == (0, before), err
    assert len(InlineExecutor.made) == 1  # nobody is called together for nothing
    assert not torn.exists()
    code, said, _ = waysout(*BATCH, "--limit", "30", "--out", out, "--json")
    after = told(tmp_path / "ways")
    assert (code, given()) == (0, [2, 3])
    assert [person["row_id"] for person in after] == [*range(30)]
    apart = ("setup_rows", "seconds")
    for old, new in zip(before, after, strict=False):
        assert {k: v for k, v in old.items() if k not in apart} == {
            k: v for k, v in new.items() if k not in apart
        }
    assert json.loads(said)["this_sitting"]["rows"] < 14  # four of part 2 were on file


@pytest.mark.parametrize(
    ("changed", "named"),
    [
        (("--calls", "3"), "plan.budget.llm_calls: 2 → 3"),
        (("--seed", "1"), "plan.seed: 0 → 1"),
        (("--llm", "simulated:2"), "llm: 'simulated:1' → 'simulated:2'"),
        (("--rules", "stuck"), "problem.rules"),
        (("--share", "4"), "share: 0 → 4"),
        (("--all-options",), "all_options: False → True"),
    ],
)
def test_another_batch_in_the_folder_is_refused(
    waysout: CommandLine, tmp_path: Path, changed: tuple[str, ...], named: str
) -> None:
    out = str(tmp_path / "ways")
    waysout(*BATCH, "--limit", "2", "--out", out)
    code, _, err = waysout(*BATCH, *changed, "--out", out)
    assert (code, "holds another batch" in err, named in err) == (3, True, True), err


def test_another_table_or_model_is_another_batch(waysout: CommandLine, tmp_path: Path) -> None:
    out = str(tmp_path / "ways")
    waysout(*BATCH, "--limit", "2", "--out", out)
    lines = Path("loans.csv").read_text("utf-8").splitlines(keepends=True)
    other = tmp_path / "other.csv"
    other.write_text("".join(lines[:-1]), "utf-8")
    code, _, err = waysout(*BATCH, "--limit", "2", "--data", str(other), "--out", out)
    assert (code, "digests.data" in err) == (3, True), err


def test_a_function_that_answers_otherwise_now_is_another_model(
    waysout: CommandLine, tmp_path: Path
) -> None:
    weights = Path("own_weights.txt")
    weights.write_text("90", "utf-8")
    Path("own_scores.py").write_text(
        "from pathlib import Path\n"
        "def score(frame):\n"
        "    return (frame['income'] / float(Path('own_weights.txt').read_text())).clip(0, 1)\n",
        "utf-8",
    )
    line = [*BATCH, "--model", "own_scores:score", "--out", str(tmp_path / "ways")]
    code, _, err = waysout(*line, "--limit", "8")
    assert code == 0, err
    code, said, err = waysout(*line, "--limit", "16", "--json")
    assert code == 0, err
    assert json.loads(said)["probe_rows"] == 48 + 8  # who is done is asked about once more
    code, said, err = waysout(*line, "--limit", "16", "--json")
    assert (code, json.loads(said)["probe_rows"]) == (0, 48 + 8), err  # nothing is left to do
    weights.write_text("70", "utf-8")
    code, _, err = waysout(*line, "--limit", "20")
    assert (code, "is not the model of the batch in" in err) == (6, True), err


def test_a_folder_with_something_else_in_it_is_left_alone(
    waysout: CommandLine, tmp_path: Path
) -> None:
    thesis = tmp_path / "thesis.tex"
    thesis.write_text("years of work", "utf-8")
    code, _, err = waysout(*BATCH, "--out", str(tmp_path))
    assert (code, "thesis.tex" in err) == (3, True)
    code, _, err = waysout(*BATCH, "--out", str(thesis))
    assert (code, "is a file: name a folder" in err) == (3, True)
    code, _, err = waysout(*BATCH, "--out", str(tmp_path / ("a" * 300)))
    assert (code, "cannot be a folder: File name too long" in " ".join(err.split())) == (3, True)
    assert thesis.read_text("utf-8") == "years of work"


def test_no_more_workers_than_searches_are_called_together(
    waysout: CommandLine, tmp_path: Path
) -> None:
    few = ("--workers", "4", "--in-flight", "2", "--limit", "2")
    code, said, _ = waysout(*BATCH, *few, "--method", "random", "--out", str(tmp_path), "--json")
    executor = InlineExecutor.made[-1]
    assert (code, executor.workers, executor.job.trees) == (0, 2, 1)
    assert (json.loads(said)["llm"], json.loads(said)["stand_in"]) == (None, "")


def test_a_beginning_that_was_killed_is_no_hindrance(waysout: CommandLine, tmp_path: Path) -> None:
    (tmp_path / "_batch.lock").touch()
    (tmp_path / "_manifest.json.x1y2").touch()
    assert waysout(*BATCH, "--limit", "2", "--out", str(tmp_path))[0] == 0


def test_a_table_that_nobody_can_read_says_why(waysout: CommandLine, tmp_path: Path) -> None:
    lines = Path("loans.csv").read_text("utf-8").splitlines()
    for name, text, why in [
        ("other", "\n".join(["other", "1", "2"]), "row 0, column 'age'"),
        ("empty", lines[0], "it is empty"),
    ]:
        table = tmp_path / f"{name}.csv"
        table.write_text(text, "utf-8")
        code, _, err = waysout(*BATCH, "--data", str(table), "--out", str(tmp_path / "ways"))
        assert (code, "no row that the card can read" in err, why in err) == (3, True, True), err


def test_rows_that_cannot_be_read_are_listed_and_may_be_tried_again(
    waysout: CommandLine, tmp_path: Path
) -> None:
    lines = Path("loans.csv").read_text("utf-8").splitlines()
    header = lines[0].split(",")
    cells = lines[3].split(",")
    cells[header.index("income")] = "=plenty"
    table = tmp_path / "loans.csv"
    table.write_text("\n".join([*lines[:3], ",".join(cells), *lines[4:]]), "utf-8")
    out = tmp_path / "ways"
    code, said, err = waysout(*BATCH, "--data", str(table), "--out", str(out), "--json")
    found = json.loads(said)
    assert (code, found["failed"]) == (0, 1)
    assert "1 row failed; the reason for each" in err
    (failed,) = csv.DictReader((out / "_failed.csv").open(encoding="utf-8", newline=""))
    assert failed["row_id"] == "2"
    assert "income" in failed["reason"]
    again = waysout(*BATCH, "--data", str(table), "--out", str(out), "--retry-failed", "--json")
    assert (given(), json.loads(again[1])["failed"]) == ([0], 1)


def test_an_llm_that_goes_leaves_a_batch_to_go_on_with(
    waysout: CommandLine, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    out, real, replies = tmp_path / "ways", Simulated.complete, 0

    async def dies(self: Simulated, request: Request) -> Reply:
        nonlocal replies
        replies += 1
        if replies > 5:
            raise LLMUnreachable("nobody there")
        return await real(self, request)

    with monkeypatch.context() as patched:
        patched.setattr(Simulated, "complete", dies)
        code, said, err = waysout(*BATCH, "--out", str(out), "--json")
    error = json.loads(said)["error"]
    assert (code, error["code"], "nobody there" in error["message"]) == (9, 9, True)
    assert " waysout batch" in err
    whole = tmp_path / "whole"
    waysout(*BATCH, "--out", str(whole))
    code, said, _ = waysout(*BATCH, "--out", str(out), "--json")
    assert (code, json.loads(said)["done"]) == (0, 20)
    assert pd.read_parquet(out).equals(pd.read_parquet(whole))


def test_after_a_signal_what_was_found_may_be_counted_in_peace() -> None:
    wishes: list[str] = []
    with BatchSignals(json=False, stop=wishes.append) as signals:
        os.kill(os.getpid(), signal.SIGTERM)
        signals.wait()
        assert signals._timer is not None
        signals._timer.join(LONGEST)
        assert not signals._timer.is_alive()  # else it would end the process
    assert wishes == ["stopped by SIGTERM"]


def test_nothing_is_spent_on_a_table_that_breaks_off(waysout: CommandLine, tmp_path: Path) -> None:
    text = Path("loans.csv").read_text("utf-8")
    torn = tmp_path / "torn.csv"
    torn.write_text(f"{text.rstrip()}\n1,2\n", "utf-8")
    code, _, err = waysout(*BATCH, "--data", str(torn), "--out", str(tmp_path / "ways"))
    assert (code, "has 2 cells where the header has" in err) == (3, True)
    assert InlineExecutor.made == []


def test_a_shared_library_is_built_once_and_counted(waysout: CommandLine, tmp_path: Path) -> None:
    out = tmp_path / "ways"
    share = ("--share", "3", "--calls", "3")
    code, said, err = waysout(*BATCH, *share, "--out", str(out), "--json")
    found = json.loads(said)
    assert code == 0, err
    assert "20 rows and 3 pilots, wayfinder: at most 69 LLM calls" in err
    assert found["pilots"]["llm_calls"] > 0
    assert (out / "_library.json").exists()
    stamp = (out / "_library.json").stat().st_mtime_ns
    code, said, _ = waysout(*BATCH, *share, "--limit", "24", "--out", str(out), "--json")
    assert (out / "_library.json").stat().st_mtime_ns == stamp
    assert json.loads(said)["pilots"] == found["pilots"]


@pytest.mark.usefixtures("inline")
def test_a_batch_asks_no_more_than_it_says_and_tries_the_model_once(
    waysout: CommandLine, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    reached = 0

    def counted(oracle: Oracle, rows: Sequence[Row]) -> Answers:
        nonlocal reached
        reached += len(rows) if not isinstance(oracle, CachedOracle) else 0
        return ask_checked(oracle, rows)

    for module in ("oracles.probe", "oracles.cache", "run.context"):
        monkeypatch.setattr(f"waysout.{module}.ask_checked", counted)
    asked = ["batch", *FILES, "--calls", "0", "--oracle-rows", "10", "--part-rows", "10"]
    asked += ["--workers", "1", "--out", str(tmp_path / "ways"), "--json", "--limit"]
    for rows in (10, 20):  # the second resumes the first
        code, said, err = waysout(*asked, str(rows))
        assert code == 0, err
        setup = 12 * rows + 48
        most = f"{rows} rows, wayfinder: at most {10 * rows} oracle rows for the search and {setup}"
        assert f"{most} for set-up (12 a person, 48 once)" in err
        spent = json.loads(said)
        assert (spent["probe_rows"], spent["setup_rows"]) == (48, rows)  # each person's row once
        assert reached <= spent["oracle_rows"] + spent["setup_rows"] + spent["probe_rows"]
    tried = json.loads((tmp_path / "ways" / "_manifest.json").read_text("utf-8"))["probed"]
    assert tried == {"rows": 48, "stable": True}


NO_LLM = ("--calls", "0", "--oracle-rows", "10", "--part-rows", "3", "--workers", "1")


def test_nobody_else_may_read_the_folder(waysout: CommandLine, tmp_path: Path) -> None:
    out = tmp_path / "ways"
    assert waysout("batch", *FILES, *NO_LLM, "--limit", "3", "--out", str(out))[0] == 0
    for path in [out, *out.rglob("*")]:
        assert path.stat().st_mode & 0o777 == (0o700 if path.is_dir() else 0o600), path


def test_a_damaged_part_is_done_again(waysout: CommandLine, tmp_path: Path) -> None:
    out = tmp_path / "ways"
    asked = ("batch", *FILES, *NO_LLM, "--limit", "9", "--out", str(out))
    assert waysout(*asked)[0] == 0
    whole = pd.read_parquet(out)
    part = out / "part-000001.parquet"
    data = bytearray(part.read_bytes())
    data[-12] ^= 1
    part.write_bytes(data)
    code, _, err = waysout("audit", str(out))
    assert code == 6
    assert f"{part} is damaged" in err
    code, _, err = waysout(*asked)
    assert code == 0, err
    assert given() == [1]
    assert f"note: part 1 has to be done again: {part} is damaged" in " ".join(err.split())
    assert pd.read_parquet(out).equals(whole)
    assert waysout("audit", str(out))[0] == 0


def test_people_who_are_said_to_be_done_and_are_not_on_file_are_no_success(
    waysout: CommandLine, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    with monkeypatch.context() as changed:
        changed.setattr("waysout.batch.worker._check_written", lambda out, t: unmark(out, t.part))
        code, said, err = waysout(*BATCH, "--json", "--out", str(tmp_path / "ways"))
    document = json.loads(said)
    assert (code, document["done"], document["parts_left"]) == (6, 0, 3)
    assert "not everybody who was said to be done is on file; 3 parts are not done" in err
    assert waysout(*BATCH, "--out", str(tmp_path / "ways"))[0] == 0
    assert len(told(tmp_path / "ways")) == 20


def test_a_part_of_another_batch_is_done_again(waysout: CommandLine, tmp_path: Path) -> None:
    out, other = tmp_path / "ways", tmp_path / "others"
    asked = ("batch", *FILES, *NO_LLM, "--limit", "6", "--out")
    assert waysout(*asked, str(out))[0] == waysout(*asked, str(other), "--seed", "1")[0] == 0
    whole = pd.read_parquet(out)
    for name in (*files_of(1), "_done/part-000001.json"):
        shutil.copy(other / name, out / name)
    code, _, err = waysout("audit", str(out))
    assert code == 6
    assert "part-000001.parquet is damaged (it is of another batch)" in " ".join(err.split())
    code, _, err = waysout(*asked, str(out))
    assert code == 0, err
    assert given() == [1]
    assert "note: part 1 has to be done again" in " ".join(err.split())
    assert pd.read_parquet(out).equals(whole)


def test_a_manifest_that_says_other_than_was_written_is_refused(
    waysout: CommandLine, tmp_path: Path
) -> None:
    out = tmp_path / "ways"
    asked = ("batch", *FILES, *NO_LLM, "--limit", "3", "--out", str(out))
    assert waysout(*asked)[0] == 0
    manifest = out / "_manifest.json"
    told = json.loads(manifest.read_text())
    unsealed = {name: cell for name, cell in told.items() if name != "sha256"}
    for text in (json.dumps({**told, "part_rows": 7}), json.dumps(unsealed)):
        manifest.write_text(text)
        for again in (asked, ("audit", str(out))):
            code, _, err = waysout(*again)
            assert code == 6
            assert f"{manifest} is damaged" in err
            assert "put back a copy" in " ".join(err.split())


@pytest.mark.parametrize("changes", [{"part_rows": n} for n in ("x", 0, None, -1, True)])
def test_a_manifest_without_a_size_of_parts_is_refused(
    changes: dict[str, Any], waysout: CommandLine, tmp_path: Path
) -> None:
    manifest = tmp_path / "_manifest.json"
    manifest.write_bytes(sealed({"waysout_batch": 1, "all_options": False, **changes}))
    code, _, err = waysout("batch", *FILES, *NO_LLM, "--limit", "3", "--out", str(tmp_path))
    assert code == 6, err
    assert f"{manifest} is damaged (its part_rows is {changes['part_rows']!r})" in err


def test_a_row_that_the_model_breaks_on_fails_alone_even_if_it_is_tried_first(
    waysout: CommandLine, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    bad = (40, 42, 20, "part-time")  # the first row, which the model is tried with

    def breaks(oracle: Oracle, rows: Sequence[Row]) -> Answers:
        if bad in rows:
            raise OracleError("the model raised ValueError")
        return ask_checked(oracle, rows)

    for module in ("oracles.probe", "oracles.cache", "run.context"):
        monkeypatch.setattr(f"waysout.{module}.ask_checked", breaks)
    out = tmp_path / "ways"
    code, _, err = waysout("batch", *FILES, *NO_LLM, "--limit", "9", "--out", str(out))
    assert code == 0, err
    assert "rows tried have no answer: the model raised ValueError" in " ".join(err.split())
    failed = list(csv.DictReader((out / "_failed.csv").read_text().splitlines()))
    assert [row["row_id"] for row in failed] == [str(REFUSED)]


def test_a_model_that_is_trained_anew_meanwhile_is_not_mixed_in(
    waysout: CommandLine, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    model, out = tmp_path / "model.txt", tmp_path / "ways"
    shutil.copy("model.txt", model)
    start = InlineExecutor.__init__

    def later(self: InlineExecutor, job: BatchJob, **given: Any) -> None:
        model.write_bytes(model.read_bytes() + b"\n")
        start(self, job, **given)  # its worker loads the model

    monkeypatch.setattr(InlineExecutor, "__init__", later)
    files = ("--model", str(model), "--data", "loans.csv", "--card", "loans.toml")
    code, _, err = waysout("batch", *files, *NO_LLM, "--limit", "4", "--out", str(out))
    assert code == 6
    assert f"{model} was changed after the batch had begun" in " ".join(err.split())
    assert told(out) == []


def test_a_custom_rule_whose_code_was_changed_is_of_another_batch(
    waysout: CommandLine, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.syspath_prepend(tmp_path)
    code, card, out = tmp_path / "lender_rules.py", tmp_path / "loans.toml", tmp_path / "ways"
    code.write_text("def fair(query, candidate):\n    return True\n")
    rule = '\n[[rules.main]]\nkind = "custom"\ncall = "lender_rules:fair"\n'
    card.write_text(Path("loans.toml").read_text() + rule)
    asked = ("batch", *FILES[:4], "--card", str(card), *NO_LLM, "--trust-code", "--out", str(out))
    assert waysout(*asked, "--limit", "3")[0] == 0
    code.write_text("def fair(query, candidate):\n    return False\n")
    exit_code, _, err = waysout(*asked, "--limit", "6")
    assert exit_code == 3, err
    assert "holds another batch (code.rules in lender_rules: " in " ".join(err.split())


def test_a_table_that_is_edited_meanwhile_is_noticed_and_what_is_done_is_kept(
    waysout: CommandLine, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    table, out = tmp_path / "people.csv", tmp_path / "ways"
    shutil.copy("loans.csv", table)
    whole, wait = table.read_bytes(), InlineExecutor.wait

    def edits(self: InlineExecutor, seconds: float) -> Any:
        table.write_bytes(whole.replace(b"40,42,20", b"40,42,21"))
        return wait(self, seconds)

    files = ("--model", "model.txt", "--data", str(table), "--card", "loans.toml")
    asked = ("batch", *files, *NO_LLM, "--limit", "12", "--out", str(out))
    with monkeypatch.context() as patched:
        patched.setattr(InlineExecutor, "wait", edits)
        code, _, err = waysout(*asked)
    assert code == 6
    assert f"{table} was changed while the batch read it" in " ".join(err.split())
    done = {person["row_id"] for person in told(out)}
    assert done == set(range(6))  # the two parts that were handed out before
    table.write_bytes(whole)
    code, _, err = waysout(*asked)
    assert code == 0, err
    assert given() == [2, 3]


def test_a_table_that_is_edited_while_the_last_part_is_done_is_noticed(
    waysout: CommandLine, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Its rows are all read by then; the edit keeps size and times."""
    table, out = tmp_path / "people.csv", tmp_path / "ways"
    shutil.copy("loans.csv", table)
    whole, looks, wait = table.read_bytes(), table.stat(), InlineExecutor.wait

    def edits(self: InlineExecutor, seconds: float) -> Any:
        reports = wait(self, seconds)
        table.write_bytes(whole.replace(b"40,42,20", b"40,42,21"))
        os.utime(table, ns=(looks.st_atime_ns, looks.st_mtime_ns))
        return reports

    files = ("--model", "model.txt", "--data", str(table), "--card", "loans.toml")
    asked = ("batch", *files, *NO_LLM, "--limit", "3", "--out", str(out))
    monkeypatch.setattr(InlineExecutor, "wait", edits)
    code, _, err = waysout(*asked)
    assert code == 6
    assert f"{table} was changed while the batch read it" in " ".join(err.split())
    assert len(told(out)) == 3


# For ten times as long as a search may take, on what the person who is refused might earn instead.
HANGS = """
import time
def score(frame):
    for age, income, debt in zip(frame["age"], frame["income"], frame["debt"]):
        if (age, debt) == (40, 20) and income > 42:
            for _ in range(2000):
                time.sleep(0.01)
    return frame["income"] / 100
"""
WELL = "def score(frame):\n    return frame['income'] / 100\n"


def test_a_row_that_hangs_costs_one_person_their_time_and_nobody_else_theirs(
    waysout: CommandLine,
    world: Path,  # noqa: F811
    tmp_path: Path,
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.chdir(tmp_path)
    files = ("--data", str(world / "loans.csv"), "--card", str(world / "loans.toml"))
    limits = ("--seconds", "2", "--oracle-rows", "10", "--limit", "6")

    def searched(name: str, code: str) -> dict[int, Any]:
        Path(f"{name}.py").write_text(code, "utf-8")
        model = ("--model", f"{name}:score")
        left, _, err = waysout("batch", *files, *model, *limits, "--out", f"{name}.ways")
        assert left == 0, err
        kept = ("outcome", "ways", "oracle_rows", "approved_rows")
        return {one["row_id"]: [one[name] for name in kept] for one in told(Path(f"{name}.ways"))}

    well, troubled = searched("scores_well", WELL), searched("hangs_on_one", HANGS)
    outcome, ways, *_ = troubled.pop(REFUSED)
    # Their time and that of the call that hangs end together: the call's error may come first.
    assert (outcome in {"budget-spent", "failed"}, ways) == (True, 0)
    assert well.pop(REFUSED)[0] == "found"
    assert troubled == well
