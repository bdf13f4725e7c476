"""Not one row more reaches the model than a run has promised, steady or wavering."""

from __future__ import annotations

from pathlib import Path
from types import SimpleNamespace
from typing import Any

import numpy as np
import pytest
from run_world import PEOPLE, Adder, problem

import waysout
from waysout.domain.budget import Budget, Spent
from waysout.domain.memory import Memory
from waysout.domain.oracle import Answers
from waysout.domain.pick import pick
from waysout.domain.result import Way
from waysout.errors import IntegrityError, UnavailableError
from waysout.run.recall import FORM_SOUGHT
from waysout.store import Store

ROWS = 25
BUDGET = Budget(oracle_rows=ROWS)
TABLE = [(a, b, "xyz"[(a + b) % 3]) for a in range(20) for b in range(20)]
DATA = SimpleNamespace(rows=TABLE, labels=[a + b > 20 for a, b, _ in TABLE])


class Wavering(Adder):
    """Gives every row another chance each time it is asked."""

    def ask(self, rows: Any) -> Answers:
        usual = super().ask(rows)
        drift = 0.9 * usual.probability + 0.0001 * (len(self.batches) % 100)
        return Answers(drift, usual.decision)


def search(oracle: Adder, people: Any = PEOPLE[:1], **options: Any) -> list[waysout.Result]:
    given = {"calls": 0, "oracle_rows": ROWS, "data": DATA, **options}
    found = waysout.find_many(problem(oracle=oracle), people, **given)
    return sorted(found, key=lambda result: result.index)


def spent(results: list[waysout.Result]) -> Spent:
    return sum((result.ledger for result in results), Spent())


@pytest.mark.parametrize("data", [DATA, None], ids=["data", "none"])
@pytest.mark.parametrize("model", [Adder, Wavering])
@pytest.mark.parametrize("people", [1, 5])
@pytest.mark.parametrize("method", ["wayfinder", "recombine"])
def test_a_run_asks_no_more_than_it_promised(
    method: str, people: int, model: type[Adder], data: Any
) -> None:
    oracle = model()
    results = search(oracle, PEOPLE[:people], data=data, method=method)
    promised = ROWS * people + BUDGET.probe_rows + BUDGET.own_setup_rows * people
    total = spent(results)
    assert oracle.rows <= total.oracle_rows + total.setup_rows <= promised
    assert all(result.options for result in results)


def test_of_one_person_all_is_told_before() -> None:
    oracle = Wavering()
    [result] = search(oracle)
    probed = BUDGET.probe_rows
    assert (probed, BUDGET.own_setup_rows, BUDGET.setup_rows) == (48, 12, 60)
    assert result.ledger.setup_rows == probed + 1 + BUDGET.again_rows <= 60
    assert [len(batch) for batch in oracle.batches[:4]] == [20, 20, 4, 4]


def test_a_steady_model_is_not_asked_again() -> None:
    oracle = Adder()
    results = search(oracle, PEOPLE[:3])
    assert [result.ledger.setup_rows for result in results] == [48 + 1, 1, 1]
    found = [o for r in results for o in (*r.options, *r.ways)]
    assert {option.stable for option in found} == {None}
    after = [row for batch in oracle.batches[4:] for row in batch]  # the probe takes four batches
    assert len(set(after)) == len(after)


def asked(oracle: Adder) -> list[Any]:
    return [row for batch in oracle.batches for row in batch]


def test_a_wavering_one_is_asked_about_what_is_read_first() -> None:
    class Fickle(Wavering):
        """Refuses what it has approved before."""

        def ask(self, rows: Any) -> Answers:
            met = {*asked(self)}
            usual = super().ask(rows)
            again = np.array([row in met for row in rows], dtype=bool)
            return Answers(usual.probability, usual.decision & ~again)

    for model in (Wavering, Fickle):
        [result] = search(model(), oracle_rows=150)
        ways = [*result.ways]
        assert len(ways) > 1
        bare = waysout.Result(
            query=result.query,
            outcome=result.outcome,
            ways=[Way(**{**vars(way), "stable": None}) for way in ways],
        )
        marks = {way.key: way.stable for way in ways}
        first = [marks[way.key] for way in pick(bare, BUDGET.again_rows)]
        assert set(first) == {model is Wavering}


