"""What a person would have to do, in one sentence."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace

import numpy as np
import pytest
from report_samples import APPROVED, EVERY, MISSED, OPTIONS, POCKETS, TOLD, WAYS, option, way

from waysout.domain.distance import Distance
from waysout.domain.key import Key
from waysout.domain.oracle import Answers
from waysout.domain.problem import Problem
from waysout.domain.result import Option
from waysout.domain.rules import Linked, OneHot, RuleSet
from waysout.domain.schema import Feature, Row, Schema, Value
from waysout.report.advice import BY_HAND, advice, move_words, moved, named_in_advice, plan_words
from waysout.report.words import Wording
from waysout.run.plan import told

MOVES = {
    "loan_amount": {"unit": "euros", "moves": {"down": "borrow {} less"}},
    "employment": {"moves": {"full": "find full-time work"}, "words": {"idle": "out of work"}},
    "rate": {"unit": "%"},
    "share": {"decimals": 2},
    "branch": {"coded": True, "words": {"10001": "Old Town"}},
    "car": {"moves": {"True": "buy a car"}},
    "odd": {"moves": "text"},
    "nasty": {"moves": {"up": "go\n\x1b[31m {} up"}},
}


@pytest.mark.parametrize(
    ("feature", "old", "new", "said"),
    [
        ("loan_amount", 14500, 13000.0, "borrow 1,500 euros less"),
        ("loan_amount", 13000, 14500, "raise your loan amount by 1,500 euros"),
        ("employment", "idle", "full", "find full-time work"),
        ("employment", "full", "idle", "change your employment to out of work"),
        ("rate", 5, 4.5, "change your rate from 5 to 4.5\u00a0%"),
        ("birth_year", 1987, 1990, "change your birth year from 1987 to 1990"),
        ("card_use", 0.72, 0.53, "lower your card use by 0.19"),
        ("card_use", None, 0.53, "change your card use to 0.53"),
        ("share", 0.3, 0.1, "lower your share by 0.2"),
        ("share", 0.304, 0.3, "change your share from 0.304 to 0.3"),
        ("branch", 10002, 10001, "change your branch to Old Town"),
        ("car", False, True, "buy a car"),
        ("odd", 1, 3, "raise your odd by 2"),
        ("nasty", 1, 3, "go [31m 2 up"),
    ],
)
def test_a_change_is_something_to_do(feature: str, old: Value, new: Value, said: str) -> None:
    assert move_words(feature, old, new, Wording(MOVES)) == said


def test_the_sentence_names_what_leaves_nothing_in_doubt() -> None:
    assert advice(WAYS) == "Granted if you raise your income by 8,500."
    assert advice(POCKETS) == (
        "Granted if you raise your income by 8,500. Does not hold: a no again if you go farther. "
        "Whether a little less is enough was not asked."
    )
    assert advice(TOLD) == (
        "Granted if you raise your income by 11,500 euros a year, or raise your income by 19,500.5 "
        "euros a year and raise your term by 24 months. Whether every change is needed was not "
        "asked."
    )
    assert advice(MISSED) == advice(APPROVED) == ""


def test_the_fewest_changes_come_first_and_long_plans_only_alone() -> None:
    long = way(option(0.6, 0.2, income=1.0, term=2, home="own", car=True), 0.1)
    two, one = (way(found, 0.5) for found in (OPTIONS[1], OPTIONS[0]))
    many = replace(WAYS, ways=(long, two, one))
    assert [len(found.changes) for found in named_in_advice(many)] == [1, 2]
    assert named_in_advice(replace(WAYS, ways=(long,))) == [long]
    assert advice(many).count(", or ") == 1


def test_a_goal_of_ones_own_is_named() -> None:
    asked = replace(WAYS, settings={**WAYS.settings, "goal": {"at_least": 0.7}})
    assert advice(asked).startswith("A chance of at least 70\u00a0% is reached if you raise")


def test_a_choice_is_said_instead_and_what_was_put_together_by_hand_comes_last() -> None:
    by_hand = option(0.8, 0.5, term=60)
    assert advice(WAYS, ways=[by_hand]) == (
        "Granted if you raise your term by 24. Put together by hand: the model approves it; "
        "whether less is enough was not asked."
    )
    assert advice(WAYS, ways=[by_hand, WAYS.ways[0]]) == advice(WAYS)
    assert BY_HAND not in advice(WAYS, ways=[OPTIONS[1]])  # the search found it
    assert advice(WAYS, ways=[OPTIONS[1]]).endswith("Whether every change is needed was not asked.")
    assert advice(TOLD, ways=[by_hand]).count("not asked") == 1
    assert advice(MISSED, ways=[by_hand]).endswith("whether less is enough was not asked.")


class Yes:
    name = "yes"
    labels_only = False

    def ask(self, rows: Sequence[Row]) -> Answers:
        return Answers(np.ones(len(rows)), np.ones(len(rows), bool))


def test_what_follows_and_what_is_cleared_is_not_said() -> None:
    names = ("home_rent", "home_own_flat", "home_parents")
    schema = Schema((
        Feature("school", "category", levels=("high", "master")),
        Feature("years", "integer"),
        *(Feature(name, "boolean") for name in names),
    ))  # fmt: skip
    rules = RuleSet(schema, (
        Linked(feature="school", sets="years", map={"high": 12, "master": 18}),
        OneHot(features=names),
    ))  # fmt: skip
    problem = Problem(schema, rules, Key(schema), Distance.fit(schema, ()), Yes())
    wording = Wording.from_settings(told(problem))
    changes: dict[str, tuple[Value, Value]] = {
        "school": ("high", "master"), "years": (12, 18), "home_rent": (True, False),
        "home_own_flat": (False, True),
    }  # fmt: skip
    found = Option({}, changes, 0.6, 0.5, 2, "k")
    assert moved(found, wording) == ["school", "home_own_flat"]
    assert (
        plan_words(found, wording)
        == "change your school to master and change your home to own flat"
    )
    alone = replace(found, changes={"years": (12, 18), "home_rent": (True, False)})
    assert moved(alone, wording) == ["years", "home_rent"]
    assert moved(found, Wording()) == list(changes)  # of an earlier release


@pytest.mark.parametrize("name", EVERY)
def test_it_is_one_line_for_any_result(name: str) -> None:
    said = advice(EVERY[name])
    assert all(c.isprintable() or c == "\u00a0" for c in said)
    assert said == "" or said.endswith(".")
