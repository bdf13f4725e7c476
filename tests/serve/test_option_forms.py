from __future__ import annotations

from typing import Any

import pytest
from serve_world import ROW, problem

from waysout.domain.distance import Distance
from waysout.domain.key import Key
from waysout.domain.problem import Problem
from waysout.domain.result import Option, Safer, Way
from waysout.domain.rules import Linear, Rule, RuleSet
from waysout.domain.schema import Feature, Schema
from waysout.serve.models import WayForm
from waysout.serve.option_forms import OptionForms, option_id


def option(world: Problem, query: dict[str, Any], **values: Any) -> Option:
    return world.option(world.row(query), world.row({**query, **values}), 0.7)


def reach(*rules: Rule, **values: Any) -> dict[str, Any]:
    world = problem(*rules)
    form = OptionForms(world, world.row(ROW)).form(option(world, ROW, **values))
    return {name: (told["limit"], told["share"]) for name, told in form["reach"].items()}


def test_each_change_tells_how_far_along_its_range_it_goes() -> None:
    assert reach(a=11, b=20, c="z") == {
        "a": (20, pytest.approx(10 / 19)), "b": (20, 1.0), "c": (None, None),
    }  # fmt: skip
    assert reach(a=0) == {"a": (0, 1.0)}


def test_a_rule_on_several_features_ends_the_range() -> None:
    assert reach(Linear(that="a + b <= 9"), a=5) == {"a": (9, 0.5)}


def test_without_an_end_there_is_no_share() -> None:
    schema = Schema((Feature("income", "number"), Feature("debt", "number", range=(0, 50))))
    rules = RuleSet(schema)
    world = Problem(schema, rules, Key(schema), Distance.fit(schema, ()), problem().oracle)
    query = {"income": 10.0, "debt": 40.0}
    form = OptionForms(world, world.row(query)).form(option(world, query, income=15.0, debt=30.0))
    assert form["reach"] == {
        "income": {"limit": None, "share": None}, "debt": {"limit": 0.0, "share": 0.25},
    }  # fmt: skip


def test_the_id_is_that_of_the_row_whatever_else_is_known() -> None:
    world = problem()
    plain = option(world, ROW, a=12)
    way = Way(**vars(plain), levers=("a",), cost=1.0, variants=(option(world, ROW, a=13),),
              safer=(Safer(**vars(option(world, ROW, a=16)), at_least=0.8),))  # fmt: skip
    forms = OptionForms(world, world.row(ROW))
    told = forms.form(way)
    assert told["id"] == forms.form(plain)["id"] == option_id(plain.row)
    assert len({told["id"], told["variants"][0]["id"], told["safer"][0]["id"]}) == 3
    assert WayForm.model_validate(told).model_dump() == told
