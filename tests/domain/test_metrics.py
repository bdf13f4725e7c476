from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import replace

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from strategies import rows, schemas
from waysout.bench.irreducible import irreducible
from waysout.domain import metrics
from waysout.domain.distance import Distance, Matrix, Neighbours
from waysout.domain.key import Key
from waysout.domain.metrics import run_metrics, set_metrics
from waysout.domain.oracle import Answers, Goal
from waysout.domain.problem import Problem
from waysout.domain.rules import Implies, Linked, OneHot, Rule, RuleSet
from waysout.domain.schema import Feature, Row, Schema


class Silent:
    name = "silent"
    labels_only = False

    def ask(self, rows: Sequence[Row]) -> Answers:
        raise AssertionError("metrics ask nobody")


def problem_of(schema: Schema, scales: dict[str, float], *rules: Rule) -> Problem:
    distance = Distance(schema, scales)
    return Problem(schema, RuleSet(schema, rules), Key(schema), distance, Silent())


PLAIN = Schema((Feature("income", "number"), Feature("home", "category", levels=("rent", "own"))))
PROBLEM = problem_of(PLAIN, {"income": 10.0})
QUERY: Row = (100.0, "rent")


def test_the_metrics_of_a_set_worked_out_by_hand() -> None:
    # d to the query: ½·(20/10) = 1; ½·1 = ½; ½·(40/10) + ½ = 2½.
    found: list[Row] = [(120.0, "rent"), (100.0, "own"), (140.0, "own")]
    # Pairs: first–second 1½, first–third 1½, second–third 2; so the nearest are 1½, 1½, 1½.
    assert set_metrics(PROBLEM, QUERY, found) == {
        "unique_valid": 3,
        "proximity": pytest.approx((1 / 2 + 1 / 1.5 + 1 / 3.5) / 3),
        "sparsity": pytest.approx(4 / 3),
        "novelty": pytest.approx(1.5),
        "lever_sets": 3,
        "plausibility": None,
    }


def test_an_empty_set_has_counts_and_no_means() -> None:
    assert set_metrics(PROBLEM, QUERY, [], PLAIN.encode([QUERY])) == {
        "unique_valid": 0, "proximity": None, "sparsity": None, "novelty": None,
        "lever_sets": 0, "plausibility": None,
    }  # fmt: skip


def test_a_set_of_one_has_no_novelty_and_counts() -> None:
    assert set_metrics(PROBLEM, QUERY, [(120.0, "rent")])["novelty"] == 0.0


def test_plausibility_is_the_mean_distance_to_the_five_nearest_approved() -> None:
    # Ordered by distance from 100: 0, ½, 1, 1½, 2 and then far ones.
    approved = PLAIN.encode([(v, "rent") for v in (900.0, 100, 110, 80, 130, 140, 500)])
    found: list[Row] = [(100.0, "rent")]
    assert set_metrics(PROBLEM, QUERY, found, approved)["plausibility"] == pytest.approx(1.0)


def test_plausibility_with_fewer_than_five_rows_uses_them_all() -> None:
    approved = PLAIN.encode([(110.0, "rent"), (130.0, "rent")])
    assert set_metrics(PROBLEM, QUERY, [QUERY], approved)["plausibility"] == pytest.approx(1.0)
    assert set_metrics(PROBLEM, QUERY, [QUERY], approved[:0])["plausibility"] is None


