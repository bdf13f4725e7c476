from __future__ import annotations

from dataclasses import replace

from waysout.domain.result import (
    Interval,
    Option,
    Outcome,
    OutcomeKind,
    ResultData,
    Safer,
    Tip,
    TipStatus,
    Way,
)
from waysout.domain.schema import Feature, Schema, Value
from waysout.domain.spelling import as_in_table, row_of, typed

SCHEMA = Schema(
    (
        Feature("income", "number"),
        Feature("insured", "boolean", levels=("N", "Y")),
        Feature("job", "category", levels=(1, 2), missing="keep"),
        Feature("rents", "boolean", levels=(0, 1)),
        Feature("owns", "boolean", levels=(0, 1)),
    )
)
INNER = (1.5, True, "2", False, True)
RAW: dict[str, Value] = {"income": 1.5, "insured": "Y", "job": 2, "rents": 0, "owns": 1}


def option(row: dict[str, Value], changes: dict[str, tuple[Value, Value]]) -> Option:
    return Option(row, changes, 0.6, 0.5, len(changes), "key")


EARLIER = option(SCHEMA.as_dict(INNER), {"insured": (False, True), "job": (None, "2")})
NOW = option(dict(RAW), {"insured": ("N", "Y"), "job": (None, 2)})


def result(found: Option, tip: Tip, group: Tip) -> ResultData:
    safer = Safer(**vars(found), at_least=0.8)
    way = Way(**vars(found), levers=("insured",), variants=(found,), safer=(safer,))
    return ResultData(found.row, Outcome(OutcomeKind.FOUND), (found,), (found,), ways=(way,),
                      tipping={"insured": (tip,), "rents": (group,)})  # fmt: skip


GROUP = Tip("to", TipStatus.TURNS, (Interval("owns", "owns", 1),), ("rents",))
OF_EARLIER = result(EARLIER, Tip("to", TipStatus.TURNS, (Interval(True, True, 1),)), GROUP)
OF_NOW = result(NOW, Tip("to", TipStatus.TURNS, (Interval("Y", "Y", 1),)), GROUP)


def test_a_result_of_an_earlier_release_gets_the_table_s_values() -> None:
    found = as_in_table(SCHEMA, OF_EARLIER)
    assert found == OF_NOW
    assert found.to_json() == OF_NOW.to_json()  # 1 is no True
    assert found.query == RAW


def test_a_result_of_today_stays_as_it_is() -> None:
    assert as_in_table(SCHEMA, OF_NOW).to_json() == OF_NOW.to_json()


def test_the_row_inside_is_found_again_from_either() -> None:
    assert row_of(SCHEMA, EARLIER) == row_of(SCHEMA, NOW) == INNER
    assert typed(SCHEMA, NOW) == EARLIER


def test_a_query_that_cannot_be_read_stays_as_it_was_given() -> None:
    unread = replace(OF_NOW, query={**RAW, "insured": "perhaps"}, options=(), ways=())
    assert as_in_table(SCHEMA, unread) == unread
    other = replace(unread, query={"text": "of another table"})
    assert as_in_table(SCHEMA, other) == other
