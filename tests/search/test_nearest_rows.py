from __future__ import annotations

import gc
from collections import Counter
from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np
import pytest
from baseline_cases import HOME, QUERY, SCHEMA, SCHOOL, Table, make_case, row, run
from hypothesis import given
from hypothesis import strategies as st

from strategies import rows, schemas
from waysout.domain.known import approved
from waysout.domain.result import OutcomeKind
from waysout.domain.rules import (
    Allowed,
    Custom,
    Direction,
    Immutable,
    Linear,
    MaxChanges,
    Never,
    Range,
    Rule,
    RuleSet,
    Step,
    Transitions,
)
from waysout.domain.schema import LARGEST, Feature, Row, Schema, Value
from waysout.errors import InputError
from waysout.search.nearest import NearestRows, nearest

SMALL = Schema(
    (
        Feature("income", "number", range=(0, 100)),
        Feature("job", "category", levels=("cook", "clerk")),
    )
)
PEOPLE = Table(
    rows=(
        (60.0, "clerk"),  # ½ · 40/10 + ½ = 2.5
        (40.0, "cook"),  # ½ · 20/10     = 1
        (30.0, "cook"),  # nearest, but rejected
        (35.0, "clerk"),  # ½ · 15/10 + ½ = 1.25
        (40.0, "cook"),  # the same as row 1
    ),
    labels=(True, True, False, True, True),
)


def likened(goal: Row, *rules: Rule, query: Row = QUERY) -> Row | None:
    """Return the one row made of the query and one approved neighbour."""
    asked = run(NearestRows().start(make_case(query, rules, known=Table((goal,), (True,)))))
    assert len(asked) <= 1
    return asked[0] if asked else None


def test_neighbours_come_in_order_of_distance_once_each() -> None:
    search = NearestRows().start(make_case((20.0, "cook"), (), schema=SMALL, known=PEOPLE))
    assert run(search) == [(40.0, "cook"), (35.0, "clerk"), (60.0, "clerk")]
    reasons = [option.reasons for option in search.archive.options()]
    assert reasons == [(f"like row {n} of your data (approved)",) for n in (1, 3, 0)]
    assert search.archive.rejections == {"repeated": 1}
    assert search.ending is not None
    assert search.ending.kind is OutcomeKind.EXHAUSTED
    assert search.ending.reason == "all 4 nearest approved rows of your data were tried"


def test_no_more_neighbours_than_wanted_are_looked_at() -> None:
    case = make_case((20.0, "cook"), (), schema=SMALL, known=PEOPLE)
    assert run(NearestRows(neighbours=3).start(case)) == [(40.0, "cook"), (35.0, "clerk")]


@given(st.data())
def test_nearest_is_what_sorting_all_rows_gives(data: st.DataObject) -> None:
    schema = data.draw(schemas())
    people = tuple(data.draw(st.lists(rows(schema), max_size=20)))
    labels = tuple(data.draw(st.booleans()) for _ in people)
    query, most = data.draw(rows(schema)), data.draw(st.integers(1, 25))
    case = make_case(query, (), schema=schema)
    approved = [i for i, label in enumerate(labels) if label]
    in_order = sorted(approved, key=lambda i: (case.problem.distance(query, people[i]), i))
    assert nearest(case.problem, query, Table(people, labels), most) == in_order[:most]


OTHER = row(income=80.0, debt=5.5, term=36, job="clerk")


@pytest.mark.parametrize(
    ("goal", "rules", "expected"),
    [
        (OTHER, [], OTHER),
        (row(income=80.0, term=36), [Range(feature="income", max=50)], row(income=50.0, term=36)),
        (row(income=83.0), [Step(feature="income", step=25)], row(income=75.0)),
        (row(income=98.0), [Step(feature="income", step=30)], row(income=90.0)),
        (row(income=23.0), [Step(feature="income", step=15)], None),
        (row(income=5.0, term=24), [Direction(features=["income"], direction="up")], row(term=24)),
        (OTHER, [Immutable(features=["income", "job"])], row(debt=5.5, term=36)),
        (
            row(job="none", term=24),
            [Transitions(feature="job", forbid={"cook": ["none"]})],
            row(term=24),
        ),
        (row(job="none", term=24), [Allowed(feature="job", values=["cook"])], row(term=24)),
        (row(income=60.0), [Allowed(feature="income", values=[20, 50, 90])], row(income=50.0)),
        (row(school="high", years=16), [SCHOOL], row(school="high", years=12)),
        (row(years=16, term=24), [SCHOOL], row(term=24)),
        (row(rents=False, owns=True), [HOME], row(rents=False, owns=True)),
        (row(rents=False, term=24), [HOME], row(term=24)),
        (OTHER, [Immutable(features=SCHEMA.names)], None),
    ],
    ids=[
        "free", "clip", "grid", "clip and grid", "the grid is farther than staying", "direction",
        "immutable", "transition", "level not allowed", "number off the list", "linked",
        "follower alone", "one-hot", "one-hot cleared only", "nothing may change",
    ],
)  # fmt: skip
def test_a_neighbour_is_followed_as_far_as_the_rules_allow(
    goal: Row, rules: Sequence[Rule], expected: Row | None
) -> None:
    assert likened(goal, *rules) == expected


