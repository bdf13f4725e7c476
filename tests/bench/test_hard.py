"""Hard cases: each is as hard as it says, and the judge believes nobody."""

from __future__ import annotations

import json
from collections.abc import Sequence

import numpy as np
import pytest

from conftest import CommandLine
from waysout.bench.hard import HardArm, default_arms, judge, run_case, usable
from waysout.bench.hard_cases import CASES, KNOWN, KnownRows, Trial, make_trial
from waysout.domain.card import Card, CardOutcome
from waysout.domain.oracle import Answers
from waysout.domain.problem import Problem
from waysout.domain.result import Outcome, OutcomeKind, ResultData
from waysout.domain.schema import Feature, Row, Schema, Value
from waysout.errors import InputError


def moved(trial: Trial, **edits: Value) -> Row:
    return trial.problem.rules.apply(trial.query, edits)


def chances(trial: Trial, rows: Sequence[Row]) -> list[float]:
    return list(trial.problem.oracle.ask(rows).probability)


def single_moves(trial: Trial) -> list[Row]:
    """Every lever alone, to eleven places of its range or to each of its levels."""
    found = []
    for feature in trial.problem.schema:
        low, high = feature.range or (0.0, 0.0)
        values = map(feature.coerce, np.linspace(low, high, 11))
        found += [
            moved(trial, **{feature.name: value})
            for value in (values if feature.is_numeric else feature.values())
        ]
    return [row for row in found if row != trial.query]


def found(trial: Trial, *rows: Row) -> ResultData:
    options = [trial.problem.option(trial.query, row, 1.0) for row in rows]
    return ResultData(
        trial.problem.schema.as_dict(trial.query), Outcome(OutcomeKind.FOUND), options
    )


# What the cases say of themselves ----------------------------------------------------------------


@pytest.mark.parametrize("name", CASES)
def test_a_case_starts_with_a_no_and_has_the_least_way_it_claims(name: str) -> None:
    again, trial = make_trial(name, 1), make_trial(name, 1)
    assert (again.query, again.least) == (trial.query, trial.least)
    assert make_trial(name, 2).query != trial.query
    assert len(trial.known.rows) == KNOWN
    assert 0 < sum(trial.known.labels) < KNOWN
    problem, query = trial.problem, trial.query
    assert not problem.oracle.ask([query]).decision[0]
    assert not problem.violations(query, query)

    world = CASES[name](np.random.default_rng([list(CASES).index(name), 1]))
    rows = [problem.rules.apply(query, edits) for edits in world.best(problem, query)]
    judged = judge(trial, found(trial, *rows))
    assert judged.cost == pytest.approx(trial.least)  # so it is allowed, needed and holds


@pytest.mark.parametrize("name", ["xor", "together"])
def test_no_single_move_changes_the_chance(name: str) -> None:
    trial = make_trial(name, 0)
    assert set(chances(trial, [trial.query, *single_moves(trial)])) == {0.2}


def test_two_of_the_three_that_work_together_change_nothing() -> None:
    trial = make_trial("together", 0)
    singles = single_moves(trial)
    assert len(singles) > 80
    schema, query = trial.problem.schema, trial.query
    for one in singles[::3]:
        rows = [trial.problem.rules.apply(other, {
            name: one[schema.index(name)] for name in schema.changed(query, one)
        }) for other in singles[::2]]  # fmt: skip
        assert set(chances(trial, rows)) == {0.2}


def test_labels_are_all_that_is_told() -> None:
    trial = make_trial("labels", 0)
    assert trial.problem.oracle.labels_only
    assert set(chances(trial, trial.known.rows)) == {0.0, 1.0}


def test_three_of_two_hundred_levels_are_a_yes() -> None:
    trial = make_trial("levels", 0)
    rows = [moved(trial, wide=level) for level in trial.problem.schema["wide"].level_texts]
    assert (len(rows), sum(trial.problem.oracle.ask(rows).decision)) == (200, 3)


def test_the_pocket_is_a_yes_that_does_not_hold() -> None:
    trial = make_trial("pocket", 0)
    singles = [moved(trial, **{f"n{i}": float(value)}) for i in range(8) for value in range(101)]
    approved = [row for row in singles if trial.problem.oracle.ask([row]).decision[0]]
    levers: dict[str, list[Row]] = {}
    for row in approved:
        (name,) = trial.problem.schema.changed(trial.query, row)
        levers.setdefault(name, []).append(row)
    narrow, wide = sorted(levers.values(), key=len)
    assert 1 <= len(narrow) <= 3
    least = trial.problem.costs(trial.query, [narrow[0], wide[0]])
    assert least[0] < least[1]  # it tempts by what it costs as well
    assert judge(trial, found(trial, *narrow)).cost is None
    assert judge(trial, found(trial, *wide)).sets == 1


def test_the_budget_forbids_most_rows_and_what_is_needed_alone() -> None:
    trial = make_trial("linear", 0)
    rng = np.random.default_rng(0)
    numbers = rng.uniform(0, 100, (200, 8)).round(1)
    rows = [(*values, *trial.query[8:]) for values in numbers.tolist()]
    allowed = [row for row in rows if not trial.problem.violations(trial.query, row)]
    assert len(allowed) < 10
    approved = trial.problem.oracle.ask(single_moves(trial)).decision.tolist()
    forbidden = [bool(trial.problem.violations(trial.query, r)) for r in single_moves(trial)]
    assert any(approved)
    assert all(no for yes, no in zip(approved, forbidden, strict=True) if yes)