def test_a_huge_training_table_is_thinned_out_evenly(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(metrics, "MOST_REFERENCES", 3)
    asked: list[list[float]] = []
    measured = Neighbours.of

    def of(distance: Distance, rows: Matrix) -> Neighbours:
        asked.append(rows[:, 0].tolist())
        return measured(distance, rows)

    approved = PLAIN.encode([(float(v), "rent") for v in range(101)])
    monkeypatch.setattr(Neighbours, "of", of)
    set_metrics(PROBLEM, QUERY, [QUERY], approved)
    assert asked[-1] == [0.0, 50.0, 100.0]


def test_of_very_many_options_some_are_measured_against_all(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    found: list[Row] = [(float(v), "rent") for v in (100, 110, 120, 200, 204)]
    approved = PLAIN.encode([(100.0, "rent")])
    monkeypatch.setattr(metrics, "MOST_MEASURED", 3)
    told = set_metrics(PROBLEM, QUERY, found, approved)
    # The first, the middle and the last: 10, 10 and 4 from their nearest, 0, 20 and 104 from 100.
    assert told["novelty"] == pytest.approx(24 / 3 / 20)
    assert told["plausibility"] == pytest.approx(124 / 3 / 20)
    assert (told["unique_valid"], told["lever_sets"]) == (5, 2)


def levels(name: str) -> Feature:
    return Feature(name, "category", levels=("no", "yes"))


def linked(feature: str, sets: str) -> Linked:
    return Linked(feature=feature, sets=sets, map={"yes": "yes", "no": "no"})


def test_what_follows_a_change_is_no_lever_of_its_own() -> None:
    schema = Schema((levels("a"), levels("b"), levels("c"), levels("d")))
    rules = RuleSet(schema, (linked("a", "b"), linked("b", "c")))
    before = ("no",) * 4
    assert rules.moved(before, ("yes", "yes", "yes", "no")) == {"a"}
    assert rules.moved(before, ("yes", "no", "yes", "yes")) == {"a", "d"}
    assert rules.moved(before, ("no", "yes", "no", "no")) == {"b"}


def test_a_one_hot_group_is_one_lever() -> None:
    names = ("cook", "clerk", "nurse")
    schema = Schema((*(Feature(n, "boolean") for n in names), Feature("age", "integer")))
    problem = problem_of(schema, {"age": 1.0}, OneHot(features=names))
    query: Row = (True, False, False, 30)
    found: list[Row] = [(False, True, False, 30), (False, False, True, 30)]
    assert problem.rules.moved(query, found[0]) == {"cook"}
    assert set_metrics(problem, query, found)["lever_sets"] == 1


@given(st.data())
def test_there_are_as_many_levers_as_changes_are_counted(data: st.DataObject) -> None:
    schema = Schema(tuple(levels(n) for n in "abcde"))
    links = [("a", "b"), ("b", "c"), ("a", "d"), ("e", "d")]
    drawn = data.draw(st.lists(st.sampled_from(links), unique_by=lambda link: link[1]))
    rules = RuleSet(schema, tuple(linked(a, b) for a, b in drawn))
    one, other = data.draw(rows(schema)), data.draw(rows(schema))
    assert len(rules.moved(one, other)) == rules.count_changes(one, other)


@given(st.data())
def test_means_stay_within_their_bounds(data: st.DataObject) -> None:
    schema = data.draw(schemas())
    query = data.draw(rows(schema))
    found = data.draw(st.lists(rows(schema), min_size=1, max_size=6, unique=True))
    distance = Distance.fit(schema, [query, *found])
    problem = problem_of(schema, dict(distance.scales))
    said = set_metrics(problem, query, found, schema.encode(found))
    assert said["novelty"] is not None
    assert said["novelty"] >= 0
    assert said["proximity"] is not None
    assert 0 <= said["proximity"] <= 1  # 0 where a distance is too large for a float
    assert said["unique_valid"] == len(found)


class Points:
    """Approves from one point on, counted by a function; remembers its batches."""

    name = "points"
    labels_only = False

    def __init__(self, points: Callable[[Row], float]) -> None:
        self.points = points
        self.batches: list[list[Row]] = []

    def ask(self, rows: Sequence[Row]) -> Answers:
        self.batches.append(list(rows))
        told = np.array([self.points(row) for row in rows])
        return Answers(np.clip(told / 2, 0.0, 1.0), told >= 1.0)


def judged_by(problem: Problem, points: Callable[[Row], float]) -> tuple[Problem, Points]:
    oracle = Points(points)
    return replace(problem, oracle=oracle), oracle


THREE = Schema(tuple(Feature(name, "integer", range=(0, 9)) for name in "abc"))


def sums(*rules: Rule) -> tuple[Problem, Points]:
    """Return a problem where a + b of 5 is enough, and c is worth nothing."""
    problem = problem_of(THREE, dict.fromkeys("abc", 1.0), *rules)
    return judged_by(problem, lambda row: (float(row[0] or 0) + float(row[1] or 0)) / 5)


def test_an_option_is_irreducible_if_it_needs_every_edit() -> None:
    problem, oracle = sums()
    # In turn: both needed; b alone would do; c was never needed; a single edit.
    found: list[Row] = [(2, 3, 0), (2, 5, 0), (5, 0, 1), (5, 0, 0)]
    assert irreducible(problem, (0, 0, 0), found) == [True, False, False, True]
    assert oracle.batches == [
        [(0, 0, 0), (0, 3, 0), (2, 0, 0), (0, 5, 0), (2, 0, 0), (0, 0, 1), (5, 0, 0)]
    ]


def test_nothing_found_is_nothing_to_judge() -> None:
    assert irreducible(sums()[0], (0, 0, 0), []) == []


def test_an_edit_that_a_rule_asks_for_is_needed() -> None:
    problem, oracle = sums(Implies(when={"a": {"min": 5}}, then={"c": {"min": 1}}))
    assert irreducible(problem, (0, 0, 0), [(5, 0, 1)]) == [True]
    assert oracle.batches == [[(0, 0, 0), (0, 0, 1)]]


def test_to_be_irreducible_is_judged_by_the_goal() -> None:
    # The query's chance is 0.2; 7 points are 0.7, and 5 are no rise of a half.
    problem, _ = sums()
    query: Row = (2, 0, 0)
    assert irreducible(problem, query, [(2, 5, 9), (5, 2, 0)]) == [False, False]
    rising = replace(problem, goal=Goal(rise=0.5))
    assert irreducible(rising, query, [(2, 5, 9), (5, 2, 0)]) == [False, True]


def test_what_followed_a_lever_is_put_back_with_it() -> None:
    schema = Schema((levels("a"), levels("b"), levels("c")))
    linking = problem_of(schema, {}, linked("a", "b"))
    query, both = ("no", "no", "no"), ("yes", "yes", "yes")
    problem, oracle = judged_by(linking, lambda row: float(row[1] == "yes"))
    # c can be put back; a cannot without b, which decides.
    assert irreducible(problem, query, [both, ("yes", "yes", "no")]) == [False, True]
    assert oracle.batches == [[query, ("no", "no", "yes"), ("yes", "yes", "no")]]


def test_what_follows_a_lever_that_stays_stays_too() -> None:
    schema = Schema((levels("a"), levels("b"), levels("c"), levels("d")))
    linking = problem_of(schema, {}, linked("a", "b"), linked("b", "c"))
    problem, oracle = judged_by(linking, lambda row: float(row[2] == "yes"))
    query, all_moved = ("no",) * 4, ("yes",) * 4
    assert irreducible(problem, query, [all_moved]) == [False]
    assert oracle.batches == [[query, ("no", "no", "no", "yes"), ("yes", "yes", "yes", "no")]]


def test_a_one_hot_group_is_put_back_as_a_whole() -> None:
    names = ("cook", "clerk", "nurse")
    schema = Schema((*(Feature(n, "boolean") for n in names), Feature("age", "integer")))
    grouped = problem_of(schema, {"age": 1.0}, OneHot(features=names))
    query: Row = (False, True, False, 30)
    problem, oracle = judged_by(grouped, lambda row: float(bool(row[2])))
    assert irreducible(problem, query, [(False, False, True, 40)]) == [False]
    assert oracle.batches == [[query, (False, False, True, 30), (False, True, False, 40)]]


def test_the_metrics_of_a_run() -> None:
    assert run_metrics(valid=30, evaluated=120, pruned=40, generated=170) == {
        "valid": 30, "generated": 170, "pruned": 40, "evaluated": 120,
        "prune_pct": 25.0, "validity_pct": 25.0,
    }  # fmt: skip


def test_a_share_of_nothing_is_none() -> None:
    said = run_metrics(valid=0, evaluated=0, pruned=0, generated=5)
    assert said["prune_pct"] is None
    assert said["validity_pct"] is None
    assert run_metrics(0, 0, 5, 5)["prune_pct"] == 100.0
