from __future__ import annotations

import builtins
import random
import subprocess
import sys
import threading
from collections.abc import Iterator, Mapping
from dataclasses import replace
from typing import Any

import numpy as np
import pytest
from baseline_cases import JOINT, QUERY, SCHEMA, Table, Yes, make_case, row, rule_lists, run
from hypothesis import given, settings
from hypothesis import strategies as st

import waysout
from strategies import rows, schemas
from waysout.bench.methods import dice as module
from waysout.bench.methods.dice import Dice
from waysout.bench.methods.dice_frame import DiceFrame
from waysout.bench.methods.foreign import words
from waysout.domain.oracle import Answers
from waysout.domain.result import OutcomeKind
from waysout.domain.rules import Allowed, Direction, Immutable, Linear, MaxChanges, Never, Rule
from waysout.domain.schema import Feature, Row, Schema
from waysout.errors import InputError, MissingExtra
from waysout.search.base import Case, Search
from waysout.search.work import Evaluate

pytest.importorskip("dice_ml", reason="DiCE itself is asked (the extra 'dice')")
pytestmark = pytest.mark.filterwarnings("ignore:::dice_ml.*")

VARIANTS = [Dice(variant="random"), Dice(variant="genetic"), Dice(variant="kdtree")]
drawing = [method for method in VARIANTS if method.variant != "kdtree"]
each_variant = pytest.mark.parametrize("method", VARIANTS, ids=lambda method: method.variant)

PEOPLE = Table(
    tuple(
        row(income=float(20 + i % 60), debt=i % 40 + 0.5, term=1 + i % 50, job=job, owns=i % 2 == 0)
        for i, job in enumerate(["none", "cook", "clerk"] * 30)
    ),
    (True,) * 90,
)


@pytest.fixture
def breaks(monkeypatch: pytest.MonkeyPatch) -> list[str]:
    """Return where DiCE broke off, round by round."""
    found: list[str] = []

    def noted(error: BaseException) -> str:
        found.append(words(error))
        return found[-1]

    monkeypatch.setattr(module, "words", noted)
    return found


def ended(search: Search) -> tuple[OutcomeKind, str]:
    assert search.ending is not None
    return search.ending.kind, search.ending.reason


# What holds for every variant -------------------------------------------------------------------


@each_variant
@pytest.mark.parametrize("limit", [1, 40])
def test_it_spends_the_rows_it_is_given_and_finds_options(
    method: Dice, limit: int, breaks: list[str]
) -> None:
    case = make_case(known=PEOPLE, rows=limit)
    search = method.start(case)
    asked = run(search)
    assert len(asked) == limit
    assert ended(search) == (OutcomeKind.BUDGET_SPENT, f"all {limit} oracle rows are spent")
    assert search.archive.rows == [r for r in asked if r[0] != QUERY[0]]
    assert limit == 1 or search.archive.rows
    assert breaks == []


@each_variant
def test_rows_come_in_batches(method: Dice) -> None:
    case = make_case(known=PEOPLE, rows=60)
    run(method.start(case))
    assert isinstance(case.problem.oracle, Yes)
    assert max(case.problem.oracle.batches) >= 8


@each_variant
@pytest.mark.parametrize(
    "rules",
    [
        (*JOINT, MaxChanges(at_most=2), Direction(features=["income"], direction="up")),
        (
            Linear(that="debt + 10 <= 2 * income"),
            Immutable(features=["job"]),
            Never(features=["term"], values=[11, 13]),
            Allowed(feature="income", values=[30, 40]),
        ),
    ],
    ids=["whole", "values"],
)
def test_every_row_asked_keeps_the_rules_and_is_new(method: Dice, rules: tuple[Rule, ...]) -> None:
    case = make_case(rules=rules, known=PEOPLE, rows=30)
    asked = run(method.start(case))
    assert asked
    assert [case.problem.violations(QUERY, r) for r in asked] == [()] * len(asked)
    assert len({case.problem.key(r) for r in asked}) == len(asked)
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
        rows=draw(st.integers(0, 12)),
    )


