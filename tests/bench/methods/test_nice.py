from __future__ import annotations

import builtins
import pickle
from collections.abc import Sequence
from dataclasses import replace
from typing import Any

import numpy as np
import pytest
from baseline_cases import JOINT, QUERY, SCHEMA, Table, Yes, make_case, row, rule_lists, run
from hypothesis import given, settings
from hypothesis import strategies as st

import waysout
from strategies import rows, schemas
from waysout.bench.methods.nice import MissingNice, Nice, _linear_code
from waysout.domain.oracle import Answers
from waysout.domain.result import OutcomeKind
from waysout.domain.rules import Direction, Immutable, Linear, MaxChanges, Rule
from waysout.domain.schema import Feature, Row, Schema
from waysout.errors import InputError, MissingExtra
from waysout.search.base import Case, Search
from waysout.search.work import Evaluate

nice = pytest.importorskip("nice", reason="NICE itself is asked (the package NICEx)")

VARIANTS = [Nice(optimization=o) for o in ("sparsity", "proximity", "plausibility", "none")]
each_variant = pytest.mark.parametrize("method", VARIANTS, ids=lambda method: method.optimization)

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


def batches(search: Search) -> list[tuple[Row, ...]]:
    found = []
    while not search.done:
        work = search.ask()
        if isinstance(work, Evaluate):
            found.append(work.rows)
            search.tell(work, search.case.problem.oracle.ask(work.rows))
    return found


# Compared with the package as it is -------------------------------------------------------------

KINDS = Schema(
    (
        Feature("radius", "number"),
        Feature("texture", "number"),
        Feature("smooth", "number"),
        Feature("size", "category", levels=("small", "middle", "large")),
        Feature("points", "number"),
        Feature("round", "boolean"),
    )
)


class Forest:
    """A forest of scikit-learn behind both interfaces: rows of ours, matrices of NICE."""

    name = "forest"
    labels_only = False

    def __init__(self, matrix: Any, labels: Any) -> None:
        from sklearn.ensemble import RandomForestClassifier

        self.model = RandomForestClassifier(25, max_depth=5, random_state=0).fit(matrix, labels)

    def ask(self, rows: Sequence[Row]) -> Answers:
        chances = self.model.predict_proba(KINDS.encode(rows))[:, 1]
        return Answers(chances, chances > 0.5)


@pytest.fixture(scope="module")
def tumours() -> tuple[Any, Any, Forest]:
    datasets = pytest.importorskip("sklearn.datasets")
    found = datasets.load_breast_cancer()
    matrix = found.data[:, [0, 1, 4, 2, 27, 8]]
    matrix[:, 3] = np.digitize(matrix[:, 3], np.quantile(matrix[:, 3], [1 / 3, 2 / 3]))
    matrix[:, 5] = matrix[:, 5] > np.median(matrix[:, 5])
    return matrix, found.target, Forest(matrix, found.target)


@each_variant
def test_it_asks_and_finds_what_the_package_does(
    method: Nice, tumours: tuple[Any, Any, Forest]
) -> None:
    matrix, labels, forest = tumours
    known = Table(tuple(KINDS.decode(matrix)), tuple(map(bool, labels)))
    code = _linear_code(known, KINDS).errors if method.optimization == "plausibility" else None
    theirs_asked: list[Row] = []

    def predict(matrix: Any) -> Any:
        theirs_asked.extend(KINDS.decode(matrix))
        return forest.model.predict_proba(matrix)

    theirs = nice.NICE(
        predict, matrix.copy(), [3, 5], y_train=labels, optimization=method.optimization,
        auto_encoder=code,
    )  # fmt: skip
    refused = np.flatnonzero(forest.model.predict_proba(matrix)[:, 1] < 0.4)[:40:4]
    for number in refused.tolist():
        theirs_asked.clear()
        wanted = KINDS.decode(theirs.explain(matrix[[number]].copy(), [1]))[0]
        query = known.rows[number]
        case = make_case(query, (), schema=KINDS, known=known)
        chance = float(forest.ask([query]).probability[0])
        case = replace(case, problem=replace(case.problem, oracle=forest), probability=chance)
        search = replace(method, extend=False).start(case)
        asked = run(search)
        assert search.archive.answered[wanted].valid
        # Ours also asks the neighbours, which the package has asked with all known rows before.
        assert set(theirs_asked) - {query} <= set(asked)
        assert set(asked) - set(theirs_asked) <= set(known.rows)
        assert ended(search)[1] == "NICE has found its counterfactual"


# What holds for every variant -------------------------------------------------------------------


@each_variant
@pytest.mark.parametrize("limit", [1, 40])
def test_it_goes_on_until_the_rows_are_spent(method: Nice, limit: int) -> None:
    search = method.start(make_case(known=PEOPLE, rows=limit))
    asked = run(search)
    assert len(asked) == len(set(asked)) == limit
    assert ended(search) == (OutcomeKind.BUDGET_SPENT, f"all {limit} oracle rows are spent")


@each_variant
def test_as_published_it_ends_at_the_first_counterfactual(method: Nice) -> None:
    search = replace(method, extend=False).start(make_case(known=PEOPLE))
    asked = run(search)
    assert 1 <= len(asked) < 10
    assert search.archive.rows
    assert ended(search) == (OutcomeKind.EXHAUSTED, "NICE has found its counterfactual")


