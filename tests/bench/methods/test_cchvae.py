"""Rings around a query in the latent space, and what is found in them."""

from __future__ import annotations

import numpy as np
import pytest
from baseline_cases import QUERY, SCHEMA, Table, Yes, check_asked, make_case, row, rule_lists, run
from hypothesis import given, settings
from hypothesis import strategies as st

from waysout import check_method
from waysout.bench.methods.learned.cchvae import Cchvae, LatentRings, _RingSearch, fixed_features
from waysout.domain.result import OutcomeKind
from waysout.domain.rules import Immutable, MaxChanges, Rule
from waysout.domain.schema import Feature, Row, Schema, Value
from waysout.errors import InputError
from waysout.search.space import Space

pytest.importorskip("torch", reason="cchvae learns with PyTorch")

QUICK = Cchvae(latent=2, steps=20, rings=4, batch=7)
JOBS, SCHOOLS = ("none", "cook", "clerk"), (("basic", 9), ("high", 12))
PEOPLE = Table(
    rows=tuple(
        row(income=float(i), debt=0.5 * i, term=1 + i % 60, job=JOBS[i % 3], school=school,
            years=years, owns=i % 4 == 0, rents=i % 4 != 0)
        for i in range(60)
        for school, years in SCHOOLS
    ),
    labels=(False, True) * 60,
)  # fmt: skip


@pytest.mark.slow  # with its usual settings, all methods are checked by default
def test_it_keeps_the_protocol() -> None:
    check_method(Cchvae(steps=30, rings=3))


@pytest.mark.slow
@settings(max_examples=15)
@given(rule_lists(SCHEMA), st.integers(0, 20), st.integers(0, 3))
def test_every_row_is_feasible_new_and_paid_for(rules: list[Rule], limit: int, seed: int) -> None:
    method = Cchvae(latent=2, steps=2, rings=3, batch=7)
    search = method.start(make_case(rules=rules, known=PEOPLE, rows=limit, seed=seed))
    check_asked(search, run(search))


def test_all_rows_are_spent_and_what_is_approved_is_found() -> None:
    case = make_case(known=PEOPLE, rows=100)
    search = QUICK.start(case)
    asked = run(search)
    assert len(asked) == 100
    assert search.archive.unique_rows == [r for r in asked if r[0] != QUERY[0]]
    assert isinstance(case.problem.oracle, Yes)
    assert max(case.problem.oracle.batches) <= 7
    assert search.thinks


def test_as_published_each_ring_takes_a_thousand_rows_and_returns_its_nearest() -> None:
    method = Cchvae(latent=2, steps=20, published=True)
    few = method.start(make_case(known=PEOPLE, rows=999))
    assert run(few) == []
    assert few.ending is not None
    assert few.ending.kind is OutcomeKind.BUDGET_SPENT
    search = method.start(make_case(rules=(), known=PEOPLE, rows=2000))
    asked, space = run(search), Space(search.case.problem, QUERY)
    assert len(asked) == 2000
    nearest = [
        min((r for r in ring if r[0] != QUERY[0]), key=lambda r: sum(space.sizes(r)))
        for ring in (asked[:1000], asked[1000:])
    ]
    assert search.archive.rows == list(dict.fromkeys(nearest))


def test_as_published_five_are_enough() -> None:
    search = Cchvae(latent=2, steps=20, published=True).start(
        make_case(rules=(), known=PEOPLE, rows=8000)
    )
    assert len(run(search)) == 5000
    assert search.ending is not None
    assert search.ending.reason == "the published search returned 5 rows of 5 rings"


def test_the_seed_decides() -> None:
    first, again, other = (
        run(QUICK.start(make_case(known=PEOPLE, rows=30, seed=seed))) for seed in (1, 1, 2)
    )
    assert first == again != other


def test_numbers_are_such_as_people_have() -> None:
    asked = run(QUICK.start(make_case(rules=(), known=PEOPLE, rows=60)))
    for j in (0, 1, 2):
        assert {r[j] for r in asked} <= {r[j] for r in PEOPLE.rows} | {QUERY[j]}


def test_what_differs_by_less_than_blur_stays_the_querys() -> None:
    def changes(keep: float) -> float:
        method = Cchvae(latent=2, steps=20, rings=4, keep=keep)
        asked = run(method.start(make_case(rules=(), known=PEOPLE, rows=60)))
        return float(np.mean([len(SCHEMA.changed(QUERY, r)) for r in asked]))

    assert changes(0.0) > changes(1.0) + 1


