from __future__ import annotations

import builtins
import random
import subprocess
import sys
from collections.abc import Sequence
from dataclasses import replace
from typing import Any

import numpy as np
import pytest
from baseline_cases import JOINT, QUERY, SCHEMA, Table, make_case, row, rule_lists, run
from hypothesis import given, settings
from hypothesis import strategies as st

import waysout
from strategies import rows, schemas
from waysout.bench.methods.moc import Genes, Moc
from waysout.domain.oracle import Answers
from waysout.domain.result import OutcomeKind
from waysout.domain.rules import Direction, Immutable, Linear, MaxChanges, Rule
from waysout.domain.schema import Feature, Row, Schema
from waysout.errors import InputError, MissingExtra
from waysout.search.base import Case, Search
from waysout.search.space import Space

pytest.importorskip("pymoo", reason="NSGA-II is pymoo's (the extra 'moc')")

PEOPLE = Table(
    tuple(
        row(income=float(20 + i % 60), debt=i % 40 + 0.5, term=1 + i % 50, job=job, owns=i % 2 == 0)
        for i, job in enumerate(["none", "cook", "clerk"] * 30)
    ),
    (True,) * 90,
)


def ended(search: Search) -> tuple[OutcomeKind, str]:
    assert search.ending is not None
    return search.ending.kind, search.ending.reason