def test_a_step_is_one_batch_and_the_neighbour_comes_first() -> None:
    target = row(income=50.0, debt=80.0, term=40)
    search = Nice(extend=False).start(make_case(rules=(), known=Table((target,), (True,))))
    assert batches(search) == [
        (target,), (row(income=50.0), row(debt=80.0), row(term=40)),
    ]  # fmt: skip


def test_neighbours_that_the_oracle_refuses_are_passed_over() -> None:
    known = Table((row(term=13), row(income=90.0)), (True, True))
    search = Nice().start(make_case(rules=(), known=known))
    assert run(search) == [row(term=13), row(income=90.0)]
    assert ended(search)[1] == "NICE has walked to all 2 nearest approved rows of your data"


def test_where_all_are_refused_it_says_so() -> None:
    search = Nice().start(make_case(known=Table((row(term=13), row(term=14)), (True, True))))
    assert len(run(search)) == 2
    assert ended(search)[1] == "all 2 nearest approved rows of your data are rejected"


def test_fine_values_within_one_bin_are_told_apart() -> None:
    known = Table((row(income=50.0), row(income=50.5)), (True, True))
    case = make_case(rules=(), known=known)
    key = replace(case.problem.key, bins={"income": (40.0, 60.0)})
    search = Nice().start(replace(case, problem=replace(case.problem, key=key)))
    assert run(search) == [row(income=50.0), row(income=50.5)]
    assert search.archive.rows == [row(income=50.0)]


@each_variant
@pytest.mark.parametrize(
    "rules",
    [
        (*JOINT, MaxChanges(at_most=2), Direction(features=["income"], direction="up")),
        (Linear(that="debt + 10 <= 2 * income"), Immutable(features=["job"])),
    ],
    ids=["whole", "values"],
)
def test_every_row_asked_keeps_the_rules(method: Nice, rules: tuple[Rule, ...]) -> None:
    case = make_case(rules=rules, known=PEOPLE, rows=30)
    asked = run(method.start(case))
    assert asked
    assert [case.problem.violations(QUERY, r) for r in asked] == [()] * len(asked)
    assert QUERY not in asked


@st.composite
def cases(draw: st.DrawFn) -> Case:
    schema = draw(schemas())
    people = tuple(draw(st.lists(rows(schema), max_size=6)))
    labels = tuple(draw(st.lists(st.booleans(), min_size=len(people), max_size=len(people))))
    return make_case(
        draw(rows(schema)),
        draw(rule_lists(schema)),
        schema=schema,
        known=Table(people, labels),
        rows=draw(st.integers(0, 30)),
    )


@each_variant
@settings(max_examples=15, deadline=None)
@given(case=cases())
def test_any_table_is_searched_to_an_end(method: Nice, case: Case) -> None:
    search = method.start(case)
    asked = run(search)
    assert [case.problem.violations(case.query, r) for r in asked] == [()] * len(asked)
    assert len(asked) == len(set(asked)) <= (case.budget.oracle_rows or 0)
    assert "failed" not in ended(search)[1]


# The usual one is among those of tests/run/test_check_method.py.
@pytest.mark.parametrize("method", VARIANTS[1:], ids=lambda method: method.optimization)
def test_it_keeps_the_protocol(method: Nice) -> None:
    waysout.check_method(method)


# What it needs ----------------------------------------------------------------------------------


def test_without_approved_rows_or_levers_it_says_so() -> None:
    with pytest.raises(InputError, match="'nice' needs rows"):
        Nice().start(make_case())
    none = Nice().start(make_case(known=Table(PEOPLE.rows, (False,) * 90)))
    assert run(none) == []
    assert ended(none)[1] == "none of the 90 rows of your data is labelled approved"
    held = Nice().start(make_case(rules=[Immutable(features=SCHEMA.names)], known=PEOPLE))
    assert run(held) == []
    assert ended(held)[1] == "no feature may change"


def test_the_data_are_left_as_they_are() -> None:
    case = make_case(known=PEOPLE)
    run(Nice().start(case))
    again = make_case(known=PEOPLE)
    run(Nice().start(again))
    assert isinstance(case.problem.oracle, Yes)
    assert isinstance(again.problem.oracle, Yes)
    assert case.problem.oracle.batches == again.problem.oracle.batches


def test_a_missing_package_is_named_with_its_remedy(monkeypatch: pytest.MonkeyPatch) -> None:
    imported = builtins.__import__

    def without(name: str, *args: Any, **given: Any) -> Any:
        if name == "nice":
            raise ImportError(name)
        return imported(name, *args, **given)

    monkeypatch.setattr(builtins, "__import__", without)
    with pytest.raises(MissingExtra, match="pip install --no-deps NICEx"):
        Nice().prepare()
    assert str(pickle.loads(pickle.dumps(MissingNice()))) == str(MissingNice())


def test_unusual_rows_are_reproduced_worse() -> None:
    schema = Schema((Feature("x", "number"), Feature("y", "number"), Feature("b", "boolean")))
    line = Table(tuple((float(i), 2.0 * i, True) for i in range(50)), (True,) * 50)
    errors = _linear_code(line, schema).errors(np.array([[20.0, 40.0, 1.0], [20.0, 0.0, 1.0]]))
    assert errors[0] == pytest.approx(0.0, abs=1e-6)
    assert errors[1] > 0.1
