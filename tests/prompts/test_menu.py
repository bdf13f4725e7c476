from __future__ import annotations

from waysout.domain.rules import Allowed, Direction, Immutable, Linked, Never, OneHot, RuleSet, Step
from waysout.domain.schema import Feature, Schema
from waysout.llm.base import Editable
from waysout.prompts.menu import domain, menu
from waysout.prompts.spelling import Spelling

SCHEMA = Schema((
    Feature("age", "integer", range=(18, 90)),
    Feature("income", "integer", range=(0, 90000)),
    Feature("months", "integer", range=(12, 84)),
    Feature("use", "number", range=(0, 1), decimals=2),
    Feature("school", "category", levels=("low", "mid", "high"), ordered=True),
    Feature("years", "integer", range=(1, 3)),
    Feature("owner", "boolean", levels=("no", "yes")),
))  # fmt: skip
RULES = RuleSet(SCHEMA, (
    Immutable(features=["age"]),
    Direction(features=["income", "school"], direction="up"),
    Step(feature="months", step=12),
    Linked(feature="school", sets="years", map={"low": 1, "mid": 2, "high": 3}),
))  # fmt: skip
QUERY = (40, 30000, 48, 0.5, "low", 1, False)
SPELLING = Spelling(SCHEMA)


def test_the_menu_of_a_query_is_what_its_levers_leave() -> None:
    assert menu(RULES, SPELLING, QUERY, QUERY) == (
        Editable("income", "30000", (), 30000, 90000, None, 0.0, 0),
        Editable("months", "48", (), 12, 84, 12, 0.0, 0),
        Editable("use", "0.5", (), 0, 1, None, 0.0, 2),
        Editable("school", "low", ("mid", "high")),
        Editable("owner", "no", ("yes",)),
    )


def test_what_was_moved_may_move_on_or_go_back() -> None:
    row = RULES.apply(QUERY, {"school": "mid", "owner": True, "income": 35000})
    by_name = {item.name: item for item in menu(RULES, SPELLING, QUERY, row)}
    assert by_name["school"] == Editable("school", "mid", ("high", "low"))
    assert by_name["owner"] == Editable("owner", "yes", ("no",))
    assert by_name["income"].now == "35000"
    assert (by_name["income"].low, by_name["income"].high) == (30000, 90000)


def test_where_nothing_may_change_the_menu_is_empty() -> None:
    frozen = RULES.extended([Immutable(features=list(SCHEMA.names))])
    assert menu(frozen, SPELLING, QUERY, QUERY) == ()


def test_a_number_that_has_nowhere_left_to_go_is_left_out() -> None:
    schema = Schema((Feature("children", "integer", range=(1, 2)), Feature("owner", "boolean")))
    rules = RuleSet(schema, (Direction(features=["children"], direction="up"),))
    spelling = Spelling(schema)
    query = (0, False)
    names = [item.name for item in menu(rules, spelling, query, (1, False))]
    assert names == ["children", "owner"]
    only = RuleSet(Schema((Feature("children", "integer", range=(1, 1)),)))
    assert menu(only, Spelling(only.schema), (0,), (1,)) == ()


def test_going_back_is_offered_only_where_it_breaks_nothing() -> None:
    schema = Schema((Feature("rent", "boolean"), Feature("own", "boolean"),
                     Feature("plan", "category", levels=("a", "b", "c"))))  # fmt: skip
    rules = RuleSet(
        schema,
        (OneHot(features=["rent", "own"]), Allowed(feature="plan", values=["a", "b"])),
    )
    query = (True, False, "c")
    row = rules.apply(query, {"own": True, "plan": "a"})
    offers = {item.name: item.choices for item in menu(rules, Spelling(schema), query, row)}
    assert offers == {"rent": ("True",), "plan": ("b",)}


def test_values_that_are_never_meant_are_named() -> None:
    schema = Schema((Feature("debt", "integer", range=(-9, 100)),))
    rules = RuleSet(schema, (Never(features=["debt"], values=[-9, -8]),))
    [offer] = menu(rules, Spelling(schema), (50,), (50,))
    assert offer.never == (-9.0, -8.0)
    assert domain(offer).spans == ((-7, 49), (51, 100))
