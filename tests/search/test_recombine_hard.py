"""Where `recombine` has a hard time: it finds no less than `random` does at the same rows."""

from __future__ import annotations

import math
from collections.abc import Callable

import numpy as np
import pytest
from recombine_world import (
    Says,
    Talk,
    deciles,
    make_case,
    make_problem,
    number,
    numbers,
    recombine,
    run,
    silent,
    simulated,
    unique,
    yields,
)

from waysout.domain.oracle import Goal
from waysout.domain.result import OutcomeKind
from waysout.domain.rules import Linear, MaxChanges, Rule
from waysout.domain.schema import Feature, Row, Schema
from waysout.llm.base import Reply, Request
from waysout.search.base import Case
from waysout.search.random import RandomEdits

SCHEMA = numbers(6)
NOUGHT: Row = (0.0,) * 6
QUERIES = 6


def logistic(x: float) -> float:
    return 1.0 / (1.0 + math.exp(-x))


def scored(row: Row) -> float:
    """Return a chance to which four of six numbers matter, one of them the other way."""
    weights = (0.05, 0.03, -0.04, 0.02)
    return logistic(sum(w * number(v) for w, v in zip(weights, row, strict=False)) - 4)


def people(
    oracle: Says,
    *rules: Rule,
    query: Row | None = None,
    schema: Schema = SCHEMA,
    bins: bool = True,
    calls: int = 0,
    rows: int = 60,
    count: int = QUERIES,
    llm: bool = True,
) -> list[Case]:
    """Return cases of several people, or of one with several seeds."""
    rng = np.random.default_rng(1)
    problem = make_problem(schema, oracle, *rules, bins=deciles(schema) if bins else None)
    rows_of = [tuple(float(v) for v in rng.integers(0, 40, len(schema))) for _ in range(count)]
    return [
        make_case(problem, query or row, seed=seed, rows=rows, calls=calls, llm=llm)
        for seed, row in enumerate(rows_of)
    ]


# The LLM ----------------------------------------------------------------------------------------


def babble(request: Request) -> Reply:
    return Reply("I'm sorry, as a language model {{{ CANDIDATE CANDIDATE=\nFEATURE")


def wrong(request: Request) -> Reply:
    """Name only what is not there, or may not be."""
    return Reply("CANDIDATE=1\nFEATURE=mood\nVALUE=good\nREASONING=x\n\n"
                 "CANDIDATE=2\nFEATURE=n0\nVALUE=1e99\nREASONING=x")  # fmt: skip


def needless(request: Request) -> Reply:
    """Name only what changes nothing that the oracle looks at."""
    return Reply(f"CANDIDATE=1\nFEATURE=n5\nVALUE={41 + request.draw}\nREASONING=x")


@pytest.mark.parametrize("talk", [babble, wrong, needless])
def test_an_llm_that_talks_garbage(talk: Talk) -> None:
    ours, floor = yields(people(Says(scored), calls=20), talk)
    assert ours >= 2 * floor > 0


@pytest.mark.parametrize("llm", [True, False], ids=["no calls", "no proposer"])
def test_no_llm_at_all(llm: bool) -> None:
    ours, floor = yields(people(Says(scored), llm=llm), silent)
    assert ours >= 2 * floor > 0


def test_no_edits_of_its_own_and_none_named_end_it() -> None:
    case = people(Says(scored), calls=5, count=1)[0]
    search = recombine(case, babble, own_edits=False)
    assert search.archive.evaluated == 0
    assert search.ending is not None
    assert search.ending.kind == OutcomeKind.EXHAUSTED
    assert search.ending.reason.startswith("no edit is known; 2 LLM calls in a row")


# The oracle -------------------------------------------------------------------------------------


def high(row: Row, count: int) -> int:
    return sum(number(value) > 50 for value in row[:count])


def moved(row: Row, count: int) -> int:
    return sum(value != 0.0 for value in row[:count])


ORACLES: dict[str, Callable[[Row], float]] = {
    "either but not both": lambda row: 0.9 if high(row, 2) == 1 else 0.1,
    "exactly one of two is moved": lambda row: 0.9 if moved(row, 2) == 1 else 0.1,
    "parity of three": lambda row: 0.9 if high(row, 3) % 2 else 0.1,
    "exactly two of three": lambda row: 0.9 if high(row, 3) == 2 else 0.1,
    "each alone makes it worse": lambda row: 0.9 if high(row, 2) == 2 else 0.3 - 0.2 * high(row, 2),
    "nought or one": lambda row: float(number(row[0]) + number(row[1]) > 80),
}


@pytest.mark.parametrize("oracle", ORACLES.values(), ids=ORACLES.keys())
@pytest.mark.parametrize("labels_only", [False, True], ids=["chances", "labels"])
def test_oracles_that_no_sum_of_effects_describes(
    oracle: Callable[[Row], float], labels_only: bool
) -> None:
    ours, floor = yields(people(Says(oracle, labels_only=labels_only), query=NOUGHT))
    assert ours > floor > 0


def test_out_of_a_trap_that_both_levers_hold() -> None:
    query = (70.0, 70.0, *NOUGHT[2:])
    ours, floor = yields(people(Says(ORACLES["either but not both"]), query=query))
    assert ours > floor > 0


def test_labels_only() -> None:
    ours, floor = yields(people(Says(scored, labels_only=True)))
    assert ours >= 2 * floor > 0