@each_variant
@settings(max_examples=6, deadline=None)
@given(case=cases())
def test_any_table_is_searched_to_an_end(method: Dice, case: Case) -> None:
    search = method.start(case)
    asked = run(search)
    assert [case.problem.violations(case.query, r) for r in asked] == [()] * len(asked)
    assert len(asked) <= (case.budget.oracle_rows or 0)
    assert ended(search)[1]


@each_variant
def test_the_process_is_left_as_it_was(method: Dice, capfd: pytest.CaptureFixture[str]) -> None:
    np.random.seed(3)
    random.seed(4)
    before = np.random.get_state()[1].tolist(), random.getstate()  # type: ignore[index]
    threads = threading.active_count()
    run(method.start(make_case(known=PEOPLE, rows=20)))
    assert np.random.get_state()[1].tolist() == before[0]  # type: ignore[index]
    assert random.getstate() == before[1]
    assert capfd.readouterr() == ("", "")
    assert threading.active_count() == threads


@pytest.mark.parametrize("method", drawing, ids=lambda method: method.variant)
def test_a_seed_gives_the_same_works_also_in_turns_with_another(method: Dice) -> None:
    def start(seed: int) -> Search:
        return method.start(make_case(known=PEOPLE, rows=25, seed=seed))

    alone = [run(start(seed)) for seed in (0, 1)]
    searches, asked = [start(0), start(1)], list[list[Row]]([[], []])
    while not all(search.done for search in searches):
        for search, found in zip(searches, asked, strict=True):
            work = search.ask()
            if isinstance(work, Evaluate):
                found += work.rows
                search.tell(work, search.case.problem.oracle.ask(work.rows))
    assert asked == alone
    assert alone[0] != alone[1]


@each_variant
def test_nothing_may_change(method: Dice) -> None:
    search = method.start(make_case(rules=[Immutable(features=SCHEMA.names)], known=PEOPLE))
    assert run(search) == []
    assert ended(search) == (OutcomeKind.EXHAUSTED, "no feature may change")


