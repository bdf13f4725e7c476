from __future__ import annotations

import math
import os
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st
from numpy.typing import NDArray

from strategies import rows, schemas
from waysout.domain.distance import Distance
from waysout.domain.key import Key
from waysout.domain.oracle import Answers
from waysout.domain.problem import Problem
from waysout.domain.rules import Linked, OneHot, Rule, RuleSet
from waysout.domain.schema import Edit, Feature, Row, Schema, Value
from waysout.embed import encoder
from waysout.search.prune.base import EditCandidate, Members, Scope, Siblings
from waysout.search.prune.embedding import (
    EmbeddingPruner,
    change_text,
    cosine_distances,
)
from waysout.search.tree import ROOT, Tree

SCHEMA = Schema(
    (
        Feature("loan", "number"),
        Feature("age", "integer"),
        Feature("school", "category", levels=("none", "high", "master")),
        Feature("years", "integer"),
        Feature("rent", "boolean", levels=("no", "yes")),
        Feature("own", "boolean", levels=("no", "yes")),
        Feature("debt", "number", missing="fill"),
    )
)
RULES: tuple[Rule, ...] = (
    Linked(feature="school", sets="years", map={"none": 0, "high": 12, "master": 18}),
    OneHot(features=["rent", "own"]),
)
QUERY: Row = (1000.0, 40, "high", 12, True, False, None)


@dataclass(frozen=True)
class Silent:
    """An oracle nobody asks."""

    name: str = "silent"
    labels_only: bool = False

    def ask(self, rows: Sequence[Row]) -> Answers:
        raise AssertionError("pruning must not ask the oracle")


def problem_of(schema: Schema, rules: Sequence[Rule] = ()) -> Problem:
    bound = RuleSet(schema, tuple(rules))
    return Problem(schema, bound, Key(schema), Distance.fit(schema, ()), Silent())


PROBLEM = problem_of(SCHEMA, RULES)


def after(**edits: Value) -> Row:
    return PROBLEM.rules.apply(QUERY, edits)


# The text of a change --------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("edits", "text"),
    [
        ({}, ""),
        ({"loan": 800.0}, "loan: -200"),
        ({"loan": 1000.5, "age": 41}, "age: +1; loan: +0.5"),
        ({"loan": 1000.1}, "loan: +0.1"),
        ({"loan": 0.0}, "loan: -1000"),
        ({"loan": 1e15}, "loan: +999999999999000"),
        ({"debt": 250.0}, "debt: 250"),
        ({"school": "master"}, "school: master"),
        ({"own": True}, "own: yes"),
        ({"rent": False}, "rent: no"),
        ({"school": "none", "own": True, "age": 30}, "age: -10; own: yes; school: none"),
    ],
    ids=lambda part: part.replace(" ", "") if isinstance(part, str) else "",
)
def test_change_text(edits: dict[str, Value], text: str) -> None:
    assert change_text(PROBLEM, QUERY, after(**edits)) == text


def test_a_follower_whose_lever_is_back_is_told() -> None:
    query = SCHEMA.replace(QUERY, {"years": 11})
    there = PROBLEM.rules.apply(query, {"school": "master"})
    back = PROBLEM.rules.apply(there, {"school": "high"})
    assert change_text(PROBLEM, query, there) == "school: master"
    assert change_text(PROBLEM, query, back) == "years: +1"


def test_the_text_does_not_depend_on_the_order_of_columns() -> None:
    turned = problem_of(Schema(SCHEMA.features[::-1]), RULES)
    changed = after(own=True, age=30, loan=5.0, school="master")
    assert change_text(turned, QUERY[::-1], changed[::-1]) == change_text(PROBLEM, QUERY, changed)


@given(st.data())
def test_the_text_names_what_changed_in_order(data: st.DataObject) -> None:
    schema = data.draw(schemas())
    query, row = data.draw(rows(schema)), data.draw(rows(schema))
    text = change_text(problem_of(schema), query, row)
    named = [part.partition(": ")[0] for part in text.split("; ")] if text else []
    assert named == sorted(schema.changed(query, row))


