"""What earlier versions wrote still opens, and the same search still gives the same result.

The files under ``golden/earlier`` were made before product and laboratory were parted. Results are
compared value by value, all but the seconds they took.
"""

from __future__ import annotations

import gzip
import json
import shutil
from collections.abc import Iterator
from itertools import groupby
from pathlib import Path
from typing import Any

import pytest

import waysout as ways
from conftest import CommandLine
from waysout.bench.cell import Cells
from waysout.datasets.load import Dataset
from waysout.domain.problem import Problem
from waysout.domain.schema import Row
from waysout.domain.spelling import as_in_table
from waysout.report.result import Result
from waysout.serve.saved_run import SavedRun
from waysout.store import Store

EARLIER = Path(__file__).parent / "golden" / "earlier"
BENCH_CELLS = Path(__file__).parents[1] / "benchmarks" / "results"


@pytest.fixture(scope="module")
def table() -> Dataset:
    return ways.load_dataset("synthetic")


@pytest.fixture(scope="module")
def problem(table: Dataset, tmp_path_factory: pytest.TempPathFactory) -> Iterator[Problem]:
    """Have the model of those days: another LightGBM may train another one."""
    pytest.importorskip("lightgbm")
    cache = tmp_path_factory.mktemp("earlier")
    folder = cache / "oracles" / "synthetic"
    folder.mkdir(parents=True)
    shutil.copy(EARLIER / "oracle" / "manifest.json", folder)
    model = gzip.decompress((EARLIER / "oracle" / "oracle.txt.gz").read_bytes())
    (folder / "oracle.txt").write_bytes(model)
    with pytest.MonkeyPatch.context() as patch:
        patch.setenv("WAYSOUT_CACHE", str(cache))
        oracle = ways.load_oracle(table.card)
        yield ways.Problem.from_card(table.card, oracle, training=table.rows)


def _searches() -> Iterator[tuple[str, list[dict[str, Any]]]]:
    text = gzip.decompress((EARLIER / "searches.jsonl.gz").read_bytes()).decode()
    lines = [json.loads(line) for line in text.splitlines()]
    assert len(lines) == 40
    # What polish asks after a search is another thing since it became finishing.
    lines = [line for line in lines if "polish" not in line["options"]]
    for method, of_method in groupby(lines, lambda line: line["method"]):
        yield method, list(of_method)


SEARCHES = list(_searches())


@pytest.mark.parametrize(("method", "lines"), SEARCHES, ids=[name for name, _ in SEARCHES])
def test_the_same_search_gives_the_same_json(
    problem: Problem, table: Dataset, method: str, lines: list[dict[str, Any]]
) -> None:
    # LATS was told of earlier attempts then.
    as_then: dict[str, Any] = {"settings": {"memory": 10}} if method[:4] == "lats" else {}
    for line in lines:
        result = ways.find(
            problem, table.rows[line["row"]], method=method, data=table,
            **as_then, **line["options"],
        )  # fmt: skip
        found = json.loads(result.to_json())
        found["ledger"]["seconds"] = 0.0
        # As it is read today: a reply that was cut off left half a word for a reason.
        # And in the table's own spelling: it wrote true where the table has yes.
        on_file = as_in_table(problem.schema, Result.from_dict(line["result"]))
        earlier = json.loads(on_file.to_json())
        assert not earlier["ways"]
        for document in (found, earlier):  # which earlier versions did not write
            del document["ways"], document["tipping"]
        assert json.dumps(_of_search(found)) == json.dumps(_of_search(earlier))
        assert found["ledger"]["setup_rows"] <= found["settings"]["budget"]["setup_rows"] == 60
        _check_ways(problem, table.rows[line["row"]], result)


def _of_search(result: dict[str, Any]) -> dict[str, Any]:
    """Leave out set-up: earlier versions tried the model with more rows, and asked all again.

    And the wording and the rules in words, which told less.
    """
    told = {name: said for name, said in result["settings"].items() if name != "limits"}
    budget = {**told["budget"], "setup_rows": 0}
    return {
        **result,
        "options": [{**option, "stable": None} for option in result["options"]],
        "ledger": {**result["ledger"], "setup_rows": 0},
        "settings": {**told, "budget": budget, "wording": {}},
    }


def _check_ways(problem: Problem, query: Row, result: Result) -> None:
    assert bool(result.ways) == bool(result.options)
    for way in (option for found in result.ways for option in (found, *found.variants)):
        row = problem.row(way.row)
        answers = problem.oracle.ask([row])
        assert answers.decision[0]
        assert answers.probability[0] == pytest.approx(way.probability)
        assert not problem.violations(query, row)
        assert way.stable is None  # the model did not waver when it was tried


