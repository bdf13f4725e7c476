from __future__ import annotations

import json
from dataclasses import replace

import numpy as np
import pytest

from waysout.domain.budget import Spent
from waysout.domain.result import (
    Interval,
    Option,
    Outcome,
    OutcomeKind,
    ResultData,
    Safer,
    Standing,
    Tip,
    TipStatus,
    Way,
    plain,
)
from waysout.domain.rules import Violation
from waysout.errors import InputError

OPTION = Option(
    row={"größe": 3, "job": "cook", "own": True, "debt": None},
    changes={"größe": (1, 3)},
    probability=0.75,
    proximity=0.5,
    sparsity=1,
    key="{}",
    reasons=("taller",),
)
RESULT = ResultData(
    query={"größe": 1, "job": "cook", "own": True, "debt": None},
    outcome=Outcome(OutcomeKind.FOUND, "1 option", (Violation("r", ("a",), "why"),), 0.75),
    options=(OPTION,),
    near_misses=(OPTION,),
    ledger=Spent(llm_calls=1, seconds=0.5),
    metrics={"unique_valid": 1, "novelty": None},
    settings={"method": "none"},
)


def test_a_result_survives_json() -> None:
    assert ResultData.from_json(RESULT.to_json()) == RESULT
    assert ResultData.from_json(RESULT.to_json(indent=2)) == RESULT


def test_ways_survive_json_and_earlier_results_have_none() -> None:
    safer = (Safer(**vars(OPTION), at_least=0.8),)
    way = Way(
        **vars(OPTION), levers=("größe",), cost=0.25, irreducible=True, variants=(OPTION,),
        safer=safer,
    )  # fmt: skip
    document = replace(RESULT, ways=(way,)).as_dict()
    assert ResultData.from_dict(document).ways == (way,)
    [told] = document["ways"]
    assert list(told) == [
        *OPTION.as_dict(), "levers", "cost", "irreducible", "tight", "holds", "variants",
        "safer",
    ]  # fmt: skip
    assert (told["irreducible"], told["tight"], told["holds"]) == (True, None, None)
    del told["safer"]
    assert ResultData.from_dict(document).ways == (replace(way, safer=()),)
    del document["ways"]
    assert ResultData.from_dict(document) == RESULT


def test_tipping_points_survive_json_and_earlier_results_have_none() -> None:
    up = Tip("up", TipStatus.TURNS, (Interval(5, 9, 3, 4, None),), (2, 4), 9)
    to = Tip("to", TipStatus.NOT_UP_TO, refused=("none", "part-time"))
    document = replace(RESULT, tipping={"größe": (up,), "job": (to,)}).as_dict()
    assert document["tipping"]["größe"] == [
        {
            "move": "up", "status": "turns", "refused": [2, 4], "limit": 9, "goes_on": False,
            "intervals": [
                {"from": 5, "to": 9, "asked": 3, "before": 4, "after": None, "sharp": True}
            ],
        }
    ]  # fmt: skip
    text = json.dumps(document)
    assert ResultData.from_json(text).tipping == {"größe": (up,), "job": (to,)}
    with pytest.raises(InputError, match="has 0 intervals"):
        ResultData.from_json(text.replace("not_up_to", "turns"))
    with pytest.raises(InputError, match="sideways"):
        ResultData.from_json(text.replace("turns", "sideways"))
    del document["tipping"]
    assert ResultData.from_dict(document) == RESULT


@pytest.mark.parametrize(
    ("holds", "irreducible", "standing"),
    [
        (True, True, Standing.SOUND),
        (None, True, Standing.OPEN),
        (True, None, Standing.OPEN),
        (False, True, Standing.POCKET),
        (False, None, Standing.POCKET),
    ],
)
def test_what_is_known_gives_a_standing(
    holds: bool | None, irreducible: bool | None, standing: Standing
) -> None:
    assert Way(**vars(OPTION), holds=holds, irreducible=irreducible).standing is standing


def test_the_json_contract() -> None:
    document = json.loads(RESULT.to_json())
    assert document["waysout"] == 1
    assert document["outcome"] == "found"
    assert document["options"][0]["changes"] == {"größe": [1, 3]}
    assert {"llm_calls", "attempts", "tokens_in", "tokens_out", "oracle_rows", "setup_rows",
            "seconds"} <= document["ledger"].keys()  # fmt: skip


def test_numpy_values_and_nan_become_plain() -> None:
    result = ResultData({"x": np.float64(1.5)}, RESULT.outcome, metrics={"a": float("nan")})
    document = json.loads(result.to_json())
    assert document["query"] == {"x": 1.5}
    assert document["metrics"] == {"a": None}
    assert plain(np.array([1, 2])) == [1, 2]


@pytest.mark.parametrize(
    ("text", "fragment"),
    [
        ("{", "invalid JSON"),
        ("[]", "not a result"),
        ("{}", "has version None"),
        ('{"waysout": 99}', "has version 99"),
        ('{"waysout": 1}', "not a result"),
        (RESULT.to_json().replace('"found"', '"lost"'), "not a result"),
        (RESULT.to_json().replace('"attempts"', '"tries"'), "unknown field 'tries'"),
    ],
)
def test_what_is_not_a_result_is_said_so(text: str, fragment: str) -> None:
    with pytest.raises(InputError, match=fragment):
        ResultData.from_json(text)