# Pruning ---------------------------------------------------------------------------------------

# One feature and angles for vectors: the cosine distance of two texts is 1 - cos of their angles.
LINE = Schema((Feature("x", "integer"),))
START: Row = (0,)
NEAR = 0.02  # the distance of 11.5°
ONE_PROBLEM = problem_of(LINE)


def text_of(x: int) -> str:
    return change_text(ONE_PROBLEM, START, (x,))


@dataclass
class Angles:
    """An encoder that gives each text the vector of an angle, in degrees: that of x, if no other.

    In two dimensions as float32, so that rounding is that of a real one.
    """

    of: Mapping[int, float] = field(default_factory=dict)
    encoded: list[str] = field(default_factory=list)
    name: str = "angles"

    def encode(self, texts: Sequence[str]) -> NDArray[np.float32]:
        self.encoded += texts
        xs = [int(text.removeprefix("x: ")) for text in texts]
        turned = np.radians([self.of.get(x, x) for x in xs])
        return np.stack([np.cos(turned), np.sin(turned)], axis=-1).astype(np.float32)


def candidate(x: int, distance: float | None = None, changes: int = 1) -> EditCandidate:
    return EditCandidate(
        Edit("x", x), (x,), f"key {x}", abs(x) if distance is None else distance, changes
    )


def tree_of(*paths: Sequence[int]) -> Tree:
    """Return a tree in which each path hangs below the root."""
    tree = Tree(START, "start")
    for path in paths:
        parent = ROOT
        for x in path:
            parent = tree.add(parent, Edit("x", x), (x,), f"key {x}", 0.1, False)
    return tree


def pruner(
    angles: Angles | None = None,
    scope: Scope = "path",
    threshold: float = NEAR,
    window: int = 3,
    siblings: Siblings = "nearest",
    members: Members = "all",
) -> EmbeddingPruner:
    return EmbeddingPruner(
        ONE_PROBLEM, START, angles or Angles(), scope, threshold, window=window, siblings=siblings,
        members=members,
    )  # fmt: skip


def kept(
    by: EmbeddingPruner,
    candidates: Sequence[EditCandidate],
    tree: Tree | None = None,
    node: int = ROOT,
    valid: Sequence[bool] | None = None,
) -> list[int]:
    """Return the values of x that are kept, in order."""
    verdicts = by.judge(tree or tree_of(), node, candidates, valid or ())
    assert all(verdict.gain is None for verdict in verdicts)
    return [c.edit.value for c, v in zip(candidates, verdicts, strict=True) if v.kept]  # type: ignore[misc]


def test_siblings_far_apart_are_kept() -> None:
    assert kept(pruner(), [candidate(10), candidate(50), candidate(90)]) == [10, 50, 90]


def test_siblings_close_together_become_the_nearest_to_the_query() -> None:
    assert kept(pruner(), [candidate(20), candidate(10), candidate(90)]) == [10, 90]


def test_a_chain_is_one_component_though_its_ends_are_far_apart() -> None:
    chain = [candidate(30), candidate(10), candidate(20)]
    assert kept(pruner(), [chain[0], chain[1]]) == [30, 10]
    assert kept(pruner(), chain) == [10]
    assert kept(pruner(), [*chain, candidate(70), candidate(80), candidate(60)]) == [10, 60]


@pytest.mark.parametrize(
    ("first", "second", "stands"),
    [
        ((0.5, 1), (0.4, 3), 2),
        ((0.5, 2), (0.5, 1), 2),
        ((0.5, 1), (0.5, 2), 1),
        ((0.5, 1), (0.5, 1), 1),
    ],
    ids=["nearer", "fewer-changes", "first-has-fewer", "first"],
)
def test_who_stands_for_a_component(
    first: tuple[float, int], second: tuple[float, int], stands: int
) -> None:
    assert kept(pruner(), [candidate(1, *first), candidate(2, *second)]) == [stands]


