"""A batch's folder with people whose outcomes are made up, so that every figure is known."""

from __future__ import annotations

import json
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from part_files import write_part

from waysout.batch.job import PartTask
from waysout.batch.tables import Contents
from waysout.domain.budget import Spent
from waysout.domain.result import Option, Outcome, OutcomeKind, ResultData, Way
from waysout.domain.rules import Violation
from waysout.domain.schema import Feature, Schema, Value

START: dict[str, Value] = {"income": 0, "debt": 0, "savings": 0, "job": "none"}
SCHEMA = Schema(
    (
        *(Feature(name, "integer") for name in ("income", "debt", "savings")),
        Feature("job", "category", levels=("none", "cook")),
    )
)
NOTES: dict[str, Any] = {
    "llm": "simulated:1",
    "method": "recombine",
    "rows": 12,
    "problem": {"title": "Loans", "yes": "approved", "no": "refused"},
}


@dataclass(frozen=True)
class Made:
    """A person: the row of the input, how the search ended, and the options as (cost, levers).

    The options are ways, too, those in ``pockets`` such as do not hold; ``padding`` is not. ``to``
    has what levers are set to, if it is not 1.
    """

    row: dict[str, Any] = field(default_factory=dict)
    kind: OutcomeKind = OutcomeKind.FOUND
    options: tuple[tuple[float, tuple[str, ...]], ...] = ()
    padding: tuple[tuple[float, tuple[str, ...]], ...] = ()
    pockets: tuple[int, ...] = ()
    binding: tuple[str, ...] = ()
    to: Mapping[str, Value] = field(default_factory=dict)
    calls: int = 2
    chance: float = 0.25


def found(cost: float = 1.0, *levers: str, **row: Any) -> Made:
    """Return a person with one option, by these levers."""
    return Made(row, options=((cost, levers or ("income",)),))


def ended(kind: str, *binding: str, **row: Any) -> Made:
    """Return a person without an option."""
    return Made(row, OutcomeKind(kind), binding=binding)


def write_batch(
    out: Path,
    people: Sequence[Made],
    part_rows: int = 4,
    contents: Contents = Contents.WAYS,
    **notes: Any,
) -> Path:
    """Write people as a batch would have."""
    columns = list(dict.fromkeys(name for made in people for name in made.row))
    for part, first in enumerate(range(0, len(people), part_rows)):
        here = people[first : first + part_rows]
        task = PartTask(part, first, [made.row for made in here])
        results = [_result(first + i, made) for i, made in enumerate(here)]
        write_part(out, task, SCHEMA, columns, results, contents)
    if notes:
        (out / "_manifest.json").write_text(json.dumps(notes), "utf-8")
    return out


def _result(index: int, made: Made) -> ResultData:
    binding = tuple(Violation(rule, (), "") for rule in made.binding)
    ways = [
        Way(**vars(_option(made, cost, levers)), levers=levers, cost=cost / 2, irreducible=True,
            holds=number not in made.pockets)
        for number, (cost, levers) in enumerate(made.options)
    ]  # fmt: skip
    return ResultData(
        query=START,
        outcome=Outcome(made.kind, binding=binding),
        options=[_option(made, cost, levers) for cost, levers in (*made.options, *made.padding)],
        ways=ways,
        ledger=Spent(llm_calls=made.calls),
        settings={"query_probability": made.chance},
        index=index,
    )


def _option(made: Made, cost: float, levers: Sequence[str]) -> Option:
    changes = {lever: (START[lever], made.to.get(lever, 1)) for lever in levers}
    return Option(
        row=START | {lever: new for lever, (_, new) in changes.items()},
        changes=changes,
        probability=0.75,
        proximity=1 / (1 + cost),
        sparsity=len(levers),
        key=f"{cost} {levers}",
    )