@each_variant
def test_rules_that_nothing_satisfies_end_the_search_in_silence(
    method: Dice, monkeypatch: pytest.MonkeyPatch, capfd: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.setattr(module, "_DRY_REQUESTS", 10)
    search = method.start(make_case(rules=[Linear(that="income >= 200")], known=PEOPLE))
    assert run(search) == []
    assert ended(search)[0] is OutcomeKind.EXHAUSTED
    assert search.archive.rejections.total() == search.archive.generated > 0
    assert capfd.readouterr() == ("", "")


@each_variant
def test_an_oracle_that_never_approves_is_asked_to_the_end(method: Dice) -> None:
    class No(Yes):
        def ask(self, rows: Any) -> Answers:
            return Answers(np.zeros(len(rows)), np.zeros(len(rows), dtype=np.bool_))

    case = make_case(known=PEOPLE, rows=60)
    case = replace(case, problem=replace(case.problem, oracle=No(QUERY)))
    search = method.start(case)
    assert len(run(search)) == 60
    assert search.archive.rows == []


@each_variant
def test_one_feature_is_enough(method: Dice) -> None:
    schema = Schema((Feature("job", "category", levels=("none", "cook", "clerk")),))
    known = Table((("clerk",), ("none",)), (True, True))
    search = method.start(make_case(("cook",), (), schema=schema, known=known))
    assert sorted(run(search)) == [("clerk",), ("none",)]
    assert ended(search)[0] is OutcomeKind.EXHAUSTED


# The usual variant is among those of tests/run/test_check_method.py.
@pytest.mark.parametrize("method", VARIANTS[1:], ids=lambda method: method.variant)
def test_it_keeps_the_protocol(method: Dice) -> None:
    waysout.check_method(method)


# As published -----------------------------------------------------------------------------------


def test_it_keeps_the_protocol_as_published() -> None:
    waysout.check_method(Dice(published=True, sample_size=5))


def test_as_published_a_thousand_rows_are_too_few_for_its_thousand_samples() -> None:
    search = Dice(published=True).start(make_case(known=PEOPLE, rows=1000))
    assert run(search) == [QUERY]  # DiCE asks for the query first
    reason = "999 of 1000 oracle rows are left, and the next step takes 1000"
    assert ended(search) == (OutcomeKind.BUDGET_SPENT, reason)


def test_as_published_only_what_dice_returns_counts_one_option_a_round() -> None:
    search = Dice(published=True, sample_size=20).start(make_case(known=PEOPLE, rows=400))
    asked = run(search)
    approved = {r for r in asked if r[0] != QUERY[0]}
    # A round is the query, two steps of 20, and a few rows for what it returns.
    assert 1 <= len(search.archive) <= 400 // 41
    assert set(search.archive.rows) < approved
    assert len(asked) > len(set(asked))  # rows asked before are paid for again


def test_as_published_rounds_return_as_many_as_asked_for() -> None:
    method = Dice(published=True, sample_size=40, options=3)
    search = method.start(make_case(known=PEOPLE, rows=170))
    run(search)
    assert 2 <= len(search.archive) <= 6


def test_without_a_row_budget_it_ends_all_the_same(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("waysout.search.base.ROWS_WITHOUT_LIMIT", 30)
    assert len(run(Dice().start(make_case(rows=None)))) == 30


# What holds for some ----------------------------------------------------------------------------


def test_random_needs_no_data_and_the_others_say_so() -> None:
    assert len(run(Dice().start(make_case(rows=30)))) == 30
    for variant in ("genetic", "kdtree"):
        with pytest.raises(InputError, match=f"'{variant}' of DiCE needs rows"):
            Dice(variant=variant).start(make_case())


@pytest.mark.parametrize("sparsity", ["binary", "linear"])
def test_dices_own_sparsity_step_is_within_the_budget(sparsity: Any, breaks: list[str]) -> None:
    for variant in ("random", "kdtree"):
        method = Dice(variant=variant, sparsity=sparsity)
        assert len(run(method.start(make_case(known=PEOPLE, rows=30)))) == 30
    assert breaks == []


@pytest.mark.parametrize("variant", ["genetic", "kdtree"])
def test_a_whole_table_is_asked_as_it_is(variant: Any) -> None:
    method = Dice(variant=variant, table="all")
    asked = run(method.start(make_case(rules=(), known=PEOPLE, rows=20)))
    assert asked == list(dict.fromkeys(PEOPLE.rows))[: len(asked)]


def test_kdtree_goes_through_the_data_nearest_first_and_ends() -> None:
    few = Table(PEOPLE.rows[:25], (True,) * 25)
    case = make_case(rules=(), known=few, rows=150)
    search = Dice(variant="kdtree").start(case)
    asked = run(search)
    distances = [case.problem.distance(QUERY, r) for r in asked]
    assert distances == sorted(distances)
    assert ended(search)[1] == "DiCE has used all of your data"


def test_a_space_that_is_used_up_ends_the_search() -> None:
    schema = Schema((Feature("a", "boolean"), Feature("b", "integer", range=(0, 2))))
    search = Dice().start(make_case((False, 0), (), schema=schema))
    assert len(run(search)) == 5
    assert ended(search)[1] == "DiCE requested nothing new in 3 rounds"


def test_where_dice_breaks_off_it_is_told(monkeypatch: pytest.MonkeyPatch) -> None:
    def broken(*_: Any) -> None:
        raise ValueError("no such category")

    monkeypatch.setattr(module._Rounds, "_round", broken)
    search = Dice().start(make_case())
    assert run(search) == []
    told = "DiCE requested nothing new in 3 rounds (ValueError: no such category)"
    assert ended(search) == (OutcomeKind.EXHAUSTED, told)


def test_a_round_that_only_asks_what_is_known_is_cut_short(monkeypatch: pytest.MonkeyPatch) -> None:
    def endless(self: Any, table: Any, options: int, evaluate: Any) -> None:
        model = module._Model(self._frame, evaluate)
        while True:
            model.predict_proba(self._frame.table([QUERY]))

    monkeypatch.setattr(module._Rounds, "_round", endless)
    monkeypatch.setattr(module, "_DRY_REQUESTS", 10)
    search = Dice().start(make_case())
    assert run(search) == []
    assert ended(search)[1] == "DiCE requested nothing new in 3 rounds"
    assert search.archive.generated == 30


def test_more_is_wanted_after_a_round_that_brought_little(monkeypatch: pytest.MonkeyPatch) -> None:
    new, wanted = iter([20, 1, 20, 0, 0, 0]), list[int]()

    def asks(self: Any, table: Any, options: int, evaluate: Any) -> None:
        wanted.append(options)
        evaluate([row(income=10.0 * len(wanted) + i / 8) for i in range(next(new))])

    monkeypatch.setattr(module._Rounds, "_round", asks)
    run(Dice(sample_size=25, options=3).start(make_case()))
    assert wanted == [3, 3, 6, 6, 12, 24]


def test_near_tables_keep_the_rules_and_their_size() -> None:
    known = Table(PEOPLE.rows * 2, PEOPLE.labels * 2)
    case = make_case(rules=(*JOINT, Immutable(features=["job"])), known=known, rows=60)
    tables = list(module._Rounds(case, Dice(variant="kdtree"))._near(known))
    found = [r for table in tables for r in table]
    assert [case.problem.violations(QUERY, r) for r in found] == [()] * len(found)
    assert len({case.problem.key(r) for r in found}) == len(found) > 40
    assert {len(table) for table in tables[:-1]} == {20}


def test_what_is_a_small_change_is_measured_on_rows_spread_over_the_data(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setattr(module, "_MEASURED_ROWS", 20)
    case = make_case(known=PEOPLE)
    measured, unneeded = (
        module._Rounds(case, Dice(sparsity=sparsity))._measured() for sparsity in ("linear", "none")
    )
    assert (measured, unneeded) == (PEOPLE.rows[::5], ())


def test_numbers_weigh_as_in_the_distance() -> None:
    genetic = Dice(variant="genetic")
    case = make_case(known=PEOPLE)
    numbers = [f"f{i}" for i, feature in enumerate(SCHEMA) if feature.is_numeric]
    weights = module._Rounds(case, genetic)._own_settings()
    assert weights == {
        "feature_weights": dict.fromkeys(numbers, 0.1), "posthoc_sparsity_param": None
    }  # fmt: skip
    levels = Schema((Feature("owns", "boolean"),))
    without = module._Rounds(make_case((True,), (), schema=levels), genetic)._own_settings()
    assert without == {
        "feature_weights": {}, "proximity_weight": 0.0, "posthoc_sparsity_param": None
    }  # fmt: skip


def test_options_and_samples_can_be_set() -> None:
    case = make_case(rows=40)
    run(Dice(sample_size=5, options=1).start(case))
    assert isinstance(case.problem.oracle, Yes)
    assert max(case.problem.oracle.batches) <= 5


@pytest.mark.parametrize(
    "wrong", [{"variant": "gradient"}, {"patience": 0}, {"options": -1}, {"sparsity": "some"}]
)
def test_wrong_settings_are_refused(wrong: Mapping[str, Any]) -> None:
    with pytest.raises(InputError, match=next(iter(wrong))):
        Dice(**wrong)


def test_a_missing_package_is_named(monkeypatch: pytest.MonkeyPatch) -> None:
    imported = builtins.__import__

    def without(name: str, *args: Any, **given: Any) -> Any:
        if name == "dice_ml":
            raise ImportError(name)
        return imported(name, *args, **given)

    monkeypatch.setattr(builtins, "__import__", without)
    with pytest.raises(MissingExtra, match="dice-ml"):
        Dice().prepare()


def test_making_the_method_loads_nothing_heavy() -> None:
    code = (
        "import sys; from waysout.bench.methods.dice import Dice; Dice(); "
        "print([m for m in ('dice_ml', 'pandas', 'sklearn') if m in sys.modules])"
    )
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True)
    assert done.stdout.strip() == "[]"


# The table as DiCE sees it ----------------------------------------------------------------------


@st.composite
def tables(draw: st.DrawFn) -> tuple[Case, list[Row]]:
    schema = draw(schemas())
    people = draw(st.lists(rows(schema), min_size=1, max_size=5))
    return make_case(draw(rows(schema)), (), schema=schema), people


@settings(max_examples=40)
@given(tables())
def test_the_query_is_read_back_as_it_is(found: tuple[Case, list[Row]]) -> None:
    case, _ = found
    frame = DiceFrame(case)
    table = frame.table([case.query])
    assert not table.isna().to_numpy().any()
    # As DiCE casts it: numbers to 32 bits, all else to text.
    for column in frame.columns:
        number = np.int32 if column.is_whole else np.float32
        kind: Any = number if column.feature.is_numeric else str
        table[column.name] = table[column.name].astype(kind)
    assert frame.rows(table) == [case.query]


@settings(max_examples=40)
@given(tables())
def test_levels_survive_the_way_to_dice_and_back(found: tuple[Case, list[Row]]) -> None:
    case, people = found
    frame = DiceFrame(case)
    for row_, read in zip(people, frame.rows(frame.table(people)), strict=True):
        for column in frame.varied:
            wanted, value = row_[column.place], read[column.place]
            if not column.feature.is_numeric and wanted is not None:
                assert value == wanted


ODD = Schema(
    (
        Feature("job_x y", "category", levels=("a_b", "1", "a")),
        Feature("income €", "number", range=(0, 1)),
        Feature("job", "category", levels=("only",)),
        Feature("big", "integer", range=(0, 10**12)),
        Feature("outcome", "integer", range=(0, 9), missing="fill"),
        Feature("rate", "number", range=(0, 1), decimals=2),
    )
)


def odd_people() -> Iterator[Row]:
    for i in range(40):
        rate = round(0.02 * i, 2)
        yield ("a" if i % 2 else "1", 0.3 + i / 77, "only", 10**11 * (i % 9), i % 9, rate)


@each_variant
def test_odd_names_large_numbers_and_missing_ones_are_no_harm(
    method: Dice, breaks: list[str]
) -> None:
    query: Row = ("a_b", 1 / 3, "only", 123_456_789_012, None, 0.07)
    known = Table(tuple(odd_people()), (True,) * 40)
    search = method.start(make_case(query, (), schema=ODD, known=known, rows=60))
    asked = run(search)
    assert len(asked) >= 30
    assert breaks == []
    unchanged = [{r[i] for r in asked} & {query[i]} for i in (1, 3, 5)]
    assert method.variant != "random" or unchanged == [{1 / 3}, {123_456_789_012}, {0.07}]


def test_numbers_are_drawn_from_where_data_and_rules_allow() -> None:
    schema = Schema(
        (Feature("x", "integer"), Feature("y", "number"), Feature("z", "number", decimals=1))
    )
    known = Table(((5, 0.25, 1.0), (40, 0.75, 3.0)), (True, True))
    up = Direction(features=["x"], direction="up")
    frame = DiceFrame(make_case((10, 0.5, 9.0), [up], schema=schema, known=known))
    assert frame.permitted() == {"f0": [10, 40], "f1": [0.25, 0.75], "f2": [1.0, 9.0]}
    assert [column.decimals for column in frame.columns] == [0, 4, 1]