def test_the_threshold_itself_is_not_below_it() -> None:
    right_angle = [candidate(1), candidate(2)]
    angles = Angles({1: 0, 2: 90})  # a distance of 1, but for rounding far below 1e-6
    assert kept(pruner(angles, threshold=0.99), right_angle) == [1, 2]
    assert kept(pruner(angles, threshold=1.01), right_angle) == [1]


@pytest.mark.parametrize("angle", [0.0, 33.3, 123.4, 271.7])
@pytest.mark.parametrize("threshold", [0.0, 1e-9, 0.01])
def test_the_same_again_is_pruned_at_any_threshold_above_0(angle: float, threshold: float) -> None:
    by = pruner(Angles({1: angle}), "global", threshold)
    twice = [candidate(1), candidate(1)]
    assert kept(by, twice) == ([1, 1] if threshold == 0 else [1])
    assert kept(by, twice, tree_of([1])) == ([1, 1] if threshold == 0 else [])


def test_rounding_sets_no_text_apart_from_itself() -> None:
    drawn = np.random.default_rng(0).normal(size=(200, 384))
    rows = (drawn / np.linalg.norm(drawn, axis=1, keepdims=True)).astype(np.float32)
    assert (1 - rows @ rows.T).diagonal().any()
    assert not cosine_distances(rows, rows).diagonal().any()


def test_with_the_oracle_asked_a_valid_one_stands_for_its_component() -> None:
    by = pruner(siblings="valid")
    assert by.after_oracle
    three = [candidate(10), candidate(15), candidate(20)]
    assert kept(by, three, valid=[False, False, True]) == [20]
    assert kept(by, three, valid=[False, True, True]) == [15]
    assert kept(by, three, valid=[False, False, False]) == [10]


def test_without_the_oracle_validity_is_not_looked_at() -> None:
    by = pruner()
    assert not by.after_oracle
    assert kept(by, [candidate(10), candidate(15)], valid=[False, True]) == [10]


# Two branches; the node of 20 lies below that of 60, which lies below that of 100.
BRANCHES = ([100, 60, 20], [140])
LEAF = 3


@pytest.mark.parametrize(
    ("scope", "window", "left"),
    [
        ("path", 3, [140, 180]),
        ("global", 3, [180]),
        ("window", 1, [60, 100, 140, 180]),
        ("window", 2, [100, 140, 180]),
        ("window", 3, [140, 180]),
        ("window", 9, [140, 180]),
    ],
)
def test_scopes(scope: Scope, window: int, left: list[int]) -> None:
    candidates = [candidate(x) for x in (20, 60, 100, 140, 180)]
    assert kept(pruner(None, scope, window=window), candidates, tree_of(*BRANCHES), LEAF) == left


def test_the_global_scope_can_remember_approved_nodes_alone() -> None:
    tree = tree_of([20])
    tree.add(ROOT, Edit("x", 60), (60,), "key 60", 0.9, True)
    both = [candidate(20), candidate(60)]
    assert kept(pruner(None, "global", members="approved"), both, tree) == [20]
    assert kept(pruner(None, "global", members="all"), both, tree) == []


@pytest.mark.parametrize("scope", ["path", "window", "global"])
def test_the_root_is_in_no_history(scope: Scope) -> None:
    angles = Angles()
    assert kept(pruner(angles, scope), [candidate(1)]) == [1]
    kept(pruner(angles, scope), [candidate(200)], tree_of([90]), 1)
    assert "" not in angles.encoded


def test_siblings_are_merged_before_the_history_is_looked_at() -> None:
    # 20 would be far enough from 5, but 10 stands for both and is not.
    assert kept(pruner(), [candidate(10), candidate(20)], tree_of([5]), 1) == []
    assert kept(pruner(), [candidate(20)], tree_of([5]), 1) == [20]