def test_an_oracle_that_approves_nothing() -> None:
    case = people(Says(lambda row: scored(row) / 3), count=1)[0]
    search = recombine(case)
    assert search.archive.evaluated == 60
    assert search.ending is not None
    assert search.ending.kind == OutcomeKind.BUDGET_SPENT
    misses = [option.probability for option in search.archive.near_misses()]
    floor = [option.probability for option in run(RandomEdits(), case).archive.near_misses()]
    assert len(misses) == 5
    assert min(misses) >= max(floor)


@pytest.mark.parametrize("chance", [0.0, 0.2, 1.0])
@pytest.mark.parametrize("bins", [True, False], ids=["bins", "no bins"])
def test_an_oracle_that_always_says_the_same(chance: float, bins: bool) -> None:
    for case in people(Says(lambda row: chance), bins=bins, count=2):
        search = recombine(case)
        assert search.archive.evaluated == 60
        assert unique(search) == (60 if chance == 1.0 else 0)


# The table --------------------------------------------------------------------------------------


def test_no_training_data_and_no_bins() -> None:
    ours, floor = yields(people(Says(scored), bins=False))
    assert ours >= 2 * floor > 0


@pytest.mark.parametrize("bins", [True, False], ids=["bins", "no bins"])
@pytest.mark.parametrize("count", [1, 2])
def test_tiny_tables(count: int, bins: bool) -> None:
    schema = numbers(count)
    oracle = Says(lambda row: float(np.mean([number(v) > 50 for v in row])))
    cases = people(oracle, schema=schema, query=NOUGHT[:count], bins=bins, rows=60, count=3)
    ours, floor = yields(cases)
    assert ours >= floor > 0


def test_more_levels_than_were_tried_at_first() -> None:
    levels = tuple(f"t{i}" for i in range(200))
    schema = Schema((Feature("town", "category", levels=levels), Feature("x", "boolean")))
    luck = np.random.default_rng(0).random(200)
    good = {level for level, chance in zip(levels, luck, strict=True) if chance < 0.3}
    problem = make_problem(schema, Says(lambda row: 0.9 if row[0] in good else 0.1))
    ours, floor = yields(make_case(problem, ("t0", False), seed=s, rows=150) for s in range(3))
    # Levels that are known to be bad are asked with x moved, before others are drawn.
    assert ours >= 0.8 * floor > 0


def test_numbers_without_a_range_whose_bins_lie_elsewhere() -> None:
    schema = Schema(tuple(Feature(f"n{i}", "number") for i in range(4)))
    bins = dict.fromkeys(schema.names, (100.0, 200.0, 300.0))
    oracle = Says(lambda row: 0.9 if number(row[0]) > 200 or number(row[1]) > 300 else 0.1)
    case = make_case(make_problem(schema, oracle, bins=bins), (5.0,) * 4)
    assert unique(recombine(case)) > 20


def test_a_thousand_columns() -> None:
    schema = numbers(1000)
    weights = np.random.default_rng(0).normal(size=1000)
    oracle = Says(lambda row: logistic(float(np.dot(weights, np.array(row, float))) / 20 - 3))
    query = (0.0,) * 1000
    case = people(oracle, schema=schema, query=query, calls=2, rows=25, count=1)[0]
    search = recombine(case, simulated())
    assert search.archive.evaluated == 25
    assert unique(search) >= unique(run(RandomEdits(), case)) > 0


# The rules --------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    "rule",
    [MaxChanges(at_most=1), Linear(that="n0 + n1 + n2 >= 200"), Linear(that="n2 + n3 <= 60")],
    ids=["one change", "much is needed", "little is left"],
)
def test_rules_that_forbid_nearly_all_combinations(rule: Rule) -> None:
    # Approved by bins, so that it does not matter where in a bin a value lies.
    oracle = Says(lambda row: logistic(0.4 * sum(number(v) // 10.01 for v in row[2:5]) - 4))
    cases = people(oracle, rule, rows=30, count=3, query=(15.0, 5.0, 25.0, 0.0, 0.0, 0.0))
    ours, floor = yields(cases)
    assert ours >= floor > 0


def test_rules_that_forbid_all_end_it() -> None:
    never = Linear(name="too much", that="n0 + n1 >= 900")
    search = recombine(people(Says(scored), never, count=1)[0])
    assert search.archive.evaluated == 0
    assert search.ending is not None
    assert search.ending.kind == OutcomeKind.EXHAUSTED
    assert search.archive.rejections["breaks rule: too much"] > 0


def test_ways_out_that_lie_deep() -> None:
    schema = Schema(tuple(Feature(f"c{i}", "category", levels=("a", "b")) for i in range(10)))
    deep = Says(lambda row: float(row.count("b") >= 7), labels_only=True)
    found = recombine(make_case(make_problem(schema, deep), ("a",) * 10, rows=1000))
    assert unique(found) == 176  # all there are


@pytest.mark.parametrize("goal", [Goal(0.5, 0.75), Goal(0.5, 0.6)], ids=str)
def test_a_goal_that_is_an_interval(goal: Goal) -> None:
    bins = deciles(SCHEMA)
    cases = [
        make_case(make_problem(SCHEMA, Says(scored), bins=bins, goal=goal), NOUGHT, seed=seed)
        for seed in range(3)
    ]
    ours, floor = yields(cases)
    assert ours > 2 * floor
