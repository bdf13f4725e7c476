"""The search with a diffusion model: how deep it goes, what it holds, and what it hands out."""

from __future__ import annotations

import subprocess
import sys
from collections.abc import Iterator, Sequence
from dataclasses import replace
from typing import Any

import numpy as np
import pytest
from baseline_cases import (
    HOME,
    JOINT,
    QUERY,
    SCHEMA,
    SCHOOL,
    Table,
    check_asked,
    make_case,
    row,
    rule_lists,
    run,
)
from hypothesis import given, settings
from hypothesis import strategies as st

from strategies import rows, schemas
from waysout import check_method
from waysout.bench.methods.learned.diffusion import Diffusion
from waysout.bench.methods.learned.tabular_diffusion import TabularDiffusion, _DiffusionSearch
from waysout.domain.known import Known
from waysout.domain.oracle import Answers
from waysout.domain.result import OutcomeKind
from waysout.domain.rules import Immutable, Rule
from waysout.domain.schema import Feature, Row, Schema
from waysout.errors import InputError
from waysout.search.base import Case

torch = pytest.importorskip("torch", reason="diffusion is learned with PyTorch")

ONE_STEP = TabularDiffusion(width=4, blocks=0, training_steps=1, steps=2, batch=7, tries=3)
QUICK = TabularDiffusion(width=8, blocks=1, training_steps=30, steps=3, batch=7, tries=4)
PEOPLE = Table(
    tuple(
        row(income=float(i), term=1 + i % 60, job=("cook", "clerk")[i % 2], years=9)
        for i in range(100)
    ),
    tuple(i >= 50 for i in range(100)),
)


@pytest.fixture(autouse=True, scope="module")
def _one_thread() -> Iterator[None]:
    """Small networks are quickest on one core, above all where others are busy."""
    before = torch.get_num_threads()
    torch.set_num_threads(1)
    yield
    torch.set_num_threads(before)


class Says:
    """Answers every row alike."""

    name = "says"
    labels_only = True

    def __init__(self, yes: bool) -> None:
        self.yes = yes

    def ask(self, rows: Sequence[Row]) -> Answers:
        return Answers(np.full(len(rows), float(self.yes)), np.full(len(rows), self.yes))


def answered(case: Case, yes: bool) -> Case:
    return replace(case, problem=replace(case.problem, oracle=Says(yes)))


class Drawn:
    """Remembers what the model was asked for."""

    def __init__(self, monkeypatch: pytest.MonkeyPatch) -> None:
        self.strengths: list[float] = []
        self.held: list[Any] = []
        really = Diffusion.vary

        def vary(model: Diffusion, vectors: Any, label: bool, how: Any, *rest: Any) -> Any:
            assert label is True
            self.strengths.append(round(how.strength, 6))
            self.held.append(rest[-1])
            return really(model, vectors, label, how, *rest)

        monkeypatch.setattr(Diffusion, "vary", vary)


@pytest.fixture
def drawn(monkeypatch: pytest.MonkeyPatch) -> Drawn:
    return Drawn(monkeypatch)


def test_it_keeps_the_protocol() -> None:
    check_method(QUICK)


def test_it_keeps_the_protocol_as_published() -> None:
    check_method(replace(QUICK, published=True))


def test_as_published_each_drawing_costs_a_row_at_the_same_strength(drawn: Drawn) -> None:
    schema = Schema((Feature("job", "category", levels=("cook", "clerk")),))
    known = Table((("cook",), ("clerk",)) * 20, (False, True) * 20)
    method = replace(ONE_STEP, published=True, strength=1.0)
    search = method.start(make_case(("cook",), (), schema=schema, known=known, rows=30))
    asked = run(search)
    assert len(asked) == 30
    assert set(asked) == {("cook",), ("clerk",)}
    assert search.archive.rows == [("clerk",)]
    assert set(drawn.strengths) == {method.strength}
    refused = replace(search.case, problem=replace(search.case.problem, oracle=Says(False)))
    assert len(run(method.start(refused))) == 30
    assert set(drawn.strengths) == {method.strength}


@st.composite
def cases(draw: st.DrawFn) -> Case:
    fixed: Schema = SCHEMA
    schema = draw(st.just(fixed) | schemas())
    own = st.just(QUERY) if schema is SCHEMA else rows(schema)
    query: Row = draw(own)
    people = tuple(draw(st.lists(rows(schema), min_size=4, max_size=9)))
    return make_case(
        query,
        draw(rule_lists(schema)),
        schema=schema,
        known=Table(people, (True, True, *[False] * (len(people) - 2))),
        rows=draw(st.integers(0, 20)),
        seed=draw(st.integers(0, 3)),
    )


@settings(max_examples=30)
@given(case=cases())
def test_every_row_is_feasible_new_and_paid_for(case: Case) -> None:
    search = ONE_STEP.start(case)
    check_asked(search, run(search))


def test_it_takes_its_time_and_hands_out_one_batch_at_a_time() -> None:
    search = QUICK.start(make_case(known=PEOPLE))
    assert search.thinks
    work = search.ask()
    assert work is not None
    assert search.ask() is None


def test_draws_follow_from_the_seed() -> None:
    first, again, other = (
        run(QUICK.start(make_case(known=PEOPLE, rows=20, seed=seed))) for seed in (1, 1, 2)
    )
    assert first == again
    assert first != other


# How deep it goes -------------------------------------------------------------------------------