def test_an_earlier_result_is_read_and_written_back_as_it_was() -> None:
    text = (EARLIER / "result.json").read_text("utf-8")
    result = Result.from_json(text)
    assert len(result.options) == len(json.loads(text)["options"]) > 0
    later: dict[str, Any] = {"ways": [], "tipping": {}, "notes": []}
    assert json.loads(result.to_json()) == {**json.loads(text), **later}
    page = result.to_html()
    assert page is not None
    assert "<html" in page


def test_an_earlier_run_is_shown(waysout: CommandLine, tmp_path: Path) -> None:
    run = shutil.copy(EARLIER / "run.db", tmp_path)
    code, out, err = waysout("runs", "show", run, "--json")
    assert code == 0, err
    found = json.loads((EARLIER / "result.json").read_text("utf-8"))
    with Store.read(Path(run)) as store:
        kept = store.finished(0)
    assert kept is not None
    assert [option.row for option in kept.options] == [o["row"] for o in found["options"]]
    assert json.loads(out)


def test_an_earlier_run_goes_on_to_the_same_end(
    problem: Problem, table: Dataset, tmp_path: Path
) -> None:
    run = shutil.copy(EARLIER / "stopped.db", tmp_path)
    with Store.read(Path(run)) as store:
        query = store.query(0)
        assert store.finished(0) is None
    assert query is not None
    as_then = {"history": "all", "patience": 0}  # today's readings of the paper are others
    asked = {"method": "comp-mcts", "llm": "simulated:1", "calls": 6, "data": table}
    asked |= {"settings": as_then}
    whole = ways.find(problem, query, **asked)  # type: ignore[arg-type]
    resumed = ways.find(problem, query, run=run, **asked)  # type: ignore[arg-type]
    assert resumed.options == whole.options
    assert resumed.ledger.llm_calls == whole.ledger.llm_calls == 6


def test_an_earlier_run_is_served_with_the_table_s_values(problem: Problem, tmp_path: Path) -> None:
    run = shutil.copy(EARLIER / "run.db", tmp_path)
    with Store.read(Path(run)) as store:
        kept, saved = store.finished(0), SavedRun.read(store, problem)
    assert kept is not None
    guarantors = {option.row["co_signer"] for option in kept.options}
    assert guarantors <= {True, False}
    served = {option.row["co_signer"] for option in saved.result.options}
    assert served == {"yes" if known else "no" for known in guarantors}


def test_an_earlier_batch_goes_on_and_is_audited(
    waysout: CommandLine, problem: Problem, tmp_path: Path
) -> None:
    pytest.importorskip("pyarrow")
    out = tmp_path / "batch"
    shutil.copytree(EARLIER / "batch", out)
    part = (out / "part-000000.parquet").read_bytes()
    # The default method was another one then.
    asked = ["--data", "synthetic", "--method", "recombine", "--llm", "simulated:1"]
    asked += ["--calls", "2", "--oracle-rows", "10"]
    code, _, err = waysout("batch", *asked, "--limit", "12", "--workers", "1", "--out", out)
    assert code == 0, err
    assert (out / "part-000000.parquet").read_bytes() == part  # nothing was asked again
    # What is added has the columns of what is there: a reader takes the folder for one table.
    code, _, err = waysout("batch", *asked, "--limit", "60", "--workers", "1", "--out", out)
    assert code == 0, err
    arrow = pytest.importorskip("pyarrow.parquet")
    types = [arrow.read_schema(path).remove_metadata() for path in sorted(out.glob("part-*"))]
    assert len(types) > 1
    assert all(each == types[0] for each in types)
    assert str(types[0].field("co_signer").type) == "bool"
    code, text, err = waysout("audit", out, "--json")
    assert code == 0, err
    assert json.loads(text)


# The page of results is made of all of them, in another test.
@pytest.mark.parametrize("file", [
    pytest.param(path, id=path.name, marks=[pytest.mark.slow] * ("scripted" not in path.name))
    for path in sorted(BENCH_CELLS.glob("bench-*.jsonl.gz"))
])  # fmt: skip
def test_earlier_cells_open(waysout: CommandLine, file: Path) -> None:
    llms = Cells.read([file]).llms
    table, plan = ("llm-budget", "llm-budget@first") if llms else ("oracle-budget-published",) * 2
    asked = ["--results", file, "--plan", plan, "--format", "json"]
    asked += ["--llm", llms[0]] if llms else []
    code, out, err = waysout("bench", "table", table, *asked)
    assert code == 0, err
    assert json.loads(out)