@pytest.mark.parametrize("limit", [1, 20, 70])
def test_it_spends_the_rows_it_is_given_in_generations(limit: int) -> None:
    case = make_case(known=PEOPLE, rows=limit)
    search = Moc().start(case)
    asked = run(search)
    assert len(asked) == len(set(asked)) == limit
    oracle: Any = case.problem.oracle
    assert oracle.batches == [20] * (limit // 20) + [limit % 20] * (limit % 20 > 0)
    assert ended(search) == (OutcomeKind.BUDGET_SPENT, f"all {limit} oracle rows are spent")
    assert limit == 1 or search.archive.rows


class Slope:
    """Approves a high income, the likelier the higher; nothing else counts."""

    name = "slope"
    labels_only = False

    def ask(self, rows: Sequence[Row]) -> Answers:
        chances = np.array([float(r[0] or 0) / 100 for r in rows])
        return Answers(chances, chances >= 0.5)


@pytest.mark.parametrize("epsilon", [0.0, 1.0])
def test_generations_come_nearer_with_fewer_changes(epsilon: float) -> None:
    case = make_case(rules=(), known=PEOPLE, rows=400)
    case = replace(case, problem=replace(case.problem, oracle=Slope()), probability=0.2)
    search = Moc(epsilon=epsilon).start(case)
    asked = run(search)
    approved = [r for r in asked if r[0] is not None and float(r[0]) >= 50]
    early, late = ([r for r in approved if r in part] for part in (asked[:40], asked[40:]))

    def least(found: Sequence[Row]) -> tuple[float, int]:
        problem = case.problem
        near = min(problem.distance(QUERY, r) for r in found)
        return near, min(problem.rules.count_changes(QUERY, r) for r in found)

    assert least(late)[0] < least(early)[0]
    assert least(late)[1] <= least(early)[1]


@pytest.mark.parametrize(
    "rules",
    [
        (*JOINT, MaxChanges(at_most=2), Direction(features=["income"], direction="up")),
        (Linear(that="debt + 10 <= 2 * income"), Immutable(features=["job"])),
    ],
    ids=["whole", "values"],
)
def test_every_row_asked_keeps_the_rules(rules: tuple[Rule, ...]) -> None:
    case = make_case(rules=rules, known=PEOPLE, rows=60)
    asked = run(Moc().start(case))
    assert len(asked) == 60
    assert [case.problem.violations(QUERY, r) for r in asked] == [()] * 60


@st.composite
def cases(draw: st.DrawFn) -> Case:
    schema = draw(schemas())
    people = tuple(draw(st.lists(rows(schema), max_size=6)))
    return make_case(
        draw(rows(schema)),
        draw(rule_lists(schema)),
        schema=schema,
        known=Table(people, (True,) * len(people)),
        rows=draw(st.integers(0, 50)),
    )


@settings(max_examples=25, deadline=None)
@given(case=cases())
def test_any_table_is_searched_to_an_end(case: Case) -> None:
    search = Moc().start(case)
    asked = run(search)
    assert [case.problem.violations(case.query, r) for r in asked] == [()] * len(asked)
    assert len(asked) == len(set(asked)) <= (case.budget.oracle_rows or 0)
    assert case.query not in asked
    assert ended(search)[1]


@settings(max_examples=40)
@given(case=cases(), seed=st.integers(0, 99))
def test_rows_survive_the_way_to_pymoo_and_back(case: Case, seed: int) -> None:
    known: Any = case.known
    space = Space(case.problem, case.query)
    genes = Genes(space, case.problem.schema.encode(known.rows))
    if space.levers:
        drawn = genes.rows(genes.drawn(8, np.random.default_rng(seed)))
        kept = [r for r in drawn if not case.problem.violations(case.query, r)]
        assert genes.rows(genes.of_rows(kept)) == kept
        if not case.problem.violations(case.query, case.query):
            assert genes.rows(genes.home[None, :]) == [case.query]


def test_a_whole_number_is_never_taken_for_a_missing_one() -> None:
    schema = Schema((Feature("a", "integer", range=(-40, 40)),))
    case = make_case((None,), (), schema=schema)
    # Seen from -11 to -7, which deviate by 2: home would be the -13 that a row may have as well.
    genes = Genes(Space(case.problem, case.query), np.array([[-11.0], [-7.0]]))
    rows: list[Row] = [(value,) for value in range(-13, -6)]
    assert genes.rows(genes.of_rows(rows)) == rows


def test_a_seed_gives_the_same_and_the_process_is_left_as_it_was(
    capfd: pytest.CaptureFixture[str],
) -> None:
    np.random.seed(3)
    random.seed(4)
    before = np.random.get_state()[1].tolist(), random.getstate()  # type: ignore[index]
    one, same, other = (
        run(Moc().start(make_case(known=PEOPLE, rows=80, seed=s))) for s in (0, 0, 1)
    )
    assert one == same != other
    assert np.random.get_state()[1].tolist() == before[0]  # type: ignore[index]
    assert random.getstate() == before[1]
    assert capfd.readouterr() == ("", "")


def test_a_space_that_is_used_up_ends_the_search() -> None:
    schema = Schema((Feature("a", "boolean"), Feature("b", "integer", range=(0, 2))))
    known = Table(((True, 2),), (True,))
    search = Moc().start(make_case((False, 0), (), schema=schema, known=known))
    assert len(run(search)) == 5
    assert ended(search)[0] is OutcomeKind.EXHAUSTED


def test_nothing_may_change() -> None:
    held = Moc().start(make_case(rules=[Immutable(features=SCHEMA.names)], known=PEOPLE))
    assert run(held) == []
    assert ended(held) == (OutcomeKind.EXHAUSTED, "no feature may change")


@pytest.mark.parametrize("method", [Moc(), Moc(epsilon=0, population=5)], ids=["moc", "penalised"])
def test_it_keeps_the_protocol(method: Moc) -> None:
    waysout.check_method(method)


def test_it_needs_known_rows_and_pymoo(monkeypatch: pytest.MonkeyPatch) -> None:
    with pytest.raises(InputError, match="'moc' needs rows"):
        Moc().start(make_case())
    imported = builtins.__import__

    def without(name: str, *args: Any, **given: Any) -> Any:
        if name == "pymoo":
            raise ImportError(name)
        return imported(name, *args, **given)

    monkeypatch.setattr(builtins, "__import__", without)
    with pytest.raises(MissingExtra, match=r"waysout\[moc\]"):
        Moc().prepare()


def test_making_the_methods_loads_nothing_heavy() -> None:
    code = (
        "import sys; from waysout.bench.methods.moc import Moc; "
        "from waysout.bench.methods.nice import Nice; Moc(); Nice(); "
        "print([m for m in ('pymoo', 'nice', 'scipy', 'pandas') if m in sys.modules])"
    )
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True)
    assert done.stdout.strip() == "[]"