def test_three_of_a_hundred_columns_matter() -> None:
    trial = make_trial("columns", 0)
    before = chances(trial, [trial.query])[0]
    moves = single_moves(trial)
    differ = [r for r, p in zip(moves, chances(trial, moves), strict=True) if p != before]
    changed = {trial.problem.schema.changed(trial.query, row) for row in differ}
    assert (len(trial.problem.schema), len(changed)) == (100, 3)


def test_the_bins_of_a_column_that_is_mostly_zero_do_not_tell_where_the_yes_begins() -> None:
    trial = make_trial("mostly-zero", 0)
    gains = [row[0] for row in trial.known.rows]
    assert 0.9 < gains.count(0) / KNOWN < 0.99
    assert len(trial.problem.key.bins["gain"]) <= 1
    assert not any(trial.problem.oracle.ask([moved(trial, gain=v) for v in (1, 2_499)]).decision)
    assert trial.problem.oracle.ask([moved(trial, gain=5_000)]).decision[0]


# The judge ---------------------------------------------------------------------------------------


class Threshold:
    """A yes from a + b = 10 on, and where a is exactly 3."""

    name = "threshold"
    labels_only = False

    def ask(self, rows: Sequence[Row]) -> Answers:
        a, b, _ = np.array(rows, dtype=np.float64).T
        met = (a + b >= 10) | (a == 3)
        return Answers(met.astype(np.float64), met)


def test_the_judge_counts_what_is_needed_and_holds() -> None:
    schema = Schema(tuple(Feature(name, "integer", range=(0, 20)) for name in "abc"))
    card = Card("hand", schema, CardOutcome("y", 1, "yes", "no"))
    problem = Problem.from_card(card, Threshold())
    trial = Trial(problem, (0, 0, 0), KnownRows([], []))

    nothing = judge(trial, found(trial))
    assert (nothing.sets, nothing.cost) == (0, None)
    lies = judge(trial, found(trial, (0, 9, 0), (3, 0, 0), (0, 10, 1), (0, 0, 0)))
    assert (lies.sets, lies.cost) == (0, None)  # a no, a pocket, a change too many, the query
    good = judge(trial, found(trial, (0, 9, 0), (0, 12, 0), (0, 11, 0), (5, 5, 0), (11, 0, 0)))
    assert good.sets == 3  # b; a and b; a
    assert good.cost == pytest.approx(problem.costs(trial.query, [(5, 5, 0)])[0])


# Running -----------------------------------------------------------------------------------------


def test_arms_are_read_as_they_are_written_and_peers_may_be_absent() -> None:
    assert [str(HardArm.parse(text)) for text in ("nearest", "nearest+finish")] == [
        "nearest", "nearest+finish",
    ]  # fmt: skip
    names = [str(arm) for arm in default_arms()]
    assert len(set(names)) == len(names)
    assert {"growing-spheres", "growing-spheres+finish"} <= set(names)
    ready, skipped = usable(
        [HardArm("random"), HardArm("nearest"), HardArm("comp-mcts")], with_data=False
    )
    assert (ready, list(skipped)) == ([HardArm("random")], ["nearest", "comp-mcts"])
    with pytest.raises(InputError, match="unknown method 'nearst'"):
        usable([HardArm("nearst")], with_data=True)
    with pytest.raises(InputError, match="no method can run: nearest: it needs rows"):
        usable([HardArm("nearest")], with_data=False)


def test_the_least_of_a_table_is_what_any_arm_found() -> None:
    pytest.importorskip("sklearn")
    one, other = run_case("wine", [HardArm("random"), HardArm("growing-spheres")], rows=60, seeds=1)
    assert (one.case, one.searches, one.rows) == ("wine", 1, 60)
    assert min(f.ratio for f in (one, other) if f.ratio is not None) == 1


def test_the_command_prints_figures(waysout: CommandLine) -> None:
    asked = ("bench", "hard", "labels", "--seeds", "1", "--rows", "60")
    code, out, err = waysout(*asked, "--methods", "growing-spheres, random+finish", "--json")
    assert code == 0, err
    told = json.loads(out)
    assert (told["rows"], told["with_data"], told["skipped"]) == (60, True, {})
    spheres, finished = told["figures"]
    assert (spheres["case"], spheres["arm"], spheres["solved"]) == ("labels", "growing-spheres", 1)
    assert spheres["ratio"] >= 0.99
    assert (finished["arm"], finished["searches"]) == ("random+finish", 1)

    code, out, err = waysout(*asked, "--methods", "random,nearest", "--without-data")
    assert "nearest is left out: it needs rows whose outcome is known" in err
    assert "Solved of 1" in out
    assert "random" in out
    code, _, err = waysout("bench", "hard", "pockets")
    assert (code, "unknown hard case 'pockets'" in err) == (3, True)