def test_immutable_features_are_given_to_the_model() -> None:
    rules = [Immutable(features=["job"]), MaxChanges(at_most=3), Immutable(features=["income"])]
    problem = make_case(rules=rules).problem
    assert fixed_features(problem) == ("income", "job")
    model = QUICK.model(problem, PEOPLE, lambda what, share: None)
    assert model is not None
    assert model.layout.given == (0, 3)
    free = QUICK.model(make_case(rules=()).problem, PEOPLE, lambda what, share: None)
    assert free is not None
    assert free.layout.given == ()


def test_what_was_learned_is_not_learned_again() -> None:
    problem, told = make_case().problem, list[str]()
    method = Cchvae(latent=2, steps=11)
    method.learn(problem, PEOPLE, lambda what, share: told.append(what))
    assert told[-1].startswith("cchvae learned from 120 rows")
    told.clear()
    method.learn(problem, PEOPLE, lambda what, share: told.append(what))
    assert told == []


@pytest.mark.parametrize("fixed", [SCHEMA.names, SCHEMA.names[1:]], ids=["all", "all but one"])
def test_where_little_or_nothing_may_change(fixed: tuple[str, ...]) -> None:
    case = make_case(rules=[Immutable(features=fixed)], known=PEOPLE)
    search = QUICK.start(case)
    asked = run(search)
    assert all(r[1:] == QUERY[1:] for r in asked)
    assert search.ending is not None
    assert search.ending.kind is OutcomeKind.EXHAUSTED
    reason = "no feature may change" if fixed == SCHEMA.names else "draws from 4 rings around"
    assert search.ending.reason.startswith(reason)
    assert bool(asked) == (fixed != SCHEMA.names)


def test_missing_values_and_categories_alone() -> None:
    schema = Schema(
        (
            Feature("job", "category", levels=JOBS, missing="fill"),
            Feature("owns", "boolean", missing="keep"),
        )
    )
    rows: tuple[Row, ...] = (("cook", True), (None, False), ("clerk", None), ("none", False)) * 2
    known = Table(rows, (True, False) * 4)
    jobs: dict[Row, set[Value]] = {
        (None, None): {"none", "cook", "clerk"},
        ("cook", None): {"none", "clerk"},
    }
    for query, wanted in jobs.items():
        asked = run(QUICK.start(make_case(query, (), schema=schema, known=known, rows=20)))
        assert {r[0] for r in asked} == wanted
        assert {r[1] for r in asked} == {None}


def test_it_learns_from_known_rows_or_says_what_it_lacks() -> None:
    with pytest.raises(InputError, match="pass your data"):
        QUICK.start(make_case())
    with pytest.raises(InputError, match="0 approved"):
        QUICK.start(make_case(known=Table((), ())))
    with pytest.raises(InputError, match="latent is at least 1"):
        Cchvae(latent=0)


def test_rings_are_hollow_and_the_last_ends_at_the_reach() -> None:
    method = Cchvae(latent=2, steps=20, rings=4, reach=3.0)
    case = make_case(known=PEOPLE)
    model = method.model(case.problem, PEOPLE, lambda what, share: None)
    search = method.start(case)
    assert model is not None
    assert isinstance(search, _RingSearch)
    here = model.person(QUERY).latent
    lengths = [np.linalg.norm(search._places(ring, 300) - here, axis=1) for ring in range(4)]
    ends = [(float(found.min()), float(found.max())) for found in lengths]
    width = 3.0 * model.spread(here) / 4
    wanted = [(width * ring, width * (ring + 1)) for ring in range(4)]
    assert np.array(ends) == pytest.approx(np.array(wanted), abs=0.05 * width)


def rings_after(*looks: tuple[int, int], share: float = 0.5) -> LatentRings:
    """Return rings each of which was looked into once: how many rows were asked and found."""
    rings = LatentRings(len(looks), share)
    for number, (asked, found) in enumerate(looks):
        assert rings.next() == number
        rings.note(asked, found)
    return rings


def test_every_ring_is_looked_into_once_then_the_nearest_good_one() -> None:
    rings = rings_after((5, 0), (5, 1), (5, 3), (5, 4))
    assert rings.next() == 2
    rings.note(10, 0)  # now 3 of 15, and the last one finds 4 of 5
    assert rings.next() == 3
    rings.close(3)
    assert rings.next() == 1


def test_where_nothing_is_found_all_rings_have_their_turn() -> None:
    rings = rings_after((5, 0), (5, 0), (4, 0))
    assert rings.next() == 2
    rings.note(5, 0)
    assert rings.next() == 0


def test_rings_that_hold_nothing_new_are_left() -> None:
    rings = rings_after((1, 1), (1, 0))
    rings.close(0)
    rings.close(1)
    assert rings.next() is None
    rings.reopen()
    assert rings.next() == 0
    assert LatentRings(0, 0.5).next() is None