def test_it_goes_deeper_while_too_little_is_approved(drawn: Drawn) -> None:
    method = TabularDiffusion(**{**QUICK.settings(), "strength": 0.5, "rise": 0.2})
    run(method.start(answered(make_case(known=PEOPLE, rows=35), yes=False)))
    assert sorted(set(drawn.strengths)) == [0.5, 0.7, 0.9, 1.0]
    assert drawn.strengths == sorted(drawn.strengths)


def test_farther_down_it_draws_and_counts_anew() -> None:
    search = QUICK.start(make_case(known=PEOPLE))
    assert isinstance(search, _DiffusionSearch)
    refused = search._candidate(row(term=24))
    assert refused is not None
    search._drawn = [row(term=36)]
    search._learn([refused] * 10, [0.9] * 10, [True] * 10)
    assert (search._drawn, search._asked_here, search._found_here) == ([row(term=36)], 10, 10)
    search._learn([refused] * 50, [0.1] * 50, [False] * 50)
    assert (search._drawn, search._asked_here, search._found_here) == ([], 0, 0)
    assert search._strength == pytest.approx(QUICK.strength + QUICK.rise)


@pytest.mark.parametrize(("yes", "rise"), [(True, 0.2), (False, 0.0)])
def test_it_stays_where_enough_is_approved_or_nothing_is_to_rise(
    drawn: Drawn, yes: bool, rise: float
) -> None:
    method = TabularDiffusion(**{**QUICK.settings(), "strength": 0.5, "rise": rise})
    run(method.start(answered(make_case(known=PEOPLE, rows=35), yes)))
    assert set(drawn.strengths) == {0.5}


def test_it_goes_deeper_where_nothing_new_comes_up_and_then_ends(drawn: Drawn) -> None:
    schema = Schema((Feature("job", "category", levels=("none", "cook", "clerk")),))
    known = Table((("cook",), ("none",), ("clerk",), ("clerk",)), (False, False, True, True))
    search = QUICK.start(make_case(("cook",), (), schema=schema, known=known, rows=9))
    asked = run(search)
    assert sorted(asked) == [("clerk",), ("none",)]
    assert drawn.strengths[-1] > drawn.strengths[0]
    assert search.ending is not None
    assert search.ending.reason == "4 drawings in a row gave nothing new that the rules allow"


# What it holds ----------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("rules", "fixed"),
    [
        ([], set()),
        ([Immutable(features=["job", "debt"])], {"job", "debt"}),
        ([SCHOOL, HOME], set()),  # years follow school, one home clears the others
        ([SCHOOL, Immutable(features=["school"])], {"school", "years"}),
    ],
)
def test_followers_move_though_nobody_edits_them(
    drawn: Drawn, rules: list[Rule], fixed: set[str]
) -> None:
    case = make_case(QUERY, rules, known=PEOPLE, rows=7)
    assert case.problem.rules.movable(QUERY) == set(SCHEMA.names) - fixed
    run(QUICK.start(case))
    widths = [2 if f.kind == "boolean" else len(f.levels) or 1 for f in SCHEMA]
    names = [name for name, width in zip(SCHEMA.names, widths, strict=True) for _ in range(width)]
    assert {name for name, held in zip(names, drawn.held[0], strict=True) if held} == fixed


def test_a_missing_value_no_row_lacks_cannot_be_held(drawn: Drawn) -> None:
    schema = Schema((Feature("income", "number", missing="keep"), Feature("owns", "boolean")))
    known = Table(tuple((float(i), i > 4) for i in range(10)), tuple(i > 4 for i in range(10)))
    run(QUICK.start(make_case((None, False), (), schema=schema, known=known, rows=1)))
    assert not drawn.held[0].any()


def test_nothing_is_drawn_where_nothing_may_change(drawn: Drawn) -> None:
    search = QUICK.start(make_case(QUERY, [Immutable(features=SCHEMA.names)], known=PEOPLE))
    assert run(search) == []
    assert drawn.strengths == []
    assert search.ending is not None
    assert (search.ending.kind, search.ending.reason) == (
        OutcomeKind.EXHAUSTED, "no feature may change",
    )  # fmt: skip


# What it learns from ----------------------------------------------------------------------------


def test_it_is_learned_before_the_first_search() -> None:
    heard: list[float] = []
    method = TabularDiffusion(**{**QUICK.settings(), "training_steps": 31})
    case = make_case(QUERY, JOINT, known=PEOPLE)
    for _ in range(2):
        method.learn(case.problem, PEOPLE, lambda what, share: heard.append(share))
    assert heard.count(1.0) == 1
    assert run(method.start(case))


@pytest.mark.parametrize(
    ("known", "said"),
    [
        (None, "'tabular-diffusion' needs rows whose outcome is known: pass your data"),
        (Table((), ()), "your data has 0 approved"),
        (Table((QUERY, QUERY), (True, True)), "your data has 0 rejected"),
    ],
)
def test_it_says_what_it_needs(known: Known | None, said: str) -> None:
    with pytest.raises(InputError, match=said):
        QUICK.start(make_case(known=known))


def test_torch_is_loaded_on_use_only() -> None:
    module = "waysout.bench.methods.learned.tabular_diffusion"
    code = f"import sys, {module}; sys.exit('torch' in sys.modules)"
    assert subprocess.run([sys.executable, "-c", code], check=False).returncode == 0