def test_max_changes_keeps_the_largest_changes() -> None:
    # Apart: income 6 scales, debt 2.45, term 2.4; and job one of six categories.
    assert likened(OTHER, MaxChanges(at_most=1)) == row(income=80.0)
    assert likened(OTHER, MaxChanges(at_most=2)) == row(income=80.0, debt=5.5)


def test_a_joint_rule_costs_only_edits_it_speaks_of() -> None:
    rule = Linear(that="income + term <= 100")
    assert likened(OTHER, rule) == row(income=80.0, debt=5.5, job="clerk")


def test_a_rule_about_the_whole_takes_edits_back_until_it_holds() -> None:
    rule = Custom(call=lambda query, candidate: candidate["job"] == "cook")
    assert likened(row(job="clerk", income=80.0), rule) == row(income=80.0)


def test_a_value_that_breaks_a_rule_moves_whatever_the_neighbour_has() -> None:
    rule = Range(feature="income", min=40)
    assert likened(row(income=22.0), rule) == row(income=40.0)
    assert likened(row(term=24), rule) == row(income=40.0, term=24)


def test_a_value_outside_its_range_may_stay() -> None:
    query = row(term=72)
    assert likened(row(term=72, income=80.0), query=query) == row(term=72, income=80.0)


def test_a_start_that_cannot_be_mended_names_the_rule() -> None:
    known = Table((row(term=24),), (True,))
    rule = Allowed(feature="job", values=["clerk"])
    search = NearestRows().start(make_case(rules=[rule], known=known))
    assert run(search) == []
    assert search.archive.rejections == {"breaks rule: allowed job": 1}


def value_towards(goal: Value, *rules: Rule, now: Value = 10, kind: str = "integer") -> Value:
    feature = Feature("x", "integer" if kind == "integer" else "number", missing="fill")
    return RuleSet(Schema((feature,)), rules).levers((now,))["x"].towards(goal)


def test_values_towards_a_goal() -> None:
    assert value_towards(17) == 17
    assert value_towards(None) == 10
    assert value_towards(17, Range(feature="x", min=0, max=14.5)) == 14
    assert value_towards(17.5, Range(feature="x", min=0, max=14.5), kind="number") == 14.5
    assert value_towards(30, Range(feature="x", max=14.5), now=None) == 14
    assert value_towards(3, Step(feature="x", step=4)) == 4
    assert value_towards(int(LARGEST), Step(feature="x", step=3e14)) == 9 * 10**14


def test_a_code_is_no_direction() -> None:
    codes = Never(features=["x"], values=[-9])
    assert value_towards(-9, codes, Range(feature="x", min=0)) == 10
    assert value_towards(-8, codes, Range(feature="x", min=0)) == 0


def test_without_data_it_says_what_to_give() -> None:
    with pytest.raises(InputError, match="pass your data"):
        NearestRows().start(make_case())


def test_labels_for_other_rows_are_refused() -> None:
    with pytest.raises(InputError, match="1 rows are known, but 2 labels"):
        NearestRows().start(make_case(known=Table((QUERY,), (True, False))))


@pytest.mark.parametrize("people", [(), (OTHER, QUERY)], ids=["no rows", "no yes"])
def test_no_approved_rows(people: tuple[Row, ...]) -> None:
    search = NearestRows().start(make_case(known=Table(people, (False,) * len(people))))
    assert run(search) == []
    assert search.ending is not None
    assert search.ending.kind is OutcomeKind.EXHAUSTED
    assert (
        search.ending.reason == f"none of the {len(people)} rows of your data is labelled approved"
    )


def test_a_table_is_encoded_once_and_forgotten_with_it(monkeypatch: pytest.MonkeyPatch) -> None:
    encoded: Counter[int] = Counter()
    encode = Schema.encode

    def counted(
        self: Schema, rows: Sequence[Row]
    ) -> np.ndarray[tuple[int, ...], np.dtype[np.float64]]:
        encoded[len(rows)] += 1
        return encode(self, rows)

    monkeypatch.setattr(Schema, "encode", counted)
    known = Table((OTHER,) * 33, (True,) * 33)
    place = id(known)
    for income in (1.0, 2.0, 3.0):
        NearestRows().start(make_case(row(income=income), known=known))
    assert encoded[33] == 1
    assert place in approved._made
    del known
    gc.collect()
    assert place not in approved._made


@dataclass(frozen=True, slots=True)
class Slotted:
    """Known rows that no weak reference can watch."""

    rows: tuple[Row, ...]
    labels: tuple[bool, ...]


def test_data_that_cannot_be_watched_is_not_remembered() -> None:
    before = dict(approved._made)
    assert run(NearestRows().start(make_case(known=Slotted((OTHER,), (True,))))) == [OTHER]
    assert approved._made == before


def test_another_schema_over_the_same_data_is_encoded_anew() -> None:
    turned = Schema(
        (SMALL.features[0], Feature("job", "category", levels=("clerk", "cook"))),
    )
    for schema in (SMALL, turned):
        case = make_case((20.0, "cook"), (), schema=schema, known=PEOPLE)
        assert run(NearestRows().start(case))[1] == (35.0, "clerk")