def test_pruned_candidates_and_siblings_are_not_history() -> None:
    by = pruner(None, "global")
    tree = tree_of()
    assert kept(by, [candidate(10), candidate(20)], tree) == [10]
    assert kept(by, [candidate(20), candidate(30)], tree) == [20]


def test_each_node_is_encoded_once() -> None:
    angles = Angles()
    by = pruner(angles, "global")
    tree = tree_of([100], [140])
    by.judge(tree, ROOT, [candidate(5)])
    tree.add(ROOT, Edit("x", 50), (50,), "key 50", 0.1, False)
    by.judge(tree, ROOT, [candidate(6)])
    assert angles.encoded == [text_of(x) for x in (5, 100, 140, 6, 50)]


def test_no_candidates_no_verdicts() -> None:
    assert pruner().judge(tree_of([50]), 1, []) == []


xs = st.integers(-180, 180).filter(bool)


@given(
    st.lists(st.tuples(xs, st.integers(0, 2), st.integers(1, 2), st.booleans()), max_size=8),
    st.lists(xs, max_size=6),
    st.integers(0, 60),
    st.sampled_from(["nearest", "valid"]),
)
def test_what_is_kept_is_new_and_what_is_pruned_has_a_witness(
    drawn: list[tuple[int, int, int, bool]], history: list[int], degrees: int, siblings: Siblings
) -> None:
    candidates = [candidate(x, distance, changes) for x, distance, changes, _ in drawn]
    tree = tree_of(history)
    # Between two whole degrees, where no rounding decides.
    tau = 1 - math.cos(math.radians(degrees + 0.5))
    by = pruner(None, "global", tau, siblings=siblings)
    first = by.judge(tree, ROOT, candidates, [valid for *_, valid in drawn])
    assert by.judge(tree, ROOT, candidates, [valid for *_, valid in drawn]) == first

    def near(a: int, b: int) -> bool:
        return 1 - math.cos(math.radians(a - b)) < tau

    now = [x for x, *_ in drawn]
    left = [i for i, verdict in enumerate(first) if verdict.kept]
    for i in left:
        assert not any(near(now[i], x) for x in history)
        reached = reachable(i, now, near)
        assert not reached.intersection(left) - {i}
    for i in set(range(len(now))) - set(left):
        others = [x for j, x in enumerate(now) if j != i]
        assert any(near(now[i], x) for x in others + history)
    survivors = [candidates[i] for i in left]
    again = by.judge(tree, ROOT, survivors, [drawn[i][3] for i in left])
    assert all(verdict.kept for verdict in again)


def reachable(start: int, angles: Sequence[int], near: Callable[[int, int], bool]) -> set[int]:
    """Return all that hangs together with one candidate, by plain search."""
    seen, todo = {start}, [start]
    while todo:
        i = todo.pop()
        new = {j for j in range(len(angles)) if near(angles[i], angles[j])} - seen
        seen |= new
        todo += new
    return seen


@pytest.mark.skipif(
    not os.environ.get("WAYSOUT_MINILM"),
    reason="WAYSOUT_MINILM names no folder with all-MiniLM-L6-v2 (model.onnx, tokenizer.json)",
)
def test_the_real_encoder_merges_what_a_person_would() -> None:
    def as_candidate(**edits: Value) -> EditCandidate:
        row = after(**edits)
        return EditCandidate(Edit("", 0), row, PROBLEM.key(row), PROBLEM.distance(QUERY, row), 1)

    by = EmbeddingPruner(PROBLEM, QUERY, encoder(), "path", 0.05)
    close = [
        as_candidate(loan=900.0, own=True, school="master"),
        as_candidate(loan=890.0, own=True, school="master"),
        as_candidate(age=45),
    ]
    tree = Tree(QUERY, "start")
    assert [v.kept for v in by.judge(tree, ROOT, close)] == [True, False, True]
    before = after(loan=910.0, own=True, school="master")
    tree.add(ROOT, Edit("loan", 910.0), before, "key", 0.1, False)
    assert [v.kept for v in by.judge(tree, 1, close)] == [False, False, True]