def away_after(model: type[Adder], batches: int) -> Adder:
    """Return a model that answers some batches, and is then gone: nothing more reaches it."""

    class Away(model):  # type: ignore[misc, valid-type]
        def ask(self, rows: Any) -> Answers:
            if len(self.batches) >= batches:
                raise ConnectionError("gone")
            answers: Answers = super().ask(rows)
            return answers

    away: Adder = Away()
    return away


@pytest.mark.parametrize("data", [DATA, None], ids=["data", "none"])
@pytest.mark.parametrize("model", [Adder, Wavering])
def test_interrupted_again_and_again_it_keeps_its_promise(
    tmp_path: Path, model: type[Adder], data: Any
) -> None:
    given: dict[str, Any] = {"data": data, "method": "random", "settings": {"batch": 1}}
    path, reached = tmp_path / "run.db", 0
    # The probe takes four batches; at last the model stays.
    for oracle in (*(away_after(model, n) for n in (6, 2, 2, 2, 2, 2, 2, 2)), model()):
        [result] = search(oracle, run=path, **given)
        reached += oracle.rows
        assert reached <= result.ledger.oracle_rows + result.ledger.setup_rows
        assert (result.outcome.kind == "failed") == (type(oracle) is not model)
    assert result.ledger.oracle_rows == ROWS
    assert result.ledger.setup_rows <= BUDGET.setup_rows
    [whole] = search(model(), **given)
    assert result.options
    assert [(o.key, o.stable) for o in result.options] == [(o.key, o.stable) for o in whole.options]


def test_a_probe_is_paid_for_once_even_where_nothing_else_was_recorded(tmp_path: Path) -> None:
    path, later = tmp_path / "run.db", Adder()
    [failed] = search(away_after(Adder, 4), run=path)
    assert (failed.outcome.kind, failed.ledger.setup_rows) == ("failed", 48 + 1)
    [found] = search(later, run=path)
    assert found.options
    assert later.rows == found.ledger.oracle_rows + 1
    assert 48 + 1 <= found.ledger.setup_rows <= 60


def test_a_memory_knows_of_a_model_that_was_tried_on_more_than_one_row() -> None:
    for data, steady in ((DATA, True), (None, None)):
        memory = Memory()
        search(Adder(), memory=memory, data=data)
        assert memory.steady is steady
        memory = Memory()
        search(Wavering(), memory=memory, data=data)
        assert memory.steady is False


def test_a_run_of_a_release_with_another_allowance_is_the_same_run(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    import waysout.run.options as options

    def earlier(**given: Any) -> Budget:
        return Budget(**given, setup_rows=1000)

    path = tmp_path / "run.db"
    with monkeypatch.context() as patch:
        patch.setattr(options, "Budget", earlier)
        [cut] = search(away_after(Adder, 5), run=path)
    assert cut.ledger.setup_rows > 60
    oracle = Adder()
    [result] = search(oracle, run=path)
    assert result.options
    assert oracle.rows <= result.ledger.oracle_rows + 1  # to see that it is the same model
    assert result.ledger.setup_rows == cut.ledger.setup_rows + 1


class Seeking(Adder):
    """Asks each row twice, as if the form of its rows were not known."""

    extra_rows = 0

    def ask(self, rows: Any) -> Answers:
        self.extra_rows += len(rows)
        return super().ask(rows)


class Another(Seeking):
    def ask(self, rows: Any) -> Answers:
        usual = super().ask(rows)
        return Answers(0.9 * usual.probability + 0.05, usual.decision)


def test_rows_that_find_the_form_leave_a_resumed_run_its_own(tmp_path: Path) -> None:
    path = tmp_path / "run.db"
    [failed] = search(away_after(Seeking, 7), run=path)
    assert failed.outcome.kind == "failed"
    assert failed.ledger.setup_rows > BUDGET.setup_rows
    with pytest.raises(IntegrityError, match="is not the model of the run on file"):
        search(Another(), run=path)
    [found] = search(Seeking(), run=path)
    [whole] = search(Seeking())
    assert found.ways == whole.ways
    assert whole.ledger.setup_rows == 2 * (48 + 1) + whole.ledger.oracle_rows
    assert found.ledger.setup_rows >= whole.ledger.setup_rows


def test_rows_that_cannot_be_filed_leave_nobody_waiting(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    event = Store.event

    def full(store: Store, kind: str, *detail: Any) -> None:
        if kind == FORM_SOUGHT:
            raise UnavailableError("the disk is full")
        event(store, kind, *detail)

    monkeypatch.setattr(Store, "event", full)
    [found] = search(Seeking(), run=tmp_path / "run.db")
    assert found.ways
